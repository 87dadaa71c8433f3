//! The end of a history: no more faults and no new runs; time passes for whatever was abandoned, and all that waits is
//! worked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waypost_kernel::Span;

use super::clients::Client;
use super::plan::QUEUES;
use super::shared::Shared;
use super::stage::Stage;
use super::wire::request;

const WORKERS: usize = 6;
/// Past every lease, deadline and time to live of a history.
const AHEAD_S: i64 = 2 * 60 * 60;
/// With nothing finished for this long, whatever is left is stuck.
const STILL: Duration = Duration::from_secs(30);

/// Runs that wait, now or later, or are held.
async fn open(shared: &Shared) -> Option<u64> {
    let reply = request(&shared.addresses[0], "GET", "/v1/queues", "", &Value::Null).await.ok()?;
    let queues = reply.body["queues"].as_array()?.iter();
    let count = |queue: &Value| ["ready", "scheduled", "held"].map(|name| queue[name].as_u64().unwrap());
    Some(queues.flat_map(count).sum())
}

/// How many runs were worked.
pub async fn drain(stage: &Stage, shared: &Arc<Shared>) -> usize {
    let worked = Arc::new(AtomicUsize::new(0));
    // What was cancelled last has told its children before time moves on.
    while stage.shop.store().await.sweep("drain".into(), 1_000).await.unwrap().more {}
    stage.shop.store().await.advance_clock(Span::from_seconds(AHEAD_S)).await.unwrap();
    let (over, _) = tokio::sync::watch::channel(false);
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (mut client, worked, over) =
                (Client::new(shared, "drain", number), worked.clone(), over.subscribe());
            tokio::spawn(async move {
                while !*over.borrow() {
                    for hold in client.claim(QUEUES, 10, 200).await {
                        let end = if hold.lifecycle == "job" { "completed" } else { "success" };
                        client.finish(&hold, end).await;
                        worked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let (mut moved, mut before) = (Instant::now(), None);
    loop {
        let now = (open(shared).await, worked.load(Ordering::Relaxed));
        if now.0 == Some(0) || moved.elapsed() > STILL {
            break;
        }
        if before != Some(now) {
            (moved, before) = (Instant::now(), Some(now));
        }
        let _ = request(&shared.addresses[0], "GET", "/v1/changes?wait_ms=200", "", &json!(null)).await;
    }
    over.send_replace(true);
    for worker in workers {
        worker.await.unwrap();
    }
    worked.load(Ordering::Relaxed)
}
