//! The storage seam: what can be asked of a store, in the words of the domain, and the rows, requests and answers that
//! cross it.

pub(crate) mod access;
pub mod doctor;
pub(crate) mod error;
pub(crate) mod run;
pub(crate) mod schedule_reads;
pub(crate) mod schedules;
pub(crate) mod stats;
pub(crate) mod verbs;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};

use access::{AuditRow, TokenChange, TokenRow, Who};
use run::{EventRow, ItemRow, RunRow};
use schedule_reads::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleSummary};
use schedules::*;
use stats::{Holder, PoolStatus, Stats};
use verbs::*;

/// What workers, clients and people ask for, of a database or of a server before one.
pub trait Store: Send + Sync {
    // Runs come in, and workers take them.

    fn enqueue(&self, runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>>;
    /// The best due runs of the named queues, at most `limit`; none is an empty list, not an error.
    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>>;
    /// Takes one run by its id, under the rules of `claim`.
    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed>;
    /// Returns when something may have changed, or after `at_most`.
    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    // What the holder of a run may do with it. Every verb needs the lease's token.

    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>>;
    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>>;
    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>>;
    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>>;
    fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow>;
    /// Adds or moves items of a held run, all or none.
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>>;

    // What people change, each together with its entry in the audit log: what cannot be told of later is not done. Each of
    // these done twice is done once, so that whoever is not answered may ask again.

    /// A command of the run's lifecycle; its name is the action.
    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow>;
    fn configure(&self, setting: Setting, who: Who) -> Reply<'_, ()>;
    fn change_schedule(&self, change: ScheduleChange, who: Who) -> Reply<'_, ScheduleChanged>;
    fn change_token(&self, change: TokenChange, who: Who) -> Reply<'_, TokenRow>;
    fn add_lifecycle(&self, text: String, who: Who) -> Reply<'_, Arc<Lifecycle>>;

    // Looking things up.

    /// By id or unique prefix of one.
    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow>;
    fn runs(&self, filter: Filter) -> Reply<'_, Page>;
    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>>;
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>>;
    /// All runs' events after a position, in the order in which they were committed; a late commit is never skipped. Without
    /// one: no event, and the position after which is all that is committed from now on.
    fn feed(&self, after: Option<u64>, limit: usize) -> Reply<'_, Feed>;
    fn queues(&self) -> Reply<'_, Vec<QueueRow>>;
    fn lifecycles(&self) -> Reply<'_, Catalog>;
    /// By name, each with what came of its plans.
    fn schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleSummary>>;
    fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>>;
    /// The newest plans first.
    fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage>;
    /// One by its public half, or all, oldest first; those that were revoked too.
    fn tokens(&self, id: Option<String>) -> Reply<'_, Vec<TokenRow>>;
    /// After a number, oldest first; of one tenant, or of all.
    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>>;
    /// How runs ended lately; of one tenant, or of all.
    fn stats(&self, tenant: Option<String>) -> Reply<'_, Stats>;
    /// Who holds runs now, by name.
    fn holders(&self, tenant: Option<String>) -> Reply<'_, Vec<Holder>>;
    /// The database's clock, the only one that counts.
    fn now(&self) -> Reply<'_, Time>;
}

/// What processes do beside their database: sweeping, pruning, planning. A server does these for its clients, so that a store
/// behind one has no such verbs.
pub trait Housekeeping: Send + Sync {
    /// Leases and times to live that ran out, at most `limit` of them. Any process may ask, at any time.
    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept>;
    /// Settled runs that are past their time, at most `limit`, with their events.
    fn prune(&self, limit: usize) -> Reply<'_, Pruned>;
    /// Replays every run's log and compares it with its row; `progress` is told how many of how many.
    fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified>;
    /// For tests and demonstrations: moves the database's clock ahead.
    fn advance_clock(&self, by: Span) -> Reply<'_, ()>;
    /// This process's connections, and how busy they are. None where there is nothing to wait for.
    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    /// A schedule of the process's own files. Nobody asked for it, so that the audit log has no entry of it.
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, ScheduleChanged>;
    /// The scopes as they are now; those that are not listed rest.
    fn put_scopes(&self, schedule: String, kind: String, ids: Vec<String>) -> Reply<'_, ()>;
    /// The first column of a query, for scopes that the database knows. Nothing can be written by it.
    fn ask_scopes(&self, sql: String) -> Reply<'_, Vec<String>>;
    /// What there is to do now, of the schedules that the asker may execute.
    fn due(&self, by: Ownership, limit: usize) -> Reply<'_, Due>;
    /// Writes plannings, each in one transaction with the beginning of what it fires. `None` if somebody else has planned
    /// meanwhile, or is about to.
    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>>;
    /// Takes up an execution that `due` told of. `None` if it is not to be taken now.
    fn begin(&self, begin: Begin) -> Reply<'_, Option<Begun>>;
    /// What `due` told of and could not be done: it is told of again after a wait that doubles with each failure in a row.
    /// Whoever puts the schedule anew or resumes it ends the wait.
    fn put_off(&self, failed: Vec<Failed>) -> Reply<'_, ()>;
    /// Executions have ended: `due` looks at them at once.
    fn wake_executions(&self, run_ids: Vec<String>) -> Reply<'_, ()>;
}

/// A store that is a database.
pub trait Database: Store + Housekeeping {}

impl<D: Store + Housekeeping> Database for D {}
