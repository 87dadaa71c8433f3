//! From waiting to finished: what is left of the whole way when the runs are there already.

use std::sync::Arc;
use std::time::Instant;

use waypost_store::Store;

use super::lifecycle::{finish, on_tasks};
use super::runs::{Kind, of_kind};
use super::{Bench, PAIRS, Pairs, Row, row};
use crate::output::Result;

const BATCHES: usize = 40;

pub async fn measure(bench: &Bench, batch: usize, tasks: usize, kind: Kind) -> Result<Row> {
    let (batch, tasks) = (batch.max(1), tasks.clamp(1, BATCHES));
    let runs = batch * (BATCHES / tasks) * tasks;
    let store = bench.store("drain").await?;
    let mut raw = bench.raw("drain", tasks).await?;
    bench.begin("drain", PAIRS + 1);
    raw.drained(runs / 4, batch).await?;
    drained(&store, runs / 4, batch, tasks, kind).await?;
    bench.bar.inc(1);
    let mut pairs = Pairs::new();
    for _ in 0..PAIRS {
        let raw = raw.drained(runs, batch).await?;
        pairs.add(raw, drained(&store, runs, batch, tasks, kind).await?);
        bench.bar.inc(1);
    }
    let mut found = row(&kind.of("drain"), pairs.fields());
    found.insert("batch".into(), batch.into());
    found.insert("tasks".into(), tasks.into());
    Ok(found)
}

pub async fn enqueued(store: &Arc<dyn Store>, runs: usize, batch: usize, kind: Kind) -> Result<()> {
    for first in (0..runs).step_by(batch) {
        for answer in store.enqueue(of_kind(kind, batch.min(runs - first))).await? {
            answer?;
        }
    }
    Ok(())
}

/// The store's verbs alone, in batches from several tasks.
pub async fn drained(
    store: &Arc<dyn Store>,
    runs: usize,
    batch: usize,
    tasks: usize,
    kind: Kind,
) -> Result<f64> {
    enqueued(store, runs, batch, kind).await?;
    let start = Instant::now();
    let done = on_tasks(store, tasks, move |store| async move {
        let mut done = 0;
        loop {
            match finish(&*store, batch).await? {
                0 => return Ok(done),
                some => done += some,
            }
        }
    })
    .await?;
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
