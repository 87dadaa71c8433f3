//! The whole way: enqueue, claim, start and finish, with all events and guards.

use std::sync::Arc;
use std::time::Instant;

use waypost_store::{Claim, FinishWrite, Store};

use super::runs::{Kind, of_kind};
use super::{Bench, PAIRS, Pairs, Place, Row, row};
use crate::output::{ERROR, Failed, Result};

const BATCHES: usize = 40;

pub async fn measure(bench: &Bench, batch: usize, tasks: usize, kind: Kind) -> Result<Row> {
    let (batch, tasks) = (batch.max(1), tasks.clamp(1, BATCHES));
    let runs = batch * BATCHES;
    let store = bench.store("full").await?;
    let mut raw = bench.raw("full", tasks).await?;
    bench.begin("full lifecycle", PAIRS + 1);
    // Once for the caches, on both sides.
    raw.full(runs / 4, batch).await?;
    full(&store, runs / 4, batch, tasks, kind).await?;
    bench.bar.inc(1);
    let mut pairs = Pairs::new();
    let (mut wal, mut done) = (0.0, 0);
    for _ in 0..PAIRS {
        let raw = raw.full(runs, batch).await?;
        let before = wal_bytes(bench).await?;
        pairs.add(raw, full(&store, runs, batch, tasks, kind).await?);
        wal += wal_bytes(bench).await? - before;
        done += runs;
        bench.bar.inc(1);
    }
    let mut found = row(&kind.of("full-lifecycle"), pairs.fields());
    found.insert("batch".into(), batch.into());
    found.insert("tasks".into(), tasks.into());
    found.insert("events_per_run".into(), 4.into());
    if let Place::Server(server) = &bench.place {
        found.insert("wal_bytes_per_run".into(), (wal / done as f64).round().into());
        let dead = server.dead_rows("full").await? / done as f64;
        found.insert("dead_rows_per_run".into(), ((dead * 100.0).round() / 100.0).into());
    }
    Ok(found)
}

async fn wal_bytes(bench: &Bench) -> Result<f64> {
    match &bench.place {
        Place::Folder(_) => Ok(0.0),
        Place::Server(server) => Ok(server.wal_bytes().await?),
    }
}

/// Several tasks, so that one prepares its batch while another's is written.
async fn full(store: &Arc<dyn Store>, runs: usize, batch: usize, tasks: usize, kind: Kind) -> Result<f64> {
    let start = Instant::now();
    let each = runs / batch / tasks;
    let done = on_tasks(store, tasks, move |store| async move {
        let mut done = 0;
        for _ in 0..each {
            for answer in store.enqueue(of_kind(kind, batch)).await? {
                answer?;
            }
            done += finish(&*store, batch).await?;
        }
        Ok(done)
    })
    .await?;
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// The same work on several tasks; gives what they did in all.
pub async fn on_tasks<F>(
    store: &Arc<dyn Store>,
    tasks: usize,
    work: impl Fn(Arc<dyn Store>) -> F,
) -> Result<usize>
where
    F: Future<Output = Result<usize>> + Send + 'static,
{
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(work(store.clone()))).collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    }
    Ok(done)
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
