//! Steps that ask a person.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::{CommandWrite, NewRun, RunRow};

use super::kit::{job, map, step};
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

// proves U4: who forces the run on has not answered, and the time that was given still counts
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_forced_on_asks_again() {
    let mut shop = Shop::new();
    let row = shop.play(&asking("timeout = \"1h\"")).await;
    let until = row.details["current_blockers"]["go ahead?"]["until"].clone();
    shop.resume(row.id(), map(json!({}))).await;
    shop.work().await;
    let row = shop.run(row.id()).await;
    assert_eq!(row.status(), "paused");
    assert_eq!(row.details["current_blockers"]["go ahead?"]["until"], until);
    shop.resume(row.id(), map(json!({ "go ahead?": "no" }))).await;
    shop.work().await;
    assert_eq!(shop.run(row.id()).await.status(), "completed");
    assert_eq!(shop.executed(), ["scan"]);
}
