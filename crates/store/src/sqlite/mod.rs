//! The embedded store: one file, any number of processes.

mod access;
mod admin;
mod doctor;
mod fault;
mod firing;
mod hash;
mod kept;
mod known;
mod layout;
mod line;
mod log;
mod looks;
mod open;
mod others;
mod primitives;
mod prune;
mod row;
mod schedule_looks;
mod schedules;
mod session;
mod statements;
mod verify;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};

pub use doctor::doctor;

use crate::engine::{self, CheckedRun, CleanedFinish, Taken};
use crate::error::{Result, StoreError};
use crate::run::{EventRow, ItemRow, RunRow};
use crate::schedule_looks::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleLook};
use crate::schedules::*;
use crate::verbs::*;
use primitives::ready;
use session::{Session, Tx};

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

impl Queue for SqliteStore {
    fn enqueue(&self, runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>> {
        let runs = runs.into_iter().map(CheckedRun::of).collect();
        self.session.write_then(
            move |tx| ready(engine::enqueue(&mut tx.engine(), runs)),
            |answers| {
                let own = |(run, replayed)| Enqueued { run: Arc::unwrap_or_clone(run), replayed };
                Ok(answers.into_iter().map(|answer| answer.map(own)).collect())
            },
        )
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        let own = |taken: Vec<Taken>| taken.into_iter().map(Taken::claimed).collect();
        self.session.write_then(move |tx| ready(engine::claim(&mut tx.engine(), &claim)), own)
    }

    fn claim_plan(&self, run: NewRun, lease: Option<Span>) -> Reply<'_, Option<Claimed>> {
        let run = CheckedRun::of(run);
        let own = |taken: Option<Taken>| taken.map(Taken::claimed).transpose();
        self.session.write_then(move |tx| ready(engine::claim_plan(&mut tx.engine(), run?, lease)), own)
    }

    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        let claim = move |tx: &Tx<'_>| ready(engine::claim_run(&mut tx.engine(), &run_id, &take));
        self.session.write_then(claim, Taken::claimed)
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.others.wait(at_most))
    }
}

impl Leases for SqliteStore {
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        self.session.write(move |tx| ready(engine::renew(&mut tx.engine(), &leases)))
    }

    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        self.session.write(move |tx| ready(engine::note(&mut tx.engine(), &notes)))
    }

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        let finishes: Vec<_> = finishes.into_iter().map(CleanedFinish::of).collect();
        self.session.write_then(move |tx| ready(engine::finish(&mut tx.engine(), &finishes)), each_own)
    }

    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>> {
        self.session.write_then(move |tx| ready(engine::release(&mut tx.engine(), &leases)), each_own)
    }

    fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow> {
        self.session.write_then(move |tx| ready(engine::require_cleanup(&mut tx.engine(), &write)), own)
    }

    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        self.session.write(move |tx| ready(engine::sweep(&mut tx.engine(), &by, limit)))
    }
}

impl Items for SqliteStore {
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        let one = |mut answers: Each<Vec<ItemRow>>| {
            answers.pop().unwrap_or_else(|| Err(StoreError::Unavailable("the write was not answered".into())))
        };
        self.session.write_then(move |tx| ready(engine::put_items(&mut tx.engine(), &[write])), one)
    }

    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        self.session.read(move |tx| admin::items(tx, &run_id, kind.as_deref()))
    }
}

impl Log for SqliteStore {
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.session.read(move |tx| log::events(tx, &run_id, after_seq, limit))
    }

    fn feed(&self, after_position: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.session.read(move |tx| log::feed(tx, after_position, limit))
    }

    fn last_position(&self) -> Reply<'_, u64> {
        self.session.read(log::last_position)
    }
}

impl Admin for SqliteStore {
    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        self.session.write_then(move |tx| ready(engine::command(&mut tx.engine(), &command)), own)
    }

    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
        let own = |row: Arc<RunRow>| Ok(Arc::unwrap_or_clone(row));
        self.session.read(move |tx| admin::run(tx, &tenant, &id).and_then(own))
    }

    fn runs(&self, filter: Filter) -> Reply<'_, Page> {
        self.session.read(move |tx| admin::runs(tx, &filter))
    }

    fn queues(&self) -> Reply<'_, Vec<QueueRow>> {
        self.session.read(admin::queues)
    }

    fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Reply<'_, QueueRow> {
        self.session.write(move |tx| admin::pause_queue(tx, &queue, pause.as_ref()))
    }

    fn limit(&self, what: LimitOf, name: String, at_most: Option<u32>) -> Reply<'_, ()> {
        self.session.write(move |tx| admin::limit(tx, what, &name, at_most))
    }

    fn prune(&self, limit: usize) -> Reply<'_, Pruned> {
        self.session.write(move |tx| prune::prune(tx, limit))
    }

    fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified> {
        self.session.read_apart(move |tx| verify::verify(tx, &*progress))
    }

    /// Those that other processes added, too.
    fn lifecycles(&self) -> Reply<'_, Catalog> {
        self.session.write(|tx| {
            tx.read_again()?;
            Ok(tx.catalog())
        })
    }

    fn add_lifecycle(&self, text: String) -> Reply<'_, Arc<Lifecycle>> {
        self.session.write(move |tx| tx.add_lifecycle(&text))
    }

    fn now(&self) -> Reply<'_, Time> {
        self.session.read(|tx| Ok(tx.now))
    }

    fn advance_clock(&self, by: Span) -> Reply<'_, ()> {
        self.session.write(move |tx| admin::advance_clock(tx, by))
    }
}

impl Schedules for SqliteStore {
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, Put> {
        self.session.write(move |tx| schedules::put(tx, &write))
    }

    fn remove_schedule(&self, name: String) -> Reply<'_, bool> {
        self.session.write(move |tx| schedules::remove(tx, &name))
    }

    fn schedules(&self, name: Option<String>) -> Reply<'_, Vec<ScheduleRow>> {
        self.session.read(move |tx| schedules::schedules(tx, name.as_deref()))
    }

    fn pause_schedule(&self, name: String, pause: Option<Pause>) -> Reply<'_, ScheduleRow> {
        self.session.write(move |tx| schedules::pause(tx, &name, pause.as_ref()))
    }

    fn put_scopes(&self, schedule: String, kind: String, ids: Vec<String>) -> Reply<'_, ()> {
        self.session.write(move |tx| schedules::put_scopes(tx, &schedule, &kind, &ids))
    }

    fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>> {
        self.session.read(move |tx| schedules::scopes(tx, &schedule))
    }

    fn ask_scopes(&self, sql: String) -> Reply<'_, Vec<String>> {
        self.session.read_apart(move |tx| schedules::ask_scopes(tx, &sql))
    }

    fn due(&self, mine: Mine, limit: usize) -> Reply<'_, Due> {
        self.session.write(move |tx| firing::due(tx, &mine, limit))
    }

    /// Each by itself; the writer commits all that wait as one transaction.
    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        let own = |fired: Option<Vec<firing::Fired>>| {
            fired.map(|all| all.into_iter().map(firing::Fired::begun).collect()).transpose()
        };
        let fire = |firing| self.session.write_then(move |tx| firing::fire(tx, firing), own);
        let asked: Vec<_> = firings.into_iter().map(fire).collect();
        Box::pin(async move { Ok(join_all(asked).await) })
    }

    fn begin(&self, begin: Begin) -> Reply<'_, Option<Begun>> {
        let own = |fired: Option<firing::Fired>| fired.map(firing::Fired::begun).transpose();
        self.session.write_then(move |tx| firing::begin(tx, &begin), own)
    }

    fn put_off(&self, failed: Vec<Failed>) -> Reply<'_, ()> {
        self.session.write(move |tx| failed.iter().try_for_each(|failed| firing::put_off(tx, failed)))
    }

    fn add_plans(&self, plans: ManualPlans) -> Reply<'_, u64> {
        self.session.write(move |tx| schedules::add_plans(tx, &plans))
    }

    fn look_again(&self, run_ids: Vec<String>) -> Reply<'_, ()> {
        self.session.write(move |tx| schedules::look_again(tx, &run_ids))
    }

    fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage> {
        self.session.read(move |tx| schedule_looks::executions(tx, &filter))
    }

    fn look_at_schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleLook>> {
        self.session.read(move |tx| schedule_looks::look_at_schedules(tx, &filter))
    }
}
