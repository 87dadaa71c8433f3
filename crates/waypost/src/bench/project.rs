//! Documents of agents' runs: how many whole runs a worker and a projector beside it bring to their last document in a second, how many changes a
//! projector alone writes, and how far it is behind while changes come at a fixed rate.
//! Into a folder beside the database, or into what `--object-store` names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use waypost_store::{Database, NewRun};
use waypost_worker::loops::{Lag, Loop, More as MoreToDo, Projector};
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::Folder;
use waypost_worker::{Context, Handlers, Options, Outcome, Stage, Worker};

use super::runs::{PLAYBOOK, new_runs};
use super::{Bench, Row, median, row};
use crate::output::{ERROR, Failed, Result};

const QUEUE: &str = "agents";

/// A run is written as it is asked for, acknowledged with that, and written again.
const CHANGES_PER_RUN: usize = 2;
const ROUNDS: usize = 3;

const RATE: usize = 500;
const EVERY: Duration = Duration::from_millis(100);
/// Of the runs that waited at once, so many more begin at that rate.
const MORE: f64 = 2.5;

pub async fn measure(bench: &Bench, named: Option<Arc<Projection>>, runs: u64) -> Result<Row> {
    let runs = usize::try_from(runs).unwrap_or(usize::MAX);
    let database = bench.database("project").await?;
    let folder = tempfile::tempdir().map_err(|error| Failed::new(ERROR, format!("no folder: {error}")))?;
    let into = if named.is_some() { "object store" } else { "folder" };
    let own = || Arc::new(Projection::new(Arc::new(Folder::new(&folder.path().join("objects")))));
    let projection = named.unwrap_or_else(own);
    bench.begin("project", 2 * ROUNDS + 1);
    let lags: Arc<Mutex<Vec<f64>>> = Arc::default();
    let kept = lags.clone();
    let keep =
        move |lag: Lag| kept.lock().unwrap_or_else(PoisonError::into_inner).push(lag.seconds * 1_000.0);
    let mut projector = Projector::new(database.clone(), projection.clone(), "bench").telling(keep);
    let (mut whole, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        whole.push(worked(&database, &mut projector, &projection, runs).await?);
        bench.bar.inc(1);
    }
    for _ in 0..ROUNDS {
        rates.push(caught_up(&database, &mut projector, runs).await?);
        bench.bar.inc(1);
    }
    lags.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let (made, behind) = at_a_rate(&database, projector, runs).await?;
    bench.bar.inc(1);
    let mut seen = lags.lock().unwrap_or_else(PoisonError::into_inner).clone();
    seen.sort_by(f64::total_cmp);
    let at =
        |share: f64| seen.get((seen.len() as f64 * share) as usize).or(seen.last()).copied().unwrap_or(0.0);
    Ok(row(
        "project",
        json!({
            "into": into,
            "runs_per_s": median(whole).round(),
            "changes_per_s": median(rates).round(),
            "rate": RATE,
            "changes": made,
            "lag_p50_ms": at(0.5).round(),
            "lag_p99_ms": at(0.99).round(),
            "behind_at_the_end_ms": behind.as_millis() as u64,
        }),
    ))
}

async fn ask_for(database: &Arc<dyn Database>, count: usize) -> Result {
    let of_agent = |new| NewRun { lifecycle: "agent".into(), queue: QUEUE.into(), ..new };
    for made in database.enqueue(new_runs(count).into_iter().map(of_agent).collect()).await? {
        made?;
    }
    Ok(())
}

/// Whole runs per second, from being asked for to their last document: requested, queued, running, its manifest, completed.
async fn worked(
    database: &Arc<dyn Database>,
    projector: &mut Projector,
    projection: &Arc<Projection>,
    runs: usize,
) -> Result<f64> {
    let (stage, shutdown) = watch::channel(Stage::Working);
    let (stage, done) = (Arc::new(stage), Arc::new(AtomicUsize::new(0)));
    let handler = move |_: Context| {
        if done.fetch_add(1, Ordering::Relaxed) + 1 == runs {
            stage.send_replace(Stage::Draining);
        }
        async { Outcome::done() }
    };
    let options = Options {
        handlers: Handlers::default().with(PLAYBOOK, handler),
        queues: vec![QUEUE.to_owned()],
        slots: 64,
        projection: Some(projection.clone()),
        guardian: None,
        ..Options::default()
    };
    ask_for(database, runs).await?;
    let start = Instant::now();
    let work = tokio::spawn(Worker::new(database.clone(), options).run(shutdown));
    loop {
        let is_over = work.is_finished();
        match projector.run_once().await? {
            MoreToDo::Now => {}
            _ if is_over => break,
            _ => projector.pause(Duration::from_millis(20)).await,
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let summary = work.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    if summary.succeeded != runs as u64 {
        return Err(Failed::new(ERROR, format!("{} of {runs} runs went well", summary.succeeded)));
    }
    Ok(runs as f64 / elapsed)
}

/// Changes per second of runs that wait for it all at once.
async fn caught_up(database: &Arc<dyn Database>, projector: &mut Projector, runs: usize) -> Result<f64> {
    ask_for(database, runs).await?;
    let start = Instant::now();
    // Once for what was asked for, once for what came of that.
    for _ in 0..CHANGES_PER_RUN {
        while matches!(projector.run_once().await?, MoreToDo::Now) {}
    }
    Ok((runs * CHANGES_PER_RUN) as f64 / start.elapsed().as_secs_f64())
}

/// How many changes were made, and how long the last of them took after they had all been made.
async fn at_a_rate(
    database: &Arc<dyn Database>,
    mut projector: Projector,
    runs: usize,
) -> Result<(usize, Duration)> {
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let followed = tokio::spawn(async move {
        loop {
            let more = projector.run_once().await?;
            if stopped.try_recv().is_ok() && !matches!(more, MoreToDo::Now) {
                projector.run_once().await?;
                return Ok::<(), waypost_store::StoreError>(());
            }
            projector.pause(Duration::from_secs(1)).await;
        }
    });
    let per_tick = RATE / CHANGES_PER_RUN * EVERY.as_millis() as usize / 1_000;
    let ticks = ((runs as f64 * MORE) as usize / per_tick).max(1);
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..ticks {
        clock.tick().await;
        ask_for(database, per_tick).await?;
    }
    let made_at = Instant::now();
    let _ = stop.send(());
    let ended = followed.await;
    ended.map_err(|error| Failed::new(ERROR, error.to_string()))??;
    Ok((ticks * per_tick * CHANGES_PER_RUN, made_at.elapsed()))
}
