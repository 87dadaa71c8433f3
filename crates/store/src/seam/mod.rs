//! The storage seam: what can be asked of a store, in the words of the domain, and the rows, requests and answers that
//! cross it.

pub(crate) mod access;
pub(crate) mod agents;
pub(crate) mod alerts;
pub(crate) mod destinations;
pub mod doctor;
pub(crate) mod error;
mod holding;
pub(crate) mod messages;
pub(crate) mod names;
pub(crate) mod parts;
pub(crate) mod playbooks;
pub(crate) mod projection;
pub(crate) mod proposals;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod sample;
pub(crate) mod schedule_reads;
pub(crate) mod schedules;
pub(crate) mod stats;
pub(crate) mod targets;
pub(crate) mod verbs;
pub(crate) mod worked;
pub(crate) mod workers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};

use access::{AuditRow, TokenChange, TokenRow, Who};
use agents::{AgentChange, AgentRow, AgentWrite};
use alerts::{AlertRow, SilenceAlert};
use destinations::{Admit, Admitted, Answered, DestinationRow};
use messages::{Message, Received};
use playbooks::{OfferedPlaybook, PlaybookFilter, PlaybookRow};
use projection::{LeftRun, Projected};
use retention::Retention;
use run::{EventRow, ItemRow, RunRow};
use sample::Sample;
use schedule_reads::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleSummary};
use schedules::*;
use stats::{Holder, PoolStatus, Stats, TargetFigures};
use targets::{
    AddTargets, DeadLetterClass, DeadLetterFilter, DiscardTargets, Preview, RollBackTargets, WorkTargets,
    Worked,
};
use verbs::*;
use workers::{WorkerBeat, WorkerRow};

/// Between two looks at a database for a run's next event: not all that is written is notified.
const LOOK: Duration = Duration::from_millis(250);

/// The verbs of `Store`, once: `$each` is given the whole list. The trait is made of it, and so is whatever passes verbs on: to
/// a server, to the oracle, to a store that a test takes away.
#[macro_export]
macro_rules! store_verbs {
    ($each:ident) => {
        $each! {
            // Runs come in, and workers take them.

            enqueue(runs: Vec<NewRun>) -> Each<Enqueued>;
            /// A new run that nobody but this worker can take first: it comes in and is claimed in one transaction. One that cannot be
            /// claimed now, because it is not due or its queue or its key is full, waits like any other.
            enqueue_claimed(run: NewRun, take: Take) -> EnqueuedClaim;
            /// What `enqueue` would answer, and nothing is written: an error, or the id of the run that the key has made already.
            dry_run(run: NewRun) -> Option<String>;
            /// The run that the tenant's key has made, if it was asked for in these words ([`NewRun::asked`]): whoever cannot say any more what
            /// the run would be now, since what it was filled from has changed, still knows it again. Asked for otherwise, the key is refused.
            made_by(tenant: String, key: String, asked: String) -> Option<RunRow>;
            /// The best due runs of the named queues, at most `limit`; none is an empty list, not an error. Of the best priority one
            /// of each tenant in turn, of a tenant the earliest.
            claim(claim: Claim) -> Vec<Claimed>;
            /// Takes one run by its id, under the rules of `claim`.
            claim_run(run_id: String, take: Take) -> Claimed;

            // What the holder of a run may do with it. Every verb needs the lease's token.

            renew(leases: Vec<Held>) -> Each<Renewed>;
            note(notes: Vec<NoteWrite>) -> Each<Noted>;
            finish(finishes: Vec<FinishWrite>) -> Each<RunRow>;
            release(leases: Vec<ReleaseWrite>) -> Each<RunRow>;
            require_cleanup(write: CleanupWrite) -> RunRow;
            /// Adds or moves items of a held run, all or none.
            put_items(write: ItemsWrite) -> Vec<ItemRow>;

            // The targets of a bulk change, many in one write, and what they are sent to.

            /// The next batch of a run that is gathered: all or none, and how far the gathering is. A batch that is known is not
            /// written again.
            add_targets(write: AddTargets) -> Preview;
            /// What came of tries, which targets are tried next, and the run's end if that was the last: one write, all or none.
            work_targets(write: WorkTargets) -> Worked;
            /// Applied targets of an operation's parent are as they were, outside; the parent follows with its last one. Needs the
            /// operation's lease.
            roll_back_targets(write: RollBackTargets) -> RunRow;
            /// Permits for calls: as many as there are now, or when to ask again.
            admit(ask: Admit) -> Admitted;
            /// What calls were answered: the breaker and the rate follow, for all workers.
            answered(report: Answered) -> DestinationRow;
            /// One evaluation of whether throttled answers come in a burst: a tenth slower, or a twentieth faster again.
            pace_destination(tenant: String, name: String, burst: bool) -> DestinationRow;

            /// What a process has, so that runs can be started by its name. What is known as the latest already is not written.
            offer_playbooks(playbooks: Vec<OfferedPlaybook>) -> ();

            // What people change, each together with its entry in the audit log: what cannot be told of later is not done. Each of
            // these done twice is done once, so that whoever is not answered may ask again.

            /// A command of the run's lifecycle; its name is the action.
            command(command: CommandWrite) -> RunRow;
            /// A command, and the claim of the run in the same transaction: nobody but this worker can take it first. A run that the command
            /// leaves where it cannot be claimed now waits like any other.
            command_claimed(command: CommandWrite, take: Take) -> CommandedClaim;
            /// Queues and concurrency keys are those of the tenant for which it is done.
            configure(setting: Setting, who: Who) -> ();
            /// Failed targets that are not to be retried with the others; gives how many that were.
            discard_targets(write: DiscardTargets) -> u64;
            change_schedule(change: ScheduleChange, who: Who) -> ScheduleChanged;
            change_token(change: TokenChange, who: Who) -> TokenRow;
            change_agent(change: AgentChange, who: Who) -> AgentRow;
            /// Nobody is told of an alert for a while, or is told again.
            silence_alert(silence: SilenceAlert, who: Who) -> AlertRow;
            add_lifecycle(text: String, who: Who) -> Arc<Lifecycle>;

            // Workers say that they are there: whoever asks why a run waits is told of those who could take it.

            /// A sign of life. Those that were silent for long are forgotten with it.
            beat(worker: WorkerBeat) -> ();
            /// The worker has stopped. One that is not there is no error.
            remove_worker(name: String, tenant: Option<String>) -> ();

            // Looking things up.

            /// By its id, or by a part of it that is no other's: its beginning, with or without what all ids of its lifecycle begin with
            /// (`run-`), or its end.
            run(tenant: String, id: String) -> RunRow;
            runs(filter: Filter) -> Page;
            /// The same runs, each with why it waits, by a number of statements that does not grow with them.
            explain(runs: Vec<RunRow>) -> Vec<RunRow>;
            items(run_id: String, kind: Option<String>) -> Vec<ItemRow>;
            /// The same page by page.
            item_page(filter: ItemFilter) -> ItemPage;
            /// Failed targets that were not discarded, by code, the largest class first.
            dead_letters(filter: DeadLetterFilter) -> Vec<DeadLetterClass>;
            /// By tenant and name; of one tenant, or of all.
            destinations(tenant: Option<String>) -> Vec<DestinationRow>;
            /// By tenant, name and subject; of one tenant, or of all.
            alerts(tenant: Option<String>) -> Vec<AlertRow>;
            events(run_id: String, after_seq: u64, limit: usize) -> Vec<EventRow>;
            /// All runs' events after a position, in the order in which they were committed; a late commit is never skipped. Without
            /// one: no event, and the position after which is all that is committed from now on.
            feed(after: Option<u64>, limit: usize) -> Feed;
            /// By name, then by tenant; of one tenant, or of all.
            queues(tenant: Option<String>) -> Vec<QueueRow>;
            /// Concurrency keys that runs hold, or whose limit somebody has set; by key.
            keys(filter: KeyFilter) -> Vec<KeyRow>;
            lifecycles() -> Catalog;
            /// By name; of one name the tenant's own before everybody's, and the latest version first.
            playbooks(filter: PlaybookFilter) -> Vec<PlaybookRow>;
            /// By slug; of one tenant, or of all.
            agents(tenant: Option<String>) -> Vec<AgentRow>;
            /// By name, each with what came of its plans.
            schedules(filter: ScheduleFilter) -> Vec<ScheduleSummary>;
            scopes(schedule: String) -> Vec<ScopeRow>;
            /// The newest plans first.
            executions(filter: ExecutionFilter) -> ExecutionPage;
            /// One by its public half, or all, oldest first; those that were revoked too.
            tokens(id: Option<String>) -> Vec<TokenRow>;
            /// After a number, oldest first; of one tenant, or of all.
            audits(tenant: Option<String>, after: u64, limit: usize) -> Vec<AuditRow>;
            /// Before a number, or from the latest on, newest first; of one tenant, or of all.
            latest_audits(tenant: Option<String>, before: Option<u64>, limit: usize) -> Vec<AuditRow>;
            /// How runs ended lately; of one tenant, or of all.
            stats(tenant: Option<String>) -> Stats;
            /// Who holds runs now, by name and tenant; of one tenant, or of all.
            holders(tenant: Option<String>) -> Vec<Holder>;
            /// Who gave a sign of life within ten minutes, and who holds runs now; of one tenant, or of all.
            workers(tenant: Option<String>) -> Vec<WorkerRow>;
            /// The database's clock, the only one that counts.
            now() -> Time;
        }
    };
}

/// The verbs of `Housekeeping`, likewise.
#[macro_export]
macro_rules! housekeeping_verbs {
    ($each:ident) => {
        $each! {
            /// Leases and times to live that ran out, at most `limit` of them. Any process may ask, at any time.
            sweep(by: String, limit: usize) -> Swept;
            /// Settled runs that are past their time, at most `limit`, with their events.
            prune(limit: usize) -> Pruned;
            /// Replays every run's log and compares it with its row; `progress` is told how many of how many.
            verify(progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Verified;
            /// For tests and demonstrations: moves the database's clock ahead.
            advance_clock(by: Span) -> ();
            /// Which runs of projected lifecycles moved after a position, each once, by the rule of `feed`: a late commit is never
            /// skipped. At most `limit` events are looked at, whosever they are.
            projected(after: u64, limit: usize) -> Projected;
            /// Up to where the reader of this name has gone, if it has been there.
            cursor(name: String) -> Option<u64>;
            /// It has gone up to here. A cursor only rises, whoever sets it last.
            put_cursor(name: String, position: u64) -> ();
            /// The reader of this name goes on without having dealt with what the run did up to this position. Kept until
            /// somebody has.
            leave_behind(name: String, run_id: String, position: u64) -> ();
            /// It has dealt with all that the run did up to this position; what was left later than that stays.
            catch_up_with(name: String, run_id: String, position: u64) -> ();
            /// Runs that readers of this name have left behind.
            left_behind(name: String) -> Vec<LeftRun>;
            /// Takes on a draft whose lifecycle lets the engine do so; one that was taken on, or ended, is left as it is.
            acknowledge(tenant: String, run_id: String, by: String) -> ();
            /// Agents of the process's own file, and how many of the tenant's may work at once. What people paused or archived
            /// stays so.
            put_agents(tenant: String, agents: Vec<AgentWrite>, limit: Option<u32>) -> ();
            /// A run has ended: the failures of its agent are counted, if it has one. Told twice, or late, it counts once.
            agent_ended(run_id: String) -> ();
            /// A message from outside has come: under which id it came first. One whose content is known is not taken up again,
            /// whatever id it comes under: an id need not be signed.
            receive(message: Message) -> Received;
            /// A run's events like `events`, but for what is large of that which they did: it is not read, and `left_out_bytes` of the payload says
            /// about how much it is. What workers noted is whole.
            events_in_brief(run_id: String, after_seq: u64, limit: usize) -> Vec<EventRow>;
            /// Runs that fit, with when they came in, began and ended: figures and charts are made of it. At most `look_at` runs are read, whether
            /// they fit or not, so that it costs the same however many there are: all, or the newest if these came in since `reach` or before, or else
            /// some, spread evenly over all since `reach`.
            sample(filter: Filter, look_at: usize, reach: Option<Time>) -> Sample;
            /// The process of this name has these playbooks no more. Those that others offered under the same names stay.
            withdraw_playbooks(tenant: String, by: String, names: Vec<String>) -> ();
            /// How long each of these was worked, over all attempts: what it waited is left out. None: it never began, or its events are too
            /// many to be read for this.
            took(runs: Vec<RunRow>) -> Vec<Option<Span>>;
            /// How bulk changes go, by tenant; of one tenant, or of all.
            target_figures(tenant: Option<String>) -> Vec<TargetFigures>;
            /// An evaluated alert, or what its sinks were told. False: somebody has written it since it was read, and it stays as it is.
            put_alert(row: AlertRow) -> bool;
            /// Somebody uses this token: when, to within a minute.
            token_used(id: String) -> ();
            /// How long runs are kept, in place of all that was said before.
            put_retention(rules: Vec<Retention>) -> ();
            /// Where somebody says otherwise than the lifecycle; of one, or of all.
            retention(lifecycle: Option<String>) -> Vec<Retention>;
            /// This process fires schedules. Who has not said so for a minute does not any more.
            scheduler_seen(sign: SchedulerSign) -> ();
            /// A schedule of the process's own files. Nobody asked for it, so that the audit log has no entry of it.
            put_schedule(write: ScheduleWrite) -> ScheduleChanged;
            /// The scopes as they are now; those that are not listed rest.
            put_scopes(schedule: String, kind: String, ids: Vec<String>) -> ();
            /// The first column of a query, for scopes that the database knows. Nothing can be written by it.
            ask_scopes(sql: String) -> Vec<String>;
            /// What there is to do now, of the schedules that the asker may execute.
            due(by: Ownership, limit: usize) -> Due;
            /// Writes plannings, each in one transaction with the beginning of what it fires. `None` if somebody else has planned
            /// meanwhile, or is about to.
            fire(firings: Vec<Firing>) -> Each<Option<Vec<Begun>>>;
            /// Takes up an execution that `due` told of. `None` if it is not to be taken now.
            begin(begin: Begin) -> Option<Begun>;
            /// What `due` told of and could not be done: it is told of again after a wait that doubles with each failure in a row.
            /// Whoever puts the schedule anew or resumes it ends the wait.
            put_off(failed: Vec<Failed>) -> ();
            /// Executions have ended: `due` looks at them at once.
            wake_executions(run_ids: Vec<String>) -> ();
        }
    };
}

/// Each verb as a trait has it; what it is about stands in the list.
macro_rules! declared {
    ($($(#[$about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $($(#[$about])* fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer>;)*
    };
}

/// What workers, clients and people ask for, of a database or of a server before one.
pub trait Store: Send + Sync {
    store_verbs!(declared);

    /// Returns when something may have changed, or after `at_most`.
    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns when the run may have an event after this one, or after `at_most`. Where each look is a request, it returns for an
    /// event or for the time alone.
    fn event_after(
        &self,
        _run_id: &str,
        _seq: u64,
        at_most: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.changed(at_most.min(LOOK))
    }

    /// How long a claim should wait for a run by itself, where asking again and again costs requests. None: it is told of changes
    /// by [`Store::changed`].
    fn claim_wait(&self) -> Option<Duration> {
        None
    }
}

/// What processes do beside their database: sweeping, pruning, planning. A server does these for its clients, so that a store
/// behind one has no such verbs.
pub trait Housekeeping: Send + Sync {
    housekeeping_verbs!(declared);

    /// This process's connections, and how busy they are. None where there is nothing to wait for.
    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }
}

/// A store that is a database.
pub trait Database: Store + Housekeeping {}

impl<D: Store + Housekeeping> Database for D {}
