//! What a store is asked for, and what it answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::Actor;
use waypost_kernel::request::Level;
use waypost_kernel::text::MAX_PAGE;
use waypost_kernel::{Failure, Lifecycle, Phase, Span, Time, Token};

pub use super::holding::{ReleaseWrite, Renewed, Wait};
pub use super::parts::Parts;
use crate::engine::Stored;
pub use crate::rules::room::PAGE_BYTES;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::{EventRow, ItemRow, RunRow};
pub use crate::seam::stats::Pruned;
pub use crate::seam::workers::Needs;

/// Boxed, so that callers hold one `Arc<dyn Store>` whatever is behind it.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An answer per entry of a list.
pub type Each<T> = Vec<Result<T>>;

#[derive(Clone, Debug)]
pub struct NewRun {
    pub tenant: String,
    pub lifecycle: String,
    /// The latest version if it is not given.
    pub version: Option<u32>,
    /// The lifecycle's first initial state if it is not given.
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
    /// What was asked for, in the caller's own words, if the rest was filled in from elsewhere (a playbook, an agent, a run that is
    /// repeated): an idempotency key stands for that alone, and not for what came of it.
    pub asked: Option<String>,
    /// What the run is, for people.
    pub title: Option<String>,
    pub playbook: Option<String>,
    /// A command or playbook that is embedded in the run. Only workers that were told to execute embedded content do.
    pub carried: Option<Value>,
    pub max_attempts: u32,
    pub reentrant: bool,
    pub items: Vec<NewItem>,
    /// Who asks for the run. For a run of a plan, the worker that fires it.
    pub by: String,
    pub actor: Actor,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewItem {
    pub kind: String,
    pub key: String,
    pub name: String,
    /// The first initial state of the kind if it is not given.
    pub status: Option<String>,
    pub max_retries: u32,
    pub reruns: bool,
    pub role: Role,
    pub details: Map<String, Value>,
    /// It is the copy of the item of this kind and key in the run that the new one repeats, with its state, output and all else that
    /// is known of it. That one is done or was skipped, and its run has ended.
    pub copied: bool,
}

impl NewItem {
    /// A step, or whatever else the kind is, that begins where its kind does.
    pub fn new(kind: &str, key: &str) -> NewItem {
        NewItem {
            kind: kind.to_owned(),
            key: key.to_owned(),
            name: key.to_owned(),
            status: None,
            max_retries: 3,
            reruns: false,
            role: Role::Step,
            details: Map::new(),
            copied: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Enqueued {
    pub run: RunRow,
    /// The idempotency key was known: this is the run that it made.
    pub replayed: bool,
}

/// A new run, and the lease on it if it could be claimed with its beginning.
#[derive(Clone, Debug)]
pub struct EnqueuedClaim {
    pub enqueued: Enqueued,
    pub claimed: Option<Claimed>,
}

/// A run after a command, and the lease on it if it could be claimed then.
#[derive(Clone, Debug)]
pub struct CommandedClaim {
    pub run: RunRow,
    pub claimed: Option<Claimed>,
}

#[derive(Clone, Debug, Default)]
pub struct Claim {
    pub worker: String,
    pub queues: Vec<String>,
    /// Runs of any lifecycle if this is empty.
    pub lifecycles: Vec<String>,
    /// Runs of all tenants, in turn, if it is not given.
    pub tenant: Option<String>,
    /// What the claimer can execute. Anything if it is not given.
    pub can: Option<Can>,
    pub limit: usize,
    /// What the JSON of these runs may take in memory together, as far as its text tells; any amount if it is not given. The first run
    /// always fits.
    pub bytes: Option<usize>,
    pub lease: Option<Span>,
    /// The work begins with the claim: see [`Take::start`].
    pub start: bool,
    /// Asked again with the same key, while a lease of its runs lasts, a claim gives the same runs and tokens: an answer
    /// that was lost costs nothing. Of this worker alone.
    pub idempotency_key: Option<String>,
    /// How long to wait for a run if there is none ([`crate::Store::claim_wait`]). A database answers at once.
    pub wait: Option<Span>,
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
    /// Not at all: two equal events are two events.
    Never,
    /// By its key, without a limit of time.
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
    /// Of a run that parks: when it goes on by itself if no person has let it.
    pub goes_on_at: Option<Time>,
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
    /// An operator if it is not given.
    pub actor: Option<Actor>,
    pub by: String,
    pub reason: Option<String>,
    /// The run goes on although not everything that it asks is decided.
    pub force: bool,
    pub graceful: bool,
    /// Keys of the items that it is about.
    pub items: Option<Vec<String>>,
    /// What people decided, by host or whatever else blocked the run. If more is asked, these are kept and the run waits on.
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
    /// Only those that need somebody to look at them.
    pub needs: Option<Needs>,
    /// Only children of this run.
    pub parent: Option<String>,
    /// The name of a playbook, whatever its content was.
    pub playbook: Option<String>,
    /// A part of the id, the correlation id or the metadata's text.
    pub text: Option<String>,
    /// Only those that came in at this time or later.
    pub since: Option<Time>,
    /// Only those that came in before this.
    pub until: Option<Time>,
    /// Rows; a page has fewer if they are large ([`PAGE_BYTES`]).
    pub limit: usize,
    /// From `Page::next`.
    pub cursor: Option<String>,
    /// What else is wanted of each run.
    pub include: Parts,
}

/// The tenant of whoever names none.
pub const DEFAULT_TENANT: &str = "default";

/// The queue of what the engine does for itself.
pub const HOUSEKEEPING: &str = "waypost.housekeeping";

impl Filter {
    /// The queue that is left out: that of the engine's own runs, unless the filter names a queue or a lifecycle.
    pub(crate) fn hidden(&self) -> Option<&'static str> {
        (self.queue.is_none() && self.lifecycle.is_none()).then_some(HOUSEKEEPING)
    }

    /// Whether it asks for some of its tenant's runs, and not for all.
    pub fn is_narrowed(&self) -> bool {
        let Filter { lifecycle, status, queue, parent, playbook, text, needs, since, until, .. } = self;
        [lifecycle, status, queue, parent, playbook, text].into_iter().any(Option::is_some)
            || needs.is_some()
            || since.is_some()
            || until.is_some()
    }

    /// The number of the run that the page before ended with.
    pub(crate) fn before(&self) -> Result<i64> {
        let wrong = |_| StoreError::invalid("cursor", "not a cursor of this list");
        self.cursor.as_ref().map_or(Ok(i64::MAX), |cursor| cursor.parse().map_err(wrong))
    }

    pub(crate) fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Makes a page of rows that were read with one more than the page has room for. `is_cut`: there are more, which are too
    /// large for it.
    pub(crate) fn page(&self, found: Vec<Stored>, is_cut: bool) -> Page {
        let limit = self.page_size();
        let last = found.get(limit.min(found.len()).saturating_sub(1));
        let next = last.filter(|_| is_cut || found.len() > limit).map(|last| last.rid.to_string());
        let runs = found.into_iter().take(limit).map(|stored| Arc::unwrap_or_clone(stored.row));
        Page { runs: runs.collect(), next }
    }
}

#[derive(Clone, Debug)]
pub struct Page {
    pub runs: Vec<RunRow>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct ItemFilter {
    pub run_id: String,
    pub kind: Option<String>,
    /// Only those with this key: with a kind that is one at most, and an index has it.
    pub key: Option<String>,
    pub status: Option<String>,
    /// Only those that failed with this code.
    pub code: Option<String>,
    /// Rows; a page has fewer if they are large ([`PAGE_BYTES`]).
    pub limit: usize,
    /// From `ItemPage::next`.
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct ItemPage {
    pub items: Vec<ItemRow>,
    pub next: Option<String>,
}

impl ItemFilter {
    pub(crate) fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Whether it asks for one kind in one state in which no item waits for a time.
    pub(crate) fn is_in_order(&self, lifecycle: &Lifecycle) -> bool {
        let kind = self.kind.as_deref().map(|kind| lifecycle.item_name(kind));
        let kind = lifecycle.items.iter().find(|known| Some(&*known.name) == kind);
        let state = kind
            .zip(self.status.as_deref())
            .and_then(|(kind, status)| Some((kind, kind.state_named(status)?)));
        state.is_some_and(|(kind, state)| kind.phase(state) != Phase::Ready)
    }

    /// Kind and key of the item that the page before ended with.
    pub(crate) fn after(&self) -> Result<Option<(String, String)>> {
        let wrong = |_| StoreError::invalid("cursor", "not a cursor of this list");
        self.cursor.as_ref().map(|cursor| serde_json::from_str(cursor).map_err(wrong)).transpose()
    }

    /// Makes a page of items that were read with one more than it has room for. `is_cut`: there are more, which are too large.
    pub(crate) fn page(&self, mut items: Vec<ItemRow>, is_cut: bool) -> ItemPage {
        let has_more = is_cut || items.len() > self.page_size();
        items.truncate(self.page_size());
        let cursor = |last: &ItemRow| serde_json::json!([last.kind, last.key]).to_string();
        ItemPage { next: items.last().filter(|_| has_more).map(cursor), items }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueRow {
    pub tenant: String,
    pub name: String,
    /// Those that a worker may take, if limits let it: ready, or given back.
    pub ready: u64,
    /// Those whose time is still to come.
    pub scheduled: u64,
    /// Those that a worker has.
    pub held: u64,
    /// Of those that are held: whoever worked them is gone, since their leases ran out.
    pub orphaned: u64,
    pub oldest_ready_at: Option<Time>,
    pub at_most: Option<u32>,
    pub paused: Option<Pause>,
    /// Some of the runs that a worker has, the oldest first.
    pub held_by: Vec<String>,
}

/// Of those who hold a queue or a key, so many are named in a list.
pub const MOST_HOLDERS_NAMED: usize = 5;

/// A concurrency key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyRow {
    pub tenant: String,
    pub key: String,
    /// How many runs may hold it at once.
    pub at_most: u64,
    /// Runs that have it, those whose lease is vacant too.
    pub held: u64,
    /// Some of them, the oldest first.
    pub held_by: Vec<String>,
    /// Runs that are due and have to wait until they may have it, as far as they were counted.
    pub waiting: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Of one tenant, or of all.
    pub tenant: Option<String>,
    /// After this key and tenant.
    pub after: Option<(String, String)>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pause {
    pub by: String,
    pub reason: String,
    pub at: Option<Time>,
}

/// What people set, for all runs of a queue or of a concurrency key; of the tenant for which they do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nobody claims from the queue. The reason is that of the audit entry.
    PauseQueue(String),
    ResumeQueue(String),
    /// How many runs of a queue may be held at once. No limit if it is not given.
    QueueLimit(String, Option<u32>),
    /// How many runs with a concurrency key may be held at once. One if it is not given.
    KeyLimit(String, Option<u32>),
}

/// Events of all runs, in the order in which they were committed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feed {
    pub events: Vec<EventRow>,
    /// The position to go on after: a reader who does misses no event.
    pub position: u64,
}

impl Feed {
    /// A page of what comes after a position.
    pub fn after(position: u64, events: Vec<EventRow>) -> Feed {
        Feed { position: events.last().map_or(position, |event| event.position), events }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub runs: u64,
    /// Of those, the engine's own.
    pub housekeeping: u64,
    pub events: u64,
    /// One line per difference, naming the run.
    pub differences: Vec<String>,
    /// One line per guard of the database that is not as it was made: what it would have refused may have come in.
    pub unguarded: Vec<String>,
}

impl Claim {
    pub fn take(&self) -> Take {
        Take { worker: self.worker.clone(), lease: self.lease, start: self.start }
    }

    /// Its key, of its tenant alone: another one's claims with the same worker and key are others.
    pub(crate) fn kept_key(&self) -> Option<String> {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        self.idempotency_key.as_ref().map(|key| format!("{tenant}/{key}"))
    }

    pub(crate) fn wants(&self, row: &RunRow) -> bool {
        (self.lifecycles.is_empty() || self.names(&row.lifecycle.name))
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
            && self.can.as_ref().is_none_or(|can| can.execute(row))
    }

    /// What the claimer wants and can execute, as one list. Claimers with different lists do not share a cursor.
    pub(crate) fn kind(&self) -> Vec<String> {
        let mut kind = self.lifecycles.clone();
        // No lifecycle has such names.
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

impl Default for NewRun {
    fn default() -> NewRun {
        NewRun {
            tenant: DEFAULT_TENANT.into(),
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
            asked: None,
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
