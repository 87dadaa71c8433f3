//! A claim's way through its queues. The cost does not depend on how many runs are finished, for later, or waiting for a
//! key.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use rusqlite::{OptionalExtension, params};
use serde_json::json;
use waypost_kernel::Time;

use super::slots;
use crate::engine::{Candidate, Room, Scan, Stored};
use crate::seam::verbs::{Claim, PAGE_BYTES};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::row;

const READY: &str = "SELECT due_at, rid FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND due_at <= ?3 AND (due_at, rid) > (?4, ?5) ORDER BY due_at, rid LIMIT ?6";
/// Those that somebody can execute who has these playbooks.
const READY_FOR: &str = "SELECT due_at, rid FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND due_at <= ?3 AND (due_at, rid) > (?4, ?5) AND EXISTS (SELECT 1 FROM run_born b WHERE b.rid = run_now.rid \
    AND (b.playbook IN (SELECT value FROM json_each(?7)) OR ?8 AND b.carried IS NOT NULL)) ORDER BY due_at, rid LIMIT ?6";
const NEXT_PRIORITY: &str = "SELECT max(priority) FROM run_now INDEXED BY run_ready \
  WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 AND priority < ?2";

/// Where a claim stands: each queue is read in its own order, and the best head is given first.
pub struct Cursor {
    lanes: Vec<Lane>,
    /// The playbooks that the claimer has, as JSON, and whether it takes what runs bring along.
    can: Option<(String, bool)>,
}

/// One queue: priority by priority, from the best down; in each from the earliest on.
struct Lane {
    queue: String,
    priority: Option<i64>,
    after: (i64, i64),
    page: VecDeque<(i64, i64)>,
    is_done: bool,
}

pub fn begin(tx: &Tx<'_>, claim: &Claim) -> Result<Scan<Cursor>> {
    let mut rooms = BTreeMap::new();
    let mut lanes = Vec::with_capacity(claim.queues.len());
    for queue in &claim.queues {
        let room = room(tx, queue)?;
        if room != Room::Paused && rooms.insert(queue.clone(), room).is_none() {
            lanes.push(Lane::new(queue, matches!(room, Room::Left(..=0))));
        }
    }
    let can = claim.can.as_ref().map(|can| (json!(can.playbooks).to_string(), can.carried));
    let is_repeat = claim.idempotency_key.is_some();
    Ok(Scan { cursor: Cursor { lanes, can }, rooms, has_abandoned: true, is_repeat })
}

/// How many more of a queue may be held.
pub fn room(tx: &Tx<'_>, queue: &str) -> Result<Room> {
    let sql = "SELECT at_most, paused_at IS NOT NULL FROM queues WHERE name = ?1";
    let found: Option<(Option<i64>, bool)> = tx.find(sql, [queue], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let at_most = match found {
        Some((_, true)) => return Ok(Room::Paused),
        Some((Some(at_most), false)) => at_most,
        Some((None, false)) | None => return Ok(Room::Any),
    };
    let held = "SELECT count(*) FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND queue = ?1";
    let held: i64 = tx.prepare(held)?.query_row([queue], |row| row.get(0))?;
    Ok(Room::Left(at_most - held))
}

impl Cursor {
    pub fn next(&mut self, tx: &Tx<'_>, claim: &Claim, limit: usize) -> Result<Vec<Candidate>> {
        let mut found: Vec<Candidate> = Vec::new();
        let mut bytes = 0;
        // More is asked for when these are taken and there is room for more.
        while found.len() < limit && bytes < PAGE_BYTES {
            for lane in &mut self.lanes {
                lane.fill(tx, self.can.as_ref(), limit - found.len())?;
            }
            let best = self.lanes.iter_mut().enumerate().max_by_key(|(_, lane)| lane.rank());
            let Some((lane, place)) = best.and_then(|(at, lane)| Some((at, lane.next()?))) else { break };
            // What this binary cannot read, or the claimer does not want, stays where it is.
            let stored = row::by_rid(tx, place.1)?.filter(|stored| claim.wants(&stored.row));
            let place = (Time::from_ms(place.0), place.1);
            bytes += stored.as_ref().map_or(0, Stored::weight);
            found.extend(stored.map(|stored| Candidate { stored, lane, place, entry: String::new() }));
        }
        Ok(found)
    }

    pub fn close(&mut self, lane: usize) {
        self.lanes[lane].page.clear();
        self.lanes[lane].is_done = true;
    }

    /// With all that waits for the same keys, so that a hundred thousand of them are not met one by one.
    pub fn set_aside(&mut self, tx: &Tx<'_>, candidates: &[Candidate]) -> Result<usize> {
        let mut keys: Vec<&str> =
            candidates.iter().filter_map(|it| it.stored.row.concurrency_key.as_deref()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut count = 0;
        for key in keys {
            count += slots::set_aside(tx, key)?;
        }
        // Read again from where each stands, without those.
        self.lanes.iter_mut().for_each(|lane| lane.page.clear());
        Ok(count)
    }
}

impl Lane {
    fn new(queue: &str, is_done: bool) -> Lane {
        Lane { queue: queue.to_owned(), priority: None, after: (i64::MIN, 0), page: [].into(), is_done }
    }

    fn fill(&mut self, tx: &Tx<'_>, can: Option<&(String, bool)>, wish: usize) -> Result<()> {
        while self.page.is_empty() && !self.is_done {
            let Some(priority) = self.priority else {
                self.step_down(tx, i64::MAX)?;
                continue;
            };
            let ((at, rid), now, wish) = (self.after, tx.now.ms(), wish.clamp(1, 1_000) as i64);
            let queue = &self.queue;
            let found = match can {
                None => row::places(tx, READY, params![queue, priority, now, at, rid, wish])?,
                Some((playbooks, carried)) => {
                    let values = params![queue, priority, now, at, rid, wish, playbooks, carried];
                    row::places(tx, READY_FOR, values)?
                }
            };
            match found.first() {
                None => self.step_down(tx, priority)?,
                Some(_) => self.page = found.into(),
            }
        }
        Ok(())
    }

    fn step_down(&mut self, tx: &Tx<'_>, from: i64) -> Result<()> {
        self.priority = tx.prepare(NEXT_PRIORITY)?.query_row(params![self.queue, from], |row| row.get(0))?;
        self.after = (i64::MIN, 0);
        self.is_done = self.priority.is_none();
        Ok(())
    }

    /// Best first: higher priority, then earlier, then created before.
    fn rank(&self) -> Option<impl Ord + use<>> {
        let place = self.page.front()?;
        Some((self.priority, Reverse(*place)))
    }

    fn next(&mut self) -> Option<(i64, i64)> {
        self.after = self.page.pop_front()?;
        Some(self.after)
    }
}

pub fn recall_claim(tx: &Tx<'_>, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>> {
    let sql = "SELECT taken FROM claims WHERE worker = ?1 AND key = ?2";
    let taken: Option<String> =
        tx.prepare(sql)?.query_row(params![worker, key], |row| row.get(0)).optional()?;
    let taken: Vec<(i64, u64)> =
        taken.and_then(|text: String| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut found = Vec::new();
    for (rid, fence) in taken {
        found.extend(row::by_rid(tx, rid)?.map(|stored| (stored, fence)));
    }
    Ok(found)
}

pub fn keep_claim(tx: &Tx<'_>, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) -> Result<()> {
    let sql = "INSERT INTO claims(worker, key, taken, until) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (worker, key) \
               DO UPDATE SET taken = excluded.taken, until = excluded.until";
    tx.execute(sql, params![worker, key, json!(taken).to_string(), until.ms()])?;
    Ok(())
}

/// Claims that nobody asks for again.
pub fn forget_claims(tx: &Tx<'_>) -> Result<()> {
    tx.execute("DELETE FROM claims WHERE until < ?1", params![tx.now.ms()])?;
    Ok(())
}
