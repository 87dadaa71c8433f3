//! Follows the log and writes what became of projected runs to the object store. Any number of projectors may do so at once: what
//! one has written the others find there.
//!
//! A run that moved five times since the last look is written once. How far the log was followed is kept in the database, and
//! only after all that moved up to there is written: after a crash some of it is looked at again, and nothing is left out.
//!
//! A run that cannot be written while others can (`left`) does not hold them up.

mod left;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep};
use waypost_kernel::{Phase, Time};
use waypost_store::{AGENT_SLUG, Database, ItemRow, LeftRun, MovedRun, Result, RunRow, StoreError};

use super::{Loop, More};
use crate::pace;
use crate::projection::objects::Answer;
use crate::projection::{First, Projection};
use crate::shutdown::{Stage, reached};
use left::LeftRuns;

const EVERY: Duration = Duration::from_secs(1);
/// Between two looks, whatever happens meanwhile: what a busy log costs.
const AT_LEAST: Duration = Duration::from_millis(100);
/// Events of one look, whosever they are.
const PAGE: usize = 2_000;
/// Runs at once.
const AT_ONCE: usize = 8;
/// Runs that wait for the object store; then the log is not followed any further.
const MOST_BEHIND: usize = 10_000;
/// Times that a run could not be written beside one that could, until it is left behind: a hiccup of the store is none.
const STRIKES: u32 = 3;
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
    /// Runs that cannot be written while others can. They are none of the above.
    pub left: usize,
}

/// A run that moved and is not written yet.
struct Behind {
    run: MovedRun,
    strikes: u32,
}

/// What came of runs that were written at once.
#[derive(Default)]
struct Round {
    failed: Vec<(Behind, StoreError)>,
    /// Whether any went well, be it that there was nothing to write.
    went_well: bool,
    /// Whether the object store took anything: so it is not away, nor full.
    has_written: bool,
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
    behind: VecDeque<Behind>,
    left: LeftRuns,
    /// The database's time, and when it said so.
    clock: (Time, Instant),
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
            left: LeftRuns::default(),
            clock: (Time::from_ms(0), Instant::now()),
            is_away: false,
            lag: Box::new(|_| {}),
        }
    }

    /// Tells how far behind it is: when it has looked, while it catches up, and after that.
    #[must_use]
    pub fn telling(mut self, lag: impl Fn(Lag) + Send + Sync + 'static) -> Projector {
        self.lag = Box::new(lag);
        self
    }

    async fn look(&mut self) -> Result<bool> {
        let position = match self.position {
            Some(position) => position,
            None => {
                let reader = self.projection.reader();
                self.left.know(self.database.left_behind(reader.clone()).await?);
                let kept = self.database.cursor(reader).await?.unwrap_or(0);
                self.kept = (kept, Instant::now());
                kept
            }
        };
        self.position = Some(position);
        if self.behind.len() + self.left.len() < MOST_BEHIND {
            let page = self.database.projected(position, PAGE).await?;
            for run in page.runs {
                let is_known = self.left.moved(&run.run_id, page.position);
                if !is_known && self.behind.iter().all(|known| known.run.run_id != run.run_id) {
                    self.behind.push_back(Behind { run, strikes: 0 });
                }
            }
            self.position = Some(page.position);
            return self.read_clock().await.map(|()| page.more);
        }
        self.read_clock().await.map(|()| false)
    }

    async fn read_clock(&mut self) -> Result<()> {
        if !self.behind.is_empty() {
            self.clock = (self.database.now().await?, Instant::now());
        }
        Ok(())
    }

    /// Until all are written, or none of those at once could be. What is left then is tried again with the next turn; it is an error if
    /// the object store took nothing at all.
    async fn catch_up(&mut self) -> Result<()> {
        let mut has_written = false;
        while !self.behind.is_empty() {
            self.tell();
            let at_once = self.behind.drain(..self.behind.len().min(AT_ONCE)).collect();
            let round = self.show_all(at_once).await;
            has_written |= round.has_written;
            let mut last = None;
            for (mut behind, error) in round.failed {
                tracing::debug!(run_id = behind.run.run_id, %error, "not written");
                behind.strikes += u32::from(round.has_written);
                match behind.strikes >= STRIKES {
                    true => self.leave(&behind.run, &error),
                    false => self.behind.push_back(behind),
                }
                last = Some(error);
            }
            if let Some(error) = last.filter(|_| !round.went_well) {
                return if has_written { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    async fn show_all(&self, runs: Vec<Behind>) -> Round {
        let (mut round, mut at_once) = (Round::default(), JoinSet::new());
        let mut of_task: HashMap<Id, Behind> = HashMap::new();
        for behind in runs {
            let (database, projection) = (self.database.clone(), self.projection.clone());
            let (run, by) = (behind.run.clone(), self.by.clone());
            let task = at_once
                .spawn(async move { show(&*database, &projection, (&run.tenant, &run.run_id), &by).await });
            of_task.insert(task.id(), behind);
        }
        while let Some(ended) = at_once.join_next_with_id().await {
            let (id, shown) = match ended {
                Ok((id, shown)) => (id, shown),
                Err(error) => (error.id(), Err(StoreError::Unavailable(format!("it was given up: {error}")))),
            };
            match (of_task.remove(&id), shown) {
                (_, Ok(written)) => {
                    round.went_well = true;
                    round.has_written |= written > 0;
                }
                (Some(behind), Err(error)) => round.failed.push((behind, error)),
                (None, Err(_)) => {}
            }
        }
        round
    }

    fn leave(&mut self, run: &MovedRun, error: &StoreError) {
        tracing::warn!(
            run_id = run.run_id,
            %error,
            "a run cannot be written to the object store while others can, and is tried again now and then; once what keeps it is mended, or to write damaged documents anew: waypost projection rebuild {}",
            run.run_id
        );
        self.left.leave(&run.tenant, &run.run_id, self.position.unwrap_or(0));
    }

    /// Those that could not be written, each at its own pace.
    async fn try_again(&mut self) -> Result<()> {
        let position = self.position.unwrap_or(0);
        for LeftRun { tenant, run_id } in self.left.due(AT_ONCE) {
            match show(&*self.database, &self.projection, (&tenant, &run_id), &self.by).await {
                Ok(_) => {
                    let reader = self.projection.reader();
                    self.database.catch_up_with(reader, run_id.clone(), position).await?;
                    self.left.written(&run_id);
                    tracing::info!(run_id, "it is written to the object store again");
                }
                Err(error) => {
                    tracing::debug!(run_id, %error, "still not written");
                    self.left.failed(&run_id);
                }
            }
        }
        Ok(())
    }

    /// Only when nothing is left up to there, but what is known to be.
    async fn keep(&mut self, is_idle: bool) -> Result<()> {
        let Some(position) = self.position.filter(|position| *position > self.kept.0) else { return Ok(()) };
        if !self.behind.is_empty() || is_idle && self.kept.1.elapsed() < IDLE {
            return Ok(());
        }
        let reader = self.projection.reader();
        self.left.keep(&*self.database, &reader).await?;
        self.database.put_cursor(reader, position).await?;
        self.kept = (position, Instant::now());
        Ok(())
    }

    fn tell(&self) {
        let first = self.behind.iter().map(|behind| behind.run.at).min();
        let (now, read_at) = self.clock;
        let since = |first: Time| (now - first).ms() as f64 / 1_000.0 + read_at.elapsed().as_secs_f64();
        let seconds = first.map_or(0.0_f64, since).max(0.0);
        (self.lag)(Lag { runs: self.behind.len(), seconds, left: self.left.len() });
    }
}

/// What the end of a run means to its agent is counted before it is shown: whoever reads that a run failed finds the agent as it is
/// then.
struct Counting<'d>(&'d dyn Database);

impl First for Counting<'_> {
    fn of<'a>(&'a self, row: &'a RunRow, _: &'a [ItemRow]) -> Answer<'a, ()> {
        Box::pin(async move {
            match row.phase() == Phase::Settled && row.metadata.contains_key(AGENT_SLUG) {
                true => self.0.agent_ended(row.id().to_owned()).await,
                false => Ok(()),
            }
        })
    }
}

/// Writes a run; a draft that waits for the engine is taken on once its readers can see it. Gives how many objects were written.
async fn show(
    database: &dyn Database,
    projection: &Projection,
    (tenant, run_id): (&str, &str),
    by: &str,
) -> Result<usize> {
    let shown = projection.show_after(database, tenant, run_id, &Counting(database)).await?;
    let is_open = shown.run.is_some_and(|row| row.lifecycle.acknowledgement(row.run.state).is_some());
    if is_open {
        match database.acknowledge(tenant.to_owned(), run_id.to_owned(), by.to_owned()).await {
            Err(StoreError::NotFound { .. }) => {}
            acknowledged => acknowledged?,
        }
    }
    Ok(shown.written)
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
        if caught_up.is_ok() {
            self.try_again().await?;
        }
        // With more to look at, what was told last is nearer to the truth than that nothing is behind.
        if !more || !self.behind.is_empty() {
            self.tell();
        }
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
