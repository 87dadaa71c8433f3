//! A snapshot left open keeps dead rows from being cleaned up: plain queues crawl then. Two databases of one server
//! do the same work at the same time, one of them with an open snapshot; what differs is the snapshot's doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};
use waypost_store::Store;

use super::lifecycle::finish;
use super::runs::new_runs;
use super::{Bench, Place, Row, row};
use crate::output::{BAD_INPUT, ERROR, Failed, Result};

const BATCH: usize = 500;
const BUCKET: Duration = Duration::from_secs(10);
/// The enqueuer keeps this many waiting, no more: the backlog is another scenario's.
const WAITING: u64 = 20_000;
const RAW: usize = 40_000;

#[derive(Debug, Default)]
struct Side {
    enqueued: AtomicU64,
    done: AtomicU64,
}

pub async fn measure(bench: &Bench, seconds: u64) -> Result<Row> {
    let Place::Server(server) = &bench.place else {
        return Err(Failed::new(
            BAD_INPUT,
            "--hold-xmin is about PostgreSQL: add --store postgres".to_owned(),
        ));
    };
    let names = ["held", "free"];
    let mut sides = Vec::new();
    for name in names {
        sides.push((bench.store(name).await?, Arc::new(Side::default())));
    }
    // If the raw limit has fallen too when all is over, it is the machine that became slower.
    let mut raw = bench.raw("hold", 4).await?;
    let raw_before = raw.full(RAW, BATCH).await?;
    let wal_before = server.wal_bytes().await?;
    let snapshot = server.hold_snapshot("held").await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for (store, side) in &sides {
        tasks.push(tokio::spawn(enqueue(store.clone(), side.clone(), stop.clone())));
        tasks.push(tokio::spawn(work(store.clone(), side.clone(), stop.clone())));
    }
    let buckets = (seconds / BUCKET.as_secs()).max(1);
    bench.begin("under an open snapshot", buckets as usize);
    let mut rates: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    let start = Instant::now();
    let mut before = [0, 0];
    for bucket in 1..=buckets {
        sleep_until(start + BUCKET * bucket as u32).await;
        for (at, (_, side)) in sides.iter().enumerate() {
            let done = side.done.load(Ordering::Relaxed);
            rates[at].push((done - before[at]) as f64 / BUCKET.as_secs_f64());
            before[at] = done;
        }
        bench.bar.inc(1);
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    }
    let wal = server.wal_bytes().await? - wal_before;
    let dead = server.dead_rows("held").await?;
    drop(snapshot);
    let raw_after = raw.full(RAW, BATCH).await?;
    let done: u64 = sides.iter().map(|(_, side)| side.done.load(Ordering::Relaxed)).sum();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let last = |rates: &[f64]| mean(&rates[rates.len().saturating_sub(6)..]);
    let round = |value: f64| (value * 100.0).round() / 100.0;
    Ok(row(
        "hold-xmin",
        json!({
            "runs_per_s": mean(&rates[0]).round(),
            "free_runs_per_s": mean(&rates[1]).round(),
            "to_free": round(mean(&rates[0]) / mean(&rates[1])),
            "to_free_in_the_last_minute": round(last(&rates[0]) / last(&rates[1])),
            "seconds": buckets * BUCKET.as_secs(),
            "held_per_10_s": rates[0].iter().map(|rate| rate.round()).collect::<Vec<_>>(),
            "free_per_10_s": rates[1].iter().map(|rate| rate.round()).collect::<Vec<_>>(),
            "dead_rows": dead,
            "wal_bytes_per_run": (wal / done as f64).round(),
            "raw_runs_per_s_before": raw_before.round(),
            "raw_runs_per_s_after": raw_after.round(),
        }),
    ))
}

async fn enqueue(store: Arc<dyn Store>, side: Arc<Side>, stop: Arc<AtomicBool>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        if side.enqueued.load(Ordering::Relaxed) - side.done.load(Ordering::Relaxed) > WAITING {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        for answer in store.enqueue(new_runs(BATCH)).await? {
            answer?;
        }
        side.enqueued.fetch_add(BATCH as u64, Ordering::Relaxed);
    }
    Ok(())
}

async fn work(store: Arc<dyn Store>, side: Arc<Side>, stop: Arc<AtomicBool>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let done = finish(&*store, BATCH).await?;
        side.done.fetch_add(done as u64, Ordering::Relaxed);
        if done == 0 {
            store.changed(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}
