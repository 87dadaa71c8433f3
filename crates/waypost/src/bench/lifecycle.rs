//! The whole way: enqueue, claim, start and finish, with all events and guards.

use std::sync::Arc;
use std::time::Instant;

use waypost_store::{Claim, FinishWrite, Store};

use super::raw::Raw;
use super::{Bench, PAIRS, Pairs, Row, new_runs, row};
use crate::output::{ERROR, Failed, Result};

const BATCHES: usize = 40;

pub async fn measure(bench: &Bench, batch: usize, tasks: usize) -> Result<Row> {
    let (batch, tasks) = (batch.max(1), tasks.clamp(1, BATCHES));
    let runs = batch * BATCHES;
    let store = bench.store("full.db")?;
    let mut raw = Raw::open(&bench.folder.path().join("full-raw.db"))?;
    bench.begin("full lifecycle", PAIRS + 1);
    // Once for the caches, on both sides.
    raw.full(runs / 4, batch)?;
    full(&store, runs / 4, batch, tasks).await?;
    bench.bar.inc(1);
    let mut pairs = Pairs::new();
    for _ in 0..PAIRS {
        let raw = raw.full(runs, batch)?;
        pairs.add(raw, full(&store, runs, batch, tasks).await?);
        bench.bar.inc(1);
    }
    let mut found = row("full-lifecycle", pairs.fields());
    found.insert("batch".into(), batch.into());
    found.insert("tasks".into(), tasks.into());
    found.insert("events_per_run".into(), 4.into());
    Ok(found)
}

/// Several tasks, so that one prepares its batch while another's is written.
async fn full(store: &Arc<dyn Store>, runs: usize, batch: usize, tasks: usize) -> Result<f64> {
    let start = Instant::now();
    let each = runs / batch / tasks;
    let work = (0..tasks).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..each {
                for answer in store.enqueue(new_runs(batch)).await? {
                    answer?;
                }
                finish(&*store, batch).await?;
            }
            Ok::<(), Failed>(())
        })
    });
    for task in work.collect::<Vec<_>>() {
        task.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    }
    Ok((each * tasks * batch) as f64 / start.elapsed().as_secs_f64())
}

/// Claims and finishes a batch; start and finish go together. Gives how many there were.
pub async fn finish(store: &dyn Store, batch: usize) -> Result<usize> {
    let claim =
        Claim { worker: "bench".into(), queues: vec!["default".into()], limit: batch, ..Claim::default() };
    let held = store.claim(claim).await?;
    let count = held.len();
    let finishes = held.into_iter().map(|claimed| FinishWrite {
        status: "success".into(),
        run_id: claimed.run.id().to_owned(),
        token: Some(claimed.token),
        by: "bench".into(),
        ..FinishWrite::default()
    });
    for answer in store.finish(finishes.collect()).await? {
        answer?;
    }
    Ok(count)
}
