//! From an answered enqueue to the handler of a worker, at 50 runs a second. The worker has the database open by itself, as
//! another process would.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use waypost_worker::{Context, Handlers, Options, Outcome, Stage, Worker};

use super::runs::{PLAYBOOK, new_runs};
use super::{Bench, Row, row};
use crate::output::{ERROR, Failed, Result};

const RUNS: usize = 300;
const EVERY: Duration = Duration::from_millis(20);

type Seen = Arc<Mutex<HashMap<String, Instant>>>;

pub async fn measure(bench: &Bench) -> Result<Row> {
    let store = bench.store("pickup").await?;
    let (stage, shutdown) = watch::channel(Stage::Working);
    let stage = Arc::new(stage);
    bench.begin("pickup", RUNS);
    let seen = Seen::default();
    let handler = {
        let (seen, stage, bar) = (seen.clone(), stage.clone(), bench.bar.clone());
        move |context: Context| {
            let now = Instant::now();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(context.run_id.clone(), now);
            bar.inc(1);
            if seen.len() == RUNS {
                stage.send_replace(Stage::Draining);
            }
            async { Outcome::done() }
        }
    };
    let handlers = Handlers::default().with(PLAYBOOK, handler);
    let options = Options { handlers, slots: 10, guardian: None, ..Options::default() };
    let working = tokio::spawn(Worker::new(bench.store("pickup").await?, options).run(shutdown));
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = HashMap::new();
    for _ in 0..RUNS {
        ticks.tick().await;
        let started = store.enqueue(new_runs(1)).await?.remove(0)?;
        answered.insert(started.run.id().to_owned(), Instant::now());
    }
    working.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut waits: Vec<f64> = answered
        .iter()
        .filter_map(|(run_id, at)| seen.get(run_id).map(|begun| begun.saturating_duration_since(*at)))
        .map(|wait| wait.as_secs_f64() * 1_000.0)
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = ((waits.len() as f64 * part) as usize).min(waits.len().saturating_sub(1));
        waits.get(place).map(|ms| (ms * 10.0).round() / 10.0)
    };
    Ok(row("pickup", json!({ "per_s": 50, "pickup_p50_ms": at(0.5), "pickup_p99_ms": at(0.99) })))
}
