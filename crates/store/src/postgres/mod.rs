//! Runs on a PostgreSQL server, for any number of processes on any number of machines.

mod admin;
mod dead_letters;
mod doctor;
mod lifecycle_codes;
mod link;
mod list;
mod log;
mod prune;
mod row;
mod schema;
mod sql;
mod stats;
mod tables;
mod verify;
mod waiting;
mod worked;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use waypost_kernel::{Catalog, Lifecycle, Span, Time};

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
pub use doctor::doctor;
use link::address::Address;
use link::batcher::Batcher;
use link::fault::{self, Fault};
pub use link::notifier::ListenState;
pub use link::open::with_database;
pub use link::scratch::{OpenSnapshot, Scratch, client};
use link::session::{PoolKind, Session};
pub use schema::{Versions, migrate, migration_sql, status};
use tables::PgTx;

/// A verb in a transaction that is tried again if it failed without having written: `$asked` is what it was asked for.
macro_rules! verb {
    ($store:expr, $begin:path, $asked:expr, |$tx:ident, $name:pat_param| $work:expr) => {{
        let asked = Arc::new($asked);
        $store.session.verb(move |session| {
            let asked = asked.clone();
            async move {
                let mut tx = $begin(&session).await?;
                let ($tx, $name) = (&mut tx, &*asked);
                let done = $work.await;
                tx.end(done).await
            }
        })
    }};
}

/// Verbs that are a function of the same name, in a transaction that is begun so.
macro_rules! verbs {
    ($($begin:path => $module:ident { $($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        $($(fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            verb!(self, $begin, ($($name,)*), |tx, ($($name,)*)| $module::$verb(tx, $($name),*))
        })*)*
    };
}

/// A verb of the engine's whose statements are a transaction each.
macro_rules! once {
    ($session:expr, $pool:expr, |$tx:ident| $work:expr) => {
        once!($session, PgTx::new, $pool, |$tx| $work)
    };
    ($session:expr, $begin:expr, $pool:expr, |$tx:ident| $work:expr) => {{
        let session = $session.clone();
        $session.once(async move {
            let mut tx = $begin(&session, $pool).await?;
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
    item_writes: Arc<Batcher<ItemsWrite, Vec<ItemRow>>>,
    enqueues: Arc<Batcher<NewRun, Enqueued>>,
    finishes: Arc<Batcher<FinishWrite, RunRow>>,
    turns: Arc<Semaphore>,
}

impl PostgresStore {
    /// Connects, and makes the tables if there are none. A database of another version is refused.
    pub async fn open(url: &str) -> Result<PostgresStore> {
        let session = Session::open(Address::read(url)?).await?;
        Ok(PostgresStore::of(session))
    }

    /// The same for those who only look: nothing is made, and there is none if the tables are missing.
    pub async fn open_existing(url: &str) -> Result<Option<PostgresStore>> {
        let session = Session::open_existing(Address::read(url)?).await?;
        Ok(session.map(PostgresStore::of))
    }

    fn of(session: Session) -> PostgresStore {
        PostgresStore {
            session,
            item_writes: Arc::new(Batcher::new()),
            enqueues: Arc::new(Batcher::new()),
            finishes: Arc::new(Batcher::new()),
            turns: Arc::new(Semaphore::new(MOST_KEYED)),
        }
    }

    /// Whether other processes' changes arrive as notifications, or are polled for.
    pub fn listen_state(&self) -> ListenState {
        self.session.0.notifier.listen_state()
    }
}

/// Verbs at once that may have to wait for a key's slots or a queue's gate, which somebody else has. The others need connections
/// too.
const MOST_KEYED: usize = 4;
/// How long one waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(3);

impl PostgresStore {
    /// Children are asked to cancel after the commit. If that fails, the sweep does it.
    async fn told_children<T>(&self, (commanded, cancels): (T, bool)) -> T {
        if cancels {
            let told = once!(self.session, PgTx::fresh, PoolKind::Work, |tx| engine::cancel_children(tx));
            let _ = told.await;
        }
        commanded
    }

    /// A verb that may have to wait for others, in its turn.
    fn in_turn<'s, T: Send + 's>(&'s self, verb: Reply<'s, T>) -> Reply<'s, T> {
        Box::pin(async move {
            let busy = || {
                let words = "others wait for the same keys or limits of queues; try again";
                StoreError::Unavailable(words.into())
            };
            let turn = tokio::time::timeout(TURN_WITHIN, self.turns.acquire()).await;
            let _turn = turn.map_err(|_| busy())?.map_err(|_| busy())?;
            verb.await
        })
    }

    fn enqueue_all(session: &Session, runs: Vec<NewRun>) -> Reply<'static, Each<Enqueued>> {
        let runs = runs.into_iter().map(CheckedRun::of_client).collect();
        let queued = once!(session, PoolKind::Work, |tx| engine::enqueue(tx, runs));
        let own = |(run, replayed): engine::Queued| Enqueued { run: own(run), replayed };
        Box::pin(async move { Ok(queued.await?.into_iter().map(|answer| answer.map(own)).collect()) })
    }

    fn finish_all(session: &Session, finishes: Vec<FinishWrite>) -> Reply<'static, Each<RunRow>> {
        let finishes: Vec<CleanedFinish> = finishes.into_iter().map(CleanedFinish::of).collect();
        let ended = once!(session, PoolKind::Work, |tx| engine::finish(tx, &finishes));
        Box::pin(async move { ended.await.map(each_own) })
    }
}

impl Store for PostgresStore {
    verbs! {
        PgTx::begin => engine {
            change_schedule(change: ScheduleChange, who: Who) -> ScheduleChanged;
            change_token(change: TokenChange, who: Who) -> TokenRow;
            change_agent(change: AgentChange, who: Who) -> AgentRow;
            silence_alert(silence: SilenceAlert, who: Who) -> AlertRow;
            beat(worker: WorkerBeat) -> ();
            remove_worker(name: String, tenant: Option<String>) -> ();
            offer_playbooks(playbooks: Vec<OfferedPlaybook>) -> ();
            discard_targets(write: DiscardTargets) -> u64;
            admit(ask: Admit) -> Admitted;
            answered(report: Answered) -> DestinationRow;
            pace_destination(tenant: String, name: String, burst: bool) -> DestinationRow;
        }
        PgTx::look => engine {
            destinations(tenant: Option<String>) -> Vec<DestinationRow>;
            alerts(tenant: Option<String>) -> Vec<AlertRow>;
            schedules(filter: ScheduleFilter) -> Vec<ScheduleSummary>;
            scopes(schedule: String) -> Vec<ScopeRow>;
            executions(filter: ExecutionFilter) -> ExecutionPage;
            tokens(id: Option<String>) -> Vec<TokenRow>;
            agents(tenant: Option<String>) -> Vec<AgentRow>;
            made_by(tenant: String, key: String, asked: String) -> Option<RunRow>;
            explain(runs: Vec<RunRow>) -> Vec<RunRow>;
            keys(filter: KeyFilter) -> Vec<KeyRow>;
            latest_audits(tenant: Option<String>, before: Option<u64>, limit: usize) -> Vec<AuditRow>;
            playbooks(filter: PlaybookFilter) -> Vec<PlaybookRow>;
        }
        Session::look => list {
            runs(filter: Filter) -> Page;
        }
        Session::look => admin {
            run(tenant: String, id: String) -> RunRow;
            items(run_id: String, kind: Option<String>) -> Vec<ItemRow>;
            item_page(filter: ItemFilter) -> ItemPage;
            queues(tenant: Option<String>) -> Vec<QueueRow>;
        }
        Session::look => dead_letters {
            dead_letters(filter: DeadLetterFilter) -> Vec<DeadLetterClass>;
        }
        Session::look => stats {
            stats(tenant: Option<String>) -> Stats;
            holders(tenant: Option<String>) -> Vec<Holder>;
        }
    }

    fn enqueue(&self, runs: Vec<NewRun>) -> Reply<'_, Each<Enqueued>> {
        let session = self.session.clone();
        Box::pin(self.enqueues.list(runs, move |runs| PostgresStore::enqueue_all(&session, runs)))
    }

    fn enqueue_claimed(&self, run: NewRun, take: Take) -> Reply<'_, EnqueuedClaim> {
        self.in_turn(verb!(self, PgTx::begin, (run, take), |tx, (run, take)| async {
            engine::own_claim(engine::enqueue_claimed(tx, run, take).await?)
        }))
    }

    fn dry_run(&self, run: NewRun) -> Reply<'_, Option<String>> {
        verb!(self, PgTx::begin, run, |tx, run| engine::dry_run(tx, run))
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Vec<Claimed>> {
        verb!(self, PgTx::begin, claim, |tx, claim| async {
            engine::claim(tx, claim).await?.into_iter().map(Taken::claimed).collect()
        })
    }

    fn claim_run(&self, run_id: String, take: Take) -> Reply<'_, Claimed> {
        self.in_turn(verb!(self, PgTx::begin, (run_id, take), |tx, (run_id, take)| async {
            engine::claim_run(tx, run_id, take).await?.claimed()
        }))
    }

    fn configure(&self, setting: Setting, who: Who) -> Reply<'_, ()> {
        self.in_turn(verb!(self, PgTx::begin, (setting, who), |tx, (setting, who)| engine::configure(
            tx, setting, who
        )))
    }

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.0.notifier.wait(at_most))
    }

    /// Over connections of their own: a lease must not run out because other work waits for a connection.
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        once!(self.session, PoolKind::Heartbeat, |tx| engine::renew(tx, &leases))
    }

    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        once!(self.session, PoolKind::Work, |tx| engine::note(tx, &notes))
    }

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        let session = self.session.clone();
        Box::pin(self.finishes.list(finishes, move |finishes| PostgresStore::finish_all(&session, finishes)))
    }

    fn release(&self, leases: Vec<ReleaseWrite>) -> Reply<'_, Each<RunRow>> {
        let released =
            self.in_turn(once!(self.session, PgTx::fresh, PoolKind::Work, |tx| engine::release(tx, &leases)));
        Box::pin(async move { released.await.map(each_own) })
    }

    fn require_cleanup(&self, write: CleanupWrite) -> Reply<'_, RunRow> {
        let noted =
            once!(self.session, PgTx::fresh, PoolKind::Work, |tx| engine::require_cleanup(tx, &write));
        Box::pin(async move { noted.await.map(own) })
    }

    fn add_targets(&self, write: AddTargets) -> Reply<'_, Preview> {
        once!(self.session, PoolKind::Work, |tx| engine::add_targets(tx, &write))
    }

    fn work_targets(&self, write: WorkTargets) -> Reply<'_, Worked> {
        once!(self.session, PoolKind::Work, |tx| engine::work_targets(tx, &write))
    }

    fn roll_back_targets(&self, write: RollBackTargets) -> Reply<'_, RunRow> {
        let row = verb!(self, PgTx::begin, write, |tx, write| engine::roll_back_targets(tx, write));
        Box::pin(async move { row.await.map(own) })
    }

    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        let session = self.session.clone();
        let all = move |writes: Vec<ItemsWrite>| {
            once!(session, PoolKind::Work, |tx| engine::put_items(tx, &writes))
        };
        Box::pin(async move { self.item_writes.write(write, all).await })
    }

    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        let commanded =
            self.in_turn(verb!(self, PgTx::begin, command, |tx, command| engine::command(tx, command)));
        Box::pin(async move { Ok(own(self.told_children(commanded.await?).await)) })
    }

    fn command_claimed(&self, command: CommandWrite, take: Take) -> Reply<'_, CommandedClaim> {
        let commanded = self.in_turn(verb!(self, PgTx::begin, (command, take), |tx, (command, take)| {
            engine::command_claimed(tx, command, take)
        }));
        Box::pin(async move { engine::own_command(self.told_children(commanded.await?).await) })
    }

    fn add_lifecycle(&self, text: String, who: Who) -> Reply<'_, Arc<Lifecycle>> {
        let added =
            verb!(self, PgTx::begin, (text, who), |tx, (text, who)| engine::add_lifecycle(tx, text, who));
        Box::pin(async move {
            let added = added.await?;
            self.lifecycles().await?;
            Ok(added)
        })
    }

    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        verb!(self, Session::look, run_id, |tx, run_id| log::events(
            tx,
            run_id,
            after_seq,
            limit,
            log::Effects::All
        ))
    }

    fn feed(&self, after: Option<u64>, limit: usize) -> Reply<'_, Feed> {
        self.session.verb(move |session| async move {
            match after {
                Some(after) => Ok(Feed::after(after, log::feed(&session, after, limit).await?)),
                None => Ok(Feed::after(log::last_position(&session).await?, Vec::new())),
            }
        })
    }

    fn lifecycles(&self) -> Reply<'_, Catalog> {
        self.session.verb(|session| async move { Ok(session.learned().await?.catalog.clone()) })
    }

    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>> {
        verb!(self, PgTx::look, tenant, |tx, tenant| engine::audits(tx, tenant.as_deref(), after, limit))
    }

    fn workers(&self, tenant: Option<String>) -> Reply<'_, Vec<WorkerRow>> {
        let registered = verb!(self, PgTx::look, tenant.clone(), |tx, tenant| engine::registered(tx, tenant));
        Box::pin(async move {
            let registered = registered.await?;
            Ok(with_holders(registered, self.holders(tenant).await?))
        })
    }

    fn now(&self) -> Reply<'_, Time> {
        verb!(self, Session::look, (), |tx, ()| async { Ok(tx.now) })
    }
}

impl Housekeeping for PostgresStore {
    verbs! {
        PgTx::begin => engine {
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
        PgTx::look => engine {
            cursor(name: String) -> Option<u64>;
            left_behind(name: String) -> Vec<LeftRun>;
            retention(lifecycle: Option<String>) -> Vec<Retention>;
        }
        Session::look => list {
            sample(filter: Filter, look_at: usize, reach: Option<Time>) -> Sample;
        }
        Session::look => worked {
            took(runs: Vec<RunRow>) -> Vec<Option<Span>>;
        }
        Session::look => stats {
            target_figures(tenant: Option<String>) -> Vec<TargetFigures>;
        }
        Session::look => admin {
            ask_scopes(sql: String) -> Vec<String>;
        }
    }

    fn events_in_brief(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        verb!(self, Session::look, run_id, |tx, run_id| log::events(
            tx,
            run_id,
            after_seq,
            limit,
            log::Effects::Small
        ))
    }

    fn sweep(&self, by: String, limit: usize) -> Reply<'_, Swept> {
        let swept = once!(self.session, PgTx::fresh, PoolKind::Work, |tx| engine::sweep(tx, &by, limit));
        Box::pin(async move {
            let swept = swept.await?;
            if !swept.more {
                self.session.verb(|session| async move { log::index(&session).await }).await?;
                self.session.verb(|session| async move { log::keep_up(&session).await }).await?;
            }
            Ok(swept)
        })
    }

    fn projected(&self, after: u64, limit: usize) -> Reply<'_, Projected> {
        self.session.verb(move |session| async move { log::projected(&session, after, limit).await })
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

    fn advance_clock(&self, by: Span) -> Reply<'_, ()> {
        self.session.verb(move |session| async move { admin::advance_clock(&session, by).await })
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.session.pools()
    }

    fn due(&self, by: Ownership, limit: usize) -> Reply<'_, Due> {
        verb!(self, PgTx::begin, by, |tx, by| engine::due(tx, by, limit))
    }

    fn fire(&self, firings: Vec<Firing>) -> Reply<'_, Each<Option<Vec<Begun>>>> {
        let firings = Arc::new(firings);
        self.session.verb(move |session| {
            let firings = firings.clone();
            async move { fire(&session, &firings).await }
        })
    }
}

type Fired = Option<Vec<Begun>>;

/// Many in one transaction, since each costs as many round trips as all of them. If one of them cannot be, each is tried by
/// itself: it must not take the others with it.
async fn fire(session: &Session, firings: &[Firing]) -> fault::Result<Each<Fired>> {
    match fire_all(session, firings).await {
        Err(Fault::Told(error)) if firings.len() == 1 => Ok(vec![Err(error)]),
        Err(Fault::Told(_)) => {
            let mut each = Vec::with_capacity(firings.len());
            for firing in firings {
                each.push(match fire_all(session, std::slice::from_ref(firing)).await {
                    Ok(mut fired) => Ok(fired.pop().flatten()),
                    Err(Fault::Told(error)) => Err(error),
                    // What was begun before is ours: whoever fires this again has to come back for it.
                    Err(_) => Ok(None),
                });
            }
            Ok(each)
        }
        fired => Ok(fired?.into_iter().map(Ok).collect()),
    }
}

async fn fire_all(session: &Session, firings: &[Firing]) -> fault::Result<Vec<Fired>> {
    let mut tx = PgTx::begin(session).await?;
    let fired = engine::fire(&mut tx, firings).await;
    tx.end(fired).await
}

/// What a tick reads of scopes.
pub fn due_scopes_sql() -> String {
    crate::statement::for_postgres(&engine::due_scopes(), 5).0
}
