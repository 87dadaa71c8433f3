//! Durable steps that do nothing: what storing them costs. A handler in Rust goes through many of them; each one's
//! result is stored with the beginning of the next.

use std::sync::Arc;
use std::time::Instant;

use waypost_store::{NewRun, Store};
use waypost_worker::{Context, Handlers, Options, Outcome, Worker};

use super::runs::new_runs;
use super::{Bench, PAIRS, Pairs, Row, row};
use crate::output::{ERROR, Failed, Result};

const STEPS_PER_RUN: usize = 100;
const HANDLER: &str = "steps";

pub async fn measure(bench: &Bench, batch: usize, runs_at_once: usize) -> Result<Row> {
    let runs_at_once = runs_at_once.max(1);
    let store = bench.store("steps").await?;
    let mut raw = bench.raw("steps", 4).await?;
    bench.begin("steps", PAIRS + 1);
    raw.full(batch * 4, batch).await?;
    stepped(&store, runs_at_once, STEPS_PER_RUN / 10).await?;
    bench.bar.inc(1);
    let mut pairs = Pairs::new();
    for _ in 0..PAIRS {
        let raw = raw.full(batch * 20, batch).await?;
        pairs.add(raw, stepped(&store, runs_at_once, STEPS_PER_RUN).await?);
        bench.bar.inc(1);
    }
    let mut found = row("steps", pairs.fields());
    // A step takes the place of a run here.
    if let Some(rate) = found.remove("runs_per_s") {
        found.insert("steps_per_s".into(), rate);
    }
    found.insert("steps_per_run".into(), STEPS_PER_RUN.into());
    found.insert("runs_at_once".into(), runs_at_once.into());
    Ok(found)
}

/// Steps per second over all runs, from the claim to the finish.
async fn stepped(store: &Arc<dyn Store>, runs: usize, steps: usize) -> Result<f64> {
    let of_steps = |new| NewRun { lifecycle: "job".into(), playbook: Some(HANDLER.into()), ..new };
    for answer in store.enqueue(new_runs(runs).into_iter().map(of_steps).collect()).await? {
        answer?;
    }
    let handlers = Handlers::default().with(HANDLER, move |context: Context| walk(context, steps));
    let options = Options { handlers, slots: runs, guardian: None, ..Options::default() };
    let start = Instant::now();
    let summary = Worker::new(store.clone(), options).run_once().await?;
    let elapsed = start.elapsed().as_secs_f64();
    if summary.succeeded != runs as u64 {
        return Err(Failed::new(ERROR, format!("{} of {runs} runs went well", summary.succeeded)));
    }
    Ok((runs * steps) as f64 / elapsed)
}

async fn walk(context: Context, steps: usize) -> Outcome {
    for number in 0..steps {
        if let Err(ended) = context.step(&format!("step {number}"), |_| async { Outcome::done() }).await {
            return ended;
        }
    }
    Outcome::done()
}
