//! What a database does for the engine. No primitive knows what a verb means.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::request::Note;
use waypost_kernel::{Catalog, Lifecycle, Time};

use super::edit::{Edit, Stored, StoredItem};
use super::enqueue::NewRow;
use super::turns::ClaimTurns;
use crate::seam::error::Result;
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claim, Pause, Repeat};
use crate::statement::Sql;
use crate::tokens::random;

/// A position in a list of runs that is ordered by time: the instant, then the run's number.
pub(crate) type TimeKey = (Time, i64);

/// Before every run.
pub(crate) const BEGINNING: TimeKey = (Time::from_micros(i64::MIN), 0);

#[allow(
    async_fn_in_trait,
    reason = "whether a future is Send follows from the database: SQLite's stay on its writer's thread"
)]
pub(crate) trait Tx {
    /// Where a claim stands in the queues that it reads.
    type Cursor;
    /// Whether all that a verb does is one write: an error then takes back what came before it, and is the answer to all.
    const IS_ONE_WRITE: bool = false;

    /// The database's clock, the only one that counts.
    fn now(&self) -> Time;

    /// The first of these stored names that there is, in this version or the latest. One that another process added is found too.
    async fn lifecycle(
        &mut self,
        names: &[Cow<'_, str>],
        version: Option<u32>,
    ) -> Result<Option<Arc<Lifecycle>>>;
    fn catalog(&self) -> Catalog;
    /// The random part of a new id.
    fn random_for_id(&self) -> u128 {
        random()
    }
    /// Before a round in which what lost a race is decided again.
    async fn before_round(&mut self, _: usize) {}
    /// What was written of items is of use for the next write.
    fn remembers_items(&self) -> bool {
        false
    }
    /// A JSON value as it will be read again.
    fn as_stored(&self, _: &mut Value) {}

    /// The runs with these ids, in any order. Unknown ids are left out.
    async fn runs(&mut self, ids: &[&str]) -> Result<Vec<Stored>>;
    /// The runs that these tenants' idempotency keys made, with their fingerprints.
    async fn runs_with_keys(&mut self, keys: &[(&str, &str)]) -> Result<Vec<(Stored, Option<String>)>>;
    async fn items(&mut self, asks: &[ItemsOf<'_>]) -> Result<Vec<StoredItem>>;
    /// Of a run's targets those with these keys, and those that are due.
    async fn targets(&mut self, ask: &TargetsOf<'_>) -> Result<Targets>;
    /// Items of a kind that are in a state and were not discarded, in the order in which they were added, after a place.
    async fn items_in(&mut self, ask: &ItemsIn<'_>) -> Result<Vec<(usize, StoredItem)>>;
    /// For each: position and seq of the event that it would repeat.
    async fn noted(&mut self, asks: &[NoteKey<'_>]) -> Result<Vec<Option<(i64, u64)>>>;

    /// What a person asked of a run last.
    async fn last_asked(&mut self, stored: &Stored) -> Result<Option<Asked>>;

    /// Writes new runs.
    async fn insert(&mut self, new_rows: Vec<NewRow>) -> Result<Vec<Inserted>>;
    /// Writes what was decided, each run if it still is what was decided on; with its items, its events, its slots, and
    /// its place in the queue.
    async fn save(&mut self, edits: Vec<Edit>) -> Result<Vec<Saved>>;

    /// Begins a claim. What it gives nobody else is given until the transaction ends.
    async fn scan(&mut self, claim: &Claim) -> Result<Scan<Self::Cursor>>;
    /// The next candidates of the queues that are open, at most `limit`; none: there are no more. Best priority first, within it
    /// one of each tenant in turn, and of a tenant the earliest.
    async fn candidates(
        &mut self,
        cursor: &mut Self::Cursor,
        claim: &Claim,
        limit: usize,
    ) -> Result<Vec<Candidate>>;
    /// How many more runs with each of these tenants' concurrency keys may be taken. A key that somebody else counts at the
    /// moment is left out.
    async fn free_slots(&mut self, keys: Vec<Slot>, counted: Counted) -> Result<BTreeMap<Slot, i64>>;
    /// How many more of a candidate's queue may be held, which the claim counts along.
    fn room_of<'c>(&self, cursor: &'c mut Self::Cursor, lane: usize) -> &'c mut Room;
    /// A candidate was not taken: its tenant's turn is not over.
    fn turn_goes_on(&mut self, cursor: &mut Self::Cursor, row: &RunRow);
    /// None: there is one tenant, which has all turns.
    fn turns<'c>(&self, cursor: &'c mut Self::Cursor) -> Option<&'c mut ClaimTurns>;
    /// A candidate stays where it is; with `closes` its queue has no room for more.
    fn leave(&mut self, cursor: &mut Self::Cursor, candidate: &Candidate, closes: bool);
    /// Sets candidates aside whose key is at its limit: they come back when it is not. Gives how many were set aside,
    /// with others of the same keys.
    async fn set_aside(&mut self, cursor: &mut Self::Cursor, candidates: &[Candidate]) -> Result<usize>;
    /// Ends the reading of a claim: what was met is gone from its queue, or stays.
    async fn end_scan(&mut self, cursor: Self::Cursor) -> Result<()>;
    /// The runs that a worker's claim with this key took, each with the fence that it got. Those that are gone are left out.
    async fn recall_claim(&mut self, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>>;
    /// Keeps which runs a claim took, by number and fence, until the last of their leases would end. At the latest with the
    /// commit.
    async fn keep_claim(&mut self, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) -> Result<()>;
    /// What claims of a queue find, for a run that is asked for by its id. The answer holds until the transaction ends.
    async fn room(&mut self, tenant: &str, queue: &str) -> Result<Room>;

    /// Held runs whose lease is vacant or ran out, or runs whose time to live ran out, in order of time after `after`.
    async fn overdue(&mut self, what: Overdue<'_>, after: TimeKey, limit: usize) -> Result<Vec<Stored>>;
    /// Ready runs whose key has a free slot come back, whatever made them wait.
    async fn let_in_all(&mut self) -> Result<()>;

    /// The oldest cancelled run whose children are still to be asked, but for `except`; and whether no more children of it are
    /// being written.
    async fn cancelled_parent(&mut self, except: &[String]) -> Result<Option<(String, bool)>>;
    async fn children_told(&mut self, parent: &str) -> Result<()>;
    /// Unsettled children of a run, by number.
    async fn children(&mut self, parent: &str, after: i64, limit: usize) -> Result<Vec<Stored>>;
    /// Unsettled runs of this lifecycle with this parent, with their seqs. Nobody else changes them or their parent
    /// until the transaction ends.
    async fn lock_children(&mut self, parent: &str, lifecycle: &str) -> Result<Vec<(String, u64)>>;
    /// Runs of this lifecycle and of a rule that are ready or held, and operations on such runs that change something: some of them, by their ids.
    /// Whoever else asks for the same waits until the transaction ends.
    async fn live_of_rule(&mut self, tenant: &str, lifecycle: &str, rule: &str) -> Result<Vec<String>>;
}

/// Who has a slot of a concurrency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// For one that is ready: all that are held, those that were given back too.
    Held,
    /// For one that nobody has, though it is held: only those that somebody has. Commands bring any number of runs of one key there,
    /// and they are worked as many at once as the limit says, but one at least: a limit of 0 stops what waits, not what was begun.
    Worked,
}

/// What else people's changes need.
#[allow(async_fn_in_trait, reason = "see `Tx`")]
pub(crate) trait AdminTx: Tx + Sql {
    /// Nobody claims from a queue that is paused; claims that did not see the pause have ended before this does.
    async fn pause_queue(&mut self, tenant: &str, queue: &str, pause: Option<&Pause>) -> Result<()>;
    async fn limit_queue(&mut self, tenant: &str, queue: &str, at_most: Option<u32>) -> Result<()>;
    /// Runs that wait for the key come back as far as there is room now.
    async fn limit_key(&mut self, tenant: &str, key: &str, at_most: Option<u32>) -> Result<()>;
    /// Adds a tenant's lifecycle.
    async fn add_lifecycle(&mut self, tenant: &str, source: &str) -> Result<Arc<Lifecycle>>;
}

/// Items of one run: those with these names, and of each of these kinds one that ended the run's course.
#[derive(Debug)]
pub(crate) struct ItemsOf<'a> {
    pub stored: &'a Stored,
    pub names: Vec<(&'a str, &'a str)>,
    pub failed: Vec<u8>,
}

/// Targets of one run. Of those that are ready the ones whose time has come go before those that were never tried.
#[derive(Debug)]
pub(crate) struct TargetsOf<'a> {
    pub stored: &'a Stored,
    pub kind: &'a str,
    pub keys: Vec<&'a str>,
    /// The state in which they are ready.
    pub ready: &'a str,
    pub take: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub named: Vec<StoredItem>,
    pub due: Vec<StoredItem>,
    /// The first that is ready behind those: when it is due, or that it always was.
    pub next: Option<Option<Time>>,
}

impl Targets {
    pub fn next_due(&self, now: Time) -> Option<Time> {
        self.next.map(|due| due.unwrap_or(now))
    }
}

#[derive(Debug)]
pub(crate) struct ItemsIn<'a> {
    pub stored: &'a Stored,
    pub kind: &'a str,
    pub status: &'a str,
    pub code: Option<&'a str>,
    /// Places below this are left out.
    pub from: usize,
    pub limit: usize,
}

/// How an event is known as one that was written before.
#[derive(Debug)]
pub(crate) struct NoteKey<'a> {
    pub rid: i64,
    pub note: &'a Note,
    pub repeat: &'a Repeat,
    /// Of the last row of the run's events.
    pub last: Option<i64>,
    pub since: Time,
}

/// A command as the log has it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub command: String,
    pub by: String,
    pub reason: Option<String>,
}

/// What became of a new run.
#[derive(Debug)]
pub(crate) enum Inserted {
    Made(Stored),
    /// Not written: somebody else has its idempotency key.
    KeyTaken(Box<NewRow>),
    /// Not written: it was decided on old ground (the clock, the lifecycles), and is to be decided again.
    Stale(Box<NewRow>),
}

/// What became of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// With the position of its first event.
    Won(i64),
    /// The run is not what was decided on any more.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Scan<C> {
    pub cursor: C,
    /// There may be leases that are vacant or ran out.
    pub has_abandoned: bool,
    /// The claim's key may have been used.
    pub is_repeat: bool,
}

/// A tenant, and a concurrency key of its runs.
pub(crate) type Slot = (String, String);

/// How many more of a queue may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Paused,
    Any,
    Left(i64),
}

/// A run that may be taken.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub stored: Stored,
    /// Which of the cursor's lists it came from, and where it stands there.
    pub lane: usize,
    pub place: TimeKey,
    /// Where the database keeps its entry.
    pub entry: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Overdue<'a> {
    /// Of the queues and the tenant that a claim asks for, or all.
    Leases(Option<&'a Claim>),
    Lives,
}
