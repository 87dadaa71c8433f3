//! What a process remembers of the database: its clock, and the held runs that it wrote last. All of it may be
//! forgotten or wrong: a write compares.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use waypost_kernel::run::Text;
use waypost_kernel::{Phase, Span, Time};

use crate::engine::{Stored, StoredItem};

/// Rows that are remembered at least; twice as many at most.
const ROWS: usize = 20_000;
/// And what their JSON takes in memory. What is larger is read again each time.
const BYTES: usize = 16 * 1024 * 1024;
const ROW_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    clock: Option<Clock>,
    rows: HashMap<Text, Remembered>,
    /// Of what was put into `rows`.
    bytes: usize,
    /// Rows that were there when `rows` was full.
    older: HashMap<Text, Remembered>,
}

/// The database's clock as it was last seen, and when that was.
#[derive(Clone, Copy, Debug)]
struct Clock {
    seen: Instant,
    time: Time,
}

/// A run as this process wrote it last, and those of its items that are under way. Of the others nothing is known.
#[derive(Clone, Debug)]
pub struct Remembered {
    pub stored: Stored,
    pub items: Vec<StoredItem>,
}

impl Memory {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer says what the clock was at some instant before it came: of two, the later one is nearer to the truth.
    pub fn see_clock(&self, time: Time) {
        let seen = Clock { seen: Instant::now(), time };
        let mut inner = self.inner();
        let known = inner.clock.map(Clock::now);
        // A clock that was set back is believed too.
        let off = Span::from_seconds(1);
        if known.is_none_or(|known| time >= known || known - time > off) {
            inner.clock = Some(seen);
        }
    }

    /// About what the database's clock says now, and never ahead of it by more than it was set back.
    pub fn now(&self) -> Option<Time> {
        self.inner().clock.map(Clock::now)
    }

    pub fn put(&self, rows: impl Iterator<Item = Remembered>) {
        let mut inner = self.inner();
        for row in rows.filter(|row| row.stored.row.phase() == Phase::Held) {
            let bytes = row.stored.weight();
            if bytes > ROW_BYTES {
                inner.older.remove(&row.stored.row.run.id);
                inner.rows.remove(&row.stored.row.run.id);
                continue;
            }
            if inner.rows.len() >= ROWS || inner.bytes >= BYTES {
                inner.older = std::mem::take(&mut inner.rows);
                inner.bytes = 0;
            }
            inner.bytes += bytes;
            inner.rows.insert(row.stored.row.run.id.clone(), row);
        }
    }

    /// Whoever takes one and writes it puts it back.
    pub fn take(&self, run_id: &str) -> Option<Remembered> {
        let mut inner = self.inner();
        inner.rows.remove(run_id).or_else(|| inner.older.remove(run_id))
    }
}

impl Clock {
    fn now(self) -> Time {
        self.time + Span::from_micros(self.seen.elapsed().as_micros() as i64)
    }
}
