//! Retries of a playbook's steps, where a lost worker loses the run.

use serde_json::json;
use waypost_kernel::{Catalog, Span};
use waypost_store::{NewRun, RunRow};
use waypost_worker::Stage;
use waypost_worker::playbook::known::{LeftOpen, fill};

use super::kit::{cleanup, step, waits_for};
use crate::support::{Shop, code, message};

fn hangs_once() -> String {
    format!("test -e hung || {{ touch hung; {}; }}", waits_for("never"))
}

fn deploy(steps: &[String]) -> String {
    format!("name = \"ship\"\nlifecycle = \"deploy\"\n{}", steps.concat())
}

/// Started as by name or by file; its worker is killed once, and others work until it rests.
async fn with_a_worker_lost(shop: &mut Shop, text: &str) -> RunRow {
    let playbook = shop.playbook(text);
    let open = LeftOpen { queue: true, priority: true, lifecycle: true };
    let asked = NewRun { input: json!({}), ..NewRun::default() };
    let new = fill(&playbook, &Catalog::shipped().unwrap(), asked, open).unwrap();
    let id = shop.enqueue(new).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    running.die().await;
    shop.store.advance_clock(Span::from_seconds(61)).await.unwrap();
    shop.store.sweep("engine".into(), 100).await.unwrap();
    shop.options.name = "w2".to_owned();
    shop.work().await;
    shop.run(&id).await
}

// proves U12
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_costs_a_try_of_the_step_and_not_the_run() {
    let mut shop = Shop::new();
    let text = deploy(&[step("build", "true", ""), step("ship", &hangs_once(), "retries = 2")]);
    let row = with_a_worker_lost(&mut shop, &text).await;
    assert_eq!((row.status(), row.run.attempt, row.run.take_overs), ("success", 1, 1));
    assert_eq!(shop.executed(), ["build", "ship", "ship"]);
    shop.verify().await;
}

// proves U12: the lost one is among the tries that the step has
#[tokio::test(flavor = "multi_thread")]
async fn the_try_that_was_lost_is_used() {
    let mut shop = Shop::new();
    let text =
        deploy(&[step("ship", &format!("{}; exit 7", hangs_once()), "retries = 2\nbackoff = [\"1ms\"]")]);
    let row = with_a_worker_lost(&mut shop, &text).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("EXIT_7")));
    assert_eq!(shop.executed(), ["ship", "ship", "ship"]);
    shop.verify().await;
}

// proves U12: whoever asked for no retries of a step is not given one by those of another
#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_retries_is_not_begun_a_second_time() {
    let mut shop = Shop::new();
    let text = deploy(&[
        step("build", "true", "retries = 2"),
        step("ship", &hangs_once(), ""),
        step("tell", "true", ""),
        cleanup("undo", "true", ""),
    ]);
    let row = with_a_worker_lost(&mut shop, &text).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("WORKER_LOST")), "{:?}", message(&row));
    assert!(message(&row).unwrap().contains("ship, which has no retries"), "{:?}", message(&row));
    assert_eq!(shop.executed(), ["build", "ship", "undo"]);
    shop.verify().await;
}

// proves U12: a worker that is told to end is not lost
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_gives_the_run_back_costs_no_try() {
    let mut shop = Shop::new();
    let text = deploy(&[step("build", "true", "retries = 1"), step("ship", &hangs_once(), "")]);
    let playbook = shop.playbook(&text);
    let new = playbook.new_run(&Catalog::shipped().unwrap(), &json!({})).unwrap();
    let id = shop.enqueue(new).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    running.shutdown.send_replace(Stage::Draining);
    running.shutdown.send_replace(Stage::Now);
    running.ended().await;
    shop.options.name = "w2".to_owned();
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "success");
    assert_eq!(shop.executed(), ["build", "ship", "ship"]);
    shop.verify().await;
}
