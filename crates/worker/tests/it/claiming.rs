//! Which runs a worker takes.

use waypost_kernel::Phase;
use waypost_store::NewRun;
use waypost_worker::{Outcome, Stage};

use crate::support::{Shop, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_may_execute_nothing_claims_nothing() {
    let mut shop = Shop::new();
    shop.options.allow_commands = false;
    let id = shop.script("exit 0").await;
    assert_eq!(shop.work().await.claimed, 0);
    assert_eq!(shop.run(&id).await.phase(), Phase::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_for_one_run_works_that_and_ends() {
    let mut shop = Shop::new();
    shop.options.allow_commands = false;
    let other = shop.script("exit 0").await;
    let mine = shop.script("exit 0").await;
    shop.options.only = Some(mine.clone());
    let summary = shop.start().ended().await;
    assert_eq!((summary.claimed, summary.succeeded), (1, 1));
    assert_eq!(shop.run(&mine).await.status(), "success");
    assert_eq!(shop.run(&other).await.phase(), Phase::Ready);
    assert_eq!(shop.start().ended().await.claimed, 0, "it is settled: nothing to wait for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_for_one_run_waits_while_another_holds_it() {
    let mut shop = Shop::new();
    let id = shop.script("echo ready; until test -e go; do sleep 0.005; done").await;
    let holder = shop.start();
    shop.until_printed(&id, "ready").await;
    shop.options.only = Some(id.clone());
    shop.options.name = "w2".to_owned();
    let waiting = shop.start();
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(waiting.ended().await.claimed, 0);
    assert_eq!(holder.stop().await.succeeded, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_run_is_an_error() {
    let mut shop = Shop::new();
    shop.options.only = Some("run-00000000-0000-0000-0000-000000000000".to_owned());
    assert_eq!(shop.worker().run_once().await.map_err(|error| error.code()), Err("NOT_FOUND"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_for_others_is_left_alone_and_holds_nobody_up() {
    let mut shop = Shop::new();
    shop.options.handlers = shop.options.handlers.with("mine", |_| async { Outcome::done() });
    let new = NewRun { lifecycle: "deploy".into(), playbook: Some("theirs".into()), ..NewRun::default() };
    let theirs = shop.enqueue(new.clone()).await;
    let mine = shop.enqueue(NewRun { playbook: Some("mine".into()), ..new }).await;
    let summary = shop.work().await;
    assert_eq!((summary.claimed, summary.succeeded), (1, 1));
    assert_eq!(shop.run(&mine).await.status(), "success");
    let theirs = shop.run(&theirs).await;
    assert_eq!((theirs.phase(), theirs.run.seq, theirs.run.attempt), (Phase::Ready, 1, 0));
    shop.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_work_side_by_side() {
    let mut shop = Shop::new();
    shop.options.slots = 3;
    // Each waits for the others: one after the other they would wait for ever.
    for name in ["a", "b", "c"] {
        shop.script(&format!("touch {name}; until test -e a -a -e b -a -e c; do sleep 0.005; done")).await;
    }
    let summary = shop.work().await;
    assert_eq!((summary.claimed, summary.succeeded), (3, 3));
}

// proves D3
#[tokio::test(flavor = "multi_thread")]
async fn several_workers_execute_each_run_once() {
    let mut shop = Shop::unguarded();
    for _ in 0..30 {
        shop.script("echo $WAYPOST_RUN_ID >> done").await;
    }
    let mut workers = Vec::new();
    for name in ["w1", "w2", "w3"] {
        shop.options.name = name.to_owned();
        shop.options.slots = 2;
        workers.push(shop.start());
    }
    eventually("all are done", async || {
        let text = std::fs::read_to_string(shop.path("done")).unwrap_or_default();
        (text.lines().count() == 30).then_some(())
    })
    .await;
    let mut claimed = 0;
    for worker in workers {
        worker.shutdown.send_replace(Stage::Draining);
        claimed += worker.ended().await.claimed;
    }
    assert_eq!(claimed, 30);
    let text = std::fs::read_to_string(shop.path("done")).unwrap();
    let ids: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(ids.len(), 30);
    shop.verify().await;
}
