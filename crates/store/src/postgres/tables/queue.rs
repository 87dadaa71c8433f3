//! Reading queues for a claim: lane by lane, each from where this process stopped.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::PoisonError;
use std::time::Instant;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use waypost_kernel::Time;

use super::arrays::Parameters;
use super::cursors::{End, Lane, Start};
use super::{PgTx, rows};
use crate::engine::{Candidate, Room, Scan, Stored, TimeKey};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result as Outcome;
use crate::postgres::link::session::Session;
use crate::postgres::sql::{Columns, args, stamp};
use crate::seam::error::Result;
use crate::seam::verbs::Claim;

const LARGEST_PAGE: usize = 1_000;

/// Where a claim stands in its lanes, best priority first.
#[derive(Debug, Default)]
pub struct Cursor {
    lanes: Vec<LaneScan>,
    /// One queue's lanes are read one after the other; those of several queues level by level.
    one_queue: bool,
    size: usize,
    /// How many were asked for last.
    read_size: usize,
    /// Lanes that were read from a cursor on were read from the beginning too.
    looked_again: bool,
    /// Entries that were given; a second look finds them again.
    given: HashSet<String>,
}

#[derive(Debug)]
struct LaneScan {
    lane: Lane,
    revision: i64,
    start: Start,
    began: Instant,
    /// The last entry that was read.
    read_to: TimeKey,
    /// Up to here everything is gone.
    gone_to: Option<TimeKey>,
    /// Something was left where it is.
    stopped: bool,
    done: bool,
    was_read: bool,
    page: VecDeque<Candidate>,
}

impl LaneScan {
    fn new(lane: Lane, revision: i64, start: Start, began: Instant) -> LaneScan {
        LaneScan {
            lane,
            revision,
            start,
            began,
            read_to: start.place,
            gone_to: None,
            stopped: false,
            done: false,
            was_read: false,
            page: VecDeque::new(),
        }
    }

    fn pass(&mut self, place: TimeKey) {
        if !self.stopped {
            self.gone_to = self.gone_to.max(Some(place));
        }
    }
}

impl Cursor {
    /// A candidate stays where it is, and so the cursor must not go past it.
    pub fn leave(&mut self, candidate: &Candidate, closes: bool) {
        let Some(lane) = self.lanes.get_mut(candidate.lane) else { return };
        if !lane.stopped {
            lane.stopped = true;
            // Those of the same page that came before it have been passed already.
            lane.gone_to = lane.gone_to.filter(|gone| *gone < candidate.place);
        }
        self.given.remove(&candidate.entry);
        if closes {
            let queue = lane.lane.queue.clone();
            for lane in self.lanes.iter_mut().filter(|lane| lane.lane.queue == queue) {
                lane.stopped = true;
                lane.done = true;
                lane.page.clear();
            }
        }
    }

    /// After the commit: what was locked is gone now, so the cursors may go ahead.
    pub fn keep(self, session: &Session) {
        let mut cursors = session.0.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in self.lanes.into_iter().filter(|lane| lane.was_read) {
            let exhausted = lane.done && lane.page.is_empty();
            let LaneScan { start, gone_to: place, began, .. } = lane;
            let stopped = lane.stopped || !lane.page.is_empty();
            cursors.set(lane.lane, lane.revision, End { start, place, stopped, exhausted, began });
        }
    }
}

/// What claims of queues find. It holds until the transaction ends.
#[derive(Debug, Default)]
pub struct OpenQueues {
    pub rooms: BTreeMap<String, Room>,
    /// Queue, priority and revision of those that are open.
    lanes: Vec<(String, i16, i64)>,
    has_abandoned: bool,
    is_repeat: bool,
}

/// `claim` is a worker and its key.
pub async fn open_queues(tx: &mut PgTx, queues: &[&str], claim: Option<(&str, &str)>) -> Result<OpenQueues> {
    let (worker, key) = claim.unzip();
    let sql = "SELECT * FROM waypost.open_queues($1, $2, $3)";
    let rows = tx.query(sql, args![queues.to_vec(), worker, key]).await?;
    let mut open = OpenQueues::default();
    let mut revision = None;
    for row in &rows {
        let read = open.add(&Columns(row));
        revision = Some(tx.read(read)?);
    }
    if revision.is_some_and(|revision| revision != tx.known().revision) {
        tx.learn().await?;
    }
    tx.gates.extend(queues.iter().map(|queue| (*queue).to_owned()));
    Ok(open)
}

impl OpenQueues {
    /// A lane, or a queue without any. Gives the revision of the lifecycles.
    fn add(&mut self, columns: &Columns<'_>) -> Outcome<i64> {
        let (queue, paused): (String, bool) = (columns.get(0)?, columns.get(1)?);
        self.has_abandoned |= columns.get::<bool>(5)?;
        self.is_repeat |= columns.get::<bool>(7)?;
        if !paused {
            let left: Option<i64> = columns.get(2)?;
            self.rooms.insert(queue.clone(), left.map_or(Room::Any, |left| Room::Left(left.max(0))));
            let revision = columns.get::<Option<i64>>(4)?.unwrap_or_default();
            let lane: Option<i16> = columns.get(3)?;
            self.lanes.extend(lane.map(|priority| (queue, priority, revision)));
        }
        columns.get(6)
    }
}

pub async fn scan(tx: &mut PgTx, claim: &Claim) -> Result<Scan<Cursor>> {
    tx.open().await?;
    let mut queues: Vec<&str> = claim.queues.iter().map(String::as_str).collect();
    queues.sort_unstable();
    queues.dedup();
    let one_queue = queues.len() == 1;
    let key = claim.kept_key();
    let key = key.as_deref().map(|key| (claim.worker.as_str(), key));
    let OpenQueues { rooms, mut lanes, has_abandoned, is_repeat } = open_queues(tx, &queues, key).await?;
    lanes.sort_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
    let wanted = claim.kind();
    let began = Instant::now();
    let mut cursors = tx.session.0.cursors.lock().unwrap_or_else(PoisonError::into_inner);
    let lanes = lanes.into_iter().map(|(queue, priority, revision)| {
        let lane = Lane { queue, priority, wanted: wanted.clone() };
        let start = cursors.start(&lane, revision, began);
        LaneScan::new(lane, revision, start, began)
    });
    let lanes = lanes.collect();
    let cursor = Cursor { lanes, one_queue, size: claim.limit.clamp(1, LARGEST_PAGE), ..Cursor::default() };
    Ok(Scan { cursor, rooms, has_abandoned, is_repeat })
}

pub async fn candidates(
    tx: &mut PgTx,
    cursor: &mut Cursor,
    claim: &Claim,
    limit: usize,
) -> Result<Vec<Candidate>> {
    loop {
        let Some(level) = cursor.level() else {
            if cursor.looked_again || !look_again(tx, cursor) {
                return Ok(Vec::new());
            }
            continue;
        };
        let hungry: Vec<usize> = level
            .iter()
            .copied()
            .filter(|at| cursor.lanes[*at].page.is_empty() && !cursor.lanes[*at].done)
            .collect();
        if !hungry.is_empty() {
            fill(tx, cursor, claim, &hungry).await?;
            // What is set aside or gone is passed in ever larger steps.
            cursor.size = (cursor.size * 2).clamp(64, LARGEST_PAGE);
            continue;
        }
        let best = cursor.best(&level, limit);
        return with_parts(tx, cursor, best, claim.bytes.is_some()).await;
    }
}

/// Candidates with their large parts too; of a claim that is bounded, those that a page has room for. The others stay where they are.
async fn with_parts(
    tx: &mut PgTx,
    cursor: &mut Cursor,
    mut best: Vec<Candidate>,
    is_page: bool,
) -> Result<Vec<Candidate>> {
    let mut rows: Vec<Stored> = best.iter().map(|candidate| candidate.stored.clone()).collect();
    tx.fill_in(&mut rows, is_page).await?;
    for left in best.drain(rows.len()..) {
        cursor.leave(&left, false);
    }
    for (candidate, stored) in best.iter_mut().zip(rows) {
        candidate.stored = stored;
    }
    Ok(best)
}

impl Cursor {
    /// The lanes to read now: the first that have something left, of one priority.
    fn level(&self) -> Option<Vec<usize>> {
        let open = |lane: &LaneScan| !lane.page.is_empty() || !lane.done;
        let first = self.lanes.iter().position(open)?;
        if self.one_queue {
            // Those of lower priority are read along, for when there are too few.
            let last = if self.lanes[first].page.is_empty() { self.lanes.len() } else { first + 1 };
            return Some((first..last).filter(|at| open(&self.lanes[*at])).collect());
        }
        let priority = self.lanes[first].lane.priority;
        let same = |at: &usize| self.lanes[*at].lane.priority == priority && open(&self.lanes[*at]);
        Some((first..self.lanes.len()).filter(same).collect())
    }

    fn best(&mut self, level: &[usize], limit: usize) -> Vec<Candidate> {
        let mut best = Vec::new();
        while best.len() < limit {
            let heads = level.iter().filter_map(|at| Some((self.lanes[*at].page.front()?.place, *at)));
            let Some((_, at)) = heads.min() else { break };
            let lane = &mut self.lanes[at];
            let Some(candidate) = lane.page.pop_front() else { break };
            lane.pass(candidate.place);
            if self.given.insert(candidate.entry.clone()) {
                best.push(candidate);
            }
            if lane.page.is_empty() && !lane.done {
                break;
            }
        }
        best
    }
}

/// Too few were found: lanes that were read from a cursor on are read from the beginning, unless that is too dear.
fn look_again(tx: &PgTx, cursor: &mut Cursor) -> bool {
    cursor.looked_again = true;
    let now = Instant::now();
    let cursors = tx.session.0.cursors.lock().unwrap_or_else(PoisonError::into_inner);
    let mut any = false;
    let is_short = |lane: &&mut LaneScan| !lane.start.is_full && cursors.may_look_again(&lane.lane, now);
    for lane in cursor.lanes.iter_mut().filter(is_short) {
        *lane = LaneScan::new(lane.lane.clone(), lane.revision, Start::FULL, now);
        any = true;
    }
    any
}

/// Reads on in lanes that have nothing left of what was read. Those of one queue in their order, until there are enough;
/// of several queues as many from each.
async fn fill(tx: &mut PgTx, cursor: &mut Cursor, claim: &Claim, hungry: &[usize]) -> Result<()> {
    let size = cursor.size;
    cursor.read_size = size;
    let wanted = (!claim.lifecycles.is_empty()).then(|| {
        tx.known().codes(|lifecycle, _| claim.lifecycles.iter().any(|name| **name == *lifecycle.name))
    });
    let lanes = &cursor.lanes;
    let found = tx
        .query(
            "SELECT * FROM waypost.pick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            args![
                hungry.iter().map(|at| *at as i32).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.queue.as_str()).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.priority).collect::<Vec<_>>(),
                hungry.iter().map(|at| stamp(lanes[*at].read_to.0)).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].read_to.1).collect::<Vec<_>>(),
                stamp(tx.now),
                wanted,
                claim.tenant.as_deref(),
                claim.can.as_ref().map(|can| can.playbooks.iter().map(String::as_str).collect::<Vec<_>>()),
                claim.can.as_ref().is_some_and(|can| can.carried),
                size as i32,
                if cursor.one_queue { size as i32 } else { i32::MAX },
            ],
        )
        .await?;
    let codes: Outcome<Vec<Option<i16>>> =
        found.iter().map(|row| Columns(row).get::<Option<i16>>(5)).collect();
    let codes = tx.read(codes)?;
    let known = tx.known_with(codes.into_iter().flatten()).await?;
    let mut counts = vec![0; cursor.lanes.len()];
    for row in &found {
        let picked = tx.read(Picked::read(&known, row))?;
        tx.left_out.extend(picked.stored.as_ref().and_then(|stored| Some((stored.rid, picked.left_out?))));
        counts[picked.lane] += 1;
        cursor.lanes[picked.lane].meet(picked, &mut tx.orphans);
    }
    cursor.was_read(hungry, &counts, found.len());
    Ok(())
}

/// An entry of a lane, and its run.
struct Picked {
    lane: usize,
    place: TimeKey,
    entry: String,
    /// None: this binary does not know its lifecycle, or the run has moved on.
    stored: Option<Stored>,
    is_orphan: bool,
    /// About how many bytes the run's parts have, if some are large and were left out.
    left_out: Option<usize>,
}

impl Picked {
    fn read(known: &LifecycleCodes, row: &Row) -> Outcome<Picked> {
        let columns = Columns(row);
        let is_orphan = columns.get::<Option<i64>>(4)?.is_none();
        Ok(Picked {
            lane: columns.get::<i32>(0)? as usize,
            place: (columns.time(1)?.unwrap_or_default(), columns.get::<i64>(2)?),
            entry: columns.get(3)?,
            stored: if is_orphan { None } else { rows::run(known, row, 4)? },
            left_out: if is_orphan { None } else { rows::left_out(row, 4)? },
            is_orphan,
        })
    }
}

impl LaneScan {
    fn meet(&mut self, picked: Picked, orphans: &mut Vec<String>) {
        let Picked { lane, place, entry, stored, is_orphan, .. } = picked;
        self.read_to = place;
        match stored {
            Some(stored) => self.page.push_back(Candidate { stored, lane, place, entry }),
            None if is_orphan => {
                self.pass(place);
                orphans.push(entry);
            }
            None => self.stopped = true,
        }
    }
}

impl Cursor {
    /// How far the lanes were read: all of them, or those of one queue up to the last that had something.
    fn was_read(&mut self, hungry: &[usize], counts: &[usize], found: usize) {
        let is_all = !self.one_queue || found < self.read_size;
        let last = (0..counts.len()).rev().find(|at| counts[*at] > 0);
        for at in hungry.iter().copied() {
            if is_all || Some(at) <= last {
                self.lanes[at].was_read = true;
                self.lanes[at].done = counts[at] < self.read_size && (is_all || Some(at) < last);
            }
        }
    }
}

/// Those of the keys that nobody else counts at the moment. A claim does not wait: it may have locked others already.
pub async fn free_slots(tx: &mut PgTx, keys: Vec<String>) -> Result<BTreeMap<String, i64>> {
    tx.open().await?;
    let rows = tx.query("SELECT name, free FROM waypost.free_slots($1)", args![keys]).await?;
    let read: Outcome<BTreeMap<String, i64>> =
        rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?))).collect();
    tx.read(read)
}

pub async fn set_aside(tx: &mut PgTx, candidates: &[Candidate]) -> Result<()> {
    let sql = "WITH met AS (SELECT q.ctid AS place, q.*, r.concurrency_key AS key FROM waypost.ready q JOIN waypost.runs r ON r.rid = q.rid \
                 WHERE q.ctid = ANY ($1::tid[]) AND r.concurrency_key IS NOT NULL), \
               gone AS (DELETE FROM waypost.ready WHERE ctid = ANY (ARRAY(SELECT place FROM met))) \
               INSERT INTO waypost.blocked(available_at, rid, seq, priority, state, queue, key) \
               SELECT available_at, rid, seq, priority, state, queue, key FROM met";
    let entries: Vec<String> = candidates.iter().map(|candidate| candidate.entry.clone()).collect();
    tx.query(sql, args![entries]).await.map(drop)
}

pub async fn recall_claim(tx: &mut PgTx, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>> {
    let condition = "FROM waypost.claims c CROSS JOIN LATERAL unnest(c.rids, c.fences) AS u(rid, fence) JOIN waypost.runs r ON r.rid = u.rid \
                     AND r.fence = u.fence WHERE c.worker = $1 AND c.key = $2 ORDER BY r.rid";
    let found = tx.select(condition, args![worker, key]).await?;
    let with_fence = |stored: Stored| {
        let fence = stored.row.run.fence;
        (stored, fence)
    };
    Ok(found.into_iter().map(with_fence).collect())
}

/// With the commit, in one round trip.
pub fn keep_claim(tx: &mut PgTx, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) {
    let (rids, fences): (Vec<i64>, Vec<i32>) = taken.iter().map(|(rid, fence)| (*rid, *fence as i32)).unzip();
    let sql = "INSERT INTO waypost.claims(worker, key, rids, fences, until) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (worker, key) \
               DO UPDATE SET rids = excluded.rids, fences = excluded.fences, until = excluded.until";
    let mut values = Parameters::default();
    values.add(worker.to_owned(), Type::TEXT);
    values.add(key.to_owned(), Type::TEXT);
    values.add(rids, Type::INT8_ARRAY);
    values.add(fences, Type::INT4_ARRAY);
    values.add(stamp(until), Type::TIMESTAMPTZ);
    tx.last = Some((sql, values));
}

/// What was picked may have been committed after the statement that reads runs began: so it is looked at once more.
pub async fn drop_orphans(tx: &mut PgTx) -> Result<()> {
    if tx.orphans.is_empty() {
        return Ok(());
    }
    let orphans = std::mem::take(&mut tx.orphans);
    let sql = "DELETE FROM waypost.ready w WHERE w.ctid = ANY ($1::tid[]) \
               AND NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = w.rid AND r.seq = w.seq AND r.state = w.state)";
    tx.query(sql, args![orphans]).await.map(drop)
}
