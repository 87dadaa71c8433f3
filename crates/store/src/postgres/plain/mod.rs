//! Whole batches in one round trip, where nothing needs a decision that depends on what others do meanwhile: `verbs.sql`
//! makes the moves, by the tables that the kernel rendered. What is not plain is left to the general way, which reads,
//! decides and writes.
//!
//! A finish is decided here, on the row as the claim gave it; the write counts only if that is still its seq.

mod claim;
mod enqueue;
mod finish;
mod puts;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_postgres::Row;
use waypost_kernel::run::Text;
use waypost_kernel::{Actor, Phase, Run, Span, Time};

use super::fault::Result;
use super::sql::Columns;
use crate::run::RunRow;
use crate::verbs::FinishWrite;
pub use claim::{Taken, claim};
pub use enqueue::enqueue;
pub use finish::finish;
pub use puts::{Holding, put};

/// One call's share: the events of a statement are counted with 16 bits.
const MOST: usize = 16_000;
/// Claimed rows that are remembered for their finish.
const REMEMBERED: usize = 20_000;

/// Held runs that are remembered with their items.
const HELD: usize = 2_000;

/// What the hot path remembers. All of it may be forgotten or wrong: the database compares.
#[derive(Debug, Default)]
pub struct Plain(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    /// The database's clock as it was last seen, and when that was.
    clock: Option<(Instant, Time)>,
    lanes: HashMap<String, Lanes>,
    /// Lanes that are known to be there.
    opened: HashSet<(String, i16)>,
    claimed: HashMap<Text, (i64, Box<RunRow>)>,
    claimed_before: HashMap<Text, (i64, Box<RunRow>)>,
    /// Runs that their holders put items into.
    held: HashMap<Text, Holding>,
    held_before: HashMap<Text, Holding>,
}

/// A queue's lanes, best priority first, each with its revision.
#[derive(Clone, Debug, Default)]
struct Lanes {
    rows: i64,
    lanes: Vec<(i16, i64)>,
}

impl Plain {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_clock(&self, now: Time) {
        self.memory().clock = Some((Instant::now(), now));
    }

    /// What the database's clock says now, about.
    fn now(&self) -> Option<Time> {
        let (seen, now) = self.memory().clock?;
        Some(now + Span::from_micros(seen.elapsed().as_micros() as i64))
    }

    /// Rows of queue, priority, revision and how many they stand for, as just read.
    pub fn set_lanes(&self, queues: &[&str], rows: &[Row]) -> Result<()> {
        let mut found: HashMap<String, Lanes> =
            queues.iter().map(|queue| ((*queue).to_owned(), Lanes::default())).collect();
        for row in rows {
            let columns = Columns(row);
            let lanes = found.entry(columns.get(0)?).or_default();
            lanes.rows += columns.get::<i64>(3)?;
            lanes.lanes.push((columns.get(1)?, columns.get(2)?));
        }
        self.memory().lanes.extend(found);
        Ok(())
    }

    fn lanes(&self, queue: &str) -> Option<Lanes> {
        self.memory().lanes.get(queue).cloned()
    }

    /// After a commit that made them, or found them made.
    pub fn add_lanes<'a>(&self, lanes: impl Iterator<Item = (&'a str, i16)>) {
        let mut memory = self.memory();
        for (queue, priority) in lanes {
            if memory.opened.len() < MOST
                && !memory.opened.iter().any(|(name, level)| (name.as_str(), *level) == (queue, priority))
            {
                memory.opened.insert((queue.to_owned(), priority));
            }
        }
    }

    fn lanes_opened(&self) -> HashSet<(String, i16)> {
        self.memory().opened.clone()
    }

    fn remember<'a>(&self, claims: impl ExactSizeIterator<Item = (i64, &'a RunRow)>) {
        let mut memory = self.memory();
        if memory.claimed.len() + claims.len() > REMEMBERED {
            memory.claimed_before = std::mem::take(&mut memory.claimed);
        }
        for (rid, row) in claims {
            memory.claimed.insert(row.run.id.clone(), (rid, Box::new(row.clone())));
        }
    }

    pub fn hold(&self, left: impl Iterator<Item = Holding>) {
        let mut memory = self.memory();
        for holding in left {
            if memory.held.len() >= HELD {
                memory.held_before = std::mem::take(&mut memory.held);
            }
            memory.held.insert(holding.id().clone(), holding);
        }
    }

    fn let_go(&self, run_id: &str) -> Option<Holding> {
        let mut memory = self.memory();
        memory.held.remove(run_id).or_else(|| memory.held_before.remove(run_id))
    }

    fn recall(&self, writes: &[FinishWrite]) -> Vec<Option<(i64, Box<RunRow>)>> {
        let mut memory = self.memory();
        let mut take = |id: &str| memory.claimed.remove(id).or_else(|| memory.claimed_before.remove(id));
        writes.iter().map(|write| take(&write.run_id)).collect()
    }
}

/// A claim of it needs no decision: nothing guards it, no items follow, no slot is counted.
pub fn is_claimed_plainly(row: &RunRow) -> bool {
    let lifecycle = &row.lifecycle;
    let claims = || {
        let rows = lifecycle.transitions_from(row.run.state);
        rows.filter(|it| &*it.command == "claim" && it.by.contains(Actor::Worker) && it.from != it.to)
    };
    row.phase() == Phase::Ready
        && row.concurrency_key.is_none()
        && has_no_items(&row.run)
        && claims().count() == 1
        && claims().all(|claim| claim.guards.is_empty())
}

fn has_no_items(run: &Run) -> bool {
    run.tallies.iter().all(|tally| tally.by_state.iter().all(|count| *count == 0))
}
