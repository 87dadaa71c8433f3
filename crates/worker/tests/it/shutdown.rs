//! Claims stop, runs may end, the rest is stopped and given back.

use waypost_kernel::Phase;
use waypost_worker::Stage;

use crate::support::{Shop, until_gone};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_in_time_is_finished_and_no_other_is_begun() {
    let mut shop = Shop::new();
    shop.options.grace = std::time::Duration::from_secs(600);
    let first = shop.script("echo ready; until test -e go; do sleep 0.005; done").await;
    let running = shop.start();
    shop.until_printed(&first, "ready").await;
    running.shutdown.send_replace(Stage::Draining);
    let second = shop.script("exit 0").await;
    std::fs::write(shop.path("go"), "").unwrap();
    let summary = running.ended().await;
    assert_eq!((summary.claimed, summary.succeeded), (1, 1));
    assert_eq!(shop.run(&first).await.status(), "success");
    assert_eq!(shop.run(&second).await.phase(), Phase::Ready);
}

// proves X5
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_end_is_stopped_and_given_back_whole() {
    let shop = Shop::new();
    let id = shop
        .script("test -e again && exit 0; touch again; trap 'echo bye; exit 1' TERM; echo $$ > pids; echo ready; while :; do sleep 0.01; done")
        .await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    let summary = running.stop().await;
    assert_eq!((summary.claimed, summary.released), (1, 1));
    until_gone(&shop.pids("pids", 1).await).await;
    let row = shop.run(&id).await;
    assert_eq!(row.phase(), Phase::Held);
    assert!(row.run.lease.as_ref().unwrap().is_vacant());
    let messages = shop.events(&id).await;
    assert_eq!(messages.last().unwrap().command, "release", "the output was written before");
    assert!(shop.lines(&id).await.contains(&("out".into(), "bye".into())));
    // Whoever comes next goes on with the same attempt.
    assert_eq!(shop.work().await.succeeded, 1);
    assert_eq!(shop.run(&id).await.run.attempt, 1);
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_waits_for_nobody() {
    let mut shop = Shop::new();
    shop.options.grace = std::time::Duration::from_secs(600);
    let id = shop.script("trap '' TERM; echo $$ > pids; echo ready; while :; do sleep 0.01; done").await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    running.shutdown.send_replace(Stage::Draining);
    running.shutdown.send_replace(Stage::Now);
    assert_eq!(running.ended().await.released, 1);
    until_gone(&shop.pids("pids", 1).await).await;
}
