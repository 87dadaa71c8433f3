//! A cancel reaches the processes, all of them, and is the run's end.

use std::time::Duration;

use waypost_store::CommandWrite;

use crate::support::{Shop, code, eventually, until_gone};

// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_asks_first_and_the_last_words_count() {
    for shop in Shop::both() {
        let id = shop.script("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done").await;
        let running = shop.start();
        shop.until_printed(&id, "ready").await;
        shop.cancel(&id).await;
        let row = shop.until_settled(&id).await;
        assert_eq!((row.status(), code(&row)), ("cancelled", Some("CANCELLED")));
        shop.until_printed(&id, "bye").await;
        assert_eq!(running.stop().await.cancelled, 1);
        shop.verify().await;
    }
}

// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_cancel_lets_the_command_end_but_not_begin_again() {
    let shop = Shop::new();
    let script = "echo ready; until test -e go; do sleep 0.005; done; echo over; exit 1";
    let id = shop.enqueue(shop.carrying(&["sh", "-c", script], 5)).await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    shop.command(CommandWrite { graceful: true, ..Shop::cancelling(&id) }).await;
    shop.two_beats(&id).await;
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
    let lines: Vec<String> = shop.lines(&id).await.into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["ready", "over"]);
    running.stop().await;
}

// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_listen_is_killed_with_all_its_descendants() {
    for shop in Shop::both() {
        let script = "trap '' TERM; echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 300' & \
                      sh -c 'trap \"\" TERM; sleep 300 & echo $! >> pids; wait' & echo ready; wait";
        let id = shop.script(script).await;
        let running = shop.start();
        let pids = shop.pids("pids", 3).await;
        shop.until_printed(&id, "ready").await;
        shop.cancel(&id).await;
        assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
        until_gone(&pids).await;
        running.stop().await;
    }
}

// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn a_descendant_that_left_the_group_is_found() {
    let shop = Shop::new();
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 300 & echo $! >> pids; wait' & \
                  echo $$ >> pids; wait";
    let id = shop.script(script).await;
    let running = shop.start();
    let pids = shop.pids("pids", 3).await;
    shop.cancel(&id).await;
    assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
    until_gone(&pids).await;
    running.stop().await;
}

// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn a_finish_that_loses_the_race_to_a_cancel_ends_as_cancelled() {
    let shop = Shop::new();
    for _ in 0..5 {
        let id = shop.script("echo ready; until test -e go; do sleep 0.005; done").await;
        let running = shop.start();
        shop.until_printed(&id, "ready").await;
        shop.cancel(&id).await;
        std::fs::write(shop.path("go"), "").unwrap();
        assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
        assert_eq!(running.stop().await.cancelled, 1);
        std::fs::remove_file(shop.path("go")).unwrap();
    }
    shop.verify().await;
}

// proves D9
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_wait_between_tries() {
    let mut shop = Shop::new();
    shop.options.backoff =
        waypost_kernel::backoff::Backoff::List(vec![waypost_kernel::Span::from_seconds(3_600)]);
    let id = shop.enqueue(shop.carrying(&["false"], 1)).await;
    let running = shop.start();
    eventually("it waits for its retry", async || {
        shop.messages(&id).await.iter().any(|it| it == "Retry 1/1 in 3600 seconds").then_some(())
    })
    .await;
    shop.cancel(&id).await;
    assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
    running.stop().await;
}

/// A run that was never begun is cancelled at once, and its holder learns that at its first write.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_start_starts_nothing() {
    let mut shop = Shop::new();
    shop.options.slots = 2;
    let id = shop.script("echo started > witness").await;
    let claim = waypost_store::Claim {
        worker: "w1".into(),
        queues: vec!["default".into()],
        limit: 1,
        lease: Some(waypost_kernel::Span::from_ms(Duration::from_secs(60).as_millis() as i64)),
        ..Default::default()
    };
    shop.store.claim(claim).await.unwrap();
    shop.cancel(&id).await;
    assert_eq!(shop.run(&id).await.status(), "cancelled");
    assert_eq!(shop.work().await.claimed, 0);
    assert!(!shop.path("witness").exists());
}
