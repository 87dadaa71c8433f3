//! One writer thread that commits whatever is waiting as one transaction, and readers beside it.
//!
//! Group commit: a flush costs milliseconds, a decision microseconds. While one transaction is flushed, requests
//! gather for the next. Each runs in a savepoint of its own, and is answered after the commit.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::{Notify, oneshot};
use waypost_kernel::Time;

use super::cache::Cache;
use super::fault::{self, Fault};
use super::job_queue::JobQueue;
use super::notifier::Notifier;
use super::open;
use super::statements::Statements;
use crate::seam::error::{Result, StoreError};
use crate::seam::stats::PoolStatus;
use crate::seam::verbs::Reply;

/// Jobs in one transaction. More would only make the first ones wait.
const MAX_GROUP: usize = 1_024;
const READERS: usize = 2;

/// What a verb works with: the connection, inside a transaction, and the instant of that transaction.
pub struct Tx<'c> {
    pub conn: &'c Connection,
    pub now: Time,
    pub cache: &'c Cache,
    pub statements: Statements<'c>,
    pub next_position: Cell<Option<i64>>,
    pub made_ids: Cell<Option<u128>>,
    /// Whether nothing was written yet, so that what fails can be undone as a whole.
    first: Cell<bool>,
    /// Why the whole transaction is gone: SQLite undoes all of it when the disk is full.
    lost: Cell<Option<StoreError>>,
}

pub type Answer = Box<dyn FnOnce(Option<StoreError>) + Send>;
/// Done in a transaction, or told why there is none.
pub type Job = Box<dyn FnOnce(Result<&Tx<'_>>) -> Answer + Send>;

#[derive(Clone)]
pub struct Session {
    path: Arc<PathBuf>,
    /// Before the queues: its connection only reads, and must be closed when the writer closes the file.
    pub notifier: Arc<Notifier>,
    writer: JobQueue,
    reader: JobQueue,
    /// Behind the queues: when it goes, no queue is left, and the threads end.
    _thread: Arc<WriterThread>,
}

/// The writer's thread, which ends after the readers'. Whoever drops the last session waits until it has closed the file: the last process
/// that leaves thereby takes the log into it, and a plain copy of the file is whole.
struct WriterThread(Option<JoinHandle<()>>);

impl Drop for WriterThread {
    fn drop(&mut self) {
        let own = thread::current().id();
        if let Some(thread) = self.0.take().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

impl Session {
    pub fn open(path: &Path) -> Result<Session> {
        let conn = open::writer(path)?;
        let (reader, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let conn = open::reader(path)?;
            let cache = Cache::read(&conn)?;
            let jobs = jobs.clone();
            readers.push(spawn("waypost-reader", move || read_loop(&conn, &cache, &jobs))?);
        }
        let cache = Cache::read(&conn)?;
        let (writer, jobs) = mpsc::channel::<Job>();
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        let write = move || {
            write_loop(&conn, &cache, &jobs, &notify);
            // Only a connection that may write takes the log into the file, if it is the last.
            readers.into_iter().for_each(|reader| drop(reader.join()));
        };
        let thread = Arc::new(WriterThread(Some(spawn("waypost-writer", write)?)));
        let (writer, reader) =
            (JobQueue::new("writer", 1, writer), JobQueue::new("readers", READERS, reader));
        let notifier = Arc::new(Notifier::new(path.to_owned(), changed));
        Ok(Session { path: Arc::new(path.to_owned()), writer, reader, notifier, _thread: thread })
    }

    pub fn pools(&self) -> Vec<PoolStatus> {
        vec![self.writer.status(), self.reader.status()]
    }

    /// Runs `work` in a write transaction, together with others that are waiting.
    pub fn write<T, F>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> fault::Result<T> + Send + 'static,
    {
        Box::pin(self.writer.ask(move |tx| tx.apart(work)))
    }

    /// The same, and lets the caller do what needs no writer: `then` runs in the caller's task.
    pub fn write_then<T, U, F>(&self, work: F, then: fn(T) -> Result<U>) -> Reply<'_, U>
    where
        T: Send + 'static,
        U: Send + 'static,
        F: FnOnce(&Tx<'_>) -> fault::Result<T> + Send + 'static,
    {
        let answer = self.write(work);
        Box::pin(async move { then(answer.await?) })
    }

    pub fn read<T, F>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> fault::Result<T> + Send + 'static,
    {
        Box::pin(self.reader.ask(work))
    }

    /// For long reads: on a connection and a thread of its own, so that nobody waits behind it.
    pub fn read_apart<T, F>(&self, work: F) -> Reply<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> fault::Result<T> + Send + 'static,
    {
        let path = self.path.clone();
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            spawn("waypost-reader-apart", move || {
                let result = open::reader(&path).and_then(|conn| {
                    let cache = Cache::read(&conn)?;
                    transaction(&conn, &cache, "BEGIN", |tx| work(tx))
                });
                let _ = send.send(result.map_err(StoreError::from));
            })?;
            receive.await.unwrap_or_else(|_| Err(closed()))
        })
    }
}

pub fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map_err(|error| StoreError::Unavailable(format!("no thread: {error}")))
}

fn write_loop(conn: &Connection, cache: &Cache, jobs: &mpsc::Receiver<Job>, changed: &Notify) {
    while let Ok(first) = jobs.recv() {
        let before = conn.total_changes();
        commit_group(conn, cache, first, jobs);
        // A claim that found nothing must not call for the next one.
        if conn.total_changes() != before {
            changed.notify_waiters();
        }
    }
}

/// Commits the jobs that wait as one transaction. Nobody is answered before the flush; if it fails, nothing was written and all of
/// them get the error. So do all that wait when the transaction cannot begin.
fn commit_group(conn: &Connection, cache: &Cache, first: Job, jobs: &mpsc::Receiver<Job>) {
    let mut first = Some(first);
    let mut answers = Vec::new();
    let outcome = transaction(conn, cache, "BEGIN IMMEDIATE", |tx| {
        tx.forget_if_others_wrote()?;
        answers.extend(first.take().map(|job| job(Ok(tx))));
        while answers.len() < MAX_GROUP && !conn.is_autocommit() {
            let Ok(job) = jobs.try_recv() else { break };
            answers.push(job(Ok(tx)));
        }
        tx.lost.take().map_or(Ok(()), |lost| Err(lost.into()))
    });
    let failed = outcome.err().map(StoreError::from);
    if failed.is_some() {
        cache.forget(conn);
    }
    if let (Some(first), Some(error)) = (first, &failed) {
        let waiting = std::iter::once(first).chain(jobs.try_iter()).take(MAX_GROUP);
        answers.extend(waiting.map(|job| job(Err(error.clone()))));
    }
    for answer in answers {
        answer(failed.clone());
    }
}

fn read_loop(conn: &Connection, cache: &Cache, jobs: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let Ok(Ok(job)) = jobs.lock().map(|jobs| jobs.recv()) else { return };
        let mut job = Some(job);
        let mut answer = None;
        let outcome = transaction(conn, cache, "BEGIN", |tx| {
            answer = job.take().map(|job| job(Ok(tx)));
            Ok(())
        });
        let failed = outcome.err().map(StoreError::from);
        let answer = answer.or_else(|| job.map(|job| job(Err(failed.clone().unwrap_or_else(closed)))));
        if let Some(answer) = answer {
            answer(failed);
        }
    }
}

fn transaction<T>(
    conn: &Connection,
    cache: &Cache,
    begin: &str,
    work: impl FnOnce(&Tx<'_>) -> fault::Result<T>,
) -> fault::Result<T> {
    run(conn, begin)?;
    let result = clock(conn).and_then(|now| {
        let tx = Tx {
            conn,
            now,
            cache,
            statements: Statements::default(),
            next_position: Cell::new(None),
            made_ids: Cell::new(None),
            first: Cell::new(true),
            lost: Cell::new(None),
        };
        work(&tx)
    });
    if conn.is_autocommit() {
        return result.and(Err(StoreError::Unavailable("the transaction was undone".into()).into()));
    }
    if let Err(error) = run(conn, if result.is_ok() { "COMMIT" } else { "ROLLBACK" }) {
        let _ = conn.execute_batch("ROLLBACK");
        return Err(error);
    }
    result
}

fn run(conn: &Connection, sql: &str) -> fault::Result<()> {
    let mut statement = conn.prepare_cached(sql)?;
    statement.execute([])?;
    Ok(())
}

/// The database's clock, moved ahead by what tests and demonstrations say.
fn clock(conn: &Connection) -> fault::Result<Time> {
    let ms = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) \
              + coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'clock_ahead_ms'), 0)";
    let mut statement = conn.prepare_cached(ms)?;
    Ok(statement.query_row([], |row| row.get(0)).map(Time::from_ms)?)
}

impl Tx<'_> {
    /// Undone by itself if it fails. The first of a group needs no savepoint for that, which would copy every page
    /// that it touches.
    fn apart<T>(&self, work: impl FnOnce(&Tx<'_>) -> fault::Result<T>) -> fault::Result<T> {
        if self.first.replace(false) {
            return self.first_of_group(work);
        }
        run(self.conn, "SAVEPOINT verb")?;
        let before = self.conn.total_changes();
        let result = work(self);
        if let Err(fault) = &result
            && self.conn.is_autocommit()
        {
            self.lost.set(Some(fault.error().clone()));
            return result;
        }
        if result.is_err() {
            run(self.conn, "ROLLBACK TO verb")?;
            if self.conn.total_changes() != before {
                self.cache.rows.borrow_mut().clear();
            }
        }
        run(self.conn, "RELEASE verb")?;
        result
    }

    fn first_of_group<T>(&self, work: impl FnOnce(&Tx<'_>) -> fault::Result<T>) -> fault::Result<T> {
        let before = self.conn.total_changes();
        let result = work(self);
        let Err(error) = result.as_ref().map_err(Fault::error) else { return result };
        let refused = !matches!(error, StoreError::Unavailable(_) | StoreError::Unusable(_));
        if refused && self.conn.total_changes() == before {
            return result;
        }
        if self.conn.is_autocommit() {
            self.lost.set(Some(error.clone()));
            return result;
        }
        self.cache.rows.borrow_mut().clear();
        self.next_position.set(None);
        // Others may write in between: the cache is empty by now, and the next read finds what they wrote.
        if let Err(error) = run(self.conn, "ROLLBACK").and_then(|()| run(self.conn, "BEGIN IMMEDIATE")) {
            self.lost.set(Some(error.into()));
        }
        result
    }

    /// Cached rows are valid until another connection commits.
    fn forget_if_others_wrote(&self) -> fault::Result<()> {
        let version = self.prepare("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        let is_old = self.cache.rows.borrow_mut().check(version);
        if is_old { self.learn() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Tested = std::result::Result<(), Box<dyn std::error::Error>>;

    /// What the engine itself writes is judged by the file as well.
    #[test]
    fn the_engine_s_own_connection_is_refused_what_no_lifecycle_has() -> Tested {
        let folder = tempfile::tempdir()?;
        let conn = open::writer(&folder.path().join("waypost.db")).map_err(StoreError::from)?;
        let state = |name: &str| {
            format!("(SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = '{name}')")
        };
        let birth = |name: &str| {
            format!(
                "INSERT INTO run_now(state, seq, queue, due_at, last_command) VALUES ({}, 1, 'q', 1, 'create')",
                state(name)
            )
        };
        let born = "INSERT INTO run_born(rid, position, run_id, tenant, state, at, command, actor, who) \
                    SELECT rid, 1, 'r', 'default', state, 1, 'create', 'client', 'x' FROM run_now";
        let event = "INSERT INTO run_events(position, rid, seq, at, command, src, dst, actor, who) \
                     SELECT 2, rid, 2, 1, 'note', state, state, 'worker', 'x' FROM run_now";
        conn.execute_batch(&[&*birth("queued"), born, event].join(";"))?;
        for sql in [
            birth("running"),
            format!("UPDATE run_now SET state = {}, seq = 2, finished_at = 1", state("success")),
            "UPDATE run_now SET seq = 0".into(),
            "UPDATE run_now SET claimed_by = 'x'".into(),
            "UPDATE run_now SET details = '{}'".into(),
            "UPDATE run_events SET who = 'y'".into(),
            "UPDATE run_born SET who = 'y'".into(),
            "DELETE FROM run_events".into(),
            "DELETE FROM run_born".into(),
            "DELETE FROM run_now".into(),
        ] {
            let Err(said) = conn.execute_batch(&sql) else {
                return Err(format!("was accepted: {sql}").into());
            };
            let words = ["APPEND_ONLY", "IMMUTABLE", "INVALID_TRANSITION"];
            assert!(words.iter().any(|word| said.to_string().contains(word)), "{sql}: {said}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn whoever_leaves_last_takes_the_log_into_the_file() -> Tested {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("waypost.db");
        for _ in 0..20 {
            let session = Session::open(&path)?;
            session.write(|tx| Ok(tx.conn.execute_batch("CREATE TABLE x(y); DROP TABLE x")?)).await?;
            session.notifier.wait(std::time::Duration::from_millis(1)).await;
            drop(session);
            assert!(!folder.path().join("waypost.db-wal").exists());
        }
        Ok(())
    }

    /// Without the wait before it: a file that another process keeps locked is not a store that is closed.
    #[tokio::test]
    async fn everybody_who_waits_is_told_why_a_transaction_cannot_begin() -> Tested {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("waypost.db");
        let conn = open::writer(&path).map_err(StoreError::from)?;
        conn.busy_timeout(std::time::Duration::ZERO)?;
        let cache = Cache::read(&conn).map_err(StoreError::from)?;
        let other = Connection::open(&path)?;
        other.execute_batch("BEGIN IMMEDIATE")?;
        let (send, jobs) = mpsc::channel();
        let queue = JobQueue::new("writer", 1, send);
        let writer = thread::spawn(move || write_loop(&conn, &cache, &jobs, &Notify::new()));
        let (first, second) = tokio::join!(queue.ask(|_| Ok(())), queue.ask(|_| Ok(())));
        for told in [first, second] {
            let told = told.expect_err("it is locked").to_string();
            assert!(told.contains("another process has held it"), "{told}");
        }
        other.execute_batch("ROLLBACK")?;
        queue.ask(|_| Ok(())).await?;
        drop(queue);
        assert!(writer.join().is_ok());
        Ok(())
    }
}
