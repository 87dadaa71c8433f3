//! Several steps of one run under way at once. Who overlaps with whom is shown by barriers: a script waits for what another
//! one does, or the test does.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_kernel::run::Want;
use waypost_store::{CommandWrite, ItemRow, NewRun, RunRow};

use super::kit::{answers, cleanup, job, map, step, waits_for};
use crate::support::{On, Running, Shop, code, eventually, message, open};

/// A barrier that nobody else comes to fails its test.
const LIMIT: &str = "timeout = \"60s\"";

/// A step that waits for these alone.
fn after(name: &str, needs: &str, script: &str) -> String {
    step(name, script, &format!("needs = [{needs}]\n{LIMIT}"))
}

/// Goes on when all of these are here too.
fn meets(name: &str, all: &[&str]) -> String {
    let here: Vec<String> = all.iter().map(|it| format!("test -e here.{it}")).collect();
    format!("touch here.{name}; until {}; do sleep 0.005; done", here.join(" && "))
}

/// Prints who it is, and waits for a file.
fn holds(name: &str, file: &str) -> String {
    waits_for(file).replace("echo waiting", &format!("echo {name}"))
}

fn lock() -> [String; 2] {
    [step("lock", "", ""), cleanup("unlock", "", "after = \"lock\"")]
}

/// `a` and `b` side by side after `lock`, `last` after both; they go on when there are `go.a` and `go.b`.
fn two_branches() -> String {
    let [lock, unlock] = lock();
    job(&[
        lock,
        after("a", "\"lock\"", &holds("a", "go.a")),
        after("b", "\"lock\"", &holds("b", "go.b")),
        after("last", "\"a\", \"b\"", ""),
        unlock,
    ])
}

/// Begun, with both branches under way.
async fn under_way(shop: &mut Shop, text: &str) -> (String, Running) {
    let playbook = shop.playbook(text);
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "a").await;
    shop.until_printed(&id, "b").await;
    (id, running)
}

fn go(shop: &Shop, name: &str) {
    std::fs::write(shop.path(&format!("go.{name}")), "").unwrap();
}

async fn until_stored(shop: &Shop, id: &str, standing: &str) {
    eventually(&format!("{standing} is stored"), async || {
        shop.standings(id).await.iter().any(|it| it == standing).then_some(())
    })
    .await;
}

fn code_of(steps: &[ItemRow], key: &str) -> Option<String> {
    let row = steps.iter().find(|row| row.key == key).unwrap();
    row.failure.as_ref().map(|failure| failure.code.to_string())
}

/// The keys that a step was executed with, in order.
fn keys_of(shop: &Shop, name: &str) -> Vec<String> {
    let own = |line: String| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
    shop.ledger().into_iter().filter_map(own).collect()
}

// proves U5
#[tokio::test(flavor = "multi_thread")]
async fn branches_run_at_once_and_what_needs_them_sees_what_they_answered() {
    let mut shop = Shop::new();
    let all = ["a", "b", "c"];
    let branch = |name: &str| {
        let script = format!("{}; {}", meets(name, &all), answers(&json!({ "output": name }).to_string()));
        after(name, "\"scan\"", &script)
    };
    let told = "needs = [\"a\", \"b\", \"c\"]\nenv = { T = \"{{ steps.a.output }}{{ steps.b.output }}{{ steps.c.output }}\" }";
    let row = shop
        .play(&job(&[
            step("scan", "", ""),
            branch("a"),
            branch("b"),
            branch("c"),
            step("join", "echo $T > told", told),
        ]))
        .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let executed = shop.executed();
    assert_eq!((executed[0].as_str(), executed[4].as_str(), executed.len()), ("scan", "join", 5));
    assert_eq!(std::fs::read_to_string(shop.path("told")).unwrap(), "abc\n");
    // What the scan answered and the beginnings of all three are one write.
    let moved = |event: &Value| -> Vec<String> {
        let items = event["items"].as_array().into_iter().flatten();
        items.map(|item| item["key"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let writes: Vec<Vec<String>> =
        shop.events(row.id()).await.iter().map(|event| moved(&event.payload)).collect();
    assert!(writes.iter().any(|keys| *keys == ["scan", "a", "b", "c"]), "{writes:?}");
    shop.verify().await;
}

// proves U5
#[tokio::test(flavor = "multi_thread")]
async fn no_more_are_under_way_than_the_list_and_the_playbook_allow() {
    for (settings, parallel, most) in [("", 3, 3), ("", 6, 4), ("max_parallel = 2\n", 6, 2)] {
        let mut shop = Shop::new();
        // As many as may be at once wait for each other, and the next ones find room one by one.
        let script = format!(
            "mkdir -p here; touch here/$$; ls here | wc -l >> seen; touch first.$$; \
             until test $(ls -d first.* | wc -l) -ge {most}; do sleep 0.005; done; rm here/$$"
        );
        let each =
            format!("id = \"update\"\nfor_each = \"[1, 2, 3, 4, 5, 6, 7]\"\nparallel = {parallel}\n{LIMIT}");
        let row =
            shop.play(&format!("{settings}{}", job(&[step("update {{ item }}", &script, &each)]))).await;
        assert_eq!(row.status(), "completed", "{:?}", message(&row));
        let seen = std::fs::read_to_string(shop.path("seen")).unwrap();
        let seen: Vec<usize> = seen.lines().map(|line| line.trim().parse().unwrap()).collect();
        assert_eq!(seen.len(), 7);
        assert!(seen.iter().all(|count| *count <= most), "{most}: {seen:?}");
        shop.verify().await;
    }
}

/// A branch that waits for its next try does not keep the others.
#[tokio::test(flavor = "multi_thread")]
async fn other_branches_go_on_while_one_waits_for_its_next_try() {
    let mut shop = Shop::new();
    let again = "test -e tried || { touch tried; exit 75; }; until test -e here.next; do sleep 0.005; done";
    let retries = format!("needs = []\nretries = 1\nbackoff = [\"1ms\"]\n{LIMIT}");
    let row = shop
        .play(&format!(
            "max_parallel = 2\n{}",
            job(&[
                step("flaky", again, &retries),
                after("other", "", "until test -e tried; do sleep 0.005; done"),
                after("next", "\"other\"", "touch here.next"),
                after("last", "\"flaky\", \"next\"", ""),
            ])
        ))
        .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let keys = keys_of(&shop, "flaky");
    assert_eq!(keys, [1, 2].map(|number| format!("{}:flaky:{number}", row.id())));
    shop.verify().await;
}

/// Whoever does not wait for a step does not see what it answered, even if it has by then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_waited_for_is_not_seen() {
    let mut shop = Shop::new();
    let mut late = after("late", "\"b\"", "");
    late.push_str("when = \"steps[inputs.name].ran\"\n");
    let mut last = after("last", "\"a\", \"late\"", "");
    last.push_str("when = \"steps[inputs.name].ran\"\n");
    let text =
        job(&[after("a", "", "echo a"), after("b", "", &holds("b", "go.b")), late.clone(), last.clone()]);
    let text = text.replacen("[[step]]", "[inputs.name]\ntype = \"string\"\ndefault = \"a\"\n[[step]]", 1);
    let (id, running) = under_way(&mut shop, &text).await;
    until_stored(&shop, &id, "a=completed").await;
    go(&shop, "b");
    let row = shop.until_settled(&id).await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let all = ["a=completed", "b=completed", "late=skipped", "last=completed"];
    assert_eq!(shop.standings(&id).await, all);
    running.stop().await;
}

// proves U5: a failed branch lets those under way end, and begins none
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_branch_lets_the_other_end_and_begins_nothing() {
    let mut shop = Shop::new();
    let [lock, unlock] = lock();
    let text = job(&[
        lock,
        after("a", "\"lock\"", &format!("{}; exit 7", holds("a", "go.a"))),
        after("b", "\"lock\"", &holds("b", "go.b")),
        after("after b", "\"b\"", ""),
        unlock,
    ]);
    let (id, running) = under_way(&mut shop, &text).await;
    go(&shop, "a");
    // Stored at once, with what it means for the run, though the other goes on.
    until_stored(&shop, &id, "a=failed").await;
    let row = shop.run(&id).await;
    assert_eq!(row.run.intent.as_ref().map(|intent| intent.want), Some(Want::Fail));
    // The holder hears of its own failure by its heartbeat, and stops nobody for it.
    shop.two_beats(&id).await;
    go(&shop, "b");
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row), message(&row)), ("failed", Some("EXIT_7"), Some("a: exit code 7")));
    let all = ["lock=completed", "a=failed", "b=completed", "after b=skipped", "cleanup: unlock=completed"];
    assert_eq!(shop.standings(&id).await, all);
    running.stop().await;
    shop.verify().await;
}

/// A step that may fail ends no branch but its own try.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_may_fail_lets_its_followers_and_the_others_run() {
    let mut shop = Shop::new();
    let slow = "needs = []\ntimeout = \"50ms\"\ncontinue_on_failure = true";
    let row = shop
        .play(&job(&[
            step("slow", "sleep 300", slow),
            after("other", "", &meets("other", &["next"])),
            after("next", "\"slow\"", "touch here.next"),
        ]))
        .await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("STEPS_FAILED")));
    assert_eq!(shop.standings(row.id()).await, ["slow=failed", "other=completed", "next=completed"]);
    shop.verify().await;
}

/// What waits for its next try when another branch fails has failed, with what it failed by.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_branch_leaves_no_try_open() {
    let mut shop = Shop::new();
    let retries = format!("needs = []\nretries = 1\nbackoff = [\"1h\"]\n{LIMIT}");
    let playbook = shop.playbook(&job(&[
        step("flaky", "echo a; exit 4", &retries),
        after("bad", "", &format!("{}; exit 5", holds("b", "go.b"))),
    ]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "b").await;
    until_stored(&shop, &id, "flaky=pending").await;
    eventually("its failure is stored", async || shop.steps(&id).await[0].failure.is_some().then_some(()))
        .await;
    go(&shop, "b");
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("EXIT_5")));
    let steps = shop.steps(&id).await;
    assert_eq!(shop.standings(&id).await, ["flaky=failed", "bad=failed"]);
    assert_eq!(code_of(&steps, "flaky").as_deref(), Some("EXIT_4"));
    running.stop().await;
    shop.verify().await;
}

// proves U5
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_all_that_is_under_way_and_cleans_up() {
    let mut shop = Shop::new();
    let (id, running) = under_way(&mut shop, &two_branches()).await;
    shop.cancel(&id).await;
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("cancelled", Some("CANCELLED")));
    let steps = shop.steps(&id).await;
    for key in ["a", "b"] {
        assert_eq!(code_of(&steps, key).as_deref(), Some("CANCELLED"), "{key}");
    }
    let all = ["lock=completed", "a=failed", "b=failed", "last=skipped", "cleanup: unlock=completed"];
    assert_eq!(shop.standings(&id).await, all);
    running.stop().await;
    shop.verify().await;
}

// proves U5
#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_cancel_lets_all_that_is_under_way_end() {
    let mut shop = Shop::new();
    let (id, running) = under_way(&mut shop, &two_branches()).await;
    shop.command(CommandWrite { graceful: true, ..Shop::cancelling(&id) }).await;
    shop.two_beats(&id).await;
    go(&shop, "a");
    until_stored(&shop, &id, "a=completed").await;
    go(&shop, "b");
    let row = shop.until_settled(&id).await;
    assert_eq!(row.status(), "cancelled");
    let all = ["lock=completed", "a=completed", "b=completed", "last=skipped", "cleanup: unlock=completed"];
    assert_eq!(shop.standings(&id).await, all);
    running.stop().await;
    shop.verify().await;
}

/// While a failed branch waits for the others, a person may still stop them.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_branch_waits_for_can_be_cancelled() {
    let mut shop = Shop::new();
    let text = two_branches().replace("go.a; do sleep 0.005; done", "go.a; do sleep 0.005; done; exit 7");
    let (id, running) = under_way(&mut shop, &text).await;
    go(&shop, "a");
    until_stored(&shop, &id, "a=failed").await;
    shop.cancel(&id).await;
    let row = shop.until_settled(&id).await;
    assert_eq!(row.status(), "cancelled");
    assert_eq!(shop.executed().last().map(String::as_str), Some("unlock"));
    running.stop().await;
    shop.verify().await;
}

// proves U5
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_all_and_a_resume_begins_them_again() {
    let mut shop = Shop::new();
    let (id, running) = under_way(&mut shop, &two_branches()).await;
    let pause = CommandWrite { name: "pause".into(), reason: Some("freeze".into()), ..Shop::cancelling(&id) };
    shop.command(pause).await;
    let row = shop.until_rests(&id).await;
    assert_eq!((row.status(), row.run.reason.as_deref()), ("paused", Some("freeze")));
    go(&shop, "a");
    go(&shop, "b");
    shop.resume(&id, map(json!({}))).await;
    assert_eq!(shop.until_settled(&id).await.status(), "completed");
    for name in ["a", "b"] {
        let keys = keys_of(&shop, name);
        assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "nobody knows what the stopped one did");
    }
    let count = |name: &str| shop.executed().iter().filter(|it| *it == name).count();
    assert_eq!((count("lock"), count("unlock"), count("last")), (2, 2, 1));
    running.stop().await;
    shop.verify().await;
}

fn asks(host: &str) -> String {
    let pause = json!({"outcome": "pause", "reason": format!("{host} is blocked"), "blockers": {host: {}}});
    format!("cat > told.{host}; grep -q skip told.{host} || {}", answers(&pause.to_string()))
}

// proves U5
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_asks_lets_the_other_end_before_the_run_is_parked() {
    let mut shop = Shop::new();
    let [lock, unlock] = lock();
    let text = job(&[
        lock,
        after("a", "\"lock\"", &format!("echo a; {}", asks("h1"))),
        after("b", "\"lock\"", &holds("b", "go.b")),
        after("after b", "\"b\"", ""),
        unlock,
    ]);
    let (id, running) = under_way(&mut shop, &text).await;
    until_stored(&shop, &id, "a=paused").await;
    assert_eq!(shop.run(&id).await.status(), "running");
    go(&shop, "b");
    let row = shop.until_rests(&id).await;
    assert_eq!((row.status(), row.run.reason.as_deref()), ("paused", Some("h1 is blocked")));
    let all = ["lock=completed", "a=paused", "b=completed", "after b=pending", "cleanup: unlock=completed"];
    assert_eq!(shop.standings(&id).await, all);
    shop.resume(&id, map(json!({"h1": "skip"}))).await;
    assert_eq!(shop.until_settled(&id).await.status(), "completed");
    assert_eq!(keys_of(&shop, "b").len(), 1);
    running.stop().await;
    shop.verify().await;
}

/// What both ask is asked at once, and neither goes on without its answer.
#[tokio::test(flavor = "multi_thread")]
async fn steps_that_ask_at_once_are_answered_at_once() {
    let mut shop = Shop::new();
    let both = ["a", "b"];
    let row = shop
        .play(&job(&[
            after("a", "", &format!("{}; {}", meets("a", &both), asks("h1"))),
            after("b", "", &format!("{}; {}", meets("b", &both), asks("h2"))),
            after("last", "\"a\", \"b\"", ""),
        ]))
        .await;
    let id = row.id().to_owned();
    assert_eq!((row.status(), row.run.reason.as_deref()), ("paused", Some("h1 is blocked; h2 is blocked")));
    assert_eq!(row.details["hosts_with_blockers"], 2);
    assert_eq!(row.details["current_blockers"], json!({"h1": {}, "h2": {}}));
    assert_eq!(row.details["paused_step"], "a, b");
    shop.resume(&id, map(json!({"h1": "skip", "h2": "skip"}))).await;
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "completed");
    shop.verify().await;
}

/// What failed counts for more than what was asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_a_question_ends_the_run() {
    let mut shop = Shop::new();
    let text = job(&[
        after("a", "", &format!("echo a; {}", asks("h1"))),
        after("b", "", &format!("{}; exit 3", holds("b", "go.b"))),
    ]);
    let (id, running) = under_way(&mut shop, &text).await;
    until_stored(&shop, &id, "a=paused").await;
    go(&shop, "b");
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("EXIT_3")));
    running.stop().await;
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_end_lets_what_has_begun_end() {
    let mut shop = Shop::new();
    let early = format!("echo a; {}", answers(r#"{"outcome":"finish"}"#));
    let text = job(&[
        after("a", "", &early),
        after("b", "", &holds("b", "go.b")),
        after("after a", "\"a\"", ""),
        after("after b", "\"b\"", ""),
    ]);
    let (id, running) = under_way(&mut shop, &text).await;
    until_stored(&shop, &id, "a=completed").await;
    // Whoever takes the run over goes on with what has begun, and with nothing else.
    running.die().await;
    go(&shop, "b");
    shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let all = ["a=completed", "b=completed", "after a=skipped", "after b=skipped"];
    assert_eq!(shop.standings(&id).await, all);
    let keys = keys_of(&shop, "b");
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    shop.verify().await;
}

// proves U5, X5
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_over_asks_for_all_that_was_under_way_under_the_same_keys() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _lives) = open(on).await;
        let mut shop = Shop::on(store);
        let (id, running) = under_way(&mut shop, &two_branches()).await;
        running.die().await;
        go(&shop, "a");
        go(&shop, "b");
        shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        shop.work().await;
        assert_eq!(shop.run(&id).await.status(), "completed", "{on:?}");
        for name in ["a", "b"] {
            let keys = keys_of(&shop, name);
            assert_eq!(keys, [1, 1].map(|number| format!("{id}:{name}:{number}")), "{on:?}");
        }
        assert_eq!(shop.executed().last().map(String::as_str), Some("unlock"));
        shop.verify().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_time_is_over_stops_all_that_is_under_way() {
    let mut shop = Shop::new();
    let row = shop.play(&format!("timeout = \"1s\"\n{}", two_branches())).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("RUN_TIMEOUT")));
    let steps = shop.steps(row.id()).await;
    for key in ["a", "b"] {
        assert_eq!(code_of(&steps, key).as_deref(), Some("RUN_TIMEOUT"), "{key}");
    }
    assert_eq!(shop.executed().last().map(String::as_str), Some("unlock"));
    shop.verify().await;
}

/// The worker shuts down: both are stopped, and the next one asks for both again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_shuts_down_leaves_both_to_the_next() {
    let mut shop = Shop::new();
    let (id, running) = under_way(&mut shop, &two_branches()).await;
    running.stop().await;
    assert_eq!(shop.standings(&id).await[1..3], ["a=pending", "b=pending"]);
    go(&shop, "a");
    go(&shop, "b");
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "completed");
    shop.verify().await;
}

/// What the store refuses of one branch ends the run when the other has ended, and what that came to is stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_of_one_branch_lets_the_other_end() {
    let mut shop = Shop::new();
    let [lock, unlock] = lock();
    let each = format!("needs = [\"a\"]\nfor_each = \"steps.a.output\"\n{LIMIT}");
    let text = job(&[
        lock,
        after("a", "\"lock\"", &format!("echo a; {}", answers(r#"{"output":[1]}"#))),
        after("b", "\"lock\"", &holds("b", "go.b")),
        step("bad", "", &each),
        unlock,
    ]);
    let mut playbook = shop.playbook(&text);
    // What the checker would have refused: a worker of another version may have taken it.
    playbook.steps[3].key = "n".repeat(254);
    shop.options.playbooks = waypost_worker::playbook::Playbooks::default().with(playbook.clone());
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "b").await;
    until_stored(&shop, &id, "a=completed").await;
    go(&shop, "b");
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("STEP_REFUSED")), "{:?}", message(&row));
    let all = ["lock=completed", "a=completed", "b=completed", "cleanup: unlock=completed"];
    assert_eq!(shop.standings(&id).await, all);
    running.stop().await;
    shop.verify().await;
}

/// Cleanups follow each other, and the items of one may be undone at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_items_of_a_cleanup_may_be_undone_at_once() {
    let mut shop = Shop::new();
    let script = "touch here.$$; until test $(ls -d here.* | wc -l) -ge 2; do sleep 0.005; done";
    let each = format!("for_each = \"['x', 'y']\"\nparallel = 2\n{LIMIT}");
    let row = shop
        .play(&job(&[
            step("lock", "", ""),
            cleanup("undo {{ item }}", script, &each),
            cleanup("unlock", "", ""),
        ]))
        .await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    assert_eq!(shop.executed().last().map(String::as_str), Some("unlock"));
    shop.verify().await;
}

fn lines_of(row: &RunRow, events: &[waypost_store::EventRow]) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for event in events.iter().filter(|event| event.run_id == row.id() && event.message == "output") {
        let step = event.payload["step"].as_str().unwrap_or_default();
        for line in event.payload["lines"].as_array().into_iter().flatten() {
            lines.push((step.to_owned(), line[1].as_str().unwrap_or_default().to_owned()));
        }
    }
    lines.sort();
    lines
}

// proves U5: lines and tasks are told with their step
#[tokio::test(flavor = "multi_thread")]
async fn what_steps_print_and_tell_at_once_is_kept_apart() {
    let mut shop = Shop::new();
    let script = "echo \"$WAYPOST_STEP 1\"; echo '::task 50 part'; touch here.$$; \
                  until test $(ls -d here.* | wc -l) -ge 2; do sleep 0.005; done; echo \"$WAYPOST_STEP 2\"";
    let each = format!("id = \"do\"\nfor_each = \"['x', 'y']\"\nparallel = 2\n{LIMIT}");
    let row = shop.play(&job(&[step("do {{ item }}", script, &each)])).await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    let events = shop.events(row.id()).await;
    let expected = [("do[1]", "do x 1"), ("do[1]", "do x 2"), ("do[2]", "do y 1"), ("do[2]", "do y 2")];
    assert_eq!(lines_of(&row, &events), expected.map(|(step, line)| (step.to_owned(), line.to_owned())));
    let tasks = shop.store.items(row.id().to_owned(), Some("task".to_owned())).await.unwrap();
    let mut told: Vec<String> =
        tasks.iter().map(|task| format!("{} {}", task.details["step"], task.status)).collect();
    told.sort();
    assert_eq!(told, ["\"do[1]\" completed", "\"do[2]\" completed"]);
}

/// A result and the beginning of what follows it are one write: as many as there are steps, and the run's end.
#[tokio::test(flavor = "multi_thread")]
async fn steps_one_after_the_other_cost_one_write_each() {
    let mut shop = Shop::new();
    let scan = step("scan", &answers(r#"{"output":["a","b","c"]}"#), "");
    let each = step("update {{ item }}", "", "id = \"update\"\nfor_each = \"steps.scan.output\"");
    let skipped = step("never", "", "when = \"false\"");
    let row = shop.play(&job(&[scan.clone(), each.clone(), skipped.clone(), step("last", "", "")])).await;
    assert_eq!(row.status(), "completed");
    // scan, the items of its list, three of them, last; and the end.
    assert_eq!(shop.faulty.writes(), 7);
    let mut shop = Shop::new();
    let undo = cleanup("undo", "", "after = \"scan\"");
    let row = shop.play(&job(&[scan, each, skipped, step("last", "", ""), undo])).await;
    assert_eq!(row.status(), "completed");
    // Also: that a cleanup will be due, what the last step came to, that it is due, undo, what that came to, that none is.
    assert_eq!(shop.faulty.writes(), 13);
}
