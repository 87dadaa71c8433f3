//! Runs on a PostgreSQL server, for any number of processes on any number of machines.

mod access;
mod address;
mod admin;
mod bell;
mod doctor;
mod fault;
mod fire;
mod firing;
mod gather;
mod known;
mod log;
mod looks;
mod marks;
mod migrate;
mod open;
mod pooler;
mod prune;
mod put_off;
mod row;
mod schedule_looks;
mod schedules;
mod scratch;
mod session;
mod sql;
mod tables;
mod tls;
mod verify;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};

use crate::engine::{self, CheckedRun, CleanedFinish, Taken};
use crate::error::Result;
use crate::run::{EventRow, ItemRow, RunRow};
use crate::schedule_looks::{ExecutionFilter, ExecutionPage, ScheduleFilter, ScheduleLook};
use crate::schedules::*;
use crate::verbs::*;
use address::Address;
pub use bell::Hearing;
pub use doctor::doctor;
pub use firing::due_scopes as due_scopes_sql;
use gather::Gather;
pub use migrate::{Versions, migrate, migration_sql, status};
pub use open::with_database;
pub use scratch::{OpenSnapshot, Scratch, client};
use session::{Line, Session};
use tables::PgTx;

/// A verb with what it was asked for, which may be tried again.
macro_rules! verb {
    ($store:expr, $asked:expr, |$session:ident, $name:ident| $work:expr) => {{
        let asked = Arc::new($asked);
        $store.session.verb(move |$session| {
            let $name = asked.clone();
            async move { $work.await }
        })
    }};
}

/// A verb of the engine's whose statements stand alone.
macro_rules! once {
    ($session:expr, $line:expr, |$tx:ident| $work:expr) => {
        once!($session, PgTx::new, $line, |$tx| $work)
    };
    ($session:expr, $begin:expr, $line:expr, |$tx:ident| $work:expr) => {{
        let session = $session.clone();
        $session.once(async move {
            let mut tx = $begin(&session, $line).await?;
            let $tx = &mut tx;
            let done = $work.await;
            tx.end(done).await
        })
    }};
}

/// A row of the caller's own.
fn own(row: Arc<RunRow>) -> RunRow {
    Arc::unwrap_or_clone(row)
}

fn each_own(rows: Each<Arc<RunRow>>) -> Each<RunRow> {
    rows.into_iter().map(|row| row.map(own)).collect()
}

#[derive(Clone, Debug)]
pub struct PostgresStore {
    session: Session,
    puts: Arc<Gather<ItemsWrite, Vec<ItemRow>>>,
    births: Arc<Gather<NewRun, Enqueued>>,
    ends: Arc<Gather<FinishWrite, RunRow>>,
}

impl PostgresStore {
    /// Connects, and makes the tables if there are none. A database of another version is refused.
    pub async fn open(url: &str) -> Result<PostgresStore> {
        let session = Session::open(Address::read(url)?).await?;
        Ok(PostgresStore {
            session,
            puts: Arc::new(Gather::new()),
            births: Arc::new(Gather::new()),
            ends: Arc::new(Gather::new()),
        })
    }

    /// Whether changes of other processes are heard of at once, or looked for.
    pub fn hearing(&self) -> Hearing {
        self.session.0.bell.hearing()
    }
}

impl PostgresStore {
    fn enqueue_all(session: &Session, runs: Vec<NewRun>) -> Reply<'static, Each<Enqueued>> {
        let runs = runs.into_iter().map(CheckedRun::of).collect();
        let queued = once!(session, Line::Work, |tx| engine::enqueue(tx, runs));
        let own = |(run, replayed): engine::Queued| Enqueued { run: own(run), replayed };
        Box::pin(async move { Ok(queued.await?.into_iter().map(|answer| answer.map(own)).collect()) })
    }

    fn finish_all(session: &Session, finishes: Vec<FinishWrite>) -> Reply<'static, Each<RunRow>> {
        let finishes: Vec<CleanedFinish> = finishes.into_iter().map(CleanedFinish::of).collect();
        let ended = once!(session, Line::Work, |tx| engine::finish(tx, &finishes));
        Box::pin(async move { ended.await.map(each_own) })
    }
}

impl Queue for PostgresStore {
    fn enqueue(&self, mut runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>> {
        let session = self.session.clone();
        let all = move |runs| PostgresStore::enqueue_all(&session, runs);
        match (runs.len(), runs.pop()) {
            (1, Some(run)) => Box::pin(async move { self.births.list_of_one(run, all).await }),
            (_, last) => {
                runs.extend(last);
                all(runs)
            }
        }
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        verb!(self, claim, |session, claim| async {
            let mut tx = PgTx::begin(&session).await?;
            let taken = engine::claim(&mut tx, &claim).await;
            let taken = tx.end(taken).await?;
            Ok(taken.into_iter().map(Taken::claimed).collect::<Result<Vec<_>>>()?)
        })
    }

    fn claim_plan(&self, run: NewRun, lease: Option<Span>) -> Reply<'_, Option<Claimed>> {
        once!(self.session, PgTx::fresh, Line::Work, |tx| async {
            let taken = engine::claim_plan(tx, CheckedRun::of(run)?, lease).await?;
            taken.map(Taken::claimed).transpose()
        })
    }

    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        verb!(self, (run_id, take), |session, asked| async {
            let mut tx = PgTx::begin(&session).await?;
            let taken = engine::claim_run(&mut tx, &asked.0, &asked.1).await;
            Ok(tx.end(taken).await?.claimed()?)
        })
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.0.bell.wait(at_most))
    }
}

impl Leases for PostgresStore {
    /// Over connections of their own: work that waits must not cost anybody a lease.
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        once!(self.session, Line::Beat, |tx| engine::renew(tx, &leases))
    }

    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        once!(self.session, Line::Work, |tx| engine::note(tx, &notes))
    }

    fn finish(&self, mut finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        let session = self.session.clone();
        let all = move |finishes| PostgresStore::finish_all(&session, finishes);
        match (finishes.len(), finishes.pop()) {
            (1, Some(finish)) => Box::pin(async move { self.ends.list_of_one(finish, all).await }),
            (_, last) => {
                finishes.extend(last);
                all(finishes)
            }
        }
    }

    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>> {
        let released = once!(self.session, PgTx::fresh, Line::Work, |tx| engine::release(tx, &leases));
        Box::pin(async move { released.await.map(each_own) })
    }

    fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow> {
        let noted = once!(self.session, PgTx::fresh, Line::Work, |tx| engine::require_cleanup(tx, &write));
        Box::pin(async move { noted.await.map(own) })
    }

    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        once!(self.session, PgTx::fresh, Line::Work, |tx| engine::sweep(tx, &by, limit))
    }
}

impl Items for PostgresStore {
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        let session = self.session.clone();
        let all =
            move |writes: Vec<ItemsWrite>| once!(session, Line::Work, |tx| engine::put_items(tx, &writes));
        Box::pin(async move { self.puts.write(write, all).await })
    }

    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        verb!(self, (run_id, kind), |session, asked| admin::items(&session, &asked.0, asked.1.as_deref()))
    }
}

impl Log for PostgresStore {
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        verb!(self, run_id, |session, run_id| log::events(&session, &run_id, after_seq, limit))
    }

    fn feed(&self, after_position: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        self.session.verb(move |session| async move { log::feed(&session, after_position, limit).await })
    }

    fn last_position(&self) -> Reply<'_, u64> {
        self.session.verb(|session| async move { log::last_position(&session).await })
    }
}

impl Admin for PostgresStore {
    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        let commanded = once!(self.session, PgTx::fresh, Line::Work, |tx| engine::command(tx, &command));
        Box::pin(async move { commanded.await.map(own) })
    }

    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
        verb!(self, (tenant, id), |session, asked| admin::run(&session, &asked.0, &asked.1))
    }

    fn runs(&self, filter: Filter) -> Reply<'_, Page> {
        verb!(self, filter, |session, filter| admin::runs(&session, &filter))
    }

    fn queues(&self) -> Reply<'_, Vec<QueueRow>> {
        self.session.verb(|session| async move { admin::queues(&session).await })
    }

    fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Reply<'_, QueueRow> {
        verb!(self, (queue, pause), |session, asked| admin::pause_queue(&session, &asked.0, asked.1.as_ref()))
    }

    fn limit(&self, what: LimitOf, name: String, at_most: Option<u32>) -> Reply<'_, ()> {
        verb!(self, name, |session, name| admin::limit(&session, what, &name, at_most))
    }

    fn prune(&self, limit: usize) -> Reply<'_, Pruned> {
        self.session.verb(move |session| async move { prune::prune(&session, limit).await })
    }

    fn verify(&self, progress: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified> {
        self.session.verb(move |session| {
            let progress = progress.clone();
            async move { verify::verify(&session, &*progress).await }
        })
    }

    fn lifecycles(&self) -> Reply<'_, Catalog> {
        self.session.verb(|session| async move { Ok(session.learned().await?.catalog.clone()) })
    }

    fn add_lifecycle(&self, text: String) -> Reply<'_, Arc<Lifecycle>> {
        verb!(self, text, |session, text| session.add_lifecycle(&text))
    }

    fn now(&self) -> Reply<'_, Time> {
        self.session.verb(|session| async move {
            let tx = session.look().await?;
            let now = tx.now;
            tx.end(Ok(now)).await
        })
    }

    fn advance_clock(&self, by: Span) -> Reply<'_, ()> {
        self.session.verb(move |session| async move { admin::advance_clock(&session, by).await })
    }
}

impl Schedules for PostgresStore {
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, Put> {
        verb!(self, write, |session, write| schedules::put(&session, &write))
    }

    fn remove_schedule(&self, name: String) -> Reply<'_, bool> {
        verb!(self, name, |session, name| schedules::remove(&session, &name))
    }

    fn schedules(&self, name: Option<String>) -> Reply<'_, Vec<ScheduleRow>> {
        verb!(self, name, |session, name| schedules::schedules(&session, name.as_deref()))
    }

    fn pause_schedule(&self, name: String, pause: Option<Pause>) -> Reply<'_, ScheduleRow> {
        verb!(self, (name, pause), |session, asked| schedules::pause(&session, &asked.0, asked.1.as_ref()))
    }

    fn put_scopes(&self, schedule: String, kind: String, ids: Vec<String>) -> Reply<'_, ()> {
        verb!(self, (schedule, kind, ids), |session, asked| schedules::put_scopes(
            &session, &asked.0, &asked.1, &asked.2
        ))
    }

    fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>> {
        verb!(self, schedule, |session, schedule| schedules::scopes(&session, &schedule))
    }

    fn ask_scopes(&self, sql: String) -> Reply<'_, Vec<String>> {
        verb!(self, sql, |session, sql| schedules::ask_scopes(&session, &sql))
    }

    fn due(&self, mine: Mine, limit: usize) -> Reply<'_, Due> {
        verb!(self, mine, |session, mine| firing::due(&session, &mine, limit))
    }

    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        verb!(self, firings, |session, firings| fire::fire(&session, &firings))
    }

    fn begin(&self, begin: Begin) -> Reply<'_, Option<Begun>> {
        verb!(self, begin, |session, begin| firing::begin(&session, &begin))
    }

    fn put_off(&self, failed: Vec<Failed>) -> Reply<'_, ()> {
        verb!(self, failed, |session, failed| put_off::put_off(&session, &failed))
    }

    fn add_plans(&self, plans: ManualPlans) -> Reply<'_, u64> {
        verb!(self, plans, |session, plans| schedules::add_plans(&session, &plans))
    }

    fn look_again(&self, run_ids: Vec<String>) -> Reply<'_, ()> {
        verb!(self, run_ids, |session, run_ids| schedules::look_again(&session, &run_ids))
    }

    fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage> {
        verb!(self, filter, |session, filter| schedule_looks::executions(&session, &filter))
    }

    fn look_at_schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleLook>> {
        verb!(self, filter, |session, filter| schedule_looks::look_at_schedules(&session, &filter))
    }
}
