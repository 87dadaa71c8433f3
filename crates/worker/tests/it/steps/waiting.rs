//! Runs that wait for a time: in nobody's hands, and in no worker's slot.

use waypost_kernel::Span;
use waypost_kernel::backoff::Backoff;
use waypost_store::{NewRun, RunRow, Wait};

use super::hours::closed;
use super::kit::{cleanup, job, step};
use crate::support::{On, Shop, code, eventually, open};

const HOUR: Span = Span::from_seconds(3_600);

async fn until_waits(shop: &Shop, id: &str) -> RunRow {
    eventually(&format!("{id} waits in nobody's hands"), async || {
        let row = shop.run(id).await;
        let is_left = row.run.lease.as_ref().is_some_and(waypost_kernel::Lease::is_vacant);
        (is_left && row.run.reason.is_some()).then_some(row)
    })
    .await
}

// proves U6, J4
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_window_takes_no_slot() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _alive) = open(on).await;
        let mut shop = Shop::on(store);
        shop.options.slots = 1;
        let window = closed(&shop, "wait").await;
        let playbook = shop.playbook(&job(&[window, step("update", "true", "")]));
        let id = shop.queue(&playbook, NewRun::default()).await;
        let running = shop.start();
        let row = until_waits(&shop, &id).await;
        assert_eq!((row.status(), row.run.reason.as_deref()), ("running", Some(Wait::WINDOW)));
        let other = shop.script("true").await;
        assert_eq!(shop.until_settled(&other).await.status(), "success");
        shop.store.advance_clock(HOUR).await.unwrap();
        let row = shop.until_settled(&id).await;
        assert_eq!((row.status(), row.run.attempt, row.run.take_overs), ("completed", 1, 0));
        running.stop().await;
        shop.verify().await;
    }
}

// proves U6: the time of a step's next try is stored, and any worker keeps to it
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_is_far_away_takes_no_slot() {
    let mut shop = Shop::new();
    let fails_once = "test -e there || { touch there; exit 1; }";
    let playbook = shop.playbook(&job(&[
        step("first", "true", ""),
        step("update", fails_once, "retries = 1\nbackoff = [\"10m\"]"),
    ]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.work().await;
    let row = until_waits(&shop, &id).await;
    assert_eq!(row.run.reason.as_deref(), Some(Wait::RETRY));
    assert_eq!(shop.work().await.claimed, 0);
    shop.store.advance_clock(Span::from_seconds(600)).await.unwrap();
    shop.options.name = "w2".to_owned();
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), row.run.attempt), ("completed", 1));
    assert_eq!(shop.executed(), ["first", "update", "update"]);
    shop.verify().await;
}

// proves U6, D9
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_commands_retry_goes_on_counting_elsewhere() {
    let mut shop = Shop::new();
    shop.options.backoff = Backoff::List(vec![Span::from_seconds(600)]);
    let id = shop.enqueue(shop.carrying(&["sh", "-c", "echo try >> tries; exit 7"], 2)).await;
    for worker in ["w1", "w2"] {
        shop.options.name = worker.to_owned();
        shop.work().await;
        assert_eq!(until_waits(&shop, &id).await.run.reason.as_deref(), Some(Wait::RETRY));
        assert_eq!(shop.work().await.claimed, 0);
        shop.store.advance_clock(Span::from_seconds(601)).await.unwrap();
    }
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), row.run.attempt), ("failed", 1));
    assert_eq!(std::fs::read_to_string(shop.path("tries")).unwrap().lines().count(), 3);
    assert!(code(&row).is_some());
    shop.verify().await;
}

// proves U6: a worker that is for one run comes back to it
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_for_one_run_waits_for_it() {
    let mut shop = Shop::new();
    let window = closed(&shop, "wait").await;
    let playbook = shop.playbook(&job(&[window, step("update", "true", "")]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.options.only = Some(id.clone());
    let running = shop.start();
    until_waits(&shop, &id).await;
    shop.store.advance_clock(HOUR).await.unwrap();
    assert_eq!(running.ended().await.succeeded, 1);
    assert_eq!(shop.run(&id).await.status(), "completed");
}

// proves U6: however long the wait, a run takes no longer than it may
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_longer_than_it_may_fails_then() {
    let mut shop = Shop::new();
    let window = closed(&shop, "wait").await;
    let text = job(&[window, step("update", "true", "")]);
    let playbook = shop.playbook(&text.replacen("lifecycle", "timeout = \"1m\"\nlifecycle", 1));
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.work().await;
    let row = until_waits(&shop, &id).await;
    assert_eq!(row.run.reason.as_deref(), Some(Wait::TIMEOUT), "the window opens too late for it");
    let row = shop.store.explain(vec![row]).await.unwrap().remove(0);
    let told = row.waiting().unwrap();
    assert!(told.text.contains("its time (timeout) is over at"), "{}", told.text);
    shop.store.advance_clock(Span::from_seconds(61)).await.unwrap();
    shop.work().await;
    assert_eq!(code(&shop.run(&id).await), Some("RUN_TIMEOUT"));
}

/// Whether somebody has the run or not when it is cancelled, and whether something is to be cleaned up: what is not under way is skipped.
// proves J6, U6
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_skips_what_waits_for_its_next_try() {
    let fails = |backoff: &str| step("update", "exit 4", &format!("retries = 1\nbackoff = [\"{backoff}\"]"));
    let undo = cleanup("undo", "", "after = \"first\"");
    for (backoff, cleanups) in
        [("10s", vec![]), ("10s", vec![undo.clone()]), ("10m", vec![]), ("10m", vec![undo])]
    {
        let mut shop = Shop::new();
        let all = [vec![step("first", "", ""), fails(backoff)], cleanups.clone()].concat();
        let playbook = shop.playbook(&job(&all));
        let id = shop.queue(&playbook, NewRun::default()).await;
        let running = shop.start();
        eventually("its next try is waited for", async || {
            shop.steps(&id).await[1].not_before.is_some().then_some(())
        })
        .await;
        if backoff == "10m" {
            until_waits(&shop, &id).await;
        }
        shop.cancel(&id).await;
        assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
        let update = shop.steps(&id).await.remove(1);
        let failed = update.failure.as_ref().map(|failure| failure.code.to_string());
        assert_eq!((update.status.as_str(), failed.as_deref()), ("skipped", Some("EXIT_4")), "{backoff}");
        let expected = [vec!["first", "update"], vec!["undo"; cleanups.len()]].concat();
        assert_eq!(shop.executed(), expected, "{backoff}");
        running.stop().await;
        shop.verify().await;
    }
}

/// What is to be done at the end of every run is done, though the run came to no step.
// proves J5, U6
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_the_window_is_waited_for_does_what_is_for_every_end() {
    let mut shop = Shop::new();
    let window = closed(&shop, "wait").await;
    let all =
        [window, step("update", "", ""), cleanup("tell", "", ""), cleanup("undo", "", "after = \"update\"")];
    let playbook = shop.playbook(&job(&all));
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    until_waits(&shop, &id).await;
    shop.cancel(&id).await;
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), row.run.cleanup_failed), ("cancelled", false));
    let all = ["update=skipped", "cleanup: tell=completed", "cleanup: undo=skipped"];
    assert_eq!(
        (shop.executed(), shop.standings(&id).await),
        (vec!["tell".to_owned()], all.map(str::to_owned).to_vec())
    );
    running.stop().await;
    shop.verify().await;
}
