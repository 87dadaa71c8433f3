//! One writer thread that commits whatever is waiting as one transaction, and readers beside it.
//!
//! Group commit: a flush costs milliseconds, a decision microseconds. While one transaction is flushed, requests
//! gather for the next. Each runs in a savepoint of its own, and is answered after the commit.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use rusqlite::{Connection, params};
use tokio::sync::{Notify, oneshot};
use waypost_kernel::{Catalog, Time};

use super::open::{self, database};
use crate::error::{Result, StoreError};
use crate::verbs::Reply;

/// More would only make the first ones wait.
const MAX_GROUP: usize = 1_024;
const READERS: usize = 2;

/// What a verb works with: the connection, inside a transaction, and the instant of that transaction.
pub struct Tx<'c> {
    pub conn: &'c Connection,
    pub now: Time,
    catalog: &'c RefCell<Catalog>,
}

type Answer = Box<dyn FnOnce(Option<StoreError>) + Send>;
type Job = Box<dyn FnOnce(&Tx<'_>) -> Answer + Send>;

#[derive(Clone)]
pub struct Session {
    path: Arc<PathBuf>,
    writer: mpsc::Sender<Job>,
    reader: mpsc::Sender<Job>,
    pub changed: Arc<Notify>,
}

impl Session {
    pub fn open(path: &Path) -> Result<Session> {
        let conn = open::writer(path)?;
        let catalog = open::catalog(&conn)?;
        let (writer, jobs) = mpsc::channel::<Job>();
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        spawn("waypost-writer", move || write_loop(&conn, &RefCell::new(catalog), &jobs, &notify))?;
        let (reader, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..READERS {
            let conn = open::reader(path)?;
            let catalog = open::catalog(&conn)?;
            let jobs = jobs.clone();
            spawn("waypost-reader", move || read_loop(&conn, &RefCell::new(catalog), &jobs))?;
        }
        Ok(Session { path: Arc::new(path.to_owned()), writer, reader, changed })
    }

    /// Runs `work` in a write transaction, together with others that are waiting.
    pub fn write<T, F>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        Box::pin(ask(&self.writer, move |tx| tx.savepoint(work)))
    }

    pub fn read<T, F>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        Box::pin(ask(&self.reader, work))
    }

    /// For long looks: a connection and a thread of its own, so that nobody waits behind it.
    pub fn read_apart<T, F>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let path = self.path.clone();
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            spawn("waypost-reader-apart", move || {
                let result = open::reader(&path).and_then(|conn| {
                    let catalog = RefCell::new(open::catalog(&conn)?);
                    transaction(&conn, &catalog, "BEGIN", |tx| work(tx))
                });
                let _ = send.send(result);
            })?;
            receive.await.unwrap_or_else(|_| Err(closed()))
        })
    }
}

async fn ask<T, F>(to: &mpsc::Sender<Job>, work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
{
    let (send, receive) = oneshot::channel();
    let job: Job = Box::new(move |tx| {
        let result = work(tx);
        Box::new(move |failed| {
            let _ = send.send(failed.map_or(result, Err));
        })
    });
    to.send(job).map_err(|_| closed())?;
    receive.await.unwrap_or_else(|_| Err(closed()))
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(|error| StoreError::Unavailable(format!("no thread: {error}")))
}

fn write_loop(conn: &Connection, catalog: &RefCell<Catalog>, jobs: &mpsc::Receiver<Job>, changed: &Notify) {
    while let Ok(first) = jobs.recv() {
        let mut group = vec![first];
        group.extend(jobs.try_iter().take(MAX_GROUP - 1));
        commit_group(conn, catalog, group);
        changed.notify_waiters();
    }
}

/// Nobody is answered before the flush; if that fails, nothing was written and everybody is told.
fn commit_group(conn: &Connection, catalog: &RefCell<Catalog>, group: Vec<Job>) {
    let mut answers = Vec::with_capacity(group.len());
    let outcome = transaction(conn, catalog, "BEGIN IMMEDIATE", |tx| {
        answers.extend(group.into_iter().map(|job| job(tx)));
        Ok(())
    });
    let failed = outcome.err();
    if failed.is_some() {
        // What was added in vain may not be remembered.
        if let Ok(known) = open::catalog(conn) {
            catalog.replace(known);
        }
    }
    for answer in answers {
        answer(failed.clone());
    }
}

fn read_loop(conn: &Connection, catalog: &RefCell<Catalog>, jobs: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let job = match jobs.lock() {
            Ok(jobs) => jobs.recv(),
            Err(_) => return,
        };
        let Ok(job) = job else { return };
        let mut answer = None;
        let outcome = transaction(conn, catalog, "BEGIN", |tx| {
            answer = Some(job(tx));
            Ok(())
        });
        if let Some(answer) = answer {
            answer(outcome.err());
        }
    }
}

fn transaction<T>(
    conn: &Connection,
    catalog: &RefCell<Catalog>,
    begin: &str,
    work: impl FnOnce(&Tx<'_>) -> Result<T>,
) -> Result<T> {
    conn.execute_batch(begin).map_err(|error| database(&error))?;
    let result = clock(conn).and_then(|now| work(&Tx { conn, now, catalog }));
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    if let Err(error) = conn.execute_batch(end) {
        let _ = conn.execute_batch("ROLLBACK");
        return Err(database(&error));
    }
    result
}

/// The database's clock, moved ahead by what tests and demonstrations say.
fn clock(conn: &Connection) -> Result<Time> {
    let ms = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) \
              + coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0)";
    let mut statement = conn.prepare_cached(ms).map_err(|error| database(&error))?;
    statement.query_row([], |row| row.get(0)).map(Time::from_ms).map_err(|error| database(&error))
}

impl Tx<'_> {
    fn savepoint<T>(&self, work: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.run("SAVEPOINT verb")?;
        let result = work(self);
        if result.is_err() {
            self.run("ROLLBACK TO verb")?;
        }
        self.run("RELEASE verb")?;
        result
    }

    fn run(&self, sql: &str) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql).map_err(|error| database(&error))?;
        statement.execute(params![]).map(drop).map_err(|error| database(&error))
    }

    /// The lifecycle that a run was born with, read again from the database if another process added it.
    pub fn lifecycle(&self, name: &str, version: u32) -> Result<Arc<waypost_kernel::Lifecycle>> {
        if let Some(known) = self.catalog.borrow().get(name, version) {
            return Ok(known.clone());
        }
        self.catalog.replace(open::catalog(self.conn)?);
        let known = self.catalog.borrow().get(name, version).cloned();
        known.ok_or_else(|| {
            StoreError::Unusable(format!(
                "this binary does not understand lifecycle {name} version {version}"
            ))
        })
    }

    /// The latest version of a lifecycle by name.
    pub fn latest(&self, name: &str) -> Option<Arc<waypost_kernel::Lifecycle>> {
        if self.catalog.borrow().latest(name).is_none()
            && let Ok(known) = open::catalog(self.conn)
        {
            self.catalog.replace(known);
        }
        self.catalog.borrow().latest(name).cloned()
    }

    pub fn catalog(&self) -> Catalog {
        self.catalog.borrow().clone()
    }

    pub fn add_lifecycle(&self, source: &str) -> Result<Arc<waypost_kernel::Lifecycle>> {
        self.catalog.replace(open::catalog(self.conn)?);
        let added = self.catalog.borrow_mut().add(source);
        let lifecycle = added.map_err(|problems| StoreError::invalid("lifecycle", problems.to_string()))?;
        open::add_lifecycle(self.conn, &lifecycle, source)?;
        Ok(lifecycle)
    }
}
