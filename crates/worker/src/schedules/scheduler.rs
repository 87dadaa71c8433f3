//! The loop that fires. Any number of processes run it beside each other and nobody leads: a planning is written by
//! compare-and-set, and an execution belongs to whoever its claim was granted to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use waypost_kernel::Time;
use waypost_kernel::schedule::{Overlap, in_words};
use waypost_kernel::tenant::DEFAULT;
use waypost_store::{
    Begin, Begun, Claimed, Database, DueExecution, DueListing, DueScope, Each, Firing, Ownership, Result,
    ScheduleChange, ScheduleChanged, ScheduleWrite, SchedulerSign, Store, StoreError, Who,
};

use super::by_name::{self, Filled};
use super::definitions::Definitions;
use super::failures::Failures;
use super::options::SchedulerOptions;
use super::planning::{Slot, birth, firing, rekey};
use super::schedule::{Schedule, What};
use super::{execution, providers, pruning};
use crate::claim::slots::Slots;
use crate::handler::Handler;
use crate::loops::{Loop, More, drive};
use crate::options::Options;
use crate::pace;
use crate::pipeline;
use crate::shutdown::Stage;
use crate::summary::Summary;

/// Of one tick; the next follows at once if there is more.
const AT_ONCE: usize = 500;
/// Of one request.
const FIRES_AT_ONCE: usize = 16;
const REQUESTS_AT_ONCE: usize = 4;
/// A scheduler that is not heard of for a minute is gone.
const SIGN_EVERY: Duration = Duration::from_secs(15);

pub(super) struct Shared {
    pub database: Arc<dyn Database>,
    /// What executions share with each other, as the runs of a worker do.
    pub work: pipeline::Shared,
    pub options: SchedulerOptions,
}

impl Shared {
    fn new(database: Arc<dyn Database>, options: SchedulerOptions) -> Arc<Shared> {
        let work = Options {
            name: options.name.clone(),
            slots: options.slots,
            grace: options.grace,
            allow_private: options.allow_private,
            guardian: options.guardian.clone(),
            passed_env: options.passed_env.clone(),
            ..Options::default()
        };
        Arc::new(Shared { work: pipeline::Shared::new(database.clone(), work), database, options })
    }

    fn handler(&self, what: &What) -> Option<Arc<dyn Handler>> {
        match what {
            What::Handler(name) if name == pruning::NAME => {
                Some(Arc::new(pruning::handler(self.database.clone())))
            }
            What::Handler(name) => self.options.handlers.get(name).cloned(),
            What::Action(_) | What::Run(_) => None,
        }
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
    ownership: Ownership,
    definitions: Definitions,
    slots: Slots,
    /// Executions whose ends are to be noticed by the next tick.
    ended: Vec<String>,
    /// Scopes that are being listed, and of which schedules.
    listings: JoinSet<String>,
    listed: HashSet<String>,
    /// A plan waits for the end of an earlier one of its scope, or may come to.
    waits_for_an_end: bool,
    said_so: Option<Instant>,
    pub conflicts: u64,
}

impl Scheduler {
    /// Stores the schedules of its own configuration, the built-in ones included.
    pub async fn new(database: Arc<dyn Database>, mut options: SchedulerOptions) -> Result<Scheduler> {
        options.own.extend(pruning::schedule(&database.lifecycles().await?.of_tenant(DEFAULT)));
        let mut ownership =
            Ownership { carried: options.carried, tenant: options.tenant.clone(), ..Ownership::default() };
        for schedule in &options.own {
            database.put_schedule(write_of(schedule, false)).await?;
            ownership.hashes.push(schedule.hash.to_string());
        }
        if let Some(rules) = &options.retention {
            database.put_retention(rules.clone()).await?;
        }
        let definitions = Definitions::new(database.clone(), &options.own).await?;
        let shared = Shared::new(database, options);
        Ok(Scheduler {
            slots: Slots::new(shared.work.clone()),
            shared,
            ownership,
            definitions,
            ended: Vec::new(),
            listings: JoinSet::new(),
            listed: HashSet::new(),
            waits_for_an_end: false,
            said_so: None,
            conflicts: 0,
        })
    }

    pub fn name(&self) -> &str {
        &self.shared.options.name
    }

    pub fn summary(&self) -> Summary {
        self.slots.summary
    }

    /// Ticks until it is told to stop; then what runs may end, and the rest is given back.
    pub async fn run(self, shutdown: watch::Receiver<Stage>) -> Summary {
        drive(self, shutdown).await.summary()
    }

    /// Until a quarter of the slots is free: one tick for each that comes free would be one request for each.
    async fn room(&mut self) {
        while self.slots.room() * 4 < self.shared.options.slots
            && let Some(ended) = self.slots.ended().await
        {
            self.ended.extend(ended.run_id);
        }
    }

    /// Everything that is due now is begun; the executions go on beside it, and so do listings of scopes.
    pub async fn run_once(&mut self) -> Result<Tick> {
        self.reap();
        self.tell().await;
        // Ends are noticed by whoever has no slot free, too.
        self.say_so().await;
        let free = self.slots.room().min(AT_ONCE);
        self.ownership.except = self.definitions.unread();
        let due = self.shared.database.due(self.ownership.clone(), free).await?;
        let mut tick = Tick { more: due.more, ..Tick::default() };
        let mut failures = Failures::default();
        tick.more |= self.definitions.read_again(due.now).await?;
        for listing in due.listings {
            self.list(listing, due.now).await?;
        }
        // What has begun goes on first, then come the plans of the schedules themselves, and what somebody asked for takes what room is left.
        let (begun, asked): (Vec<_>, Vec<_>) = due.executions.into_iter().partition(|it| it.run_id.is_some());
        let began = self.begin(begun, due.now, &mut tick, &mut failures).await;
        let room = self.slots.room();
        let mut fired = match began {
            Ok(()) => self.plan(due.scopes, due.now, room, &mut tick, &mut failures).await,
            Err(error) => Err(error),
        };
        if fired.is_ok() {
            fired = self.begin(asked, due.now, &mut tick, &mut failures).await;
        }
        failures.hashes.iter().for_each(|hash| self.definitions.forget(hash));
        failures.put_off(&*self.shared.database).await?;
        fired?;
        tick.more &= room > 0;
        self.conflicts += tick.conflicts as u64;
        Ok(tick)
    }

    /// For people who look whether anybody fires their schedules.
    async fn say_so(&mut self) {
        if self.said_so.is_some_and(|at| at.elapsed() < SIGN_EVERY) {
            return;
        }
        self.said_so = Some(Instant::now());
        let Ownership { carried, tenant, hashes, .. } = self.ownership.clone();
        self.sign(SchedulerSign { name: self.name().to_owned(), carried, tenant, hashes }).await;
    }

    async fn sign(&self, sign: SchedulerSign) {
        if let Err(error) = self.shared.database.scheduler_seen(sign).await {
            tracing::debug!(%error, "which schedules are fired is said later, or forgotten in a minute");
        }
    }

    /// What has ended beside the ticks.
    fn reap(&mut self) {
        while let Some(ended) = self.slots.try_ended() {
            self.ended.extend(ended.run_id);
        }
        while let Some(Ok(name)) = self.listings.try_join_next() {
            self.listed.remove(&name);
        }
    }

    /// What ended since is looked at by the next tick, whoever's it is. If that cannot be told, it is noticed when its
    /// lease would end.
    async fn tell(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        if !ended.is_empty()
            && let Err(error) = self.shared.database.wake_executions(ended).await
        {
            tracing::debug!(%error, "ends of executions are noticed later");
        }
    }

    /// One at a time of each schedule.
    async fn list(&mut self, due: DueListing, now: Time) -> Result<()> {
        if let Some(schedule) = self.definitions.find(&due.schedule, &due.hash, now).await?
            && self.listed.insert(due.schedule.clone())
        {
            self.listings.spawn(providers::list(self.shared.clone(), schedule, due));
        }
        Ok(())
    }

    async fn plan(
        &mut self,
        scopes: Vec<DueScope>,
        now: Time,
        room: usize,
        tick: &mut Tick,
        failures: &mut Failures,
    ) -> Result<()> {
        let mut planned = Vec::new();
        for scope in scopes.into_iter().take(room) {
            if let Some(schedule) = self.definitions.find(&scope.schedule, &scope.hash, now).await? {
                self.waits_for_an_end |= schedule.policy.waits_for(scope.running);
                planned.push((schedule, scope));
            }
        }
        self.fire(planned, now, tick, failures).await
    }

    /// Many in one request, beginning anywhere: those who tick at the same time would be in each other's way otherwise. All
    /// answers are waited for, since what was begun is ours to execute.
    async fn fire(
        &mut self,
        mut planned: Vec<(Arc<Schedule>, DueScope)>,
        now: Time,
        tick: &mut Tick,
        failures: &mut Failures,
    ) -> Result<()> {
        if planned.is_empty() {
            return Ok(());
        }
        let first = (pace::random() % planned.len() as u64) as usize;
        planned.rotate_left(first);
        let mut waiting = planned.into_iter();
        let mut fires = JoinSet::new();
        let mut failed = None;
        loop {
            while fires.len() < REQUESTS_AT_ONCE && failed.is_none() && waiting.len() > 0 {
                let planned: Vec<_> = waiting.by_ref().take(FIRES_AT_ONCE).collect();
                let (shared, asked_at) = (self.shared.clone(), Instant::now());
                fires.spawn(async move {
                    let answers = fire_all(&shared, &planned, now).await;
                    (planned, asked_at, answers)
                });
            }
            let Some(answered) = fires.join_next().await else { break };
            let Ok((planned, asked_at, answers)) = answered else { continue };
            match answers {
                Ok(answers) => {
                    for ((schedule, scope), answer) in planned.iter().zip(answers) {
                        match answer {
                            Ok(Some(begun)) => {
                                begun.into_iter().for_each(|one| self.began(schedule, one, asked_at, tick));
                            }
                            Ok(None) => tick.conflicts += 1,
                            Err(error) => failures.planning(scope, error.to_string()),
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
            Begun::Held(_, claimed) => {
                self.waits_for_an_end |= schedule.policy.overlap == Overlap::Queue;
                self.spawn(schedule, *claimed, asked_at);
            }
            Begun::Queued(plan, run_id) => {
                tracing::info!(schedule = schedule.name, %plan, run_id, "queued a run");
            }
        }
    }

    fn spawn(&mut self, schedule: &Arc<Schedule>, claimed: Claimed, asked_at: Instant) {
        let handler = self.shared.handler(&schedule.what);
        self.slots.begin(execution::job(schedule, claimed, asked_at, handler));
    }

    /// Retries, steals and plans by hand, each by itself. All answers are waited for here too.
    async fn begin(
        &mut self,
        due: Vec<DueExecution>,
        now: Time,
        tick: &mut Tick,
        failures: &mut Failures,
    ) -> Result<()> {
        let mut room = self.slots.room();
        let mut waiting = due.into_iter();
        let mut begins = JoinSet::new();
        let mut failed = None;
        loop {
            while begins.len() < REQUESTS_AT_ONCE
                && failed.is_none()
                && room > 0
                && let Some(due) = waiting.next()
            {
                let schedule = match self.definitions.find(&due.schedule, &due.hash, now).await {
                    Ok(Some(schedule)) => schedule,
                    Ok(None) => continue,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                };
                // It waits for the other's end; the store tells of it again.
                if due.is_running && is_alone(&schedule) {
                    continue;
                }
                room -= 1;
                let begin = self.begin_of(&schedule, &due);
                let (store, asked_at) = (self.shared.database.clone(), Instant::now());
                begins.spawn(async move {
                    let begun = begin_one(&*store, &schedule, begin).await;
                    (schedule, due, asked_at, begun)
                });
            }
            let Some(answered) = begins.join_next().await else { break };
            let Ok((schedule, due, asked_at, answer)) = answered else { continue };
            match answer {
                Ok(Some(begun)) => {
                    // The next that waits may begin beside it.
                    tick.more |= due.run_id.is_none() && !is_alone(&schedule);
                    self.began(&schedule, begun, asked_at, tick);
                }
                Ok(None) => {}
                Err(error) => failures.beginning(&due, error.to_string()),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn begin_of(&self, schedule: &Schedule, due: &DueExecution) -> Begin {
        let by = &self.shared.options.name;
        let slot =
            Slot { kind: due.kind.clone(), id: due.id.clone(), plan: due.plan, manual: due.manual.clone() };
        Begin {
            schedule: due.schedule.clone(),
            kind: due.kind.clone(),
            id: due.id.clone(),
            plan: due.plan,
            birth: birth(schedule, &slot, by),
            by: by.clone(),
            alone: is_alone(schedule),
        }
    }

    /// Waits for all executions to end, and for all listings.
    pub async fn settle(&mut self) {
        while let Some(ended) = self.slots.ended().await {
            self.ended.extend(ended.run_id);
        }
        while self.listings.join_next().await.is_some() {}
        self.listed.clear();
        self.tell().await;
    }
}

impl Loop for Scheduler {
    const WORK: &'static str = "planning";

    fn every(&self) -> Duration {
        self.shared.options.tick
    }

    async fn run_once(&mut self) -> Result<More> {
        let tick = Scheduler::run_once(self).await?;
        Ok(if tick.more { More::Now } else { More::Later })
    }

    /// Whoever has no slot free waits for some, not for the next tick; and plans that wait for the one before them begin when
    /// it ends, or those of a cadence of seconds would never catch up.
    async fn pause(&mut self, wait: Duration) {
        let is_full = self.slots.room() == 0;
        let waits = std::mem::take(&mut self.waits_for_an_end);
        if is_full {
            tokio::select! {
                () = sleep(wait) => {}
                () = self.room() => {}
            }
            return;
        }
        tokio::select! {
            () = sleep(wait) => {}
            Some(ended) = self.slots.ended(), if waits => self.ended.extend(ended.run_id),
        }
    }

    /// Nothing more is begun; executions may end, and those that have not are stopped and given back.
    async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) {
        // Nobody waits for whoever lists scopes: the next process asks again.
        self.listings.shutdown().await;
        self.ended.extend(self.slots.close(shutdown).await);
        self.tell().await;
        self.sign(SchedulerSign { name: self.name().to_owned(), ..SchedulerSign::default() }).await;
    }
}

fn is_alone(schedule: &Schedule) -> bool {
    schedule.policy.overlap != Overlap::Allow
}

/// A plan whose key another run has begins under another one.
async fn fire_all(
    shared: &Shared,
    planned: &[(Arc<Schedule>, DueScope)],
    now: Time,
) -> Result<Each<Option<Vec<Begun>>>> {
    let by = &shared.options.name;
    let mut firings: Vec<Firing> =
        planned.iter().map(|(schedule, scope)| firing(schedule, scope, now, by)).collect();
    for ((schedule, _), firing) in planned.iter().zip(&mut firings) {
        for (plan, mut birth) in std::mem::take(&mut firing.plans) {
            match by_name::fill(&*shared.database, schedule, &mut birth).await? {
                Filled::Ready => firing.plans.push((plan, birth)),
                Filled::Passed(why) => {
                    tracing::warn!(schedule = schedule.name, %plan, why, "passed over");
                    firing.skipped.paused += 1;
                }
            }
        }
    }
    let mut answers = shared.database.fire(firings.clone()).await?;
    for ((planned, firing), answer) in planned.iter().zip(firings).zip(answers.iter_mut()) {
        if let Err(StoreError::KeyReused { key, run_id }) = answer {
            tracing::warn!(
                schedule = planned.1.schedule,
                key,
                run_id,
                "its key is another run's: begun under a new one"
            );
            let mut again = firing;
            again.plans.iter_mut().for_each(|(_, birth)| rekey(birth));
            *answer = match shared.database.fire(vec![again]).await {
                Ok(mut fired) => fired.pop().unwrap_or(Ok(None)),
                Err(error) => Err(error),
            };
        }
    }
    Ok(answers)
}

async fn begin_one(store: &dyn Database, schedule: &Schedule, mut begin: Begin) -> Result<Option<Begun>> {
    if let Filled::Passed(why) = by_name::fill(store, schedule, &mut begin.birth).await? {
        return Err(StoreError::invalid("agent", why));
    }
    match store.begin(begin.clone()).await {
        Err(StoreError::KeyReused { key, run_id }) => {
            tracing::warn!(
                schedule = begin.schedule,
                key,
                run_id,
                "its key is another run's: begun under a new one"
            );
            let mut begin = begin;
            rekey(&mut begin.birth);
            store.begin(begin).await
        }
        begun => begun,
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

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("name", &self.shared.options.name).finish_non_exhaustive()
    }
}

/// For those who apply schedules: as the store answers.
pub async fn apply(store: &dyn Store, schedule: &Schedule, who: Who) -> Result<ScheduleChanged> {
    store.change_schedule(ScheduleChange::Put(write_of(schedule, true)), who).await
}
