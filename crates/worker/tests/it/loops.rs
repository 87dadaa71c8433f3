//! Care that any process may take.

use tokio::sync::watch;
use waypost_kernel::Span;
use waypost_store::Claim;
use waypost_worker::Stage;
use waypost_worker::loops::{Pruner, Sweeper};

use crate::support::Shop;

// proves D7
#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_and_not_begun_is_swept() {
    let shop = Shop::new();
    let id = shop.script("exit 0").await;
    let claim = Claim { worker: "gone".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    shop.store.claim(claim).await.unwrap();
    let sweeper = Sweeper::new(shop.store.clone(), "engine");
    assert!(sweeper.run_once().await.unwrap().is_empty());
    shop.store.advance_clock(Span::from_seconds(301)).await.unwrap();
    assert_eq!(sweeper.run_once().await.unwrap(), [(id.clone(), "expire".to_owned())]);
    assert_eq!(shop.run(&id).await.status(), "cancelled");
    assert!(sweeper.run_once().await.unwrap().is_empty());
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
    let sweeping = tokio::spawn(Sweeper::new(shop.store.clone(), "engine").run(told.clone()));
    let pruning = tokio::spawn(Pruner::new(shop.store.clone()).run(told));
    assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
    stop.send_replace(Stage::Draining);
    sweeping.await.unwrap();
    pruning.await.unwrap();
}

// proves X11
#[tokio::test(flavor = "multi_thread")]
async fn what_is_past_its_time_is_pruned_in_batches() {
    let shop = Shop::unguarded();
    let id = shop.script("exit 0").await;
    shop.work().await;
    // The run with the newest event always stays.
    shop.script("exit 0").await;
    let pruner = Pruner::new(shop.store.clone());
    assert_eq!(pruner.run_once().await.unwrap().runs, 0);
    shop.store.advance_clock(Span::from_seconds(31 * 86_400)).await.unwrap();
    let pruned = pruner.run_once().await.unwrap();
    assert_eq!((pruned.runs, pruned.more), (1, false));
    assert!(shop.store.run("default".into(), id).await.is_err());
}
