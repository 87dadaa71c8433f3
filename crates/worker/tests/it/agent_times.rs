//! Seed 001's retry policy by the clock: 120 s for a try, waits of 1, 2 and 4 s, 600 s for a run. Time is tokio's own, which moves by
//! itself while everything waits.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval};
use waypost_kernel::{Catalog, Span};
use waypost_store::{Housekeeping, NewRun, RunRow};
use waypost_testkit::oracle::MemoryStore;
use waypost_worker::projection::errors;

use crate::support::Shop;

/// What writing takes, beyond the times of the policy.
const MORE: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(100);

/// A step whose receiver never answers: nothing has to be killed, so that no time passes beside the policy's.
fn slow(name: &str, more: &str, listener: &TcpListener) -> String {
    let url = format!("http://{}/", listener.local_addr().unwrap());
    format!(
        "[[step]]\nname = \"{name}\"\nhttp = {{ method = \"POST\", url = \"{url}\", allow_private = true }}\n{more}\n"
    )
}

async fn played(steps: &str) -> (RunRow, Duration) {
    let store = Arc::new(MemoryStore::new(Catalog::shipped().unwrap()));
    let mut shop = Shop::on(store.clone());
    let playbook = shop.playbook(&format!("name = \"archivist\"\nlifecycle = \"agent\"\n{steps}"));
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.store.acknowledge("default".into(), id.clone(), "engine".into()).await.unwrap();
    // The database's clock goes with the worker's.
    let clock = tokio::spawn(async move {
        let mut ticks = interval(TICK);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            store.advance_clock(Span::from_ms(TICK.as_millis() as i64)).await.unwrap();
        }
    });
    let began = Instant::now();
    shop.work().await;
    let took = began.elapsed();
    clock.abort();
    (shop.run(&id).await, took)
}

#[track_caller]
fn ended_by_time(row: &RunRow) {
    assert_eq!(row.status(), "failed");
    let (code, _, status) = errors::told(row.run.failure.as_ref().unwrap());
    assert_eq!((code, status), ("AGENT_TIMEOUT", 504));
}

// proves A6, A10
#[tokio::test(start_paused = true)]
async fn a_step_that_times_out_four_times_ends_its_run_after_487_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (row, took) = played(&slow("execute-agent", "", &listener)).await;
    ended_by_time(&row);
    let expected = Duration::from_secs(4 * 120 + 1 + 2 + 4);
    // Each of the waits ends within a tick.
    assert!(took + 3 * TICK >= expected && took < expected + MORE, "{took:?}");
}

// proves A6, A10
#[tokio::test(start_paused = true)]
async fn a_second_slow_step_is_ended_with_its_run_after_600_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let steps =
        slow("load-context", "continue_on_failure = true", &listener) + &slow("execute-agent", "", &listener);
    let (row, took) = played(&steps).await;
    ended_by_time(&row);
    assert!(took >= Duration::from_secs(600) && took < Duration::from_secs(600) + MORE, "{took:?}");
}
