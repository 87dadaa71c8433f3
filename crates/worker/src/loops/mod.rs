//! Care that any process may take, at any time, beside any number of others: no leader. Every loop has one shape
//! ([`Loop`]), one driver keeps their pace, and one [`Supervisor`] starts those of a process: a new loop is a file of its own and
//! a line in `start`.

mod alerter;
mod operator;
mod projector;
mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use waypost_store::{Database, Result};

use crate::alerts::Alerts;
use crate::projection::Projection;
use crate::schedules::{Scheduler, SchedulerOptions};
use crate::shutdown::{Stage, reached};
use crate::summary::Summary;
use crate::worker::Worker;
use crate::{outage, pace};
pub use alerter::Alerter;
pub use operator::Operator;
pub use projector::{Lag, Projector};
pub use sweeper::Sweeper;

/// Between two turns while there is more to do: others have a turn, too.
const BREATH: Duration = Duration::from_millis(1);

/// Turns without a pause: what can never be done must not keep a loop from its pace.
const MOST_TURNS: u32 = 1_000;

/// What a turn left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    Now,
    Later,
}

/// Does what is due, again and again. `run_once` is the work, and what tests call.
pub trait Loop: Send + 'static {
    /// For the log: what could not be done.
    const WORK: &'static str;

    /// Until the next turn, if this one left nothing.
    fn every(&self) -> Duration;

    fn run_once(&mut self) -> impl Future<Output = Result<More>> + Send;

    /// Between two turns. Returns earlier where something else than time calls for the next one.
    fn pause(&mut self, wait: Duration) -> impl Future<Output = ()> + Send {
        sleep(wait)
    }

    /// After the last turn.
    fn close(&mut self, _shutdown: &mut watch::Receiver<Stage>) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Runs a loop until it is told to stop: its pace, its failures in a row, its end.
pub async fn drive<L: Loop>(mut it: L, mut shutdown: watch::Receiver<Stage>) -> L {
    let (mut failures, mut turns) = (0, 0);
    loop {
        let asked_at = Instant::now();
        let wait = match it.run_once().await {
            Ok(more) => {
                outage::answered(asked_at);
                failures = 0;
                turns = if more == More::Now { turns + 1 } else { 0 };
                if (1..MOST_TURNS).contains(&turns) { BREATH } else { it.every() }
            }
            Err(error) => {
                failures += 1;
                outage::met(&format!("{} failed", L::WORK), &error);
                pace::store_away(failures).max(it.every())
            }
        };
        tokio::select! {
            () = reached(&mut shutdown, Stage::Finishing) => break,
            () = it.pause(wait) => {}
        }
    }
    it.close(&mut shutdown).await;
    it
}

/// The loops of a process, and its worker.
pub struct Supervisor {
    database: Arc<dyn Database>,
    by: String,
    shutdown: watch::Receiver<Stage>,
    swept: Box<dyn Fn(usize) + Send + Sync>,
    schedules: Option<SchedulerOptions>,
    projection: Option<Arc<Projection>>,
    lag: Box<dyn Fn(Lag) + Send + Sync>,
    alerts: Option<Alerts>,
}

/// What came of a process's work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    pub runs: Summary,
    pub executions: Summary,
}

/// Loops under way. They end with the shutdown, or when this is dropped.
pub struct Supervised {
    shutdown: watch::Receiver<Stage>,
    loops: JoinSet<Summary>,
}

impl Supervisor {
    /// For what every process takes care of. `by` is who events name.
    pub fn new(database: Arc<dyn Database>, by: &str, shutdown: watch::Receiver<Stage>) -> Supervisor {
        Supervisor {
            database,
            by: by.to_owned(),
            shutdown,
            swept: Box::new(|_| {}),
            schedules: None,
            projection: None,
            lag: Box::new(|_| {}),
            alerts: None,
        }
    }

    /// Tells how many runs time moved, after each look.
    #[must_use]
    pub fn counting(mut self, swept: impl Fn(usize) + Send + Sync + 'static) -> Supervisor {
        self.swept = Box::new(swept);
        self
    }

    /// Fires schedules too: the built-in ones, pruning among them, and those of the options.
    #[must_use]
    pub fn firing(mut self, schedules: SchedulerOptions) -> Supervisor {
        self.schedules = Some(schedules);
        self
    }

    /// Writes runs to an object store too, if there is one.
    #[must_use]
    pub fn projecting(mut self, projection: Option<Arc<Projection>>) -> Supervisor {
        self.projection = projection;
        self
    }

    /// Tells how far the object store is behind, after each look.
    #[must_use]
    pub fn telling(mut self, lag: impl Fn(Lag) + Send + Sync + 'static) -> Supervisor {
        self.lag = Box::new(lag);
        self
    }

    /// Evaluates alerts too, and tells its sinks.
    #[must_use]
    pub fn alerting(mut self, alerts: Alerts) -> Supervisor {
        self.alerts = Some(alerts);
        self
    }

    pub async fn start(self) -> Result<Supervised> {
        let Supervisor { database, by, shutdown, swept, schedules, projection, lag, alerts } = self;
        let mut it = Supervised::none(shutdown);
        it.add(Sweeper::new(database.clone(), &by).counted(swept), |_| Summary::default());
        it.add(Operator::new(database.clone()), |_| Summary::default());
        if let Some(alerts) = alerts {
            it.add(Alerter::new(database.clone(), alerts), |_| Summary::default());
        }
        if let Some(projection) = projection {
            let projector = Projector::new(database.clone(), projection, &by).telling(lag);
            it.add(projector, |_| Summary::default());
        }
        if let Some(options) = schedules {
            it.add(Scheduler::new(database, options).await?, Scheduler::summary);
        }
        Ok(it)
    }
}

impl Supervised {
    /// No loops: those of a process whose database is behind a server are the server's.
    pub fn none(shutdown: watch::Receiver<Stage>) -> Supervised {
        Supervised { shutdown, loops: JoinSet::new() }
    }

    fn add<L: Loop>(&mut self, it: L, summary: fn(&L) -> Summary) {
        let shutdown = self.shutdown.clone();
        self.loops.spawn(async move { summary(&drive(it, shutdown).await) });
    }

    /// Until the shutdown. A worker that cannot go on ends it at once.
    pub async fn run(mut self, worker: Option<Worker>) -> Result<Ended> {
        let mut ended = Ended::default();
        if let Some(worker) = worker {
            ended.runs = worker.run(self.shutdown.clone()).await?;
        }
        while let Some(summary) = self.loops.join_next().await {
            ended.executions += summary.unwrap_or_default();
        }
        Ok(ended)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("by", &self.by).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Supervised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervised").field("loops", &self.loops.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::time::Instant;
    use waypost_store::StoreError;

    /// Answers as it is told, and remembers when it was asked.
    struct Told {
        answers: Vec<Result<More>>,
        asked: Arc<Mutex<Vec<u128>>>,
        began: Instant,
        stop: watch::Sender<Stage>,
    }

    impl Loop for Told {
        const WORK: &'static str = "the test";

        fn every(&self) -> Duration {
            Duration::from_secs(10)
        }

        async fn run_once(&mut self) -> Result<More> {
            self.asked.lock().expect("no panic").push(self.began.elapsed().as_millis());
            if self.answers.is_empty() {
                self.stop.send_replace(Stage::Draining);
                return Ok(More::Later);
            }
            self.answers.remove(0)
        }
    }

    async fn asked_at(answers: Vec<Result<More>>) -> Vec<u128> {
        let (stop, told) = watch::channel(Stage::Working);
        let asked = Arc::new(Mutex::new(Vec::new()));
        drive(Told { answers, asked: asked.clone(), began: Instant::now(), stop }, told).await;
        asked.lock().expect("no panic").clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_keeps_its_pace_and_goes_on_at_once_while_there_is_more() {
        let away = || Err(StoreError::Unavailable("away".into()));
        let answers = vec![Ok(More::Later), Ok(More::Now), Ok(More::Now), away(), Ok(More::Later)];
        assert_eq!(asked_at(answers).await, [0, 10_000, 10_001, 10_002, 20_002, 30_002]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_never_be_done_does_not_keep_a_loop_from_its_pace() {
        let asked = asked_at((0..2 * MOST_TURNS).map(|_| Ok(More::Now)).collect()).await;
        let pauses = asked.windows(2).filter(|two| two[1] - two[0] >= 10_000).count();
        assert!(pauses > 0, "{} turns without a pause", asked.len());
    }
}
