//! The worker as a part of somebody's own program.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use waypost_kernel::Span;
use waypost_store::{CommandWrite, NewRun};
use waypost_worker::{Context, Handlers, Outcome};

use crate::faulty::Faulty;
use crate::support::{Shop, code, eventually};

const EXAMPLE: &str = "invoices.rs";

fn greeting() -> NewRun {
    NewRun { lifecycle: "job".into(), playbook: Some("greet".into()), ..NewRun::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_works_a_run_of_its_own() {
    let shop = Shop::new();
    // Tests are in `deps`, examples beside it.
    let here = std::env::current_exe().unwrap();
    let example = here
        .parent()
        .and_then(|deps| deps.parent())
        .unwrap()
        .join("examples")
        .join(EXAMPLE.trim_end_matches(".rs"));
    let ran = Command::new(&example).arg(shop.database()).arg("--once").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let id = String::from_utf8(ran.stdout).unwrap().trim().to_owned();
    let row = shop.run(&id).await;
    assert_eq!((row.status(), &row.details["output"]["number"]), ("completed", &json!(1_001)));
    assert_eq!(row.details["output"]["sent"]["key"], format!("{id}:send%20it:1"));
    let steps = shop.standings(&id).await;
    assert_eq!(steps[1..], ["draw a number=completed", "send it=completed"]);
    assert!(shop.messages(&id).await.contains(&"invoice sent".to_owned()));
    shop.verify().await;
}

// proves X5: what was stored is not done again, and what was not is asked for under the same key
#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_steps_are_done_once_wherever_its_worker_dies() {
    for write in 1..=6 {
        let mut shop = Shop::new();
        let (first, second) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let counters = (first.clone(), second.clone());
        shop.options.handlers = Handlers::default().with("greet", move |context: Context| {
            let (first, second) = counters.clone();
            async move {
                let count = |counter: Arc<AtomicU32>| {
                    move |_key| async move {
                        Outcome::done_with(json!(counter.fetch_add(1, Ordering::SeqCst) + 1))
                    }
                };
                if let Err(ended) = context.step("first", count(first)).await {
                    return ended;
                }
                match context.step("second", count(second)).await {
                    Ok(output) => Outcome::done_with(output),
                    Err(ended) => ended,
                }
            }
        });
        let id = shop.enqueue(greeting()).await;
        shop.faulty.die_at_write(write, true);
        let running = shop.start();
        eventually("it ends or dies", async || {
            let ended = shop.run(&id).await.run.finished_at.is_some();
            (ended || shop.faulty.is_dead()).then_some(())
        })
        .await;
        running.die().await;
        let before = (first.load(Ordering::SeqCst), second.load(Ordering::SeqCst));
        let stored = shop.standings(&id).await.contains(&"first=completed".to_owned());
        shop.faulty = Faulty::new(shop.store.clone());
        shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), ("completed", None), "{write}");
        if stored {
            assert_eq!(first.load(Ordering::SeqCst), before.0, "{write}: the first was stored");
        }
        shop.verify().await;
    }
}

/// A step that is not begun since something else is wanted of the run is no failure of its handler.
// proves X8
#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_next_step_does_not_begin_once_a_pause_or_a_cancel_is_stored() {
    for (name, end) in [("pause", "paused"), ("cancel", "cancelled")] {
        let mut shop = Shop::new();
        shop.faulty.is_deaf.store(true, Ordering::SeqCst);
        let (store, second) = (shop.store.clone(), Arc::new(AtomicU32::new(0)));
        let counter = second.clone();
        shop.options.handlers = Handlers::default().with("greet", move |context: Context| {
            let (store, counter) = (store.clone(), counter.clone());
            async move {
                let asked = CommandWrite {
                    name: name.into(),
                    reason: Some("why".into()),
                    ..Shop::cancelling(&context.run_id)
                };
                let asks = |_key| async move {
                    store.command(asked).await.unwrap();
                    Outcome::done_with(json!(1))
                };
                if let Err(ended) = context.step("first", asks).await {
                    return ended;
                }
                let counts =
                    |_key| async move { Outcome::done_with(json!(counter.fetch_add(1, Ordering::SeqCst))) };
                context.step("second", counts).await.map_or_else(|ended| ended, Outcome::done_with)
            }
        });
        let id = shop.enqueue(greeting()).await;
        let running = shop.start();
        let row = shop.until_rests(&id).await;
        assert_eq!((row.status(), second.load(Ordering::SeqCst)), (end, 0), "{name}: {:?}", row.run.failure);
        assert!(shop.standings(&id).await.contains(&"first=completed".to_owned()), "{name}");
        running.stop().await;
        shop.verify().await;
    }
}
