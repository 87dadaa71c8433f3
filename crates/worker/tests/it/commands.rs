//! What a command is given, and what its end means.

use serde_json::json;
use waypost_kernel::{Phase, Span};
use waypost_store::{NewItem, NewRun};

use crate::steps::kit::waits_for;
use crate::support::{Shop, code, message, text};

// proves D4
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_begins_a_run_with_its_claim() {
    let shop = Shop::new();
    let id = shop.enqueue(shop.carrying(&["echo", "hi there"], 0)).await;
    assert_eq!(shop.work().await.succeeded, 1);
    let row = shop.run(&id).await;
    assert_eq!((row.status(), row.run.attempt), ("success", 1));
    assert_eq!(row.metadata["exit_code"], 0);
    let events = shop.events(&id).await;
    let moves: Vec<(&str, &str, &str)> =
        events.iter().map(|it| (it.command.as_str(), it.to.as_str(), it.message.as_str())).collect();
    assert_eq!(moves[1].1, "claimed");
    assert_eq!(moves[2], ("start", "running", "Run started by w1"));
    assert_eq!(moves[3].2, "output");
    assert_eq!(moves[4].1, "success");
    assert_eq!(shop.lines(&id).await, [("out".to_owned(), "hi there".to_owned())]);
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_signals_are_told_apart() {
    for shop in Shop::both() {
        for (script, status, expected, words) in [
            ("exit 0", "success", None, None),
            ("exit 3", "failed", Some("EXIT_3"), Some("exit code 3")),
            ("echo one >&2; echo why >&2; echo out; exit 1", "failed", Some("EXIT_1"), Some("why")),
            ("exit 75", "failed", Some("EXIT_75"), Some("exit code 75")),
            ("kill -9 $$", "failed", Some("SIGNAL"), Some("killed by signal 9")),
            ("kill -TERM $$", "failed", Some("SIGNAL"), Some("killed by signal 15")),
        ] {
            let id = shop.script(script).await;
            shop.work().await;
            let row = shop.run(&id).await;
            assert_eq!((row.status(), code(&row), message(&row)), (status, expected, words), "{script}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_start_says_why() {
    for (shop, expected) in Shop::both().into_iter().zip(["EXIT_127", "NOT_STARTED"]) {
        let id = shop.enqueue(shop.carrying(&["no-such-program"], 0)).await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), ("failed", Some(expected)));
        let words = message(&row).unwrap();
        assert!(words.contains("cannot start no-such-program: No such file"), "{words}");
    }
    let shop = Shop::new();
    for (carried, words) in [
        (json!({"command": ["true"], "directory": "/no/such/folder"}), "no folder /no/such/folder"),
        (json!({"command": []}), "its command is not a list"),
    ] {
        let new = NewRun { lifecycle: "deploy".into(), carried: Some(carried), ..NewRun::default() };
        let id = shop.enqueue(new).await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), ("failed", Some("NOT_STARTED")));
        assert!(message(&row).unwrap().contains(words), "{:?}", message(&row));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_its_run_on_its_input_and_in_its_environment() {
    for shop in Shop::both() {
        let script = "cat; echo; echo $WAYPOST_RUN_ID; echo $WAYPOST_STEP; echo $WAYPOST_ATTEMPT; \
                      echo $WAYPOST_IDEMPOTENCY_KEY; echo $TRACEPARENT; pwd";
        let mut new = shop.carrying(&["sh", "-c", script], 0);
        new.input = json!({"host": "ü".repeat(50_000)});
        new.metadata.insert("traceparent".into(), json!("00-abc-def-01"));
        let id = shop.enqueue(new).await;
        assert_eq!(shop.work().await.succeeded, 1);
        let lines: Vec<String> = shop.lines(&id).await.into_iter().map(|(_, line)| line).collect();
        assert!(lines[0].contains("\"input\":{\"host\":\"üü") && lines[0].ends_with("… [cut]"));
        let here = shop.path("").canonicalize().unwrap();
        let expected =
            [id.as_str(), "run", "1", &format!("{id}:1:1"), "00-abc-def-01", here.to_str().unwrap()];
        assert_eq!(lines[1..], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_nobody_reads_is_no_error() {
    for shop in Shop::both() {
        let mut new = shop.carrying(&["true"], 0);
        new.input = json!("x".repeat(900_000));
        let id = shop.enqueue(new).await;
        assert_eq!(shop.work().await.succeeded, 1, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_was_written_says_more_than_the_exit_code() {
    let shop = Shop::new();
    for (written, exit, status, expected) in [
        (r#"{"outcome":"done","output":{"n":7}}"#, "exit 0", "success", None),
        (r#"{"outcome":"done","output":{"n":7}}"#, "exit 7", "failed", Some("EXIT_7")),
        (r#"{"outcome":"done"}"#, "kill -9 $$", "failed", Some("SIGNAL")),
        (r#"{"outcome":"skip","reason":"nothing to do"}"#, "kill -SEGV $$", "failed", Some("SIGNAL")),
        (r#"{"outcome":"fail","code":"NO_SPACE","message":"full"}"#, "exit 7", "failed", Some("NO_SPACE")),
        ("\u{feff}{\"outcome\":\"fail\",\"code\":\"NO_SPACE\"}", "exit 0", "failed", Some("NO_SPACE")),
        (r#"{"outcome":"fail","code":"NO_SPACE","message":"full"}"#, "exit 0", "failed", Some("NO_SPACE")),
        (r#"{"outcome":"skip","reason":"nothing to do"}"#, "exit 0", "success", None),
        (r#"{"outcome":"pause","reason":"look"}"#, "exit 0", "failed", Some("CANNOT_PAUSE")),
        (r#"{"outcome":"dunno"}"#, "exit 0", "failed", Some("BAD_OUTCOME")),
        ("half a docum", "exit 0", "failed", Some("BAD_OUTCOME")),
        ("", "exit 0", "success", None),
    ] {
        let script = format!("printf '%s' '{written}' > \"$WAYPOST_OUTPUT\"; {exit}");
        let id = shop.script(&script).await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), (status, expected), "{written}, {exit}");
        if written.contains("output") {
            assert_eq!(row.details["output"]["n"], 7);
        }
    }
    for script in [
        "mkdir \"$WAYPOST_OUTPUT\"",
        "mkfifo \"$WAYPOST_OUTPUT\"",
        "head -c 1100000 /dev/zero > $WAYPOST_OUTPUT",
        "truncate -s 100M $WAYPOST_OUTPUT",
        "(printf '{\"outcome\":\"done\",\"output\":\"'; head -c 100000000 /dev/zero | tr '\\0' x; printf '\"}') > $WAYPOST_OUTPUT",
        "printf '{\"outcome\":\"done\",\"message\":\"\\377\"}' > $WAYPOST_OUTPUT",
        "printf '{\"outcome\":[\"done\"]}' > $WAYPOST_OUTPUT",
        "printf '{\"outcome\":\"pause\",\"blockers\":[]}' > $WAYPOST_OUTPUT",
        "printf '[\"done\"]' > $WAYPOST_OUTPUT",
        "head -c 500000 /dev/zero | tr '\\0' '[' > $WAYPOST_OUTPUT",
    ] {
        let id = shop.script(script).await;
        shop.work().await;
        assert_eq!(code(&shop.run(&id).await), Some("BAD_OUTCOME"), "{script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn states_are_named_by_the_lifecycle() {
    let shop = Shop::new();
    let step = NewItem {
        kind: "step".into(),
        key: "1".into(),
        name: "scan".into(),
        status: None,
        max_retries: 0,
        reruns: false,
        role: waypost_kernel::item::Role::Step,
        details: serde_json::Map::new(),
        copied: false,
    };
    let pause = r#"echo '{"outcome":"pause","reason":"two hosts are blocked"}' > "$WAYPOST_OUTPUT""#;
    for (lifecycle, script, status) in
        [("job", "exit 0", "completed"), ("job", pause, "paused"), ("operation", "exit 1", "failed")]
    {
        let items = if lifecycle == "job" { vec![step.clone()] } else { Vec::new() };
        let id = shop
            .enqueue(NewRun { lifecycle: lifecycle.into(), items, ..shop.carrying(&["sh", "-c", script], 0) })
            .await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!(row.status(), status, "{lifecycle}: {script}");
        assert!(row.phase() != Phase::Parked || row.run.reason.as_deref() == Some("two hosts are blocked"));
    }
    shop.verify().await;
}

// proves D9
#[tokio::test(flavor = "multi_thread")]
async fn tries_follow_each_other_within_one_claim() {
    let shop = Shop::new();
    let script = "echo try >> tries; test $(wc -l < tries) -eq 3 || exit 75";
    let id = shop.enqueue(shop.carrying(&["sh", "-c", script], 2)).await;
    assert_eq!(shop.work().await.succeeded, 1);
    let row = shop.run(&id).await;
    assert_eq!((row.run.attempt, row.run.fence), (1, 1), "claimed once");
    let warnings: Vec<String> = warnings(&shop, &id).await;
    assert_eq!(warnings, ["Retry 1/2 in 5 ms", "Retry 2/2 in 10 ms"]);
}

// proves D9
#[tokio::test(flavor = "multi_thread")]
async fn after_the_last_try_the_run_has_failed_for_good() {
    let shop = Shop::new();
    let id = shop.enqueue(shop.carrying(&["sh", "-c", "echo $WAYPOST_IDEMPOTENCY_KEY; exit 4"], 2)).await;
    assert_eq!(shop.work().await.failed, 1);
    let row = shop.run(&id).await;
    let words = "Max retries exceeded: EXIT_4: exit code 4 (3 tries)";
    assert_eq!((row.status(), message(&row)), ("failed", Some(words)));
    assert_eq!(text(&row.metadata["error"]), "Max retries exceeded");
    assert_eq!(
        (row.metadata["retry_count"].clone(), row.metadata["exit_code"].clone()),
        (json!(3), json!(4))
    );
    let keys: Vec<String> = shop.lines(&id).await.into_iter().map(|(_, line)| line).collect();
    assert_eq!(keys, [1, 2, 3].map(|number| format!("{id}:1:{number}")), "each known result has its own key");
    assert_eq!(warnings(&shop, &id).await.len(), 2);
    shop.verify().await;
}

async fn warnings(shop: &Shop, id: &str) -> Vec<String> {
    shop.events(id).await.into_iter().filter(|it| it.level == "warn").map(|it| it.message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_trace_reaches_its_command() {
    let shop = Shop::new();
    let mut new = shop.carrying(&["sh", "-c", "echo $TRACEPARENT"], 0);
    new.details
        .insert("traceparent".into(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let id = shop.enqueue(new).await;
    shop.work().await;
    let lines: Vec<String> = shop.lines(&id).await.into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]);
}

/// The first try waits for ever; the others end as `then` says.
fn hangs_once(then: &str) -> String {
    format!("echo try >> tries; test $(wc -l < tries) -ge 2 || {{ {}; }}; {then}", waits_for("never"))
}

// proves U12: a lost worker costs a try, and not the run
#[tokio::test(flavor = "multi_thread")]
async fn retries_survive_the_worker() {
    for (then, status, words) in [
        ("exit 0", "success", None),
        ("exit 7", "failed", Some("Max retries exceeded: EXIT_7: exit code 7 (2 tries)")),
    ] {
        let mut shop = Shop::new();
        let new = shop.carrying(&["sh", "-c", &hangs_once(then)], 1);
        let id = shop.enqueue(NewRun { max_attempts: 2, ..new }).await;
        let running = shop.start();
        shop.until_printed(&id, "waiting").await;
        running.die().await;
        shop.store.advance_clock(Span::from_seconds(61)).await.unwrap();
        assert!(shop.store.sweep("engine".into(), 100).await.unwrap().moved.is_empty());
        shop.options.name = "w2".to_owned();
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), row.run.attempt, row.run.take_overs), (status, 1, 1));
        assert_eq!(message(&row), words);
        shop.verify().await;
    }
}
