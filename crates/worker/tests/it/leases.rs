//! Who loses its lease stops, kills, and writes nothing more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use waypost_kernel::{Phase, Span};
use waypost_worker::loops::Sweeper;

use crate::faulty::Mode;
use crate::support::{Shop, code, eventually, until_gone};

const LOOP: &str = "echo $$ > pids; echo ready; while :; do echo tick; sleep 0.01; done";

// proves X5, D7
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_the_process_and_every_write() {
    let shop = Shop::new();
    let id = shop.script(LOOP).await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    // Everybody else sees the lease run out before the holder can renew it.
    shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
    eventually("the sweeper wins against the heartbeat", async || {
        shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        let moved = Sweeper::new(shop.store.clone(), "engine").sweep().await.unwrap();
        (!moved.is_empty()).then_some(())
    })
    .await;
    until_gone(&shop.pids("pids", 1).await).await;
    let summary = running.stop().await;
    assert_eq!((summary.lost, summary.claimed), (1, 1));
    let row = shop.run(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("WORKER_LOST")));
    assert_eq!(shop.events(&id).await.last().unwrap().command, "lose", "nothing was written after that");
    shop.verify().await;
}

// proves X5
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_reach_the_store_stops_by_its_own_clock() {
    for mode in [Mode::Away, Mode::Hanging] {
        let mut shop = Shop::new();
        shop.options.lease = Duration::from_secs(3);
        let id = shop.script(LOOP).await;
        let running = shop.start();
        shop.until_printed(&id, "ready").await;
        shop.faulty.set(mode);
        until_gone(&shop.pids("pids", 1).await).await;
        let last = shop.events(&id).await.len();
        running.shutdown.send_replace(waypost_worker::Stage::Now);
        let summary = running.ended().await;
        assert_eq!(summary.lost, 1, "{mode:?}");
        shop.faulty.set(Mode::Here);
        assert_eq!(shop.events(&id).await.len(), last, "{mode:?}: nothing was written after that");
        assert_eq!(shop.run(&id).await.phase(), Phase::Held, "its end is for the engine to say");
    }
}

// proves X5
#[tokio::test(flavor = "multi_thread")]
async fn a_result_waits_for_the_store() {
    let shop = Shop::new();
    let id = shop.script("echo ready; until test -e go; do sleep 0.005; done; echo $$ > pids; exit 5").await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    shop.faulty.set(Mode::Away);
    std::fs::write(shop.path("go"), "").unwrap();
    until_gone(&shop.pids("pids", 1).await).await;
    let missed = shop.faulty.missed.load(Ordering::SeqCst);
    eventually("it was tried several times", async || {
        (shop.faulty.missed.load(Ordering::SeqCst) > missed + 3).then_some(())
    })
    .await;
    shop.faulty.set(Mode::Here);
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("EXIT_5")));
    assert_eq!(running.stop().await.failed, 1);
    shop.verify().await;
}

// proves X5
#[tokio::test(flavor = "multi_thread")]
async fn a_short_lease_is_kept_for_as_long_as_the_run_takes() {
    let mut shop = Shop::new();
    shop.options.lease = Duration::from_secs(3);
    let id = shop.script("echo ready; until test -e go; do sleep 0.005; done").await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    let begun = shop.run(&id).await.run.lease.unwrap().until;
    eventually("the lease was renewed past its first end", async || {
        let now = shop.store.now().await.unwrap();
        let lease = shop.run(&id).await.run.lease.unwrap();
        (now > begun && lease.until > now).then_some(())
    })
    .await;
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(shop.until_settled(&id).await.status(), "success");
    running.stop().await;
}
