//! From an answered enqueue to a worker's claim, at 50 runs a second. The worker has the file open by itself, as
//! another process would: SQLite does not tell it of commits, it looks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use waypost_store::{Claim, Store};

use super::{Bench, Row, new_runs, row};
use crate::output::{ERROR, Failed, Result};

const RUNS: usize = 200;
const EVERY: Duration = Duration::from_millis(20);

pub async fn measure(bench: &Bench) -> Result<Row> {
    let store = bench.store("pickup").await?;
    let worker = bench.store("pickup").await?;
    bench.begin("pickup", RUNS);
    let bar = bench.bar.clone();
    let claiming = tokio::spawn(async move {
        let mut seen = HashMap::new();
        while seen.len() < RUNS {
            for run_id in claim(&*worker).await? {
                seen.insert(run_id, Instant::now());
                bar.inc(1);
            }
            worker.changed(Duration::from_secs(1)).await;
        }
        Ok::<_, Failed>(seen)
    });
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = HashMap::new();
    for _ in 0..RUNS {
        ticks.tick().await;
        let started = store.enqueue(new_runs(1)).await?.remove(0)?;
        answered.insert(started.run.id().to_owned(), Instant::now());
    }
    let seen = claiming.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    let mut waits: Vec<f64> = answered
        .iter()
        .filter_map(|(run_id, at)| seen.get(run_id).map(|claimed| claimed.saturating_duration_since(*at)))
        .map(|wait| wait.as_secs_f64() * 1_000.0)
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = ((waits.len() as f64 * part) as usize).min(waits.len().saturating_sub(1));
        waits.get(place).map(|ms| (ms * 10.0).round() / 10.0)
    };
    Ok(row("pickup", json!({ "per_s": 50, "pickup_p50_ms": at(0.5), "pickup_p99_ms": at(0.99) })))
}

async fn claim(store: &dyn Store) -> Result<Vec<String>> {
    let claim =
        Claim { worker: "bench".into(), queues: vec!["default".into()], limit: 10, ..Claim::default() };
    let held = store.claim(claim).await?;
    Ok(held.into_iter().map(|claimed| claimed.run.id().to_owned()).collect())
}
