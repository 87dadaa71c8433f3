//! What is done again after a pause or an end, and what is not.

use serde_json::json;
use waypost_kernel::Span;
use waypost_kernel::item::Role;
use waypost_store::{CommandWrite, NewItem, NewRun, RunRow};

use super::kit::{answers, cleanup, job, map, step};
use crate::support::{Shop, code, message};

/// Pauses until somebody says what to do with `h1`.
const ASKS: &str = r#"cat > told; grep -q skip told || printf '%s' '{"outcome":"pause","blockers":{"h1":{}}}' > "$WAYPOST_OUTPUT""#;

/// The step that the list comes from is undone by a cleanup, so it runs again.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_resume_the_items_are_those_of_the_new_answer() {
    let hosts = r#"if test -e again; then H='["b","a"]'; else touch again; H='["a","gone"]'; fi; "#;
    let answer = r#"echo '{"output":{"hosts":'$H'}}' > "$WAYPOST_OUTPUT""#;
    let each = "for_each = \"steps.scan.output.hosts\"";
    let mut shop = Shop::new();
    let text = job(&[
        step("scan", &format!("{hosts}{answer}"), ""),
        step("lock {{ item }}", "", &format!("id = \"lock\"\n{each}")),
        step("ask", ASKS, ""),
        step("use {{ item }}", "", &format!("id = \"use\"\n{each}")),
        cleanup("unscan", "", "after = \"scan\""),
        cleanup("unlock {{ item }}", "", &format!("{each}\nafter = \"lock\"")),
    ]);
    let row = shop.play(&text).await;
    assert_eq!(row.status(), "paused", "{:?}", message(&row));
    shop.resume(row.id(), map(json!({"h1": "skip"}))).await;
    shop.work().await;
    let row = shop.run(row.id()).await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let before = ["scan", "lock a", "lock gone", "ask", "unscan", "unlock a", "unlock gone"];
    // What was unlocked for the pause is locked again; what is no longer there is left alone.
    let after = ["scan", "lock b", "lock a", "ask", "use b", "use a", "unscan", "unlock b", "unlock a"];
    assert_eq!(shop.executed(), [&before[..], &after[..]].concat());
    shop.verify().await;
}

/// The engine's own facts are those of the present: what blocked the run and was not cleaned up is told until it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_blocked_a_run_is_not_told_of_it_afterwards() {
    let mut shop = Shop::new();
    let text = job(&[
        step("lock", "", ""),
        step("ask", ASKS, ""),
        cleanup("unlock", "test -e healed", "after = \"lock\""),
    ]);
    let row = shop.play(&text).await;
    assert_eq!(row.status(), "paused");
    assert_eq!(row.details["cleanup_failed"], json!(["unlock"]));
    assert!(row.details.contains_key("current_blockers"));
    std::fs::write(shop.path("healed"), "").unwrap();
    shop.resume(row.id(), map(json!({"h1": "skip"}))).await;
    shop.work().await;
    let row = shop.run(row.id()).await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    for stale in ["cleanup_failed", "current_blockers", "hosts_with_blockers", "pause_reason", "paused_step"]
    {
        assert!(!row.details.contains_key(stale), "{stale}: {:?}", row.details);
    }
    assert_eq!(row.details["maintenance_blocker_resolutions"]["h1"]["decision"], "skip");
    shop.verify().await;
}

/// Played to its end, with every pause resumed.
async fn played(shop: &mut Shop, text: &str) -> RunRow {
    let mut row = shop.play(text).await;
    while row.status() == "paused" {
        let id = row.id().to_owned();
        shop.command(CommandWrite { name: "resume".into(), force: true, ..Shop::cancelling(&id) }).await;
        shop.work().await;
        row = shop.run(&id).await;
    }
    shop.verify().await;
    row
}

/// Asks for a person as often as is said, and then goes on.
fn pauses(times: usize) -> String {
    let pause = answers(r#"{"outcome":"pause","reason":"look"}"#);
    format!("echo x >> asked; test $(wc -l < asked) -gt {times} || {pause}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_with_nothing_to_do_before_a_pause_is_asked_again_at_the_end() {
    let mut shop = Shop::new();
    let once = format!("test -e asked2 || {{ touch asked2; {}; }}", answers(r#"{"outcome":"skip"}"#));
    let row = played(
        &mut shop,
        &job(&[
            step("lock", "", ""),
            step("ask", &pauses(1), ""),
            cleanup("unlock", &once, "after = \"lock\""),
        ]),
    )
    .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    assert_eq!(shop.executed(), ["lock", "ask", "unlock", "lock", "ask", "unlock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_comes_back_is_done_and_one_that_is_gone_has_no_output() {
    let mut shop = Shop::new();
    let hosts = r#"echo x >> scans; case $(wc -l < scans) in 2) H='["a"]';; *) H='["a","b"]';; esac; "#;
    let answer = r#"echo '{"output":{"hosts":'$H'}}' > "$WAYPOST_OUTPUT""#;
    let each = "for_each = \"steps.scan.output.hosts\"";
    let ticket = r#"printf '{"output":"%s"}' "$WAYPOST_STEP" > "$WAYPOST_OUTPUT""#;
    let row = played(
        &mut shop,
        &job(&[
            step("scan", &format!("{hosts}{answer}"), ""),
            step("lock {{ item }}", ticket, &format!("id = \"lock\"\n{each}")),
            step("use {{ item }}", "", "id = \"use\"\nfor_each = \"steps.lock.output\""),
            step("ask", &pauses(2), ""),
            step("patch {{ item }}", "", &format!("id = \"patch\"\n{each}")),
            cleanup("unscan", "", "after = \"scan\""),
            cleanup("unlock {{ item }}", "", &format!("{each}\nafter = \"lock\"")),
        ]),
    )
    .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let all = shop.executed();
    let count = |name: &str| all.iter().filter(|it| *it == name).count();
    assert_eq!((count("lock a"), count("lock b")), (3, 2), "{all:?}");
    assert_eq!((count("use lock a"), count("use lock b")), (1, 1), "{all:?}");
    assert_eq!((count("patch a"), count("patch b")), (1, 1), "{all:?}");
    assert_eq!((count("unlock a"), count("unlock b")), (3, 2), "{all:?}");
}

/// What ran before the pause and is left out afterwards has not run for who asks, and is rather undone once more than not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_out_after_a_pause_has_not_run() {
    let mut shop = Shop::new();
    let row = played(
        &mut shop,
        &job(&[
            step("lock", &answers(r#"{"output":1}"#), "when = \"run.attempt == 1\""),
            step("ask", &pauses(1), ""),
            step("see", "", "when = \"steps.lock.ran\""),
            cleanup("unlock", "", "after = \"lock\""),
        ]),
    )
    .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    assert_eq!(shop.executed(), ["lock", "ask", "unlock", "ask", "unlock"]);
}

/// For the one that is gone too: nobody says that it is undone before it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_failed_before_a_pause_is_done_though_its_item_is_gone() {
    let mut shop = Shop::new();
    let hosts = r#"echo x >> scans; case $(wc -l < scans) in 1) H='["a","b"]';; *) H='["a"]';; esac; "#;
    let each = "for_each = \"steps.scan.output\"";
    let row = played(
        &mut shop,
        &job(&[
            step("scan", &format!(r#"{hosts}echo '{{"output":'$H'}}' > "$WAYPOST_OUTPUT""#), ""),
            step("lock {{ item }}", "", &format!("id = \"lock\"\n{each}")),
            step("ask", &pauses(1), ""),
            cleanup("unscan", "", "after = \"scan\""),
            cleanup("unlock {{ item }}", "test $(wc -l < asked) -gt 1", &format!("{each}\nafter = \"lock\"")),
        ]),
    )
    .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let undone: Vec<String> = shop.executed().into_iter().filter(|it| it.starts_with("unlock")).collect();
    assert_eq!(undone, ["unlock a", "unlock b", "unlock a", "unlock b"]);
}

/// It ran and asked, and nobody was there: what it did is undone.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_did_is_undone_though_nobody_was_there_to_decide() {
    let mut shop = Shop::new();
    let pause = answers(r#"{"outcome":"pause","reason":"look"}"#);
    let text = job(&[step("lock", &pause, ""), cleanup("unlock", "", "after = \"lock\"")]);
    let playbook = shop.playbook(&text.replacen("[[step]]", "unattended = \"skip\"\n[[step]]", 1));
    let metadata = map(json!({"unattended": true}));
    shop.queue(&playbook, NewRun { metadata, ..NewRun::default() }).await;
    shop.work().await;
    assert_eq!(shop.executed(), ["lock", "unlock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_nothing_has_an_output_of_nothing() {
    let mut shop = Shop::new();
    let row = shop
        .play(&job(&[
            step("scan", &answers(r#"{"output":[]}"#), ""),
            step("use {{ item }}", "", "id = \"use\"\nfor_each = \"steps.scan.output\""),
            step("then {{ item }}", "", "id = \"then\"\nfor_each = \"steps.use.output\""),
            step("rest", "", "when = \"steps.use.ok and not steps.use.ran\""),
        ]))
        .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    assert_eq!(shop.executed(), ["scan", "rest"]);
}

/// It said before a pause that nothing more is needed, and does not say so any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_end_counts_until_its_step_runs_again() {
    let mut shop = Shop::new();
    let finishes_once = format!("test -e once || {{ touch once; {}; }}", answers(r#"{"outcome":"finish"}"#));
    let playbook = shop.playbook(&job(&[
        step("lock", &finishes_once, ""),
        step("work", "", ""),
        cleanup(
            "unlock",
            "test -e go || { echo waiting; until test -e go; do sleep 0.005; done; }",
            "after = \"lock\"",
        ),
    ]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    running.die().await;
    std::fs::write(shop.path("go"), "").unwrap();
    let pause = CommandWrite { name: "pause".into(), reason: Some("look".into()), ..Shop::cancelling(&id) };
    shop.command(pause).await;
    shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "paused");
    shop.resume(&id, map(json!({}))).await;
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "completed");
    assert_eq!(shop.executed(), ["lock", "unlock", "unlock", "lock", "work", "unlock"]);
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_come_as_something_else_than_the_playbook_has_are_not_begun() {
    let mut shop = Shop::new();
    let playbook =
        shop.playbook(&job(&[step("lock", "exit 1", ""), cleanup("unlock", "", "after = \"lock\"")]));
    let item = |key: &str, max_retries: u32, reruns: bool| NewItem {
        kind: "step".into(),
        key: key.into(),
        name: key.into(),
        status: None,
        max_retries,
        reruns,
        role: Role::Step,
        details: serde_json::Map::new(),
        copied: false,
    };
    for (lock, words) in [
        (item("lock", 0, true), "\"cleanup: unlock\" as a step; the playbook has it as a cleanup"),
        (item("lock", 2, true), "\"lock\" with 2 retries; the playbook has it with 0"),
        (item("lock", 0, false), "\"lock\" so that it does not begin again after a resume; the playbook"),
    ] {
        let new = NewRun {
            lifecycle: "job".into(),
            playbook: Some(playbook.pin()),
            items: vec![lock, item("cleanup: unlock", 0, true)],
            ..NewRun::default()
        };
        let id = shop.enqueue(new).await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), ("failed", Some("UNFIT")));
        assert!(message(&row).unwrap().contains(words), "{:?}", message(&row));
    }
    assert_eq!(shop.executed(), Vec::<String>::new());
}

/// What the end of a run skipped is not done because somebody takes the run up again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_taken_up_after_its_end_is_not_told_as_done() {
    let lifecycle = r#"
name = "again"
version = 1
ids = "again-{uuid7}"
initial = ["asked"]
items = ["step"]
[states]
asked = { phase = "ready" }
held = { phase = "held", lease = "60s", on_stale = "take-over", max_take_overs = 2 }
good = { phase = "settled", outcome = "succeeded" }
bad = { phase = "settled", outcome = "failed" }
gone = { phase = "settled", outcome = "cancelled" }
transitions = [
  ["asked", "claim", "held", "worker", ""],
  ["asked", "cancel", "gone", "client", ""],
  ["held", "complete", "good", "worker", ""],
  ["held", "fail", "bad", "worker", ""],
  ["held", "cancel", "gone", "client, worker", ""],
  ["held", "lose", "bad", "engine", ""],
  ["gone", "retry", "asked", "operator", ""],
]
"#;
    let mut shop = Shop::new();
    shop.store.add_lifecycle(lifecycle.to_owned(), "tests".into()).await.unwrap();
    let text = job(&[step("first", "exit 75", "retries = 3\nbackoff = [\"1h\"]"), step("second", "", "")]);
    let catalog = shop.store.lifecycles().await.unwrap();
    let playbook = shop.playbook_with(&text.replace("\"job\"", "\"again\""), &catalog);
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    crate::support::eventually("it has begun", async || (!shop.executed().is_empty()).then_some(())).await;
    shop.cancel(&id).await;
    shop.until_settled(&id).await;
    running.stop().await;
    shop.command(CommandWrite { name: "retry".into(), ..Shop::cancelling(&id) }).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!(row.status(), "bad", "{:?}", shop.standings(&id).await);
    assert_eq!(shop.executed(), ["first"]);
}
