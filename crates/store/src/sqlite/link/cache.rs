//! What a connection keeps between transactions, and a transaction between its statements.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use rusqlite::Connection;
use waypost_kernel::Phase;

use super::fault::Result;
use super::hash::QuickMap;
use super::session::Tx;
use crate::engine::Stored;
use crate::engine::turns::Turns;
use crate::sqlite::lifecycle_codes::LifecycleCodes;
use crate::tokens::random;

/// Enough for the runs that are under way. Those that wait longer, or are large, are read again.
const MAX_ROWS: usize = 4_096;
/// What the JSON of one takes in memory, and of all.
const ROW_BYTES: usize = 16 * 1024;
const MAX_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub struct Cache {
    pub lifecycles: RefCell<LifecycleCodes>,
    pub rows: RefCell<RowCache>,
    pub turns: RefCell<Turns>,
}

impl Cache {
    pub fn read(conn: &Connection) -> Result<Cache> {
        let lifecycles = RefCell::new(LifecycleCodes::read(conn)?);
        Ok(Cache { lifecycles, rows: RefCell::default(), turns: RefCell::default() })
    }

    /// After a rollback: what was cached since the transaction began may not exist.
    pub fn forget(&self, conn: &Connection) {
        self.rows.borrow_mut().clear();
        if let Ok(known) = LifecycleCodes::read(conn) {
            self.lifecycles.replace(known);
        }
    }
}

/// Runs as this connection wrote them last. They are valid as long as nobody else writes, which `PRAGMA data_version` tells at
/// the beginning of each transaction. A run is then written three times and not read in between.
#[derive(Debug, Default)]
pub struct RowCache {
    by_rid: QuickMap<i64, Stored>,
    by_id: QuickMap<Arc<str>, i64>,
    order: VecDeque<i64>,
    bytes: usize,
    version: i64,
}

impl RowCache {
    /// Whether others have written since the last time.
    pub fn check(&mut self, version: i64) -> bool {
        let is_old = version != self.version;
        if is_old {
            self.clear();
            self.version = version;
        }
        is_old
    }

    pub fn clear(&mut self) {
        self.by_rid.clear();
        self.by_id.clear();
        self.order.clear();
        self.bytes = 0;
    }

    pub fn put(&mut self, mut stored: Stored) {
        // The cache may have an older version of it, from an earlier write of the same verb.
        self.take(stored.rid);
        if stored.row.phase() == Phase::Settled {
            return;
        }
        stored.bytes = stored.weight();
        if stored.bytes > ROW_BYTES {
            return;
        }
        while self.order.len() >= MAX_ROWS || self.bytes + stored.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.take(oldest);
        }
        self.bytes += stored.bytes;
        self.order.push_back(stored.rid);
        self.by_id.insert(stored.row.run.id.clone(), stored.rid);
        self.by_rid.insert(stored.rid, stored);
    }

    /// Takes a row out of the cache. Whoever writes the run puts it back.
    pub fn take(&mut self, rid: i64) -> Option<Stored> {
        let found = self.by_rid.remove(&rid)?;
        self.by_id.remove(&found.row.run.id);
        self.bytes -= found.bytes;
        Some(found)
    }

    pub fn take_id(&mut self, run_id: &str) -> Option<Stored> {
        let rid = *self.by_id.get(run_id)?;
        self.take(rid)
    }
}

impl Tx<'_> {
    /// The random part of a new id. Ids of one transaction rise, as RFC 9562 lets a version 7 do within its
    /// millisecond (26 bits count from somewhere, the rest is random): their index grows at its end alone, instead of
    /// splitting its pages in the middle.
    pub fn random_rising(&self) -> u128 {
        const HIGH: u128 = 0xfff << 64;
        const LOW: u128 = 0x3fff << 48;
        let random = random();
        let count = self.made_ids.get().map_or((random >> 80) & 0x1ff_ffff, |last| last + 1);
        self.made_ids.set(Some(count));
        random & !HIGH & !LOW | (count >> 14 << 64) & HIGH | (count << 48) & LOW
    }

    /// The next `count` places in the log of all runs; gives the first. Nobody else writes during a transaction, so
    /// they are looked up once.
    pub fn positions(&self, count: i64) -> Result<i64> {
        let first = match self.next_position.get() {
            Some(next) => next,
            None => self.prepare("SELECT position FROM next_position")?.query_row([], |row| row.get(0))?,
        };
        self.next_position.set(Some(first + count));
        Ok(first)
    }
}
