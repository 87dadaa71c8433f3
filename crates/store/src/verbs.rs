//! The storage seam: what can be asked of a store, in the words of the domain.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use waypost_kernel::item::{Item, Role};
use waypost_kernel::lifecycle::Actor;
use waypost_kernel::request::{Level, With};
use waypost_kernel::run::Want;
use waypost_kernel::{Catalog, Failure, Lifecycle, Run, Span, Time, Token};

use crate::deeds::Deeds;
use crate::error::{Result, StoreError};
use crate::looks::Looks;
use crate::run::{EventRow, ItemRow, RunRow};
use crate::schedules::Schedules;

/// Boxed, so that callers hold one `Arc<dyn Store>` whatever is behind it.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An answer per entry of a list.
pub type Each<T> = Vec<Result<T>>;

pub trait Store: Queue + Leases + Items + Log + Schedules + Looks + Deeds {}

impl<S: Queue + Leases + Items + Log + Schedules + Looks + Deeds> Store for S {}

/// Runs come in, and workers take them.
pub trait Queue: Send + Sync {
    fn enqueue(&self, runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>>;
    /// The best due runs of the named queues, at most `limit`; none is an empty list, not an error.
    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>>;
    /// A row that is born held (cron). The unique key (`idempotency_key`) lets one claimer win; a later one
    /// retries or steals the row if the lifecycle lets it, and else gets nothing.
    fn claim_plan(&self, run: NewRun, lease: Option<Span>) -> Reply<'_, Option<Claimed>>;
    /// Takes one run by its id, under the rules of `claim`.
    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed>;
    /// Returns when something may have changed, or after `at_most`.
    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// What the holder of a run may do with it. Every verb needs the lease's token.
pub trait Leases: Send + Sync {
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>>;
    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>>;
    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>>;
    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>>;
    fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow>;
    /// Leases and times to live that ran out, at most `limit` of them. Any process may ask, at any time.
    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept>;
}

/// The parts of a run.
pub trait Items: Send + Sync {
    /// Adds or moves items of a held run, all or none.
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>>;
    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>>;
}

/// What happened.
pub trait Log: Send + Sync {
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>>;
    /// All runs' events in the order in which they were committed. Never skips a late commit.
    fn feed(&self, after_position: u64, limit: usize) -> Reply<'_, Vec<EventRow>>;
    /// Who reads the feed from here on misses nothing that is committed from now on.
    fn last_position(&self) -> Reply<'_, u64>;
}

/// People's and the engine's commands, looking things up, and care.
pub trait Admin: Send + Sync {
    /// A command of the run's lifecycle by name.
    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow>;
    /// By id or unique prefix of one.
    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow>;
    fn runs(&self, filter: Filter) -> Reply<'_, Page>;
    fn queues(&self) -> Reply<'_, Vec<QueueRow>>;
    fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Reply<'_, QueueRow>;
    /// How many runs may be held at once: of a queue, or with a concurrency key. Nothing removes the limit
    /// (a key's is then one).
    fn limit(&self, what: LimitOf, name: String, at_most: Option<u32>) -> Reply<'_, ()>;
    /// Settled runs that are past their time, at most `limit`, with their events.
    fn prune(&self, limit: usize) -> Reply<'_, Pruned>;
    /// Replays every run's log and compares it with its row; `progress` is told how many of how many.
    fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified>;
    fn lifecycles(&self) -> Reply<'_, Catalog>;
    fn add_lifecycle(&self, text: String) -> Reply<'_, Arc<Lifecycle>>;
    /// The database's clock, the only one that counts.
    fn now(&self) -> Reply<'_, Time>;
    /// For tests and demonstrations: moves the database's clock ahead.
    fn advance_clock(&self, by: Span) -> Reply<'_, ()>;
}

#[derive(Clone, Debug)]
pub struct NewRun {
    pub tenant: String,
    pub lifecycle: String,
    /// Nothing: the latest.
    pub version: Option<u32>,
    /// Nothing: the lifecycle's first initial state.
    pub status: Option<String>,
    pub queue: String,
    /// Higher comes first.
    pub priority: i16,
    pub input: Value,
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    pub schedule_at: Option<Time>,
    pub ttl: Option<Span>,
    pub concurrency_key: Option<String>,
    pub correlation_id: Option<String>,
    pub idempotency_key: Option<String>,
    pub parent_run_id: Option<String>,
    pub retry_of: Option<String>,
    /// What the run is, for people.
    pub title: Option<String>,
    pub playbook: Option<String>,
    /// A command that the run itself brings along. Only those workers run it that were told to.
    pub carried: Option<Value>,
    pub max_attempts: u32,
    pub reentrant: bool,
    pub items: Vec<NewItem>,
    /// Who asks; of a plan, the worker.
    pub by: String,
    pub actor: Actor,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewItem {
    pub kind: String,
    pub key: String,
    pub name: String,
    /// Nothing: the kind's first initial state.
    pub status: Option<String>,
    pub max_retries: u32,
    pub reruns: bool,
    pub role: Role,
    pub details: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub struct Enqueued {
    pub run: RunRow,
    /// The idempotency key was known: this is the run that it made.
    pub replayed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Claim {
    pub worker: String,
    pub queues: Vec<String>,
    /// Empty: any.
    pub lifecycles: Vec<String>,
    /// Nothing: any.
    pub tenant: Option<String>,
    /// Nothing: whatever it is.
    pub can: Option<Can>,
    pub limit: usize,
    pub lease: Option<Span>,
    /// The work begins with the claim: see [`Take::start`].
    pub start: bool,
    /// Asked again with the same key, while a lease of its runs lasts, a claim gives the same runs and tokens: an answer
    /// that was lost costs nothing. Of this worker alone.
    pub idempotency_key: Option<String>,
}

/// How a run is taken, and by whom.
#[derive(Clone, Debug, Default)]
pub struct Take {
    pub worker: String,
    pub lease: Option<Span>,
    /// A run that waits for its holder to begin is begun with the claim, in the same transaction: whoever works it at once
    /// needs no write of its own for that.
    pub start: bool,
}

impl From<&str> for Take {
    fn from(worker: &str) -> Take {
        Take { worker: worker.to_owned(), ..Take::default() }
    }
}

/// What a claimer can execute. All else is left alone, for those who can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Can {
    /// As runs name them: with their hash, or by the name alone.
    pub playbooks: Vec<String>,
    /// What runs bring along.
    pub carried: bool,
}

#[derive(Clone, Debug)]
pub struct Claimed {
    pub run: RunRow,
    pub token: Token,
    pub fence: u64,
    pub expires_at: Time,
    /// The database's clock at the claim, so that the holder can count from its own.
    pub now: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub run_id: String,
    pub token: Token,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub expires_at: Time,
    pub now: Time,
    /// What the holder should do: `cancel`, `pause` or `fail`.
    pub intent: Option<&'static str>,
    /// The cancel is a graceful one.
    pub graceful: bool,
}

impl Renewed {
    pub fn of(run: &Run, now: Time) -> Self {
        let intent = run.intent.as_ref();
        Self {
            expires_at: run.lease.as_ref().map_or(now, |lease| lease.until),
            now,
            intent: intent.map(|intent| intent.want.command()),
            graceful: intent.is_some_and(|intent| intent.want == Want::Cancel && intent.graceful),
        }
    }
}

#[derive(Clone, Debug)]
pub struct NoteWrite {
    pub held: Held,
    pub by: String,
    pub level: Level,
    pub message: String,
    pub payload: Value,
    pub repeat: Repeat,
    /// Merged into the run's metadata and details.
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
}

/// How a repeated event is known as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It is not: two equal ones are two.
    Never,
    /// By its key, for ever.
    Key(String),
    /// By level, message and payload, for ten seconds.
    Window,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    pub event_id: String,
    pub seq: u64,
    pub repeated: bool,
}

#[derive(Clone, Debug, Default)]
pub struct FinishWrite {
    pub run_id: String,
    pub token: Option<Token>,
    pub by: String,
    pub status: String,
    pub failure: Option<Failure>,
    pub reason: Option<String>,
    pub retry_in: Option<Span>,
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    /// The last moves of its items, decided before the end and written with it: all or none.
    pub items: Vec<ItemWrite>,
}

#[derive(Clone, Debug)]
pub struct CleanupWrite {
    pub held: Held,
    pub by: String,
    pub required: bool,
    pub failing: Option<(String, Failure)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs that were moved, as (run id, command).
    pub moved: Vec<(String, String)>,
    /// There is more to do now.
    pub more: bool,
}

#[derive(Clone, Debug)]
pub struct ItemsWrite {
    pub held: Held,
    pub by: String,
    pub items: Vec<ItemWrite>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemWrite {
    pub kind: String,
    pub key: String,
    /// For a new item; defaults to the key.
    pub name: Option<String>,
    /// For a new item; defaults to 3.
    pub max_retries: Option<u32>,
    /// For a new item: it runs again when a paused run is resumed.
    pub reruns: bool,
    /// For a new item: what its failure means to the run.
    pub role: Role,
    pub status: String,
    pub command: Option<String>,
    pub progress: Option<u8>,
    pub failure: Option<Failure>,
    pub retry_in: Option<Span>,
    pub answered: bool,
    /// Which try this is about; a report of an earlier one changes nothing.
    pub try_no: Option<u32>,
    pub output: Option<Value>,
    pub details: Map<String, Value>,
}

#[derive(Clone, Debug, Default)]
pub struct CommandWrite {
    pub tenant: String,
    pub run_id: String,
    pub name: String,
    /// Nothing: an operator.
    pub actor: Option<Actor>,
    pub by: String,
    pub reason: Option<String>,
    pub force: bool,
    pub resolved: bool,
    pub graceful: bool,
    /// Keys of the items that it is about.
    pub items: Option<Vec<String>>,
    /// What people decided, by host or whatever else blocked the run.
    pub resolutions: Map<String, Value>,
    /// Only if this is still the number of the run's last event.
    pub if_seq: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub tenant: String,
    pub lifecycle: Option<String>,
    pub status: Option<String>,
    pub queue: Option<String>,
    /// A part of the id, the correlation id or the metadata's text.
    pub text: Option<String>,
    pub limit: usize,
    /// From `Page::next`.
    pub cursor: Option<String>,
}

/// The queue of what the engine does for itself.
pub const HOUSEKEEPING: &str = "waypost.housekeeping";

impl Filter {
    /// The engine's own runs are shown to whoever asks for their queue or lifecycle, and are in nobody's way else.
    pub(crate) fn hidden(&self) -> Option<&'static str> {
        (self.queue.is_none() && self.lifecycle.is_none()).then_some(HOUSEKEEPING)
    }
}

#[derive(Clone, Debug)]
pub struct Page {
    pub runs: Vec<RunRow>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueRow {
    pub name: String,
    pub ready: u64,
    /// Ready, but for later.
    pub scheduled: u64,
    pub held: u64,
    pub oldest_ready_at: Option<Time>,
    pub at_most: Option<u32>,
    pub paused: Option<Pause>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pause {
    pub by: String,
    pub reason: String,
    pub at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    Queue,
    Key,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: u64,
    pub events: u64,
    pub more: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub runs: u64,
    pub events: u64,
    /// One line per difference, naming the run.
    pub differences: Vec<String>,
}

impl Claim {
    pub fn take(&self) -> Take {
        Take { worker: self.worker.clone(), lease: self.lease, start: self.start }
    }

    pub(crate) fn wants(&self, row: &RunRow) -> bool {
        let lifecycles = &self.lifecycles;
        (lifecycles.is_empty() || lifecycles.iter().any(|name| **name == *row.lifecycle.name))
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            && self.can.as_ref().is_none_or(|can| can.execute(row))
    }

    /// Where this claimer stopped is nothing to those who want or can do something else.
    pub(crate) fn kind(&self) -> Vec<String> {
        let mut kind = self.lifecycles.clone();
        // No lifecycle has such names.
        kind.extend(self.tenant.as_ref().map(|tenant| format!("of {tenant}")));
        if let Some(can) = &self.can {
            kind.extend(can.playbooks.iter().map(|playbook| format!("by {playbook}")));
            kind.push(format!("by hand: {}", can.carried));
        }
        kind.sort_unstable();
        kind
    }
}

impl Can {
    fn execute(&self, row: &RunRow) -> bool {
        let named = row.playbook.as_ref().is_some_and(|playbook| self.playbooks.contains(playbook));
        named || self.carried && row.carried.is_some()
    }
}

impl CommandWrite {
    pub(crate) fn check_seq(&self, run: &Run) -> Result<()> {
        match self.if_seq {
            Some(seq) if seq != run.seq => {
                Err(StoreError::Changed { run_id: run.id.to_string(), seq: run.seq })
            }
            _ => Ok(()),
        }
    }

    /// What comes along with the command, as the kernel takes it.
    pub(crate) fn with<'a>(&'a self, chosen: Option<&'a [Item]>, resolved: bool) -> With<'a> {
        With {
            reason: self.reason.as_deref(),
            force: self.force,
            resolved: self.resolved || resolved,
            graceful: self.graceful,
            chosen,
            ..With::default()
        }
    }
}

impl Default for NewRun {
    fn default() -> NewRun {
        NewRun {
            tenant: "default".into(),
            lifecycle: String::new(),
            version: None,
            status: None,
            queue: "default".into(),
            priority: 0,
            input: Value::Object(Map::new()),
            metadata: Map::new(),
            details: Map::new(),
            schedule_at: None,
            ttl: None,
            concurrency_key: None,
            correlation_id: None,
            idempotency_key: None,
            parent_run_id: None,
            retry_of: None,
            title: None,
            playbook: None,
            carried: None,
            max_attempts: 1,
            reentrant: false,
            items: Vec::new(),
            by: "client".into(),
            actor: Actor::Client,
        }
    }
}
