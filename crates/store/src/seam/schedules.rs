//! Schedules: where planning got to, and which execution belongs to which plan. One subject of the seam.
//!
//! Any number of processes plan at once and nobody leads: a planning is written by compare-and-set together with the
//! executions that it fires, and the key of an execution is unique.

use serde_json::{Value, json};
use waypost_kernel::backoff::Backoff;
use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::schedule::{Running, Skipped};
use waypost_kernel::tenant::{DEFAULT, local_name, own_name, tenant_of};
use waypost_kernel::text::MAX_PAYLOAD_BYTES;
use waypost_kernel::{Span, Time};

use crate::rules::intake::{check_given_name, check_name, check_reason, check_text};
use crate::seam::access::Who;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claimed, NewRun, Pause};

/// How often the end of a run that was queued is looked for.
const LOOK: Span = Span::from_seconds(5);
/// Who saw that an execution is to be taken has this long to take it before others are told.
const HANDS_OFF: Span = Span::from_seconds(2);
/// What must not overlap is looked at again after this.
pub(crate) const SOON: Span = Span::from_seconds(1);
/// Scopes that somebody else lists are asked for again this often.
pub(crate) const SCOPES_EVERY: Span = Span::from_seconds(60);
/// Who was told to list scopes has this long before others are told.
pub(crate) const LISTING: Span = Span::from_seconds(20);
/// What may not begin because of a pause is looked at again after this; whoever resumes wakes it at once.
pub(crate) const PAUSED: Span = Span::from_seconds(60);
/// Executions and scopes with waiting plans that one tick looks at. It follows at once if there are more.
pub(crate) const LOOKED_AT: usize = 500;
/// A scheduler says that it is there more often than this.
pub const SCHEDULER_GONE_AFTER: Span = Span::from_seconds(60);
/// What fails each time costs a try each 5 minutes.
const AFTER_FAILURE: Backoff = Backoff::Exponential {
    base: Span::from_seconds(1),
    factor: 2,
    cap: Span::from_seconds(300),
    jitter_percent: 0,
};

#[derive(Clone, Debug, Default)]
pub struct ScheduleWrite {
    /// As it is stored: with its tenant.
    pub name: String,
    pub definition: Value,
    /// Where its commands run.
    pub folder: String,
    pub hash: String,
    /// The rule of when, as text. If it changes, plans count from that moment on.
    pub timing: String,
    /// The schedule was applied, so that every process that executes embedded content may execute it. Otherwise it belongs to
    /// a process's own files.
    pub carried: bool,
    pub kind: String,
    /// The scopes. If they are not given, a provider lists them from time to time.
    pub ids: Option<Vec<String>>,
}

/// A process that fires schedules, and which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerSign {
    pub name: String,
    /// Those that were applied.
    pub carried: bool,
    /// Of these, only this tenant's; whoever's if it is not given.
    pub tenant: Option<String>,
    /// Hashes of its own ones.
    pub hashes: Vec<String>,
}

impl SchedulerSign {
    pub fn fires(&self, row: &ScheduleRow) -> bool {
        let is_for = self.tenant.as_deref().is_none_or(|tenant| tenant == tenant_of(&row.name));
        self.carried && row.carried && is_for || self.hashes.contains(&row.hash)
    }
}

/// What people do with a schedule of their tenant, by its stored name.
#[derive(Clone, Debug)]
pub enum ScheduleChange {
    /// Adds it, or puts a new definition in place of the old one. A pause stays.
    Put(ScheduleWrite),
    /// Its executions stay, as history; those under way are asked to cancel, and plans that wait are dropped.
    Remove(String),
    /// Nothing of the schedule begins until it is resumed. The reason is that of the audit entry.
    Pause(String),
    /// Plans that passed during the pause are counted, and not executed.
    Resume(String),
    /// Plans by hand.
    Plan(ManualPlans),
}

impl ScheduleChange {
    /// Of the schedule.
    pub(crate) fn name(&self) -> &str {
        match self {
            ScheduleChange::Put(write) => &write.name,
            ScheduleChange::Remove(name) | ScheduleChange::Pause(name) | ScheduleChange::Resume(name) => name,
            ScheduleChange::Plan(plans) => &plans.schedule,
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChanged {
    Added,
    Changed,
    /// The schedule was the same before; nothing was written.
    Same,
    Removed,
    /// How many of the plans are new.
    Planned(u64),
}

impl ScheduleChanged {
    /// What putting a schedule can come to.
    pub const PUT: [ScheduleChanged; 3] =
        [ScheduleChanged::Added, ScheduleChanged::Changed, ScheduleChanged::Same];

    pub fn name(self) -> &'static str {
        match self {
            ScheduleChanged::Added => "added",
            ScheduleChanged::Changed => "changed",
            ScheduleChanged::Same => "unchanged",
            ScheduleChanged::Removed => "removed",
            ScheduleChanged::Planned(_) => "planned",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleRow {
    pub name: String,
    pub definition: Value,
    pub folder: String,
    pub hash: String,
    pub timing: String,
    pub carried: bool,
    pub paused: Option<Pause>,
    pub updated_at: Time,
}

/// One scope of a schedule, and what came of its plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRow {
    pub kind: String,
    pub id: String,
    /// Every plan up to here is fired or counted.
    pub through: Option<Time>,
    /// Plans up to here do not count: a pause, or another timing.
    pub since: Option<Time>,
    /// When there is something to plan. Absent if the schedule is paused or the scope is no longer listed.
    pub wake_at: Option<Time>,
    /// Plannings in a row that failed: it is looked at later each time.
    pub failures: u32,
    pub retired: bool,
    pub counts: Counts,
    /// Of the execution that ended last.
    pub last_plan: Option<Time>,
    pub last_status: Option<String>,
    pub last_success: Option<Time>,
    /// Executions that are being executed, and those of them whose holder is gone.
    pub running: u64,
    pub stale: u64,
}

/// Which schedules a process may execute.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    pub carried: bool,
    /// Of those that were applied, only this tenant's; whoever's if it is not given.
    pub tenant: Option<String>,
    /// Hashes of its own ones.
    pub hashes: Vec<String>,
    /// Hashes of those that it cannot execute just now, whoever else can.
    pub except: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    pub now: Time,
    pub scopes: Vec<DueScope>,
    pub executions: Vec<DueExecution>,
    /// Schedules whose scopes are to be listed anew.
    pub listings: Vec<DueListing>,
    /// There may be more of it now.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueScope {
    pub schedule: String,
    pub hash: String,
    pub kind: String,
    pub id: String,
    pub through: Option<Time>,
    pub since: Option<Time>,
    pub running: Running,
    pub wake_at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueListing {
    pub schedule: String,
    pub hash: String,
    /// When `due` tells others of it.
    pub wake_at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueExecution {
    pub schedule: String,
    pub hash: String,
    pub kind: String,
    pub id: String,
    pub plan: Time,
    /// Absent if the execution was asked for by hand and has not begun.
    pub run_id: Option<String>,
    pub manual: Option<String>,
    /// Of one that has not begun: whether another of its scope is under way.
    pub is_running: bool,
    pub wake_at: Time,
}

/// Something that `due` told of and that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub schedule: String,
    pub what: Failing,
    /// What `due` told: if it is another one by now, somebody else has dealt with it, and nothing is written.
    pub wake_at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Listing the scopes.
    Listing,
    /// The planning of a scope.
    Scope { kind: String, id: String },
    /// The beginning of an execution.
    Execution { kind: String, id: String, plan: Time },
}

#[derive(Clone, Debug, Default)]
pub struct Firing {
    pub schedule: String,
    pub kind: String,
    pub id: String,
    /// What `due` told: if it is another one by now, nothing is written.
    pub expected: Option<Time>,
    pub through: Option<Time>,
    pub wake_at: Option<Time>,
    pub skipped: Counts,
    pub plans: Vec<(Time, Birth)>,
    /// Only while nothing else of the scope is executed.
    pub alone: bool,
}

/// What a plan begins with.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Its tenant is the schedule's, whatever it says.
    pub run: NewRun,
    /// With a lease the run is held from its beginning by who fires it; without one it is queued for any worker.
    pub lease: Option<Span>,
}

#[derive(Clone, Debug)]
pub enum Begun {
    Held(Time, Box<Claimed>),
    Queued(Time, String),
}

#[derive(Clone, Debug)]
pub struct Begin {
    pub schedule: String,
    pub kind: String,
    pub id: String,
    pub plan: Time,
    pub birth: Birth,
    pub by: String,
    pub alone: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ManualPlans {
    pub schedule: String,
    pub kind: String,
    pub ids: Vec<String>,
    /// One plan for now if they are not given.
    pub plans: Option<Vec<Time>>,
    /// Those that failed for good, too: they are executed once more.
    pub again: bool,
    /// `trigger` or `backfill`.
    pub how: String,
    pub by: String,
}

/// Counted since the schedule was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub superseded: u64,
    pub outside_window: u64,
    pub late: u64,
    pub overlap: u64,
    pub paused: u64,
    pub won: u64,
    pub retried: u64,
    pub stolen: u64,
    pub succeeded: u64,
    /// For good: no attempt is left, or none was to follow.
    pub failed: u64,
}

impl Counts {
    fn fields(&mut self) -> [(&'static str, &mut u64); 10] {
        [
            ("superseded", &mut self.superseded),
            ("outside_window", &mut self.outside_window),
            ("late", &mut self.late),
            ("overlap", &mut self.overlap),
            ("paused", &mut self.paused),
            ("won", &mut self.won),
            ("retried", &mut self.retried),
            ("stolen", &mut self.stolen),
            ("succeeded", &mut self.succeeded),
            ("failed", &mut self.failed),
        ]
    }

    pub fn skipped(mut self) -> u64 {
        self.fields()[..5].iter().map(|(_, count)| **count).sum()
    }

    pub fn to_json(mut self) -> Value {
        let some = self.fields().into_iter().filter(|(_, count)| **count > 0);
        Value::Object(some.map(|(name, count)| (name.to_owned(), json!(*count))).collect())
    }

    pub fn from_json(value: &Value) -> Counts {
        let mut counts = Counts::default();
        for (name, count) in counts.fields() {
            *count = value[name].as_u64().unwrap_or(0);
        }
        counts
    }

    pub(crate) fn read(text: &str) -> Counts {
        Counts::from_json(&serde_json::from_str(text).unwrap_or_default())
    }

    pub fn add(&mut self, other: &Counts) {
        let mut other = *other;
        for ((_, sum), (_, more)) in self.fields().into_iter().zip(other.fields()) {
            *sum = sum.saturating_add(*more);
        }
    }
}

impl From<Skipped> for Counts {
    fn from(skipped: Skipped) -> Counts {
        let Skipped { superseded, outside_window, late, overlap } = skipped;
        Counts { superseded, outside_window, late, overlap, ..Counts::default() }
    }
}

/// The wait after this many failures in a row.
pub(crate) fn wait_after(failures: u32) -> Span {
    AFTER_FAILURE.wait(failures, 0).unwrap_or(SOON)
}

/// What becomes of an execution that was looked at.
enum Next {
    /// It has ended for good.
    Close,
    Wake(Time),
    /// It is to be taken; others are told later.
    Take(Time),
}

/// How executions that have begun are looked at: when again, and whether whoever looks is to take one up. At most `room`
/// are taken; what has no room or is paused lets the others pass.
pub(crate) struct Look {
    pub now: Time,
    pub room: usize,
}

impl Look {
    /// Without a time: the execution has ended.
    pub fn at(&mut self, run: Option<&RunRow>, is_paused: bool) -> (Option<Time>, bool) {
        match run.map_or(Next::Close, |run| next_of(run, self.now)) {
            Next::Close => (None, false),
            Next::Wake(at) => (Some(at), false),
            Next::Take(_) if is_paused => (Some(self.now + PAUSED), false),
            Next::Take(_) if self.room == 0 => (Some(self.now + SOON), false),
            Next::Take(at) => {
                self.room -= 1;
                (Some(at), true)
            }
        }
    }
}

fn next_of(row: &RunRow, now: Time) -> Next {
    match (row.phase(), &row.run.lease, row.run.available_at) {
        (Phase::Settled, _, None) => Next::Close,
        (Phase::Settled, _, Some(at)) if at > now => Next::Wake(at),
        (Phase::Settled, _, Some(_)) if row.run.attempt >= row.run.max_attempts => Next::Close,
        (Phase::Settled, _, Some(_)) => Next::Take(now + HANDS_OFF),
        // Another lifecycle's: its own workers take it.
        (_, Some(lease), _) if is_born_held(row) => {
            if lease.is_vacant() || lease.is_expired(now) {
                Next::Take(now + HANDS_OFF)
            } else {
                Next::Wake(lease.until + Span::from_ms(1))
            }
        }
        _ => Next::Wake(now + LOOK),
    }
}

/// Settled, not as a success, and nobody will take it up again by himself.
pub(crate) fn has_failed_for_good(row: &RunRow) -> bool {
    let is_over = row.run.available_at.is_none() || row.run.attempt >= row.run.max_attempts;
    row.phase() == Phase::Settled && row.outcome() != Some(Outcome::Succeeded) && is_over
}

pub(crate) fn is_born_held(row: &RunRow) -> bool {
    row.lifecycle.initial.iter().any(|state| row.lifecycle.phase(*state) == Phase::Held)
}

/// When a new execution is looked at for the first time.
pub(crate) fn first_look(row: &RunRow, now: Time) -> Time {
    row.run.lease.as_ref().map_or(now + LOOK, |lease| lease.until + Span::from_ms(1))
}

/// What an execution that has ended leaves in its scope.
pub(crate) fn close(scope: &mut ScopeRow, plan: Time, row: &RunRow) {
    let is_success = row.outcome() == Some(Outcome::Succeeded);
    scope.counts.add(&Counts {
        succeeded: u64::from(is_success),
        failed: u64::from(!is_success),
        ..Counts::default()
    });
    if scope.last_plan.is_none_or(|last| last <= plan) {
        scope.last_plan = Some(plan);
        scope.last_status = Some(row.status().to_owned());
    }
    if is_success {
        scope.last_success = scope.last_success.max(Some(plan));
    }
}

/// What a taken execution is counted as, by what it was before.
pub(crate) fn taken_as(before: Option<&RunRow>) -> Counts {
    match before {
        None => Counts { won: 1, ..Counts::default() },
        Some(row) if row.phase() == Phase::Settled => Counts { retried: 1, ..Counts::default() },
        Some(row) if row.run.lease.as_ref().is_some_and(|lease| !lease.is_vacant()) => {
            Counts { stolen: 1, ..Counts::default() }
        }
        Some(_) => Counts::default(),
    }
}

pub(crate) fn check_schedule(write: &ScheduleWrite) -> Result<()> {
    check_name("name", &write.name)?;
    check_given_name("name", local_name(&write.name))?;
    for (field, text) in [("folder", &write.folder), ("hash", &write.hash), ("timing", &write.timing)] {
        check_text(field, text, MAX_PAYLOAD_BYTES)?;
    }
    check_scopes(&write.kind, write.ids.as_deref().unwrap_or_default())
}

/// The beginning of the names of the engine's own schedules.
const ENGINES: &str = "waypost.";

/// The tenant's own schedules are the only ones that there are for it.
pub(crate) fn check_whose(name: &str, who: &Who) -> Result<()> {
    let is_own = tenant_of(name) == who.tenant && own_name(&who.tenant, local_name(name)) == name;
    if is_own { Ok(()) } else { Err(no_schedule(name)) }
}

/// People have no schedules by such names.
pub(crate) fn check_own(name: &str) -> Result<()> {
    if !local_name(name).starts_with(ENGINES) {
        return Ok(());
    }
    let message =
        format!("is {name:?}, and names that begin with {ENGINES:?} are the engine's: choose another");
    Err(StoreError::invalid("name", message))
}

/// Without the engine's own ones old runs would stay for ever. They can be paused.
pub(crate) fn check_removable(name: &str) -> Result<()> {
    if tenant_of(name) != DEFAULT || !name.starts_with(ENGINES) {
        return Ok(());
    }
    let message = format!("{name} is the engine's own and cannot be removed; pause it instead");
    Err(StoreError::invalid("name", message))
}

pub(crate) fn check_scopes(kind: &str, ids: &[String]) -> Result<()> {
    check_name("kind", kind)?;
    ids.iter().try_for_each(|id| check_name("scope", id))
}

pub(crate) fn check_pause(pause: Option<&Pause>) -> Result<()> {
    let Some(pause) = pause else { return Ok(()) };
    check_name("by", &pause.by)?;
    check_reason(Some(&pause.reason))
}

pub(crate) fn check_manual(plans: &ManualPlans) -> Result<()> {
    check_name("by", &plans.by)?;
    check_name("how", &plans.how)?;
    check_scopes(&plans.kind, &plans.ids)?;
    if plans.plans.as_ref().is_some_and(|times| times.len() * plans.ids.len().max(1) > MAX_MANUAL) {
        let message = format!("at most {MAX_MANUAL} plans at once; name a shorter range");
        return Err(StoreError::invalid("plans", message));
    }
    Ok(())
}

/// Plans that one request may add by hand.
pub const MAX_MANUAL: usize = 10_000;

pub(crate) fn no_schedule(name: &str) -> StoreError {
    StoreError::NotFound { what: "schedule", id: name.to_owned() }
}

impl Begun {
    pub fn run_id(&self) -> &str {
        match self {
            Begun::Held(_, claimed) => claimed.run.id(),
            Begun::Queued(_, run_id) => run_id,
        }
    }
}
