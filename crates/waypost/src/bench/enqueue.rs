//! New runs: one by one from many tasks, each answered after its flush; and in batches.

use std::sync::Arc;
use std::time::Instant;

use waypost_store::Store;

use super::lifecycle::on_tasks;
use super::runs::new_runs;
use super::{Bench, PAIRS, Pairs, Row, median, row};
use crate::output::Result;

const PER_TASK: usize = 60;
const ALONE: usize = 200;

/// Group commit: many tasks share a flush that each alone would pay for.
pub async fn single(bench: &Bench, tasks: usize) -> Result<Row> {
    let store = bench.store("single").await?;
    let mut raw = bench.raw("single", 1).await?;
    bench.begin("single enqueues", PAIRS);
    let mut pairs = Pairs::new();
    let mut speedups = Vec::new();
    for _ in 0..PAIRS {
        let raw = raw.enqueued(ALONE, 1).await?;
        let alone = from_tasks(&store, 1, ALONE).await?;
        let together = from_tasks(&store, tasks, PER_TASK).await?;
        pairs.add(raw, together);
        speedups.push(together / alone);
        bench.bar.inc(1);
    }
    let mut found = row("enqueue-single", pairs.fields());
    found.insert("tasks".into(), tasks.into());
    found.insert("times_one_task".into(), ((median(speedups) * 10.0).round() / 10.0).into());
    Ok(found)
}

async fn from_tasks(store: &Arc<dyn Store>, tasks: usize, each: usize) -> Result<f64> {
    let start = Instant::now();
    let done = on_tasks(store, tasks, move |store| async move {
        for _ in 0..each {
            store.enqueue(new_runs(1)).await?.remove(0)?;
        }
        Ok(each)
    })
    .await?;
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

pub async fn batch(bench: &Bench, batch: usize) -> Result<Row> {
    let batch = batch.max(1);
    let runs = batch * 10;
    let store = bench.store("batch").await?;
    let mut raw = bench.raw("batch", 1).await?;
    bench.begin("batches", PAIRS);
    let mut pairs = Pairs::new();
    for _ in 0..PAIRS {
        let raw = raw.enqueued(runs, batch).await?;
        let start = Instant::now();
        for _ in 0..runs / batch {
            store.enqueue(new_runs(batch)).await?;
        }
        pairs.add(raw, runs as f64 / start.elapsed().as_secs_f64());
        bench.bar.inc(1);
    }
    let mut found = row("enqueue-batch", pairs.fields());
    found.insert("batch".into(), batch.into());
    Ok(found)
}
