//! How those who wait learn of other processes' commits. SQLite has no way to tell of them, so a thread looks at the version
//! of the file, but only while somebody waits: a look is a few system calls.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Notify;

use super::open;

const LOOK: Duration = Duration::from_millis(3);

/// Nothing is written when a time comes (a schedule's, a retry's, the end of a lease), so nobody waits longer than this.
const LONGEST: Duration = Duration::from_secs(1);

/// Tells all who wait of changes, this process's own included. Its thread ends with it: the last connection to a file must be one that writes.
pub struct Notifier {
    path: PathBuf,
    waiters: Arc<Waiters>,
    thread: OnceLock<Option<JoinHandle<()>>>,
}

struct Waiters {
    changed: Arc<Notify>,
    count: Mutex<Count>,
    comes: Condvar,
}

#[derive(Default)]
struct Count {
    waiting: usize,
    is_closed: bool,
}

/// Counts one who waits, for as long as it lives.
struct Waiting<'w>(&'w Waiters);

impl Notifier {
    pub fn new(path: PathBuf, changed: Arc<Notify>) -> Notifier {
        let waiters = Waiters { changed, count: Mutex::default(), comes: Condvar::new() };
        Notifier { path, waiters: Arc::new(waiters), thread: OnceLock::new() }
    }

    /// Until something has changed, or for `at_most`, but no longer than a second.
    pub async fn wait(&self, at_most: Duration) {
        let changed = self.waiters.changed.notified();
        self.begin();
        let _waiting = Waiting::new(&self.waiters);
        let _ = tokio::time::timeout(at_most.min(LONGEST), changed).await;
    }

    fn begin(&self) {
        self.thread.get_or_init(|| {
            let (path, waiters) = (self.path.clone(), self.waiters.clone());
            let look = move || match open::reader(&path) {
                Ok(conn) => waiters.look(&conn),
                Err(fault) => {
                    tracing::warn!(error = %fault.error(), "other processes' changes are noticed later");
                }
            };
            let spawned = thread::Builder::new().name("waypost-others".into()).spawn(look);
            let untold = |error| tracing::warn!(%error, "other processes' changes are noticed later");
            spawned.map_err(untold).ok()
        });
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.waiters.count().is_closed = true;
        self.waiters.comes.notify_all();
        if let Some(thread) = self.thread.take().flatten() {
            let _ = thread.join();
        }
    }
}

impl Waiters {
    fn look(&self, conn: &Connection) {
        // The first look always notifies: something may have been committed before it.
        let mut last = None;
        while self.is_wanted() {
            let version = conn.prepare_cached("PRAGMA data_version");
            let version =
                version.and_then(|mut version| version.query_row([], |row| row.get::<_, i64>(0))).ok();
            if version != last {
                last = version;
                self.changed.notify_waiters();
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits for somebody to wait; false when the store is gone.
    fn is_wanted(&self) -> bool {
        let idle = |count: &mut Count| count.waiting == 0 && !count.is_closed;
        let count = self.comes.wait_while(self.count(), idle).unwrap_or_else(PoisonError::into_inner);
        !count.is_closed
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'w> Waiting<'w> {
    fn new(waiters: &'w Waiters) -> Waiting<'w> {
        waiters.count().waiting += 1;
        waiters.comes.notify_one();
        Waiting(waiters)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count().waiting -= 1;
    }
}
