//! Reading queues for a claim: lane by lane, each from where this process stopped.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::PoisonError;
use std::time::Instant;

use tokio_postgres::Row;

use super::cursors::{End, Lane, Start};
use super::{PgTx, rows};
use crate::engine::turns::{ClaimTurns, place_after, short};
use crate::engine::{Candidate, Counted, Room, Scan, Slot, Stored, TimeKey};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result as Outcome;
use crate::postgres::link::session::Session;
use crate::postgres::sql::{Columns, args, stamp};
use crate::seam::error::Result;
use crate::seam::run::RunRow;
use crate::seam::verbs::Claim;

const LARGEST_PAGE: usize = 1_000;

/// The gate of a tenant's queue, or of a queue for all tenants: see `waypost.gate`.
pub fn gate(tenant: &str, queue: &str) -> String {
    format!("{tenant}/{queue}")
}

/// Where a claim stands in its lanes, best priority first.
#[derive(Debug, Default)]
pub struct Cursor {
    lanes: Vec<LaneScan>,
    /// How many more of each tenant's queue may be held.
    rooms: Vec<Room>,
    reads: Reads,
    size: usize,
    /// How many of a lane were asked for last.
    read_size: usize,
    /// Lanes that were read from a cursor on were read from the beginning too.
    looked_again: bool,
    /// Entries that were given; a second look finds them again.
    given: HashSet<String>,
    /// Reads of this claim.
    reads_made: u32,
    pub turns: Option<ClaimTurns>,
    /// By priority, who was given a run last; and whose turn is not over, each as often as it is not.
    given_last: BTreeMap<i16, String>,
    unserved: VecDeque<(i16, String)>,
}

/// How lanes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reads {
    /// One queue's of one tenant: one after the other, until there are enough.
    #[default]
    Through,
    /// One tenant's of several queues: those of a priority together, because the earliest of all comes first.
    Levels,
    /// Those of several tenants: of a priority in turn, as many as are needed.
    Turns,
}

#[derive(Debug)]
struct LaneScan {
    lane: Lane,
    /// Of its queue, which its other priorities have too.
    room: usize,
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
    fn new((lane, room): (Lane, usize), revision: i64, start: Start, began: Instant) -> LaneScan {
        LaneScan {
            lane,
            room,
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
            let room = lane.room;
            for lane in self.lanes.iter_mut().filter(|lane| lane.room == room) {
                lane.stopped = true;
                lane.done = true;
                lane.page.clear();
            }
        }
    }

    /// Nothing is read of what has no room.
    fn shut_full(&mut self) {
        for lane in &mut self.lanes {
            lane.done = self.rooms[lane.room] == Room::Left(0);
        }
    }

    pub fn turn_goes_on(&mut self, row: &RunRow) {
        if self.reads == Reads::Turns {
            self.unserved.push_back((row.priority, row.tenant.clone()));
        }
    }

    pub fn room_of(&mut self, lane: usize) -> &mut Room {
        &mut self.rooms[self.lanes[lane].room]
    }

    /// After the commit: what was locked is gone now, so the cursors may go ahead.
    pub fn keep(self, session: &Session) {
        if let Some(turns) = self.turns {
            session.0.turns.lock().unwrap_or_else(PoisonError::into_inner).keep(turns);
        }
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
    pub rooms: Vec<Room>,
    /// Those of queues that are not paused, each with its room and its revision.
    lanes: Vec<(Lane, usize, i64)>,
    numbers: HashMap<(String, String), usize>,
    has_abandoned: bool,
    is_repeat: bool,
}

/// Of one tenant, or of all. `claim` is a worker and its key.
pub async fn open_queues(
    tx: &mut PgTx,
    tenant: Option<&str>,
    queues: &[&str],
    claim: Option<(&str, &str)>,
) -> Result<OpenQueues> {
    let (worker, key) = claim.unzip();
    let sql = "SELECT * FROM waypost.open_queues($1, $2, $3, $4)";
    let rows = tx.query(sql, args![tenant, queues.to_vec(), worker, key]).await?;
    let mut open = OpenQueues::default();
    let mut revision = None;
    for row in &rows {
        let read = open.add(&Columns(row));
        revision = Some(tx.read(read)?);
    }
    if revision.is_some_and(|revision| revision != tx.known().revision) {
        tx.learn().await?;
    }
    let gate = |queue: &&str| (tenant.map(str::to_owned), (*queue).to_owned());
    tx.gates.extend(queues.iter().map(gate));
    Ok(open)
}

impl OpenQueues {
    /// A lane, or a queue without any. Gives the revision of the lifecycles.
    fn add(&mut self, columns: &Columns<'_>) -> Outcome<i64> {
        self.has_abandoned |= columns.get::<bool>(6)?;
        self.is_repeat |= columns.get::<bool>(8)?;
        if let Some(tenant) = columns.get::<Option<String>>(0)? {
            let queue: String = columns.get(1)?;
            let left: Option<i64> = columns.get(3)?;
            let room = match left {
                _ if columns.get::<bool>(2)? => Room::Paused,
                Some(left) => Room::Left(left.max(0)),
                None => Room::Any,
            };
            let number = *self.numbers.entry((tenant.clone(), queue.clone())).or_insert(self.rooms.len());
            if number == self.rooms.len() {
                self.rooms.push(room);
            }
            let revision = columns.get::<Option<i64>>(5)?.unwrap_or_default();
            let priority: Option<i16> = columns.get(4)?;
            let lane = |priority| (Lane { tenant, queue, priority, wanted: Vec::new() }, number, revision);
            self.lanes.extend(priority.filter(|_| room != Room::Paused).map(lane));
        }
        columns.get(7)
    }

    fn reads(&self) -> Reads {
        let mut lanes = self.lanes.iter().map(|(lane, ..)| lane);
        let Some(first) = lanes.next() else { return Reads::Through };
        if lanes.clone().any(|lane| lane.tenant != first.tenant) {
            Reads::Turns
        } else if lanes.any(|lane| lane.queue != first.queue) {
            Reads::Levels
        } else {
            Reads::Through
        }
    }
}

pub async fn scan(tx: &mut PgTx, claim: &Claim) -> Result<Scan<Cursor>> {
    tx.open().await?;
    let mut queues: Vec<&str> = claim.queues.iter().map(String::as_str).collect();
    queues.sort_unstable();
    queues.dedup();
    let key = claim.kept_key();
    let key = key.as_deref().map(|key| (claim.worker.as_str(), key));
    let open = open_queues(tx, claim.tenant.as_deref(), &queues, key).await?;
    let reads = open.reads();
    let OpenQueues { rooms, mut lanes, has_abandoned, is_repeat, .. } = open;
    lanes.sort_by(|(one, ..), (other, ..)| {
        (other.priority, &one.tenant, &one.queue).cmp(&(one.priority, &other.tenant, &other.queue))
    });
    let wanted = claim.kind();
    let began = Instant::now();
    let mut cursors = tx.session.0.cursors.lock().unwrap_or_else(PoisonError::into_inner);
    let lanes = lanes.into_iter().map(|(lane, room, revision)| {
        let lane = Lane { wanted: wanted.clone(), ..lane };
        let start = cursors.start(&lane, revision, began);
        LaneScan::new((lane, room), revision, start, began)
    });
    let lanes = lanes.collect();
    drop(cursors);
    let mut cursor =
        Cursor { lanes, rooms, reads, size: claim.limit.clamp(1, LARGEST_PAGE), ..Cursor::default() };
    cursor.shut_full();
    cursor.turns = tx.session.0.turns.lock().unwrap_or_else(PoisonError::into_inner).begin(claim);
    Ok(Scan { cursor, has_abandoned, is_repeat })
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
        let (read, hungry) = match cursor.reads {
            Reads::Turns => cursor.in_turn(&level, limit),
            Reads::Through | Reads::Levels => {
                let hungry: Vec<usize> = level.iter().copied().filter(|at| cursor.is_hungry(*at)).collect();
                (if hungry.is_empty() { cursor.best(&level, limit) } else { Vec::new() }, hungry)
            }
        };
        if !read.is_empty() {
            return with_parts(tx, cursor, read, claim.bytes.is_some()).await;
        }
        if !hungry.is_empty() {
            fill(tx, cursor, claim, &hungry, limit).await?;
            // What is set aside or gone is passed in ever larger steps.
            cursor.size = (cursor.size * 2).clamp(64, LARGEST_PAGE);
        }
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
        if self.reads == Reads::Through {
            // Those of lower priority are read along, for when there are too few.
            let last = if self.lanes[first].page.is_empty() { self.lanes.len() } else { first + 1 };
            return Some((first..last).filter(|at| open(&self.lanes[*at])).collect());
        }
        let priority = self.lanes[first].lane.priority;
        let same = |at: &usize| self.lanes[*at].lane.priority == priority && open(&self.lanes[*at]);
        Some((first..self.lanes.len()).filter(same).collect())
    }

    fn is_hungry(&self, at: usize) -> bool {
        self.lanes[at].page.is_empty() && !self.lanes[at].done
    }

    fn best(&mut self, level: &[usize], limit: usize) -> Vec<Candidate> {
        let mut best = Vec::new();
        while best.len() < limit {
            let heads = level.iter().filter_map(|at| Some((self.lanes[*at].page.front()?.place, *at)));
            let Some((_, at)) = heads.min() else { break };
            best.extend(self.give(at));
            if self.is_hungry(at) {
                break;
            }
        }
        best
    }

    /// The first of a lane, unless it was given before.
    fn give(&mut self, at: usize) -> Option<Candidate> {
        let lane = &mut self.lanes[at];
        let candidate = lane.page.pop_front()?;
        lane.pass(candidate.place);
        self.given.insert(candidate.entry.clone()).then_some(candidate)
    }

    /// One of each tenant in turn, the earliest of its queues, until somebody's turn comes of whom nothing is read. Gives what is
    /// to be read if that is the first: from that tenant on, in the order of turns.
    fn in_turn(&mut self, level: &[usize], limit: usize) -> (Vec<Candidate>, Vec<usize>) {
        let Some(priority) = level.first().map(|at| self.lanes[*at].lane.priority) else {
            return Default::default();
        };
        // Who has nothing left of a better priority has had its turn.
        self.unserved.retain(|(of, _)| *of == priority);
        let mut round = self.round(level, priority);
        let mut given = Vec::new();
        while given.len() < limit {
            let goes_on = self.unserved.front().map(|(_, tenant)| tenant);
            let at = match goes_on {
                Some(tenant) => round.iter().position(|lanes| self.lanes[lanes[0]].lane.tenant == *tenant),
                None => (!round.is_empty()).then_some(0),
            };
            let (Some(at), goes_on) = (at, goes_on.is_some()) else {
                if self.unserved.pop_front().is_some() {
                    continue;
                }
                break;
            };
            if round[at].iter().any(|lane| self.is_hungry(*lane)) {
                if given.is_empty() {
                    round.swap(0, at);
                    let hungry = round.into_iter().flatten().filter(|lane| self.is_hungry(*lane));
                    return (given, hungry.collect());
                }
                break;
            }
            let heads =
                round[at].iter().filter_map(|lane| Some((self.lanes[*lane].page.front()?.place, *lane)));
            let Some((_, lane)) = heads.min() else {
                round.remove(at);
                continue;
            };
            let tenant = self.lanes[lane].lane.tenant.clone();
            let Some(candidate) = self.give(lane) else { continue };
            given.push(candidate);
            if goes_on {
                self.unserved.pop_front();
            } else {
                self.given_last.insert(priority, tenant);
                round.rotate_left(1);
            }
        }
        (given, Vec::new())
    }

    /// The lanes of each tenant, in the order of turns.
    fn round(&self, level: &[usize], priority: i16) -> VecDeque<Vec<usize>> {
        let before = self.turns.as_ref().and_then(|turns| turns.last(priority.into()));
        let last = self.given_last.get(&priority).map(|tenant| short(tenant)).or(before);
        let mut tenants: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for at in level {
            let place = place_after(last, short(&self.lanes[*at].lane.tenant));
            tenants.entry(place).or_default().push(*at);
        }
        tenants.into_values().collect()
    }
}

/// Too few were found: lanes that were read from a cursor on are read from the beginning, unless that is too dear.
fn look_again(tx: &PgTx, cursor: &mut Cursor) -> bool {
    cursor.looked_again = true;
    let now = Instant::now();
    let cursors = tx.session.0.cursors.lock().unwrap_or_else(PoisonError::into_inner);
    let mut any = false;
    let rooms = &cursor.rooms;
    let is_short = |lane: &&mut LaneScan| {
        !lane.start.is_full && rooms[lane.room] != Room::Left(0) && cursors.may_look_again(&lane.lane, now)
    };
    for lane in cursor.lanes.iter_mut().filter(is_short) {
        *lane = LaneScan::new((lane.lane.clone(), lane.room), lane.revision, Start::FULL, now);
        any = true;
    }
    any
}

/// Reads on in lanes that have nothing left of what was read. Those of one queue in their order, until there are enough; of
/// several queues as many from each; of several tenants in turn, of each its share.
async fn fill(
    tx: &mut PgTx,
    cursor: &mut Cursor,
    claim: &Claim,
    hungry: &[usize],
    wish: usize,
) -> Result<()> {
    let (each, most) = cursor.shares(hungry, wish);
    cursor.read_size = each;
    cursor.reads_made += 1;
    let wanted =
        (!claim.lifecycles.is_empty()).then(|| tx.known().codes(|lifecycle, _| claim.names(&lifecycle.name)));
    let lanes = &cursor.lanes;
    let found = tx
        .query(
            "SELECT * FROM waypost.pick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            args![
                hungry.iter().map(|at| *at as i32).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.tenant.as_str()).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.queue.as_str()).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.priority).collect::<Vec<_>>(),
                hungry.iter().map(|at| stamp(lanes[*at].read_to.0)).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].read_to.1).collect::<Vec<_>>(),
                stamp(tx.now),
                wanted,
                claim.can.as_ref().map(|can| can.playbooks.iter().map(String::as_str).collect::<Vec<_>>()),
                claim.can.as_ref().is_some_and(|can| can.carried),
                each as i32,
                most.map_or(i32::MAX, |most| most as i32),
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
    cursor.was_read(hungry, &counts, most.is_some_and(|most| found.len() >= most));
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
    /// How many are read of each lane at most, and how many of all.
    fn shares(&self, hungry: &[usize], wish: usize) -> (usize, Option<usize>) {
        match self.reads {
            Reads::Through => (self.size, Some(self.size)),
            Reads::Levels => (self.size, None),
            Reads::Turns => {
                let mut tenants: Vec<&str> = hungry.iter().map(|at| &*self.lanes[*at].lane.tenant).collect();
                tenants.dedup();
                let queues = hungry.len().div_ceil(tenants.len().max(1));
                // What is set aside or gone is passed in ever larger steps.
                let step = 1 << self.reads_made.min(10);
                if tenants.len() >= 2 * wish {
                    // Of a tenant with several queues all are read, or it is not its turn yet.
                    return (step.min(LARGEST_PAGE), Some((wish * queues + usize::from(queues > 1)) * step));
                }
                // Mostly some have nothing: twice the share saves another look.
                let share = (2 * wish).div_ceil(tenants.len().max(1));
                ((share * step).clamp(1, LARGEST_PAGE), None)
            }
        }
    }

    /// How far the lanes were read: all of them, or those up to the last that had something if there was more than enough.
    fn was_read(&mut self, hungry: &[usize], counts: &[usize], is_cut: bool) {
        let last = hungry.iter().rposition(|at| counts[*at] > 0);
        for (place, at) in hungry.iter().copied().enumerate() {
            if !is_cut || Some(place) <= last {
                self.lanes[at].was_read = true;
                self.lanes[at].done = counts[at] < self.read_size && (!is_cut || Some(place) < last);
            }
        }
    }
}

/// Those of the keys that nobody else counts at the moment. A claim does not wait: it may have locked others already.
pub async fn free_slots(tx: &mut PgTx, keys: Vec<Slot>, counted: Counted) -> Result<BTreeMap<Slot, i64>> {
    tx.open().await?;
    let (tenants, keys): (Vec<String>, Vec<String>) = keys.into_iter().unzip();
    let sql = "SELECT tenant, name, free FROM waypost.free_slots($1, $2, $3)";
    let rows = tx.query(sql, args![tenants, keys, counted == Counted::Worked]).await?;
    let slot = |columns: Columns<'_>| Ok(((columns.get(0)?, columns.get(1)?), columns.get(2)?));
    let read: Outcome<BTreeMap<Slot, i64>> = rows.iter().map(|row| slot(Columns(row))).collect();
    tx.read(read)
}

pub async fn set_aside(tx: &mut PgTx, candidates: &[Candidate]) -> Result<()> {
    let sql = "WITH met AS (SELECT q.ctid AS place, q.*, r.concurrency_key AS key FROM waypost.ready q JOIN waypost.runs r ON r.rid = q.rid \
                 WHERE q.ctid = ANY ($1::tid[]) AND r.concurrency_key IS NOT NULL), \
               gone AS (DELETE FROM waypost.ready WHERE ctid = ANY (ARRAY(SELECT place FROM met))) \
               INSERT INTO waypost.blocked(available_at, rid, seq, priority, state, tenant, queue, key) \
               SELECT available_at, rid, seq, priority, state, tenant, queue, key FROM met";
    let entries: Vec<String> = candidates.iter().map(|candidate| candidate.entry.clone()).collect();
    tx.query(sql, args![entries]).await.map(drop)
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
