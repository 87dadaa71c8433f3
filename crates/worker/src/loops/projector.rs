//! Follows the log and writes what became of projected runs to the object store. Any number of projectors may do so at once: what
//! one has written the others find there.
//!
//! A run that moved five times since the last look is written once. How far the log was followed is kept in the database, and
//! only after all that moved up to there is written: after a crash some of it is looked at again, and nothing is left out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use waypost_store::{Database, MovedRun, Result, StoreError};

use super::{Loop, More};
use crate::pace;
use crate::projection::Projection;
use crate::shutdown::{Stage, reached};

const EVERY: Duration = Duration::from_secs(1);
/// Between two looks, whatever happens meanwhile: what a busy log costs.
const AT_LEAST: Duration = Duration::from_millis(100);
/// Events of one look, whosever they are.
const PAGE: usize = 2_000;
/// Runs at once.
const AT_ONCE: usize = 8;
/// Runs that wait for the object store; then the log is not followed any further.
const MOST_BEHIND: usize = 10_000;
/// How often it is written down that nothing was to be done.
const IDLE: Duration = Duration::from_secs(10);

/// What a process that ends waits for its last turn.
const LAST: Duration = Duration::from_secs(3);

/// How far the object store is behind the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lag {
    /// Runs that moved and are not written yet, of those that were looked at.
    pub runs: usize,
    /// Since the first of them moved.
    pub seconds: f64,
}

pub struct Projector {
    database: Arc<dyn Database>,
    projection: Arc<Projection>,
    by: String,
    /// Up to where the log was looked at.
    position: Option<u64>,
    /// What the database says of that, and since when.
    kept: (u64, Instant),
    /// What moved up to there and is not written yet.
    behind: VecDeque<MovedRun>,
    /// The last turn failed: changes are no reason to try again sooner.
    is_away: bool,
    lag: Box<dyn Fn(Lag) + Send + Sync>,
}

impl Projector {
    /// `by` is who the events name.
    pub fn new(database: Arc<dyn Database>, projection: Arc<Projection>, by: &str) -> Projector {
        Projector {
            database,
            projection,
            by: by.to_owned(),
            position: None,
            kept: (0, Instant::now()),
            behind: VecDeque::new(),
            is_away: false,
            lag: Box::new(|_| {}),
        }
    }

    /// Tells after each look how far behind it is.
    #[must_use]
    pub fn telling(mut self, lag: impl Fn(Lag) + Send + Sync + 'static) -> Projector {
        self.lag = Box::new(lag);
        self
    }

    async fn look(&mut self) -> Result<bool> {
        let position = match self.position {
            Some(position) => position,
            None => {
                let kept = self.database.cursor(self.projection.name().to_owned()).await?.unwrap_or(0);
                self.kept = (kept, Instant::now());
                kept
            }
        };
        self.position = Some(position);
        if self.behind.len() >= MOST_BEHIND {
            return Ok(false);
        }
        let page = self.database.projected(position, PAGE).await?;
        for run in page.runs {
            if self.behind.iter().all(|known| known.run_id != run.run_id) {
                self.behind.push_back(run);
            }
        }
        self.position = Some(page.position);
        Ok(page.more)
    }

    /// Until all are written, or none of those at once could be.
    async fn catch_up(&mut self) -> Result<()> {
        while !self.behind.is_empty() {
            let mut at_once = JoinSet::new();
            for run in self.behind.drain(..self.behind.len().min(AT_ONCE)) {
                let (database, projection) = (self.database.clone(), self.projection.clone());
                let by = self.by.clone();
                at_once.spawn(async move {
                    let shown = show(&*database, &projection, &run, &by).await;
                    (run, shown)
                });
            }
            let (mut went_well, mut failed) = (false, None);
            while let Some(ended) = at_once.join_next().await {
                let Ok((run, shown)) = ended else { continue };
                match shown {
                    Ok(()) => went_well = true,
                    Err(error) => {
                        tracing::debug!(run_id = run.run_id, %error, "not written");
                        self.behind.push_back(run);
                        failed = Some(error);
                    }
                }
            }
            if let Some(error) = failed.filter(|_| !went_well) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Only when nothing is left up to there.
    async fn keep(&mut self, is_idle: bool) -> Result<()> {
        let Some(position) = self.position.filter(|position| *position > self.kept.0) else { return Ok(()) };
        if is_idle && self.kept.1.elapsed() < IDLE {
            return Ok(());
        }
        self.database.put_cursor(self.projection.name().to_owned(), position).await?;
        self.kept = (position, Instant::now());
        Ok(())
    }

    async fn tell(&self) -> Result<()> {
        let first = self.behind.iter().map(|run| run.at).min();
        let seconds = match first {
            Some(first) => (self.database.now().await? - first).ms() as f64 / 1_000.0,
            None => 0.0,
        };
        (self.lag)(Lag { runs: self.behind.len(), seconds });
        Ok(())
    }
}

/// Writes a run; a draft that waits for the engine is taken on once its readers can see it.
async fn show(database: &dyn Database, projection: &Projection, moved: &MovedRun, by: &str) -> Result<()> {
    let shown = projection.show(database, &moved.tenant, &moved.run_id).await?;
    let is_open = shown.run.is_some_and(|row| row.lifecycle.acknowledgement(row.run.state).is_some());
    if !is_open {
        return Ok(());
    }
    match database.acknowledge(moved.tenant.clone(), moved.run_id.clone(), by.to_owned()).await {
        Err(StoreError::NotFound { .. }) => Ok(()),
        acknowledged => acknowledged,
    }
}

impl Loop for Projector {
    const WORK: &'static str = "writing to the object store";

    fn every(&self) -> Duration {
        pace::about(EVERY)
    }

    async fn run_once(&mut self) -> Result<More> {
        self.is_away = true;
        let more = self.look().await?;
        let is_idle = self.behind.is_empty();
        let caught_up = self.catch_up().await;
        self.tell().await?;
        caught_up?;
        self.keep(is_idle).await?;
        self.is_away = false;
        Ok(if more { More::Now } else { More::Later })
    }

    async fn pause(&mut self, wait: Duration) {
        if wait < AT_LEAST || self.is_away {
            return sleep(wait).await;
        }
        sleep(AT_LEAST).await;
        self.database.changed(wait - AT_LEAST).await;
    }

    /// What moved lately is written before the process ends, if the object store takes it soon.
    async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) {
        tokio::select! {
            _ = self.run_once() => {}
            () = reached(shutdown, Stage::Now) => {}
            () = sleep(LAST) => {}
        }
    }
}

impl std::fmt::Debug for Projector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let behind = self.behind.len();
        f.debug_struct("Projector")
            .field("position", &self.position)
            .field("behind", &behind)
            .finish_non_exhaustive()
    }
}
