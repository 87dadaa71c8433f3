//! The loop that fires. Any number of processes run it beside each other and nobody leads: a planning is written by
//! compare-and-set, and an execution belongs to whoever its claim was granted to.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use waypost_kernel::Catalog;
use waypost_kernel::schedule::{Overlap, in_words};
use waypost_store::{
    Begin, Begun, Claimed, DueExecution, Firing, Mine, Result, ScheduleWrite, Store, StoreError,
};

use super::hearts::Hearts;
use super::options::SchedulerOptions;
use super::planning::{Slot, birth, firing};
use super::schedule::Schedule;
use super::{execution, file, providers, pruning};
use crate::actions::http::Client;
use crate::handler::Handler;
use crate::pace;
use crate::shutdown::{Stage, reached};
use crate::summary::{End, Summary};

/// Of one tick; the next follows at once if there is more.
const AT_ONCE: usize = 500;
/// Of one request.
const FIRES_AT_ONCE: usize = 16;
const REQUESTS_AT_ONCE: usize = 4;
const LAST_WRITES: Duration = Duration::from_secs(5);

pub(super) struct Shared {
    pub store: Arc<dyn Store>,
    pub options: SchedulerOptions,
    pub client: Option<Client>,
    pub hearts: Arc<Hearts>,
    /// Executions are told to end because the process does.
    pub is_stopping: AtomicBool,
}

impl Shared {
    fn stop_all(&self, stage: Stage) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.hearts.stop_all(stage);
    }

    pub fn handler(&self, name: &str) -> Option<Arc<dyn Handler>> {
        if name == pruning::NAME {
            return Some(Arc::new(pruning::handler(self.store.clone())));
        }
        self.options.handlers.get(name).cloned()
    }
}

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Executions that were begun, retries and steals included, and runs that were queued.
    pub begun: usize,
    /// Plannings that somebody else was faster with.
    pub conflicts: usize,
    pub more: bool,
}

pub struct Scheduler {
    shared: Arc<Shared>,
    mine: Mine,
    catalog: Catalog,
    /// By hash: a definition is read once.
    known: HashMap<String, Option<Arc<Schedule>>>,
    slots: JoinSet<End>,
    beating: [JoinHandle<()>; 2],
    pub summary: Summary,
    pub conflicts: u64,
}

impl Scheduler {
    /// Stores the schedules of its own configuration, the built-in ones included.
    pub async fn new(store: Arc<dyn Store>, mut options: SchedulerOptions) -> Result<Scheduler> {
        let catalog = store.lifecycles().await?;
        options.own.extend(pruning::schedule(&catalog));
        let mut mine = Mine { carried: options.carried, hashes: Vec::new() };
        let mut known = HashMap::new();
        for schedule in &options.own {
            store.put_schedule(write_of(schedule, false)).await?;
            mine.hashes.push(schedule.hash.to_string());
            known.insert(schedule.hash.to_string(), Some(Arc::new(schedule.clone())));
        }
        let client = Client::new(options.allow_private);
        let client = client.map_err(|error| tracing::warn!(error, "HTTP actions will fail")).ok();
        let (hearts, beating) = Hearts::new(store.clone());
        let is_stopping = AtomicBool::new(false);
        let shared = Arc::new(Shared { store, options, client, hearts, is_stopping });
        Ok(Scheduler {
            shared,
            mine,
            catalog,
            known,
            slots: JoinSet::new(),
            beating,
            summary: Summary::default(),
            conflicts: 0,
        })
    }

    pub fn name(&self) -> &str {
        &self.shared.options.name
    }

    /// Ticks until it is told to stop; then what runs may end, and the rest is given back.
    pub async fn run(mut self, mut shutdown: watch::Receiver<Stage>) -> Summary {
        let mut failures = 0;
        loop {
            let wait = match self.run_once().await {
                Ok(tick) => {
                    failures = 0;
                    if tick.more { Duration::from_millis(1) } else { self.shared.options.tick }
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, "nothing could be planned; trying again");
                    pace::store_away(failures).max(self.shared.options.tick)
                }
            };
            // Whoever has no slot free waits for some, not for the next tick.
            let is_full = self.slots.len() >= self.shared.options.slots;
            tokio::select! {
                () = reached(&mut shutdown, Stage::Draining) => break,
                () = sleep(wait) => {}
                () = self.room(), if is_full => {}
            }
        }
        self.close(&mut shutdown).await;
        self.summary
    }

    /// Until a quarter of the slots is free: one tick for each that comes free would be one request for each.
    async fn room(&mut self) {
        while self.slots.len() * 4 > self.shared.options.slots * 3
            && let Some(ended) = self.slots.join_next().await
        {
            self.summary.count(ended.unwrap_or(End::Lost));
        }
    }

    /// Everything that is due now is begun; the executions go on beside it.
    pub async fn run_once(&mut self) -> Result<Tick> {
        while let Some(ended) = self.slots.try_join_next() {
            self.summary.count(ended.unwrap_or(End::Lost));
        }
        self.shared.hearts.tell().await;
        let free = self.shared.options.slots.saturating_sub(self.slots.len()).min(AT_ONCE);
        if free == 0 {
            return Ok(Tick::default());
        }
        let due = self.shared.store.due(self.mine.clone(), free).await?;
        let mut tick = Tick { more: due.more, ..Tick::default() };
        for name in &due.refresh {
            self.refresh(name).await;
        }
        self.begin(due.executions, &mut tick).await?;
        let room = self.shared.options.slots.saturating_sub(self.slots.len());
        tick.more &= room > 0;
        let mut firings = Vec::new();
        for scope in due.scopes.into_iter().take(room) {
            if let Some(schedule) = self.schedule(&scope.schedule, &scope.hash).await? {
                let firing = firing(&schedule, &scope, due.now, &self.shared.options.name);
                firings.push((schedule, firing));
            }
        }
        self.fire(firings, &mut tick).await?;
        self.conflicts += tick.conflicts as u64;
        Ok(tick)
    }

    /// Many in one request, beginning anywhere: those who tick at the same time would be in each other's way otherwise. All
    /// answers are waited for, since what was begun is ours to execute.
    async fn fire(&mut self, mut firings: Vec<(Arc<Schedule>, Firing)>, tick: &mut Tick) -> Result<()> {
        if firings.is_empty() {
            return Ok(());
        }
        let first = (pace::random() % firings.len() as u64) as usize;
        firings.rotate_left(first);
        let mut waiting = firings.into_iter();
        let mut fires = JoinSet::new();
        let mut failed = None;
        loop {
            while fires.len() < REQUESTS_AT_ONCE && failed.is_none() && waiting.len() > 0 {
                let (schedules, firings): (Vec<_>, Vec<_>) = waiting.by_ref().take(FIRES_AT_ONCE).unzip();
                let store = self.shared.store.clone();
                let asked_at = Instant::now();
                fires.spawn(async move { (schedules, asked_at, store.fire(firings).await) });
            }
            let Some(answered) = fires.join_next().await else { break };
            let Ok((schedules, asked_at, answers)) = answered else { continue };
            match answers {
                Ok(answers) => {
                    for (schedule, answer) in schedules.iter().zip(answers) {
                        match answer {
                            Ok(Some(begun)) => {
                                begun.into_iter().for_each(|one| self.began(schedule, one, asked_at, tick));
                            }
                            Ok(None) => tick.conflicts += 1,
                            // It stays due: not before the next tick.
                            Err(error) => {
                                tick.more = false;
                                tracing::error!(schedule = schedule.name, %error, "could not be fired");
                            }
                        }
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn began(&mut self, schedule: &Arc<Schedule>, begun: Begun, asked_at: Instant, tick: &mut Tick) {
        tick.begun += 1;
        match begun {
            Begun::Held(_, claimed) => self.spawn(schedule, *claimed, asked_at),
            Begun::Queued(plan, run_id) => {
                tracing::info!(schedule = schedule.name, %plan, run_id, "queued a run");
            }
        }
    }

    fn spawn(&mut self, schedule: &Arc<Schedule>, claimed: Claimed, asked_at: Instant) {
        self.summary.claimed += 1;
        self.slots.spawn(execution::work(self.shared.clone(), schedule.clone(), claimed, asked_at));
    }

    /// Retries, steals and plans by hand. All answers are waited for here too.
    async fn begin(&mut self, due: Vec<DueExecution>, tick: &mut Tick) -> Result<()> {
        let mut waiting = due.into_iter();
        let mut begins = JoinSet::new();
        let mut failed = None;
        loop {
            while begins.len() < REQUESTS_AT_ONCE
                && failed.is_none()
                && let Some(due) = waiting.next()
            {
                let schedule = match self.schedule(&due.schedule, &due.hash).await {
                    Ok(Some(schedule)) => schedule,
                    Ok(None) => continue,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                };
                let begin = self.begin_of(&schedule, due);
                let store = self.shared.store.clone();
                let asked_at = Instant::now();
                begins.spawn(async move { (schedule, asked_at, store.begin(begin).await) });
            }
            let Some(answered) = begins.join_next().await else { break };
            let Ok((schedule, asked_at, answer)) = answered else { continue };
            match answer {
                Ok(begun) => begun.into_iter().for_each(|one| self.began(&schedule, one, asked_at, tick)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn begin_of(&self, schedule: &Schedule, due: DueExecution) -> Begin {
        let by = &self.shared.options.name;
        let slot = Slot { kind: due.kind.clone(), id: due.id.clone(), plan: due.plan, manual: due.manual };
        Begin {
            schedule: due.schedule,
            kind: due.kind,
            id: due.id,
            plan: due.plan,
            birth: birth(schedule, &slot, by),
            by: by.clone(),
            alone: schedule.policy.overlap != Overlap::Allow,
        }
    }

    async fn refresh(&mut self, name: &str) {
        let rows = self.shared.store.schedules(Some(name.to_owned())).await;
        let Some(row) = rows.ok().and_then(|mut rows| rows.pop()) else { return };
        let Ok(Some(schedule)) = self.schedule(name, &row.hash).await else { return };
        if let Err(problem) = providers::refresh(&self.shared, &schedule).await {
            tracing::warn!(schedule = name, problem, "its scopes could not be listed; those it has go on");
        }
    }

    /// Nothing: this binary cannot read its definition, and leaves it alone.
    async fn schedule(&mut self, name: &str, hash: &str) -> Result<Option<Arc<Schedule>>> {
        if let Some(known) = self.known.get(hash) {
            return Ok(known.clone());
        }
        let rows = self.shared.store.schedules(Some(name.to_owned())).await?;
        let Some(row) = rows.into_iter().find(|row| row.hash == hash) else { return Ok(None) };
        let read = file::stored(&row.definition, Path::new(&row.folder), &self.catalog);
        let read = read
            .map_err(|problems| tracing::error!(schedule = name, %problems, "not understood: left alone"));
        let known = read.ok().map(Arc::new);
        self.known.insert(hash.to_owned(), known.clone());
        Ok(known)
    }

    /// Waits for all executions to end.
    pub async fn settle(&mut self) {
        while let Some(ended) = self.slots.join_next().await {
            self.summary.count(ended.unwrap_or(End::Lost));
        }
        self.shared.hearts.tell().await;
    }

    /// In this order: nothing more is begun, executions may end, those that have not are stopped and given back.
    async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) {
        let (grace, shared) = (self.shared.options.grace, self.shared.clone());
        tokio::select! {
            biased;
            () = self.settle() => return,
            () = reached(shutdown, Stage::Now) => {}
            () = sleep(grace) => shared.stop_all(Stage::Draining),
        }
        tokio::select! {
            biased;
            () = self.settle() => return,
            () = reached(shutdown, Stage::Now) => {}
            () = sleep(grace + LAST_WRITES) => {}
        }
        shared.stop_all(Stage::Now);
        if timeout(LAST_WRITES, self.settle()).await.is_err() {
            tracing::error!("the store took no more writes: leases that are left run out by themselves");
            self.slots.shutdown().await;
        }
    }
}

/// A schedule as the store keeps it.
pub fn write_of(schedule: &Schedule, carried: bool) -> ScheduleWrite {
    ScheduleWrite {
        name: schedule.name.clone(),
        definition: schedule.definition.clone(),
        folder: schedule.folder.display().to_string(),
        hash: schedule.hash.to_string(),
        timing: timing_of(schedule),
        carried,
        kind: schedule.scopes.kind().to_owned(),
        ids: schedule.scopes.known(),
    }
}

/// Equal as long as the plan times are.
fn timing_of(schedule: &Schedule) -> String {
    match &schedule.policy.timing {
        waypost_kernel::schedule::Timing::Cron { cron, zone } => format!("{} {}", cron.as_str(), zone.name()),
        every => in_words(every),
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.beating.iter().for_each(JoinHandle::abort);
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("name", &self.shared.options.name).finish_non_exhaustive()
    }
}

/// For those who apply schedules: as the store answers.
pub async fn apply(
    store: &dyn Store,
    schedule: &Schedule,
) -> std::result::Result<waypost_store::Put, StoreError> {
    store.put_schedule(write_of(schedule, true)).await
}
