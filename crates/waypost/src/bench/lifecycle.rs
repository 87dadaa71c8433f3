//! The whole way: enqueue, claim, start and finish, with all events and guards.

use std::time::Instant;

use waypost_store::{Claim, FinishWrite, Store};

use super::raw::Raw;
use super::{Bench, PAIRS, Pairs, Row, new_runs, row};
use crate::output::Result;

const BATCHES: usize = 40;

pub async fn measure(bench: &Bench, batch: usize) -> Result<Row> {
    let batch = batch.max(1);
    let runs = batch * BATCHES;
    let store = bench.store("full.db")?;
    let mut raw = Raw::open(&bench.folder.path().join("full-raw.db"))?;
    bench.begin("full lifecycle", PAIRS + 1);
    // Once for the caches, on both sides.
    raw.full(runs / 4, batch)?;
    full(&*store, runs / 4, batch).await?;
    bench.bar.inc(1);
    let mut pairs = Pairs::new();
    for _ in 0..PAIRS {
        let raw = raw.full(runs, batch)?;
        pairs.add(raw, full(&*store, runs, batch).await?);
        bench.bar.inc(1);
    }
    let mut found = row("full-lifecycle", pairs.fields());
    found.insert("batch".into(), batch.into());
    found.insert("events_per_run".into(), 4.into());
    Ok(found)
}

async fn full(store: &dyn Store, runs: usize, batch: usize) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..runs / batch {
        for answer in store.enqueue(new_runs(batch)).await? {
            answer?;
        }
        finish(store, batch).await?;
    }
    Ok(runs as f64 / start.elapsed().as_secs_f64())
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
