//! Steps that ask a person.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::{CommandWrite, NewRun, RunRow};

use super::kit::{answers, cleanup, job, map, step};
use crate::support::{On, Shop, code, message, open};

const ASKS: &str =
    "[[step]]\nname = \"go ahead?\"\nask = \"update {{ inputs.cluster }}?\"\nchoices = [\"yes\", \"no\"]\n";

fn asking(more: &str) -> String {
    let inputs = "[inputs.cluster]\ntype = \"string\"\ndefault = \"c1\"\n";
    let after = "when = '''steps[\"go ahead?\"].output.choice == \"yes\"'''";
    job(&[
        inputs.to_owned(),
        step("scan", "true", ""),
        format!("{ASKS}{more}\n"),
        step("update", "true", after),
    ])
}

async fn output(shop: &Shop, row: &RunRow) -> Value {
    shop.steps(row.id()).await.into_iter().find(|row| row.key == "go ahead?").unwrap().output
}

// proves U4
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_steps_output() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _alive) = open(on).await;
        let mut shop = Shop::on(store);
        let row = shop.play(&asking("")).await;
        assert_eq!((row.status(), row.run.reason.as_deref()), ("paused", Some("update c1?")));
        let asked = &row.details["current_blockers"]["go ahead?"];
        assert_eq!(*asked, json!({ "ask": "update c1?", "choices": ["yes", "no"] }));
        assert_eq!(shop.work().await.claimed, 0, "nobody works it meanwhile");
        let wrong = CommandWrite {
            resolutions: map(json!({ "go ahead?": "maybe" })),
            name: "resume".into(),
            ..Shop::cancelling(row.id())
        };
        let refused = shop.store.command(wrong.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("\"maybe\" is no choice; allowed: yes, no"), "{refused}");
        let right = CommandWrite {
            resolutions: map(json!({ "go ahead?": "yes" })),
            reason: Some("agreed".into()),
            ..wrong
        };
        shop.command(right).await;
        shop.work().await;
        let row = shop.run(row.id()).await;
        assert_eq!(row.status(), "completed");
        let answer = output(&shop, &row).await;
        assert_eq!(
            (&answer["choice"], &answer["by"], &answer["reason"]),
            (&json!("yes"), &json!("ann"), &json!("agreed"))
        );
        assert_eq!(shop.executed(), ["scan", "update"]);
        shop.verify().await;
    }
}

// proves U4: the time is stored, and holds though no worker was up when it came
#[tokio::test(flavor = "multi_thread")]
async fn nobody_answers_in_time() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _alive) = open(on).await;
        for (more, status, executed) in [
            ("timeout = \"24h\"\non_timeout = \"no\"", "completed", vec!["scan"]),
            ("timeout = \"24h\"\non_timeout = \"yes\"", "completed", vec!["scan", "update"]),
            ("timeout = \"24h\"", "failed", vec!["scan"]),
        ] {
            let mut shop = Shop::on(store.clone());
            let row = shop.play(&asking(more)).await;
            assert_eq!(row.status(), "paused");
            let sweep = || store.sweep("engine".into(), 100);
            store.advance_clock(Span::from_seconds(24 * 3_600 - 60)).await.unwrap();
            assert!(sweep().await.unwrap().moved.is_empty());
            store.advance_clock(Span::from_seconds(61)).await.unwrap();
            assert_eq!(sweep().await.unwrap().moved, [(row.id().to_owned(), "resume".to_owned())]);
            let waiting = shop.run(row.id()).await;
            assert_eq!(waiting.details["awaiting_blocker_resolution"], false);
            shop.work().await;
            let row = shop.run(row.id()).await;
            assert_eq!(
                (row.status(), shop.executed()),
                (status, executed.iter().map(ToString::to_string).collect())
            );
            if status == "failed" {
                assert_eq!(code(&row), Some("NOBODY_ANSWERED"));
                assert_eq!(message(&row), Some("go ahead?: nobody answered within 1d: update c1?"));
            } else {
                assert_eq!(output(&shop, &row).await["reason"], "nobody answered within 1d");
            }
            shop.verify().await;
        }
    }
}

// proves U4
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_nobody_watches_does_not_ask() {
    for (more, status, expected) in
        [("on_timeout = \"yes\"", "completed", None), ("", "failed", Some("NOBODY_TO_ASK"))]
    {
        let mut shop = Shop::new();
        let playbook = shop.playbook(&asking(more));
        let new = NewRun { metadata: map(json!({ "unattended": true })), ..NewRun::default() };
        let id = shop.queue(&playbook, new).await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), (status, expected));
    }
}

// proves U4: who forces the run on has not answered; the step takes what it declares for that, or has no answer
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_forced_on_goes_on_without_an_answer() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _alive) = open(on).await;
        for (more, choice, standing, executed) in [
            ("timeout = \"1h\"\non_timeout = \"yes\"", json!("yes"), "completed", vec!["scan", "update"]),
            ("on_timeout = \"no\"", json!("no"), "completed", vec!["scan"]),
            ("timeout = \"1h\"", json!(null), "skipped", vec!["scan"]),
        ] {
            let mut shop = Shop::on(store.clone());
            let id = shop.play(&asking(more)).await.id().to_owned();
            let force = CommandWrite {
                name: "resume".into(),
                force: true,
                reason: Some("Kim is ill".into()),
                ..Shop::cancelling(&id)
            };
            shop.command(force).await;
            shop.work().await;
            let row = shop.run(&id).await;
            assert_eq!(row.status(), "completed", "{:?}", message(&row));
            assert_eq!(shop.standings(&id).await[1], format!("go ahead?={standing}"));
            let answer = output(&shop, &row).await;
            let why = json!("ann let the run go on without an answer: Kim is ill");
            assert_eq!((&answer["choice"], &answer["by"], &answer["reason"]), (&choice, &json!(null), &why));
            assert_eq!(shop.executed(), executed);
            shop.verify().await;
        }
    }
}

/// A step that asks and waits for these alone.
fn asks(name: &str, needs: &str, more: &str) -> String {
    format!("[[step]]\nname = \"{name}\"\nask = \"{name}?\"\nneeds = [{needs}]\n{more}\n")
}

fn asked(row: &RunRow) -> Vec<&str> {
    row.undecided().into_iter().map(|(subject, _)| subject).collect()
}

// proves U4, U5: what is no question goes on as far as it can, and all that is asked then is asked together
#[tokio::test(flavor = "multi_thread")]
async fn people_are_asked_last_and_together() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _alive) = open(on).await;
        let mut shop = Shop::on(store);
        let fails_once = "test -e tried || { touch tried; exit 1; }";
        let row = shop
            .play(&job(&[
                asks("a", "", ""),
                asks("b", "", "timeout = \"1h\"\non_timeout = \"no\""),
                step("build", fails_once, "needs = []\nretries = 1\nbackoff = [\"5ms\"]"),
                step("test", "", "needs = [\"build\"]"),
                asks("c", "\"test\"", ""),
                step("ship", "", "needs = [\"a\", \"b\", \"c\"]"),
            ]))
            .await;
        assert_eq!((row.status(), row.run.reason.as_deref()), ("paused", Some("a?; b?; c?")));
        assert_eq!(
            (asked(&row), shop.executed()),
            (vec!["a", "b", "c"], ["build", "build", "test"].map(str::to_owned).to_vec())
        );
        let answers = |given: Value| {
            let resume =
                CommandWrite { name: "resume".into(), resolutions: map(given), ..Shop::cancelling(row.id()) };
            shop.store.command(resume)
        };
        assert_eq!(answers(json!({ "a": "yes" })).await.unwrap().status(), "paused", "kept, one by one");
        assert_eq!(answers(json!({ "b": "yes", "c": "no" })).await.unwrap().status(), "pending");
        shop.work().await;
        assert_eq!(shop.run(row.id()).await.status(), "completed");
        assert_eq!(shop.executed().last().map(String::as_str), Some("ship"));
        shop.verify().await;
    }
}

// proves U4, U5
#[tokio::test(flavor = "multi_thread")]
async fn the_items_of_a_list_are_asked_about_as_many_at_once_as_may_be() {
    let mut shop = Shop::new();
    let each = "[[step]]\nname = \"host {{ item }}\"\nid = \"host\"\nask = \"reboot {{ item }}?\"\nfor_each = \"['x', 'y', 'z']\"\nparallel = 2\n";
    let row = shop.play(&job(&[each.to_owned(), step("last", "", "")])).await;
    assert_eq!((row.status(), asked(&row)), ("paused", vec!["host[1]", "host[2]"]));
    shop.resume(row.id(), map(json!({ "host[1]": "yes", "host[2]": "no" }))).await;
    shop.work().await;
    let row = shop.run(row.id()).await;
    assert_eq!((row.status(), asked(&row)), ("paused", vec!["host[3]"]));
    shop.resume(row.id(), map(json!({ "host[3]": "yes" }))).await;
    shop.work().await;
    assert_eq!(shop.run(row.id()).await.status(), "completed");
    shop.verify().await;
}

// proves U4: the time of one question ends the pause, and the others go on being asked until theirs
#[tokio::test(flavor = "multi_thread")]
async fn a_question_whose_time_is_over_forces_no_other() {
    let mut shop = Shop::new();
    let row = shop
        .play(&job(&[
            asks("a", "", "timeout = \"1h\"\non_timeout = \"no\""),
            asks("b", "", "timeout = \"2h\""),
            step("last", "", "needs = [\"a\", \"b\"]"),
        ]))
        .await;
    let until = row.details["current_blockers"]["b"]["until"].clone();
    shop.store.advance_clock(Span::from_seconds(3_601)).await.unwrap();
    shop.store.sweep("engine".into(), 100).await.unwrap();
    shop.work().await;
    let row = shop.run(row.id()).await;
    assert_eq!((row.status(), asked(&row)), ("paused", vec!["b"]));
    assert_eq!(row.details["current_blockers"]["b"]["until"], until);
    shop.resume(row.id(), map(json!({ "b": "yes" }))).await;
    shop.work().await;
    assert_eq!(shop.run(row.id()).await.status(), "completed");
    assert_eq!(shop.standings(row.id()).await, ["a=completed", "b=completed", "last=completed"]);
    shop.verify().await;
}

/// What a handler asks and what a step asks are one pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_a_handler_asks_what_others_ask_too() {
    let mut shop = Shop::new();
    let pause = r#"{"outcome":"pause","reason":"h1 is blocked","blockers":{"h1":{}}}"#;
    let script = format!("cat > told; grep -q skip told || {}", answers(pause));
    let row = shop
        .play(&job(&[
            step("scan", &script, "needs = []"),
            asks("a", "", ""),
            step("last", "", "needs = [\"a\", \"scan\"]"),
        ]))
        .await;
    assert_eq!((row.status(), asked(&row)), ("paused", vec!["a", "h1"]));
    shop.resume(row.id(), map(json!({ "a": "yes", "h1": "skip" }))).await;
    shop.work().await;
    assert_eq!(shop.run(row.id()).await.status(), "completed");
    shop.verify().await;
}

/// A step that a cleanup undid asks again after the pause, and what was answered before is no answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_undone_is_asked_again() {
    let mut shop = Shop::new();
    let pause = answers(r#"{"outcome":"pause","reason":"h1 is blocked","blockers":{"h1":{}}}"#);
    let undo = cleanup("undo", "", "after = \"go ahead?\"");
    let scan = step("check", &format!("cat > told; grep -q '\"h1\"' told || {pause}"), "");
    let id = shop.play(&format!("{}{scan}{undo}", asking(""))).await.id().to_owned();
    shop.resume(&id, map(json!({ "go ahead?": "yes" }))).await;
    shop.work().await;
    assert_eq!(asked(&shop.run(&id).await), ["h1"]);
    shop.resume(&id, map(json!({ "h1": "skip" }))).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), asked(&row)), ("paused", vec!["go ahead?"]));
    shop.resume(&id, map(json!({ "go ahead?": "no" }))).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), &output(&shop, &row).await["choice"]), ("completed", &json!("no")));
    shop.verify().await;
}

// proves U4
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_question_fails_its_step() {
    let mut shop = Shop::new();
    let text = asking("").replace("update {{ inputs.cluster }}?", "{{ inputs.cluster }}");
    let row = shop.play(&text.replace("default = \"c1\"", "default = \" \"")).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("BAD_TEMPLATE")));
    assert!(message(&row).is_some_and(|it| it.starts_with("go ahead?: ask: it comes to an empty text")));
    shop.verify().await;
}
