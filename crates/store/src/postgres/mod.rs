//! Runs on a PostgreSQL server, for any number of processes on any number of machines.

mod access;
mod address;
mod admin;
mod batch;
mod bell;
mod children;
mod claim;
mod doctor;
mod enqueue;
mod fault;
mod fire;
mod firing;
mod gather;
mod items;
mod known;
mod lease;
mod limits;
mod log;
mod looks;
mod marks;
mod migrate;
mod open;
mod operations;
mod plain;
mod pooler;
mod prune;
mod put_off;
mod puts;
mod row;
mod save;
mod schedule_looks;
mod schedules;
mod scratch;
mod session;
mod sql;
mod sweep;
mod tls;
mod trail;
mod verify;
mod watch;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use waypost_kernel::{Catalog, Lifecycle, Span, Time};

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
use session::Session;

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

impl Queue for PostgresStore {
    fn enqueue(&self, mut runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>> {
        let session = self.session.clone();
        let all = move |runs: Vec<NewRun>| {
            let (session, runs) = (session.clone(), Arc::new(runs));
            async move {
                let all = session.verb(move |session| {
                    let runs = runs.clone();
                    async move { enqueue::enqueue(&session, &runs).await }
                });
                all.await
            }
        };
        match (runs.len(), runs.pop()) {
            (1, Some(run)) => Box::pin(async move { self.births.list_of_one(run, all).await }),
            (_, last) => {
                runs.extend(last);
                Box::pin(all(runs))
            }
        }
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        let claim = Arc::new(claim);
        self.session.verb(move |session| {
            let claim = claim.clone();
            async move { claim::claim(&session, &claim).await }
        })
    }

    fn claim_plan(&self, run: NewRun, lease: Option<Span>) -> Reply<'_, Option<Claimed>> {
        let run = Arc::new(run);
        self.session.verb(move |session| {
            let run = run.clone();
            async move { enqueue::claim_plan(&session, &run, lease).await }
        })
    }

    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        let asked = Arc::new((run_id, take));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { claim::claim_run(&session, &asked.0, &asked.1).await }
        })
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.0.bell.wait(at_most))
    }
}

impl Leases for PostgresStore {
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        let leases = Arc::new(leases);
        self.session.verb(move |session| {
            let leases = leases.clone();
            async move { lease::renew(&session, &leases).await }
        })
    }

    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        let notes = Arc::new(notes);
        self.session.verb(move |session| {
            let notes = notes.clone();
            async move { lease::note(&session, &notes).await }
        })
    }

    fn finish(&self, mut finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        let session = self.session.clone();
        let all = move |finishes: Vec<FinishWrite>| {
            let (session, finishes) = (session.clone(), Arc::new(finishes));
            async move {
                let all = session.verb(move |session| {
                    let finishes = finishes.clone();
                    async move { lease::finish(&session, &finishes).await }
                });
                all.await
            }
        };
        match (finishes.len(), finishes.pop()) {
            (1, Some(finish)) => Box::pin(async move { self.ends.list_of_one(finish, all).await }),
            (_, last) => {
                finishes.extend(last);
                Box::pin(all(finishes))
            }
        }
    }

    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>> {
        let leases = Arc::new(leases);
        self.session.verb(move |session| {
            let leases = leases.clone();
            async move { lease::release(&session, &leases).await }
        })
    }

    fn owe(&self, owe: OweWrite) -> Reply<'_, RunRow> {
        let owe = Arc::new(owe);
        self.session.verb(move |session| {
            let owe = owe.clone();
            async move { lease::owe(&session, &owe).await }
        })
    }

    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        let by = Arc::new(by);
        self.session.verb(move |session| {
            let by = by.clone();
            async move { sweep::sweep(&session, &by, limit).await }
        })
    }
}

impl Items for PostgresStore {
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        let session = self.session.clone();
        let all = move |writes: Vec<ItemsWrite>| {
            let (session, writes) = (session.clone(), Arc::new(writes));
            async move {
                let all = session.verb(move |session| {
                    let writes = writes.clone();
                    async move { puts::put(&session, &writes).await }
                });
                all.await
            }
        };
        Box::pin(async move { self.puts.write(write, all).await })
    }

    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        let asked = Arc::new((run_id, kind));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { items::list(&session, &asked.0, asked.1.as_deref()).await }
        })
    }
}

impl Log for PostgresStore {
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        let run_id = Arc::new(run_id);
        self.session.verb(move |session| {
            let run_id = run_id.clone();
            async move { log::events(&session, &run_id, after_seq, limit).await }
        })
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
        let command = Arc::new(command);
        self.session.verb(move |session| {
            let command = command.clone();
            async move { admin::command(&session, &command).await }
        })
    }

    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
        let asked = Arc::new((tenant, id));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { admin::run(&session, &asked.0, &asked.1).await }
        })
    }

    fn runs(&self, filter: Filter) -> Reply<'_, Page> {
        let filter = Arc::new(filter);
        self.session.verb(move |session| {
            let filter = filter.clone();
            async move { admin::runs(&session, &filter).await }
        })
    }

    fn queues(&self) -> Reply<'_, Vec<QueueRow>> {
        self.session.verb(|session| async move { admin::queues(&session).await })
    }

    fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Reply<'_, QueueRow> {
        let asked = Arc::new((queue, pause));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { admin::pause_queue(&session, &asked.0, asked.1.as_ref()).await }
        })
    }

    fn limit(&self, what: LimitOf, name: String, at_most: Option<u32>) -> Reply<'_, ()> {
        let name = Arc::new(name);
        self.session.verb(move |session| {
            let name = name.clone();
            async move { admin::limit(&session, what, &name, at_most).await }
        })
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
        let text = Arc::new(text);
        self.session.verb(move |session| {
            let text = text.clone();
            async move { session.add_lifecycle(&text).await }
        })
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
        let write = Arc::new(write);
        self.session.verb(move |session| {
            let write = write.clone();
            async move { schedules::put(&session, &write).await }
        })
    }

    fn remove_schedule(&self, name: String) -> Reply<'_, bool> {
        let name = Arc::new(name);
        self.session.verb(move |session| {
            let name = name.clone();
            async move { schedules::remove(&session, &name).await }
        })
    }

    fn schedules(&self, name: Option<String>) -> Reply<'_, Vec<ScheduleRow>> {
        let name = Arc::new(name);
        self.session.verb(move |session| {
            let name = name.clone();
            async move { schedules::schedules(&session, name.as_deref()).await }
        })
    }

    fn pause_schedule(&self, name: String, pause: Option<Pause>) -> Reply<'_, ScheduleRow> {
        let asked = Arc::new((name, pause));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { schedules::pause(&session, &asked.0, asked.1.as_ref()).await }
        })
    }

    fn put_scopes(&self, schedule: String, kind: String, ids: Vec<String>) -> Reply<'_, ()> {
        let asked = Arc::new((schedule, kind, ids));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { schedules::put_scopes(&session, &asked.0, &asked.1, &asked.2).await }
        })
    }

    fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>> {
        let schedule = Arc::new(schedule);
        self.session.verb(move |session| {
            let schedule = schedule.clone();
            async move { schedules::scopes(&session, &schedule).await }
        })
    }

    fn ask_scopes(&self, sql: String) -> Reply<'_, Vec<String>> {
        let sql = Arc::new(sql);
        self.session.verb(move |session| {
            let sql = sql.clone();
            async move { schedules::ask_scopes(&session, &sql).await }
        })
    }

    fn due(&self, mine: Mine, limit: usize) -> Reply<'_, Due> {
        let mine = Arc::new(mine);
        self.session.verb(move |session| {
            let mine = mine.clone();
            async move { firing::due(&session, &mine, limit).await }
        })
    }

    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        let firings = Arc::new(firings);
        self.session.verb(move |session| {
            let firings = firings.clone();
            async move { fire::fire(&session, &firings).await }
        })
    }

    fn begin(&self, begin: Begin) -> Reply<'_, Option<Begun>> {
        let begin = Arc::new(begin);
        self.session.verb(move |session| {
            let begin = begin.clone();
            async move { firing::begin(&session, &begin).await }
        })
    }

    fn put_off(&self, failed: Vec<Failed>) -> Reply<'_, ()> {
        let failed = Arc::new(failed);
        self.session.verb(move |session| {
            let failed = failed.clone();
            async move { put_off::put_off(&session, &failed).await }
        })
    }

    fn add_plans(&self, plans: ManualPlans) -> Reply<'_, u64> {
        let plans = Arc::new(plans);
        self.session.verb(move |session| {
            let plans = plans.clone();
            async move { schedules::add_plans(&session, &plans).await }
        })
    }

    fn look_again(&self, run_ids: Vec<String>) -> Reply<'_, ()> {
        let run_ids = Arc::new(run_ids);
        self.session.verb(move |session| {
            let run_ids = run_ids.clone();
            async move { schedules::look_again(&session, &run_ids).await }
        })
    }

    fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage> {
        let filter = Arc::new(filter);
        self.session.verb(move |session| {
            let filter = filter.clone();
            async move { schedule_looks::executions(&session, &filter).await }
        })
    }

    fn look_at_schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleLook>> {
        let filter = Arc::new(filter);
        self.session.verb(move |session| {
            let filter = filter.clone();
            async move { schedule_looks::look_at_schedules(&session, &filter).await }
        })
    }
}
