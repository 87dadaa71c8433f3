//! Transactions on pooled connections, in tasks of their own.
//!
//! Whoever asks for a verb may go away at any time: a future that is dropped halfway must not leave a connection inside
//! a transaction in the pool. So each verb runs in a task that comes to its end, and a [`Tx`] that is dropped without
//! having ended takes its connection with it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use deadpool_postgres::{Object, Pool};
use futures_util::future::{join, try_join};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};
use waypost_kernel::{Lifecycle, Time};

use super::address::Address;
use super::fault::{Fault, Patience, Result, damaged};
use super::notifier::Notifier;
use super::open;
use crate::engine::turns::Turns;
use crate::postgres::lifecycle_codes::{LifecycleCodes, check_room};
use crate::postgres::log::Gaps;
use crate::postgres::schema;
use crate::postgres::sql::{self, Args, Columns, args};
use crate::postgres::tables::cursors::LaneCursors;
use crate::postgres::tables::memory::Memory;
use crate::rules::lifecycles::{added, stored_source};
use crate::seam::error::StoreError;
use crate::seam::stats::PoolStatus;
use crate::seam::verbs::Reply;

const CONNECTIONS: usize = 10;
/// Heartbeats have their own: a claim that waits for its turn must not cost anybody a lease.
const HEARTBEAT_CONNECTIONS: usize = 2;

/// Set for the transaction alone, because a pooler may give the session to another afterwards. Compiling a plan takes longer
/// than any of ours runs. A process that is stopped within a transaction keeps its rows from whoever takes its runs over for as long as it may idle.
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '20s'; SET LOCAL jit = off";
const BEGIN_LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '30s'; \
  SET LOCAL idle_in_transaction_session_timeout = '60s'; SET LOCAL jit = off";

#[derive(Debug)]
pub struct Shared {
    pool: Pool,
    heartbeats: Pool,
    known: RwLock<Arc<LifecycleCodes>>,
    pub cursors: Mutex<LaneCursors>,
    pub turns: Mutex<Turns>,
    pub gaps: Mutex<Gaps>,
    pub notifier: Notifier,
    pub memory: Memory,
}

#[derive(Clone, Debug)]
pub struct Session(pub Arc<Shared>);

/// Which of the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    Work,
    Heartbeat,
}

impl Session {
    pub async fn open(address: Address) -> Result<Session, StoreError> {
        let missing = || StoreError::Unusable("the database has no tables".to_owned());
        Session::open_as(address, true).await?.ok_or_else(missing)
    }

    /// None: there is no schema, and none is made.
    pub async fn open_existing(address: Address) -> Result<Option<Session>, StoreError> {
        Session::open_as(address, false).await
    }

    async fn open_as(address: Address, makes_schema: bool) -> Result<Option<Session>, StoreError> {
        let (pool, heartbeats) =
            (open::pool(&address, CONNECTIONS)?, open::pool(&address, HEARTBEAT_CONNECTIONS)?);
        let known = Session::prepare(&pool, makes_schema).await.map_err(Fault::into_error)?;
        let Some(known) = known else { return Ok(None) };
        Ok(Some(Session(Arc::new(Shared {
            pool,
            heartbeats,
            known: RwLock::new(Arc::new(known)),
            cursors: Mutex::default(),
            turns: Mutex::default(),
            gaps: Mutex::default(),
            notifier: Notifier::new(address),
            memory: Memory::default(),
        }))))
    }

    pub fn pools(&self) -> Vec<PoolStatus> {
        let status = |name: &'static str, pool: &Pool| {
            let status = pool.status();
            PoolStatus {
                name,
                most: status.max_size,
                open: status.size,
                idle: status.available,
                waiting: status.waiting,
            }
        };
        vec![status("work", &self.0.pool), status("heartbeats", &self.0.heartbeats)]
    }

    /// A database without a schema gets it, if it may; one of another version is refused.
    async fn prepare(pool: &Pool, makes_schema: bool) -> Result<Option<LifecycleCodes>> {
        let client = pool.get().await?;
        let versions = schema::versions(&client).await?;
        if versions.is_empty() {
            if !makes_schema {
                return Ok(None);
            }
            schema::up(&client).await?;
            schema::versions(&client).await?.check()?;
        } else {
            versions.check()?;
        }
        LifecycleCodes::read(&client).await.map(Some)
    }

    /// Runs a verb to its end, whatever becomes of who asked.
    pub fn once<T, W>(&self, work: W) -> Reply<'static, T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        to_its_end(async move { work.await.map_err(Fault::into_error) })
    }

    /// Runs a verb to its end, whatever becomes of who asked; again, if it failed without having written.
    pub fn verb<T, F, W>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: Fn(Session) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T>> + Send,
    {
        let session = self.clone();
        to_its_end(async move {
            let mut patience = Patience::default();
            loop {
                match work(session.clone()).await {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => patience.with(fault).await?,
                }
            }
        })
    }

    pub async fn begin(&self) -> Result<Tx> {
        self.begin_as(PoolKind::Work, BEGIN).await
    }

    pub async fn begin_on(&self, pool: PoolKind) -> Result<Tx> {
        self.begin_as(pool, BEGIN).await
    }

    /// All of it sees the same instant, and nothing is written.
    pub async fn look(&self) -> Result<Tx> {
        self.begin_as(PoolKind::Work, BEGIN_LOOK).await
    }

    async fn begin_as(&self, pool: PoolKind, begin: &str) -> Result<Tx> {
        let client = self.pool(pool).get().await?;
        let mut tx = Tx {
            client: Some(client),
            now: Time::default(),
            session: self.clone(),
            wrote: AtomicBool::new(false),
            made_ready: AtomicBool::new(false),
        };
        let begun = async { Ok(tx.client()?.batch_execute(begin).await?) };
        let clock = async { Ok(tx.client()?.query_typed_one("SELECT waypost.now()", &[]).await?) };
        let read = try_join(begun, clock).await;
        match read.and_then(|((), row)| Ok(sql::time(Columns(&row).get(0)?))) {
            Ok(now) => {
                tx.now = now;
                self.0.memory.see_clock(now);
                Ok(tx)
            }
            Err(fault) => tx.end(Err(fault)).await,
        }
    }

    /// One statement that is a transaction by itself. `writes`: what broke on the way may have been written.
    pub async fn statement(
        &self,
        pool: PoolKind,
        writes: bool,
        sql: &str,
        values: &Args<'_>,
    ) -> Result<(Vec<Row>, Object)> {
        let client = self.pool(pool).get().await?;
        match client.query_typed(sql, values).await {
            Ok(rows) => Ok((rows, client)),
            Err(error) => {
                // A server that only reads has surely not written.
                let sure = !writes || error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
                let fault = Fault::from(error);
                if matches!(fault, Fault::Broken(_)) {
                    drop(Object::take(client));
                    self.drop_idle();
                }
                Err(if sure { fault } else { self.unsure(fault) })
            }
        }
    }

    fn pool(&self, pool: PoolKind) -> &Pool {
        match pool {
            PoolKind::Work => &self.0.pool,
            PoolKind::Heartbeat => &self.0.heartbeats,
        }
    }

    /// A commit without an answer may have happened: it is not tried again.
    fn unsure(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Broken(error) => {
                self.drop_idle();
                let words =
                    format!("{error}: the connection broke during the commit; look whether it was written");
                Fault::Told(StoreError::Unavailable(words))
            }
            other => other,
        }
    }

    pub fn known(&self) -> Arc<LifecycleCodes> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn learn(&self, client: &Client) -> Result<Arc<LifecycleCodes>> {
        let known = Arc::new(LifecycleCodes::read(client).await?);
        *self.0.known.write().unwrap_or_else(PoisonError::into_inner) = known.clone();
        Ok(known)
    }

    /// The lifecycles as they are in the database now.
    pub async fn learned(&self) -> Result<Arc<LifecycleCodes>> {
        let tx = self.look().await?;
        let learned = match tx.client() {
            Ok(client) => self.learn(client).await,
            Err(fault) => Err(fault),
        };
        tx.end(learned).await
    }

    /// After the server went away or changed its role: no connection to what it was is used again.
    fn drop_idle(&self) {
        self.0.pool.retain(|_, _| false);
        self.0.heartbeats.retain(|_, _| false);
    }
}

fn to_its_end<T: Send + 'static>(
    task: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Reply<'static, T> {
    Box::pin(async move {
        let stopped = |error| Err(StoreError::Unavailable(format!("the verb was stopped: {error}")));
        tokio::spawn(task).await.unwrap_or_else(stopped)
    })
}

/// What a verb works with: a connection, inside a transaction, and the instant of that transaction.
#[derive(Debug)]
pub struct Tx {
    client: Option<Object>,
    pub now: Time,
    pub session: Session,
    wrote: AtomicBool,
    made_ready: AtomicBool,
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

impl Tx {
    pub fn client(&self) -> Result<&Client> {
        self.client.as_deref().map(|client| &**client).ok_or_else(|| damaged("the transaction is over"))
    }

    pub async fn query(&self, sql: &str, values: &Args<'_>) -> Result<Vec<Row>> {
        Ok(self.client()?.query_typed(sql, values).await?)
    }

    pub async fn one(&self, sql: &str, values: &Args<'_>) -> Result<Row> {
        Ok(self.client()?.query_typed_one(sql, values).await?)
    }

    pub async fn run(&self, sql: &str, values: &Args<'_>) -> Result<u64> {
        Ok(self.client()?.execute_typed(sql, values).await?)
    }

    /// Who waits for a change is told after the commit; other processes too, if there is work for them.
    pub fn has_written(&self, made_ready: bool) {
        self.wrote.store(true, Ordering::Relaxed);
        self.made_ready.fetch_or(made_ready, Ordering::Relaxed);
    }

    /// Ends the transaction as its outcome says. Only what is committed is answered.
    pub async fn end<T>(self, outcome: Result<T>) -> Result<T> {
        self.ended(None, outcome).await
    }

    /// The same, with a statement that is sent together with the commit.
    pub async fn end_with<T>(self, sql: &str, values: &Args<'_>, outcome: Result<T>) -> Result<T> {
        self.ended(Some((sql, values)), outcome).await
    }

    async fn ended<T>(mut self, last: Option<(&str, &Args<'_>)>, outcome: Result<T>) -> Result<T> {
        let Some(client) = self.client.take() else { return outcome };
        match outcome {
            Ok(answer) => match commit(&client, last).await {
                Ok(()) => {
                    if *self.wrote.get_mut() {
                        self.session.0.notifier.notify(*self.made_ready.get_mut(), &client).await;
                    }
                    Ok(answer)
                }
                Err(error) => {
                    drop(Object::take(client));
                    Err(self.session.unsure(error.into()))
                }
            },
            Err(Fault::Broken(error)) => {
                drop(Object::take(client));
                self.session.drop_idle();
                Err(Fault::Broken(error))
            }
            Err(fault) => {
                if client.batch_execute("ROLLBACK").await.is_err() {
                    drop(Object::take(client));
                }
                Err(fault)
            }
        }
    }

    /// The lifecycles, read again from the database if a number is met that another process added.
    pub async fn known_with(&self, codes: impl IntoIterator<Item = i16>) -> Result<Arc<LifecycleCodes>> {
        let known = self.session.known();
        if codes.into_iter().all(|code| known.state(code).is_some()) {
            return Ok(known);
        }
        self.session.learn(self.client()?).await
    }

    /// The lifecycles as they are now, whoever added them.
    pub async fn known_now(&self) -> Result<Arc<LifecycleCodes>> {
        let known = self.session.known();
        let revision: i64 = Columns(&self.one("SELECT waypost.known()", &[]).await?).get(0)?;
        if revision == known.revision { Ok(known) } else { self.session.learn(self.client()?).await }
    }

    pub async fn add_lifecycle(&self, tenant: &str, source: &str) -> Result<Arc<Lifecycle>> {
        let client = self.client()?;
        self.run("SELECT pg_advisory_xact_lock($1)", args![schema::LOCK]).await?;
        let lifecycle = added(&LifecycleCodes::read(client).await?.catalog, tenant, source)?;
        let sql = "SELECT 1 FROM waypost.lifecycles WHERE name = $1 AND version = $2";
        if self.query(sql, args![&*lifecycle.name, lifecycle.version as i32]).await?.is_empty() {
            check_room(self, &lifecycle).await?;
            client.batch_execute(&schema::definition(&lifecycle, &stored_source(&lifecycle, source))).await?;
        }
        Ok(lifecycle)
    }
}

/// After a statement that failed the commit is a rollback, and says nothing of it.
async fn commit(client: &Client, last: Option<(&str, &Args<'_>)>) -> Result<(), tokio_postgres::Error> {
    let Some((sql, values)) = last else { return client.batch_execute("COMMIT").await };
    let (written, committed) = join(client.execute_typed(sql, values), client.batch_execute("COMMIT")).await;
    written.and(committed)
}
