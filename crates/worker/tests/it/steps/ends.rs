//! However a run ends, what was to be undone is.

use std::sync::atomic::Ordering;

use waypost_kernel::Span;
use waypost_store::{CommandWrite, NewRun};

use super::kit::{answers, cleanup, job, step, waits_for};
use crate::support::{On, Shop, code, message, open};

/// Switched off by a step, and on again by a cleanup.
pub fn with_ha(steps: &[String]) -> String {
    let off = format!("echo off > ha; {}", answers(r#"{"output":{"was":"on"}}"#));
    let on = "test \"$WAS\" = on && echo on > ha";
    let was = "env = { WAS = \"{{ steps['disable HA'].output.was }}\" }\nafter = \"disable HA\"";
    let mut all = vec![step("before", "", ""), step("disable HA", &off, "")];
    all.extend(steps.iter().cloned());
    all.push(cleanup("restore HA", on, was));
    job(&all)
}

pub fn ha(shop: &Shop) -> String {
    std::fs::read_to_string(shop.path("ha")).unwrap_or_default().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_well_cleans_up_last() {
    let mut shop = Shop::new();
    let row = shop.play(&with_ha(&[step("update", "", "")])).await;
    assert_eq!((row.status(), ha(&shop).as_str()), ("completed", "on"));
    assert_eq!(shop.executed(), ["before", "disable HA", "update", "restore HA"]);
    assert!(!row.run.requires_cleanup);
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_cleans_up_first() {
    let mut shop = Shop::new();
    let row =
        shop.play(&with_ha(&[step("update", "echo no disk >&2; exit 4", ""), step("rest", "", "")])).await;
    assert_eq!(
        (row.status(), code(&row), message(&row)),
        ("failed", Some("EXIT_4"), Some("update: no disk"))
    );
    assert_eq!(ha(&shop), "on");
    let all = [
        "before=completed",
        "disable HA=completed",
        "update=failed",
        "rest=skipped",
        "cleanup: restore HA=completed",
    ];
    assert_eq!(shop.standings(row.id()).await, all);
    shop.verify().await;
}

// proves J4, X5: whoever takes the run over knows that the step had begun, and was stopped
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_step_is_told_as_stopped_though_its_worker_dies_while_it_cleans_up() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut shop = Shop::on(store);
        let undo = format!("echo cleaning; test -e again || {{ {}; }}", waits_for("never"));
        let text = job(&[
            step("update", &waits_for("never"), ""),
            step("rest", "", ""),
            cleanup("undo", &undo, "after = \"update\""),
        ]);
        let playbook = shop.playbook(&text);
        let id = shop.queue(&playbook, NewRun::default()).await;
        let first = shop.start();
        shop.until_printed(&id, "waiting").await;
        shop.cancel(&id).await;
        shop.until_printed(&id, "cleaning").await;
        first.die().await;
        std::fs::write(shop.path("again"), "").unwrap();
        shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        let second = shop.start();
        let row = shop.until_settled(&id).await;
        second.stop().await;
        assert_eq!((row.status(), code(&row)), ("cancelled", Some("CANCELLED")), "{on:?}");
        let all = ["update=failed", "rest=skipped", "cleanup: undo=completed"];
        assert_eq!(shop.standings(&id).await, all, "{on:?}");
        let update = shop.steps(&id).await.remove(0);
        let failure = update.failure.unwrap();
        assert_eq!((&*failure.code, &*failure.message), ("CANCELLED", "cancel by ann"), "{on:?}");
        shop.verify().await;
    }
}

// proves J5: only if that step ran
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_done_is_not_undone() {
    let mut shop = Shop::new();
    let text = with_ha(&[]).replace("name = \"before\"", "name = \"before\"\ntimeout = \"1h\"");
    let text = text.replacen(
        "WAYPOST_IDEMPOTENCY_KEY\" >> ledger; ",
        "WAYPOST_IDEMPOTENCY_KEY\" >> ledger; exit 1",
        1,
    );
    let row = shop.play(&text).await;
    assert_eq!(row.status(), "failed");
    assert_eq!(shop.executed(), ["before"]);
    let all = ["before=failed", "disable HA=skipped", "cleanup: restore HA=skipped"];
    assert_eq!(shop.standings(row.id()).await, all);
}

// proves J6
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_step_and_cleans_up() {
    let mut shop = Shop::new();
    let text = with_ha(&[step("update", &waits_for("never"), "tasks = [\"a\"]"), step("rest", "", "")]);
    let playbook = shop.playbook(&text);
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    shop.cancel(&id).await;
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row), ha(&shop).as_str()), ("cancelled", Some("CANCELLED"), "on"));
    let steps = shop.steps(&id).await;
    let failed = steps[2].failure.as_ref().map(|failure| failure.code.to_string());
    assert_eq!((steps[2].status.as_str(), failed.as_deref()), ("failed", Some("CANCELLED")));
    assert_eq!(steps[3].status, "skipped");
    let tasks = shop.store.items(id.clone(), Some("task".to_owned())).await.unwrap();
    let failed = tasks[0].failure.as_ref().map(|failure| failure.code.to_string());
    assert_eq!((tasks[0].status.as_str(), failed.as_deref()), ("failed", Some("CANCELLED")));
    running.stop().await;
    shop.verify().await;
}

/// The write that would begin the next one is refused: the worker need not have heard of it.
// proves X8, U5
#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_once_a_cancel_or_a_pause_is_stored() {
    let each = "id = \"update\"\nfor_each = \"['h1', 'h2', 'h3']\"";
    for (name, graceful, end) in
        [("cancel", false, "cancelled"), ("cancel", true, "cancelled"), ("pause", false, "paused")]
    {
        for on in [On::Sqlite, On::Postgres] {
            let (store, _server) = open(on).await;
            let mut shop = Shop::on(store);
            let text = with_ha(&[step("update {{ item }}", &waits_for("go"), each), step("rest", "", "")]);
            let playbook = shop.playbook(&text);
            let id = shop.queue(&playbook, NewRun::default()).await;
            shop.faulty.is_deaf.store(true, Ordering::SeqCst);
            let running = shop.start();
            shop.until_printed(&id, "waiting").await;
            let asked = CommandWrite {
                name: name.into(),
                graceful,
                reason: Some("why".into()),
                ..Shop::cancelling(&id)
            };
            shop.command(asked).await;
            std::fs::write(shop.path("go"), "").unwrap();
            let row = shop.until_rests(&id).await;
            assert_eq!((row.status(), ha(&shop).as_str()), (end, "on"), "{name}");
            assert_eq!(shop.executed(), ["before", "disable HA", "update h1", "restore HA"], "{name}");
            let steps = shop.standings(&id).await;
            let left = if name == "cancel" { "skipped" } else { "pending" };
            let all =
                ["update[1]=completed".to_owned(), format!("update[2]={left}"), format!("update[3]={left}")];
            assert_eq!(steps[2..5], all, "{name}");
            running.stop().await;
            shop.verify().await;
        }
    }
}

// proves J6
#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_cancel_waits_for_the_present_host_alone() {
    let mut shop = Shop::new();
    let each = "id = \"update\"\nfor_each = \"['h1', 'h2']\"";
    let text = with_ha(&[step("update {{ item }}", &waits_for("go"), each)]);
    let playbook = shop.playbook(&text);
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    shop.command(CommandWrite { graceful: true, ..Shop::cancelling(&id) }).await;
    shop.two_beats(&id).await;
    std::fs::write(shop.path("go"), "").unwrap();
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), ha(&shop).as_str()), ("cancelled", "on"));
    assert_eq!(shop.executed(), ["before", "disable HA", "update h1", "restore HA"]);
    let steps = shop.standings(&id).await;
    assert_eq!(steps[2..4], ["update[1]=completed", "update[2]=skipped"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_fails_is_never_told_as_a_success() {
    let mut shop = Shop::new();
    let text = with_ha(&[]).replace("test \"$WAS\" = on", "exit 9; test");
    let row = shop.play(&text).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("CLEANUP_FAILED")));
    assert_eq!(row.details["cleanup_failed"], serde_json::json!(["restore HA"]));
    assert_eq!(ha(&shop), "off");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_is_tried_again_as_a_step_is() {
    let mut shop = Shop::new();
    let text = with_ha(&[])
        .replace("test \"$WAS\" = on", "test $(grep -c restore ledger) -ge 3")
        .replace("after = ", "retries = 2\nbackoff = [\"5ms\"]\nafter = ");
    let row = shop.play(&text).await;
    assert_eq!((row.status(), ha(&shop).as_str()), ("completed", "on"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_gives_the_run_back_and_the_next_worker_goes_on() {
    let mut shop = Shop::new();
    let text = with_ha(&[step("update", &waits_for("go"), ""), step("rest", "", "")]);
    let playbook = shop.playbook(&text);
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    assert_eq!(running.stop().await.released, 1);
    assert_eq!(shop.standings(&id).await[2], "update=pending");
    assert_eq!(ha(&shop), "off", "it goes on, so nothing is undone");
    std::fs::write(shop.path("go"), "").unwrap();
    shop.work().await;
    assert_eq!((shop.run(&id).await.status(), ha(&shop).as_str()), ("completed", "on"));
    assert_eq!(shop.executed(), ["before", "disable HA", "update", "update", "rest", "restore HA"]);
    let keys = shop.ledger();
    assert_eq!(keys[2], keys[3], "a half-done step has its key again");
    shop.verify().await;
}
