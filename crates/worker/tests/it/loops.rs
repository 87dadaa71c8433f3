//! Care that any process may take.

use tokio::sync::watch;
use waypost_kernel::Span;
use waypost_store::Claim;
use waypost_worker::Stage;
use waypost_worker::loops::{Supervisor, Sweeper};
use waypost_worker::schedules::{Scheduler, SchedulerOptions};

use crate::support::{Shop, eventually};

// proves D7
#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_and_not_begun_is_swept() {
    let shop = Shop::new();
    let id = shop.script("exit 0").await;
    let claim = Claim { worker: "gone".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    shop.store.claim(claim).await.unwrap();
    let sweeper = Sweeper::new(shop.store.clone(), "engine");
    assert!(sweeper.sweep().await.unwrap().is_empty());
    shop.store.advance_clock(Span::from_seconds(301)).await.unwrap();
    assert_eq!(sweeper.sweep().await.unwrap(), [(id.clone(), "expire".to_owned())]);
    assert_eq!(shop.run(&id).await.status(), "cancelled");
    assert!(sweeper.sweep().await.unwrap().is_empty());
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loops_work_until_they_are_told() {
    let shop = Shop::new();
    let id = shop.script("exit 0").await;
    let claim = Claim { worker: "gone".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    shop.store.claim(claim).await.unwrap();
    shop.store.advance_clock(Span::from_seconds(301)).await.unwrap();
    let (stop, told) = watch::channel(Stage::Working);
    let supervisor = Supervisor::new(shop.store.clone(), "engine", told).firing(SchedulerOptions::default());
    let supervised = tokio::spawn(supervisor.start().await.unwrap().run(None));
    assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
    stop.send_replace(Stage::Draining);
    supervised.await.unwrap().unwrap();
}

// proves X11 and C10: pruning is a schedule that every process fires, and no loop beside it
#[tokio::test(flavor = "multi_thread")]
async fn what_is_past_its_time_is_pruned() {
    let shop = Shop::unguarded();
    let id = shop.script("exit 0").await;
    shop.work().await;
    // The run with the newest event always stays.
    shop.script("exit 0").await;
    let mut scheduler = Scheduler::new(shop.store.clone(), SchedulerOptions::default()).await.unwrap();
    scheduler.run_once().await.unwrap();
    scheduler.settle().await;
    assert!(shop.store.run("default".into(), id.clone()).await.is_ok());
    shop.store.advance_clock(Span::from_seconds(31 * 86_400)).await.unwrap();
    let pruned = eventually("the run is pruned", async || {
        shop.store.run("default".into(), id.clone()).await.is_err().then_some(())
    });
    let ticks = async {
        loop {
            scheduler.run_once().await.unwrap();
            scheduler.settle().await;
        }
    };
    tokio::select! {
        () = pruned => {}
        () = ticks => {}
    }
    shop.verify().await;
}
