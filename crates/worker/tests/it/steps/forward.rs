//! From step to step.

use serde_json::json;
use waypost_store::NewRun;

use super::kit::{answers, cleanup, job, step};
use crate::support::{Shop, code, message};

fn three_hosts() -> String {
    answers(
        r#"{"output":{"hosts":[{"name":"h1","old":true},{"name":"h2","old":false},{"name":"h3","old":true}]}}"#,
    )
}

// proves J1
#[tokio::test(flavor = "multi_thread")]
async fn steps_run_in_order_and_hand_on_what_they_answer() {
    let mut shop = Shop::new();
    let update = "id = \"update\"\nfor_each = \"steps.scan.output.hosts\"\nwhen = \"item.old\"";
    let row = shop
        .play(&job(&[
            step("scan", &three_hosts(), ""),
            step("update {{ item.name }}", &answers(r#"{"output":{"version":7}}"#), update),
            step("report", "cat > told.json", "env = { ALL = \"{{ steps.update.output | tojson }}\" }"),
        ]))
        .await;
    assert_eq!(row.status(), "completed", "{row:?}");
    assert_eq!(shop.executed(), ["scan", "update h1", "update h3", "report"]);
    let all = [
        "scan=completed",
        "update[1]=completed",
        "update[2]=skipped",
        "update[3]=completed",
        "report=completed",
    ];
    assert_eq!(shop.standings(row.id()).await, all);
    let steps = shop.steps(row.id()).await;
    assert_eq!((steps[1].name.as_str(), &steps[1].output), ("update h1", &json!({"version": 7})));
    assert!(steps.iter().all(|step| step.key == "update[2]" || step.started_at.is_some()));
    let told: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(shop.path("told.json")).unwrap()).unwrap();
    assert_eq!((&told["step"], &told["try"]), (&json!("report"), &json!(1)));
    shop.verify().await;
}

// proves J2: the statically known steps are there before the run is
#[tokio::test(flavor = "multi_thread")]
async fn known_steps_are_there_before_the_run_begins() {
    let mut shop = Shop::new();
    let listed = "[inputs.hosts]\ntype = \"list\"\n";
    let each = "id = \"each\"\nfor_each = \"inputs.hosts\"";
    let text = job(&[listed.to_owned(), step("scan", "", ""), step("do {{ item }}", "", each)]);
    let playbook = shop.playbook(&text);
    let id = shop.queue(&playbook, NewRun { input: json!({"hosts": ["a", "b"]}), ..NewRun::default() }).await;
    assert_eq!(shop.standings(&id).await, ["scan=pending", "each[1]=pending", "each[2]=pending"]);
    assert_eq!(shop.steps(&id).await[1].name, "do a");
    shop.work().await;
    assert_eq!(shop.executed(), ["scan", "do a", "do b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_came_without_its_steps_gets_them() {
    let mut shop = Shop::new();
    let playbook = shop.playbook(&job(&[step("one", "", ""), step("two", "", "")]));
    let new = NewRun { lifecycle: "job".into(), playbook: Some(playbook.name.clone()), ..NewRun::default() };
    let id = shop.enqueue(new).await;
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "completed");
    assert_eq!(shop.executed(), ["one", "two"]);
}

// proves J1: a known failure gets another key, and the tries are counted
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_try_is_repeated_under_another_key() {
    let mut shop = Shop::new();
    let script = "n=$(wc -l < ledger); test $n -ge 3";
    let row = shop.play(&job(&[step("flaky", script, "retries = 2\nbackoff = [\"5ms\"]")])).await;
    assert_eq!(row.status(), "completed");
    let keys = shop.ledger();
    let expected = [1, 2, 3].map(|number| format!("flaky {}:flaky:{number}", row.id()));
    assert_eq!(keys, expected);
    let step = &shop.steps(row.id()).await[0];
    assert_eq!((step.attempts, step.try_no, step.failure.clone()), (2, 4, None));
    shop.verify().await;
}

// proves J1: nobody knows what a killed try did
#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_ran_out_of_time_is_repeated_under_the_same_key() {
    let mut shop = Shop::new();
    let script = "test $(wc -l < ledger) -ge 2 || sleep 300";
    let more = "timeout = \"100ms\"\nretries = 1\nbackoff = [\"5ms\"]";
    let row = shop.play(&job(&[step("slow", script, more)])).await;
    assert_eq!(row.status(), "completed");
    let key = format!("slow {}:slow:1", row.id());
    assert_eq!(shop.ledger(), [key.clone(), key]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_never_ends_fails_the_run_and_says_so() {
    let mut shop = Shop::new();
    let row = shop.play(&job(&[step("slow", "sleep 300", "timeout = \"50ms\""), step("next", "", "")])).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("TIMEOUT")));
    assert_eq!(message(&row), Some("slow: no end within 50ms"));
    assert_eq!(shop.standings(row.id()).await, ["slow=failed", "next=skipped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_done_early_ends_the_run_well() {
    let mut shop = Shop::new();
    let early = answers(r#"{"outcome":"finish","output":{"no_updates_needed":true}}"#);
    let row = shop.play(&job(&[step("look", &early, ""), step("update", "", "")])).await;
    assert_eq!(row.status(), "completed");
    assert_eq!(shop.standings(row.id()).await, ["look=completed", "update=skipped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_may_fail_lets_the_others_run_and_is_still_a_failure() {
    let mut shop = Shop::new();
    let row = shop
        .play(&job(&[step("may fail", "exit 3", "continue_on_failure = true"), step("next", "", "")]))
        .await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("STEPS_FAILED")));
    assert_eq!(message(&row), Some("1 of its steps failed: may fail"));
    assert_eq!(shop.executed(), ["may fail", "next"]);
}

// proves J1: progress of tasks, as commands tell it
#[tokio::test(flavor = "multi_thread")]
async fn commands_tell_how_far_their_tasks_are() {
    let mut shop = Shop::new();
    let script =
        "echo '::task 100 enter'; echo '::task 40 firmware'; echo hello; echo '::task failed report'";
    let row = shop.play(&job(&[step("update", script, "tasks = [\"enter\", \"firmware\", \"exit\"]")])).await;
    let tasks = shop.store.items(row.id().to_owned(), Some("task".to_owned())).await.unwrap();
    let mut told: Vec<String> =
        tasks.iter().map(|task| format!("{} {} {}", task.name, task.status, task.progress)).collect();
    told.sort();
    assert_eq!(
        told,
        ["enter completed 100", "exit completed 100", "firmware completed 100", "report failed 0"]
    );
    let lines: Vec<String> = shop.lines(row.id()).await.into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["hello"], "what is told about tasks is no output");
    assert_eq!(row.details["console_log"], json!(["hello"]));
}

// proves J7, D11
#[tokio::test(flavor = "multi_thread")]
async fn details_are_merged_and_artifacts_kept() {
    let mut shop = Shop::new();
    let first = answers(r#"{"details":{"a":1,"b":1},"artifacts":[{"type":"logs","url":"file:///x"}]}"#);
    let second = answers(r#"{"details":{"b":2},"artifacts":[{"type":"sbom","url":"file:///y"}]}"#);
    let row = shop.play(&job(&[step("one", &first, ""), step("two", &second, "")])).await;
    assert_eq!((&row.details["a"], &row.details["b"]), (&json!(1), &json!(2)));
    let kinds: Vec<_> =
        row.details["artifacts"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
    assert_eq!(kinds, [json!("logs"), json!("sbom")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_rendered_fails_the_step_by_name() {
    for (step_text, told) in [
        (step("a", "", "env = { X = \"{{ steps.scan.output.nothing }}\" }"), "BAD_TEMPLATE"),
        (step("a", "", "for_each = \"steps.scan.output\""), "BAD_TEMPLATE"),
        (step("a", "", "when = \"steps.scan.output.nothing.at.all\""), "BAD_TEMPLATE"),
        (step("a", "", "env = { X = \"{{ secrets.token }}\" }"), "NO_SECRET"),
    ] {
        let mut shop = Shop::new();
        let secrets = "[secrets]\ntoken = \"env:WAYPOST_TEST_NO_SUCH_SECRET\"\n".to_owned();
        let row = shop.play(&job(&[secrets, step("scan", "", ""), step_text.clone()])).await;
        assert_eq!((row.status(), code(&row)), ("failed", Some(told)), "{step_text}");
        assert_eq!(shop.executed(), ["scan"], "{step_text}");
    }
}

// proves U9: a step for each of nothing is told of, and its list may have items after a pause
#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_list_is_empty_says_so() {
    let mut shop = Shop::new();
    let list = "test -e more && echo '{\"output\":[7]}' > \"$WAYPOST_OUTPUT\" || echo '{\"output\":[]}' > \"$WAYPOST_OUTPUT\"";
    let pauses = "test -e more || echo '{\"outcome\":\"pause\",\"reason\":\"look\"}' > \"$WAYPOST_OUTPUT\"";
    let text = job(&[
        step("list", list, ""),
        step("ship {{ item }}", "", "id = \"ship\"\nfor_each = \"steps.list.output\""),
        step("none {{ item }}", "", "id = \"none\"\nfor_each = \"[]\""),
        step("look", pauses, ""),
        cleanup("unlist", "", "after = \"list\""),
    ]);
    let row = shop.play(&text).await;
    assert_eq!(row.status(), "paused");
    let empty = shop.steps(row.id()).await.into_iter().filter(|step| step.status == "skipped");
    let empty: Vec<_> = empty.map(|step| (step.key, step.details["reason"].clone())).collect();
    let why = serde_json::json!("nothing to do: the list is empty");
    assert_eq!(empty, [("ship".to_owned(), why.clone()), ("none".to_owned(), why)]);
    std::fs::write(shop.path("more"), "").unwrap();
    shop.resume(row.id(), serde_json::Map::new()).await;
    shop.work().await;
    assert_eq!(shop.run(row.id()).await.status(), "completed");
    assert!(shop.executed().contains(&"ship 7".to_owned()), "{:?}", shop.executed());
    shop.verify().await;
}
