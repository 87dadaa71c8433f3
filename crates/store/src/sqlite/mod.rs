//! The embedded store: one file, any number of processes.

mod admin;
pub mod backup;
mod dead_letters;
mod doctor;
mod layout;
mod lifecycle_codes;
mod link;
mod list;
mod log;
mod primitives;
mod prune;
mod row;
mod statement;
mod stats;
mod verify;
mod waiting;
mod worked;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};

pub use doctor::{doctor, put_guards_back};
pub use link::costs::{count_steps, steps};

use crate::engine::{self, CheckedRun, CleanedFinish, Taken};
use crate::seam::access::{AuditRow, TokenChange, TokenRow, Who};
use crate::seam::agents::{AgentChange, AgentRow, AgentWrite};
use crate::seam::alerts::{AlertRow, SilenceAlert};
use crate::seam::destinations::{Admit, Admitted, Answered, DestinationRow};
use crate::seam::error::{Result, StoreError};
use crate::seam::messages::{Message, Received};
use crate::seam::playbooks::{OfferedPlaybook, PlaybookFilter, PlaybookRow};
use crate::seam::projection::{LeftRun, Projected};
use crate::seam::retention::Retention;
use crate::seam::run::{EventRow, ItemRow, RunRow};
use crate::seam::sample::Sample;
use crate::seam::schedule_reads::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleSummary};
use crate::seam::schedules::*;
use crate::seam::stats::{Holder, PoolStatus, Stats, TargetFigures};
use crate::seam::targets::{
    AddTargets, DeadLetterClass, DeadLetterFilter, DiscardTargets, Preview, RollBackTargets, WorkTargets,
    Worked,
};
use crate::seam::verbs::*;
use crate::seam::workers::{WorkerBeat, WorkerRow, with_holders};
use crate::seam::{Housekeeping, Store};
use link::session::{Session, Tx};
use primitives::{Primitives, ready};

/// A verb of the engine's, with others that are waiting in one transaction; then what the caller's task does with its answer.
macro_rules! then {
    ($store:ident, |$tx:ident| $verb:expr, $then:expr) => {{
        let work = move |tx: &Tx<'_>| {
            let $tx = &mut tx.engine();
            ready($verb)
        };
        $store.session.write_then(work, $then)
    }};
}

/// Verbs that are a function of the same name: of the engine, or on a transaction itself.
macro_rules! verbs {
    ($($how:ident engine { $($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $($(fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            self.session.$how(move |tx| ready(engine::$verb(&mut tx.engine(), $(&$name),*)))
        })*)*
    };
    ($($how:ident tx $module:ident { $($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $($(fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            self.session.$how(move |tx| $module::$verb(tx, $(&$name),*))
        })*)*
    };
}

#[derive(Clone)]
pub struct SqliteStore {
    session: Session,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, and makes it if it is not there.
    pub fn open(path: &Path) -> Result<SqliteStore> {
        Ok(SqliteStore { session: Session::open(path)? })
    }

    /// Lets the file grow to this many pages and no further, as a disk would that is full then; a file that is larger
    /// already stays as it is. Counts for this store only, not for other processes.
    pub fn at_most_pages(&self, pages: u32) -> Reply<'_, ()> {
        self.session.write(move |tx| admin::at_most_pages(tx, pages))
    }
}

/// A row of the caller's own; the writer may keep the one that it answered with.
fn own(row: Arc<RunRow>) -> Result<RunRow> {
    Ok(Arc::unwrap_or_clone(row))
}

fn each_own(rows: Each<Arc<RunRow>>) -> Result<Each<RunRow>> {
    Ok(rows.into_iter().map(|row| row.map(Arc::unwrap_or_clone)).collect())
}

impl Store for SqliteStore {
    verbs! {
        write engine {
            renew(leases: Vec<Held>) -> Each<Renewed>;
            note(notes: Vec<NoteWrite>) -> Each<Noted>;
            configure(setting: Setting, who: Who) -> ();
            change_schedule(change: ScheduleChange, who: Who) -> ScheduleChanged;
            change_token(change: TokenChange, who: Who) -> TokenRow;
            change_agent(change: AgentChange, who: Who) -> AgentRow;
            silence_alert(silence: SilenceAlert, who: Who) -> AlertRow;
            add_lifecycle(text: String, who: Who) -> Arc<Lifecycle>;
            beat(worker: WorkerBeat) -> ();
            remove_worker(name: String, tenant: Option<String>) -> ();
            offer_playbooks(playbooks: Vec<OfferedPlaybook>) -> ();
            add_targets(write: AddTargets) -> Preview;
            work_targets(write: WorkTargets) -> Worked;
            discard_targets(write: DiscardTargets) -> u64;
            admit(ask: Admit) -> Admitted;
            answered(report: Answered) -> DestinationRow;
            pace_destination(tenant: String, name: String, burst: bool) -> DestinationRow;
        }
        read engine {
            destinations(tenant: Option<String>) -> Vec<DestinationRow>;
            alerts(tenant: Option<String>) -> Vec<AlertRow>;
            schedules(filter: ScheduleFilter) -> Vec<ScheduleSummary>;
            scopes(schedule: String) -> Vec<ScopeRow>;
            executions(filter: ExecutionFilter) -> ExecutionPage;
            tokens(id: Option<String>) -> Vec<TokenRow>;
            agents(tenant: Option<String>) -> Vec<AgentRow>;
            made_by(tenant: String, key: String, asked: String) -> Option<RunRow>;
            explain(runs: Vec<RunRow>) -> Vec<RunRow>;
            playbooks(filter: PlaybookFilter) -> Vec<PlaybookRow>;
            keys(filter: KeyFilter) -> Vec<KeyRow>;
            latest_audits(tenant: Option<String>, before: Option<u64>, limit: usize) -> Vec<AuditRow>;
        }
    }
    verbs! {
        read tx list {
            runs(filter: Filter) -> Page;
        }
        read tx admin {
            run(tenant: String, id: String) -> RunRow;
            items(run_id: String, kind: Option<String>) -> Vec<ItemRow>;
            item_page(filter: ItemFilter) -> ItemPage;
            queues(tenant: Option<String>) -> Vec<QueueRow>;
        }
        read tx dead_letters {
            dead_letters(filter: DeadLetterFilter) -> Vec<DeadLetterClass>;
        }
        read tx stats {
            holders(tenant: Option<String>) -> Vec<Holder>;
        }
        // A thread of its own: it reads many rows, and nobody should wait behind it.
        read_apart tx stats {
            stats(tenant: Option<String>) -> Stats;
        }
    }

    fn enqueue(&self, runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>> {
        let runs = runs.into_iter().map(CheckedRun::of_client).collect();
        then!(self, |tx| engine::enqueue(tx, runs), |answers| {
            let own = |(run, replayed)| Enqueued { run: Arc::unwrap_or_clone(run), replayed };
            Ok(answers.into_iter().map(|answer| answer.map(own)).collect())
        })
    }

    fn enqueue_claimed(&self, run: NewRun, take: Take) -> Reply<'_, EnqueuedClaim> {
        then!(self, |tx| engine::enqueue_claimed(tx, &run, &take), engine::own_claim)
    }

    fn dry_run(&self, run: NewRun) -> Reply<'_, Option<String>> {
        self.session.write(move |tx| ready(engine::dry_run(&mut tx.engine(), &run)))
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        let own = |taken: Vec<Taken>| taken.into_iter().map(Taken::claimed).collect();
        then!(self, |tx| engine::claim(tx, &claim), own)
    }

    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        then!(self, |tx| engine::claim_run(tx, &run_id, &take), Taken::claimed)
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.notifier.wait(at_most))
    }

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        let finishes: Vec<_> = finishes.into_iter().map(CleanedFinish::of).collect();
        then!(self, |tx| engine::finish(tx, &finishes), each_own)
    }

    fn release(&self, leases: Vec<ReleaseWrite>) -> Reply<'_, Each<RunRow>> {
        then!(self, |tx| engine::release(tx, &leases), each_own)
    }

    fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow> {
        then!(self, |tx| engine::require_cleanup(tx, &write), own)
    }

    fn roll_back_targets(&self, write: RollBackTargets) -> Reply<'_, RunRow> {
        then!(self, |tx| engine::roll_back_targets(tx, &write), own)
    }

    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        let unanswered = || Err(StoreError::Unavailable("the write was not answered".into()));
        let answers = self.session.write(move |tx| ready(engine::put_items(&mut tx.engine(), &[write])));
        Box::pin(async move { answers.await?.pop().unwrap_or_else(unanswered) })
    }

    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        let work = async move |tx: &mut Primitives<'_, '_>| {
            let (row, cancels) = engine::command(tx, &command).await?;
            if cancels {
                engine::cancel_children(tx).await?;
            }
            Ok(row)
        };
        then!(self, |tx| work(tx), own)
    }

    fn command_claimed(&self, command: CommandWrite, take: Take) -> Reply<'_, CommandedClaim> {
        let work = async move |tx: &mut Primitives<'_, '_>| {
            let (commanded, cancels) = engine::command_claimed(tx, &command, &take).await?;
            if cancels {
                engine::cancel_children(tx).await?;
            }
            Ok(commanded)
        };
        then!(self, |tx| work(tx), engine::own_command)
    }

    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.session.read(move |tx| log::events(tx, &run_id, after_seq, limit, log::Effects::All))
    }

    fn feed(&self, after: Option<u64>, limit: usize) -> Reply<'_, Feed> {
        self.session.read(move |tx| match after {
            Some(after) => Ok(Feed::after(after, log::feed(tx, after, limit)?)),
            None => Ok(Feed::after(log::last_position(tx)?, Vec::new())),
        })
    }

    /// Those that other processes added, too.
    fn lifecycles(&self) -> Reply<'_, Catalog> {
        self.session.write(|tx| {
            tx.read_again()?;
            Ok(tx.catalog())
        })
    }

    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>> {
        self.session.read(move |tx| ready(engine::audits(&mut tx.engine(), tenant.as_deref(), after, limit)))
    }

    fn workers(&self, tenant: Option<String>) -> Reply<'_, Vec<WorkerRow>> {
        self.session.read(move |tx| {
            let registered = ready(engine::registered(&mut tx.engine(), &tenant))?;
            Ok(with_holders(registered, stats::holders(tx, &tenant)?))
        })
    }

    fn now(&self) -> Reply<'_, Time> {
        self.session.read(|tx| Ok(tx.now))
    }
}

impl Housekeeping for SqliteStore {
    verbs! {
        write engine {
            receive(message: Message) -> Received;
            withdraw_playbooks(tenant: String, by: String, names: Vec<String>) -> ();
            put_cursor(name: String, position: u64) -> ();
            leave_behind(name: String, run_id: String, position: u64) -> ();
            catch_up_with(name: String, run_id: String, position: u64) -> ();
            acknowledge(tenant: String, run_id: String, by: String) -> ();
            put_agents(tenant: String, agents: Vec<AgentWrite>, limit: Option<u32>) -> ();
            agent_ended(run_id: String) -> ();
            token_used(id: String) -> ();
            put_alert(row: AlertRow) -> bool;
            put_retention(rules: Vec<Retention>) -> ();
            scheduler_seen(sign: SchedulerSign) -> ();
            put_schedule(write: ScheduleWrite) -> ScheduleChanged;
            put_scopes(schedule: String, kind: String, ids: Vec<String>) -> ();
            begin(begin: Begin) -> Option<Begun>;
            put_off(failed: Vec<Failed>) -> ();
            wake_executions(run_ids: Vec<String>) -> ();
        }
        read engine {
            cursor(name: String) -> Option<u64>;
            left_behind(name: String) -> Vec<LeftRun>;
            retention(lifecycle: Option<String>) -> Vec<Retention>;
        }
    }
    verbs! {
        // It may read many rows.
        read_apart tx list {
            sample(filter: Filter, look_at: usize, reach: Option<Time>) -> Sample;
        }
        read_apart tx worked {
            took(runs: Vec<RunRow>) -> Vec<Option<Span>>;
        }
        read_apart tx stats {
            target_figures(tenant: Option<String>) -> Vec<TargetFigures>;
        }
        read tx log {
            projected(after: u64, limit: usize) -> Projected;
        }
        read_apart tx admin {
            ask_scopes(sql: String) -> Vec<String>;
        }
    }

    fn events_in_brief(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.session.read(move |tx| log::events(tx, &run_id, after_seq, limit, log::Effects::Small))
    }

    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        self.session.write(move |tx| ready(engine::sweep(&mut tx.engine(), &by, limit)))
    }

    fn prune(&self, limit: usize) -> Reply<'_, Pruned> {
        self.session.write(move |tx| prune::prune(tx, limit))
    }

    fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified> {
        self.session.read_apart(move |tx| verify::verify(tx, &*progress))
    }

    fn advance_clock(&self, by: Span) -> Reply<'_, ()> {
        self.session.write(move |tx| admin::advance_clock(tx, by))
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.session.pools()
    }

    fn due(&self, by: Ownership, limit: usize) -> Reply<'_, Due> {
        self.session.write(move |tx| ready(engine::due(&mut tx.engine(), &by, limit)))
    }

    /// Each by itself; the writer commits all that wait as one transaction.
    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        let fire =
            |firing: Firing| self.session.write(move |tx| ready(engine::fire(&mut tx.engine(), &[firing])));
        let asked: Vec<_> = firings.into_iter().map(fire).collect();
        let one = |fired: Result<Vec<Option<Vec<Begun>>>>| fired.map(|mut fired| fired.pop().flatten());
        Box::pin(async move { Ok(join_all(asked).await.into_iter().map(one).collect()) })
    }
}
