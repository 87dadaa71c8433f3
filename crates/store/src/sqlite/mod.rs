//! The embedded store: one file, any number of processes.

mod access;
mod admin;
mod born;
mod children;
mod claim;
mod doctor;
mod enqueue;
mod events;
mod firing;
mod hash;
mod items;
mod kept;
mod known;
mod lease;
mod limits;
mod line;
mod log;
mod looks;
mod moves;
mod open;
mod operations;
mod others;
mod prune;
mod row;
mod save;
mod schedule_looks;
mod schedules;
mod session;
mod statements;
mod sweep;
mod verify;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};

pub use doctor::doctor;

use crate::error::Result;
use crate::run::{EventRow, ItemRow, RunRow};
use crate::schedule_looks::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleLook};
use crate::schedules::*;
use crate::verbs::*;
use claim::Taken;
use enqueue::Asked;
use lease::Ending;
use session::Session;

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
        let asked = runs.into_iter().map(Asked::of).collect();
        self.session.write_then(
            move |tx| enqueue::enqueue(tx, asked),
            |answers| {
                let own = |(run, replayed)| Enqueued { run: Arc::unwrap_or_clone(run), replayed };
                Ok(answers.into_iter().map(|answer| answer.map(own)).collect())
            },
        )
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        let own = |taken: Vec<Taken>| taken.into_iter().map(Taken::claimed).collect();
        self.session.write_then(move |tx| claim::claim(tx, &claim), own)
    }

    fn claim_plan(&self, run: NewRun, lease: Option<Span>) -> Reply<'_, Option<Claimed>> {
        let asked = Asked::of(run);
        let own = |taken: Option<Taken>| taken.map(Taken::claimed).transpose();
        self.session.write_then(move |tx| enqueue::claim_plan(tx, asked?, lease), own)
    }

    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        self.session.write_then(move |tx| claim::claim_run(tx, &run_id, &take), Taken::claimed)
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.others.wait(at_most))
    }
}

impl Leases for SqliteStore {
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        self.session.write(move |tx| lease::renew(tx, leases))
    }

    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        self.session.write(move |tx| lease::note(tx, notes))
    }

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        let endings = finishes.into_iter().map(Ending::of).collect();
        self.session.write_then(move |tx| lease::finish(tx, endings), each_own)
    }

    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>> {
        self.session.write_then(move |tx| lease::release(tx, leases), each_own)
    }

    fn owe(&self, owe: OweWrite) -> Reply<'_, RunRow> {
        self.session.write_then(move |tx| lease::owe(tx, &owe), own)
    }

    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        self.session.write(move |tx| sweep::sweep(tx, &by, limit))
    }
}

impl Items for SqliteStore {
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        self.session.write(move |tx| items::put(tx, &write))
    }

    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        self.session.read(move |tx| items::list(tx, &run_id, kind.as_deref()))
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
        self.session.write_then(move |tx| admin::command(tx, &command), own)
    }

    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
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
