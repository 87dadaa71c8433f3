//! What follows from a step that failed, could not begin or could not be stored.

use std::sync::atomic::Ordering;

use serde_json::json;
use waypost_kernel::{Phase, Span};
use waypost_store::{CommandWrite, NewRun};

use super::kit::{answers, cleanup, job, step};
use crate::support::{Shop, code, eventually, message};

// proves J5: a cleanup that never began has not been done
#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_cannot_begin_counts_as_failed() {
    for spoilt in [
        "env = { T = \"{{ secrets.t }}\" }",
        "when = \"steps.lock.output.was\"",
        "for_each = \"steps.lock.output.hosts\"",
        "env = { WAS = \"{{ steps.lock.output.was }}\" }",
    ] {
        let mut shop = Shop::new();
        let mut text = job(&[
            step("lock", &answers(r#"{"output":{}}"#), ""),
            cleanup("restore", "", &format!("after = \"lock\"\n{spoilt}")),
        ]);
        if spoilt.contains("secrets") {
            text = text.replacen("[[step]]", "[secrets]\nt = \"env:NOBODY_HAS_SET_THIS\"\n[[step]]", 1);
        }
        let row = shop.play(&text).await;
        assert_eq!((row.status(), code(&row)), ("failed", Some("CLEANUP_FAILED")), "{spoilt}");
        assert_eq!(row.details["cleanup_failed"], json!(["restore"]), "{spoilt}");
        let steps = shop.standings(row.id()).await;
        assert_eq!(steps, ["lock=completed", "cleanup: restore=failed"], "{spoilt}");
        shop.verify().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_end_hides_no_failure() {
    let mut shop = Shop::new();
    let row = shop
        .play(&job(&[
            step("bad", "exit 3", "continue_on_failure = true"),
            step("enough", &answers(r#"{"outcome":"finish"}"#), ""),
            step("rest", "", ""),
        ]))
        .await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("STEPS_FAILED")));
    assert_eq!(shop.executed(), ["bad", "enough"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_cannot_be_told_fail_their_step_by_name() {
    let mut shop = Shop::new();
    let scan = step("scan", &answers(r#"{"output":{}}"#), "");
    let each = "for_each = \"steps.scan.output.hosts\"";
    let row = shop.play(&job(&[scan.clone(), step("update", "", each), step("rest", "", "")])).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("BAD_TEMPLATE")));
    assert!(message(&row).unwrap().starts_with("update: for_each: "), "{:?}", message(&row));
    assert_eq!(shop.standings(row.id()).await, ["scan=completed", "update=failed", "rest=skipped"]);
    let mut shop = Shop::new();
    let may_fail = format!("{each}\ncontinue_on_failure = true");
    let row = shop.play(&job(&[scan, step("update", "", &may_fail), step("rest", "", "")])).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("STEPS_FAILED")));
    assert_eq!(shop.executed(), ["scan", "rest"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_not_wanted_is_not_asked_for_its_items() {
    let mut shop = Shop::new();
    let scan = step("scan", "", "when = \"false\"");
    let each = "for_each = \"steps.scan.output.hosts\"\nwhen = \"steps.scan.ran\"";
    let row = shop.play(&job(&[scan, step("update", "", each), step("rest", "", "")])).await;
    assert_eq!(row.status(), "completed", "{:?}", message(&row));
    assert_eq!(shop.standings(row.id()).await, ["scan=skipped", "update=skipped", "rest=completed"]);
}

/// Larger than what is kept with a step: it would run for nothing, and the run would be told as done.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_too_large_fails_its_step() {
    let mut shop = Shop::new();
    let text = job(&[step("update", "", "for_each = \"inputs.hosts\"")]);
    let text = text.replacen("[[step]]", "[inputs.hosts]\ntype = \"list\"\n[[step]]", 1);
    let playbook = shop.playbook(&text);
    let input = json!({"hosts": ["x".repeat(300 * 1024)]});
    let id = shop.queue(&playbook, NewRun { input, ..NewRun::default() }).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("BAD_TEMPLATE")));
    assert!(message(&row).unwrap().contains("at most 262144"), "{:?}", message(&row));
}

/// A key that somebody else's item has: the step before it is not executed again, and the run says why it ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_refuses_ends_the_run_with_words() {
    let mut shop = Shop::new();
    let each = "for_each = \"steps.scan.output.hosts\"";
    let hosts: Vec<String> = (0..3).map(|number| format!("h{number}")).collect();
    let scan = step("scan", &answers(&json!({"output": {"hosts": hosts}}).to_string()), "");
    let long = "n".repeat(251);
    let text = job(&[scan, step("update", "", each), step("rest", "", "")]);
    let mut playbook = shop.playbook(&text);
    // What the checker would have refused: a worker of another version may have taken it.
    playbook.steps[1].key = format!("{long}é");
    shop.options.playbooks = waypost_worker::playbook::Playbooks::default().with(playbook.clone());
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("STEP_REFUSED")), "{:?}", message(&row));
    assert!(message(&row).unwrap().contains("key"), "{:?}", message(&row));
    assert_eq!(shop.executed(), ["scan"]);
    assert_eq!(shop.standings(&id).await[0], "scan=completed");
    shop.verify().await;
}

/// It is taken up again as a stale lease is: after the lease, and so many times.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_accepts_no_end_is_not_executed_for_ever() {
    let mut shop = Shop::new();
    let playbook = shop.playbook(&job(&[step("check", "", "")]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.faulty.refuses_ends.store(true, Ordering::SeqCst);
    for round in 1..=6 {
        let running = shop.start();
        eventually(&format!("round {round} is told of"), async || {
            let told = shop.messages(&id).await;
            let refused = told.iter().filter(|it| it.starts_with("No end of this run is accepted"));
            (refused.count() == round).then_some(())
        })
        .await;
        running.die().await;
        assert_eq!(shop.run(&id).await.status(), "running");
        shop.store.advance_clock(Span::from_seconds(61)).await.unwrap();
    }
    shop.store.sweep("engine".into(), 10).await.unwrap();
    let row = shop.run(&id).await;
    assert_eq!((row.status(), row.phase()), ("failed", Phase::Settled));
    assert_eq!(shop.executed(), ["check"]);
    shop.verify().await;
}

/// The lifecycle that people are shown: what fails is executed once, and said to have failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_command_of_the_example_lifecycle_is_executed_once() {
    let lifecycle = include_str!("../../../../../docs/examples/lifecycles/release.toml");
    let shop = Shop::new();
    shop.store.add_lifecycle(lifecycle.to_owned(), "tests".into()).await.unwrap();
    let new = shop.carrying(&["sh", "-c", "echo deployed >> ledger; exit 1"], 0);
    let id = shop.enqueue(NewRun { lifecycle: "release".into(), ..new }).await;
    for name in ["submit", "approve"] {
        let reason = Some("tested".to_owned());
        shop.command(CommandWrite { name: name.into(), reason, ..Shop::cancelling(&id) }).await;
    }
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("EXIT_1")));
    assert_eq!(shop.ledger(), ["deployed"]);
    shop.verify().await;
}
