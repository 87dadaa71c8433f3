//! Taking runs: those left behind first, then the best of what is due. The cost does not depend on how many runs
//! are finished, for later, or waiting for a key.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::PoisonError;
use std::time::Instant;

use waypost_kernel::lifecycle::OnStale;
use waypost_kernel::{Ask, Lease, Phase, Request, Time, Token, Who};

use super::fault::{Fault, Result};
use super::limits::{self, Room};
use super::marks::{BEGINNING, End, Lane, Place, Start};
use super::plain;
use super::row::{self, Stored};
use super::save::{self, Extra, Pending};
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp, time};
use super::watch;
use crate::error::StoreError;
use crate::intake;
use crate::run::RunRow;
use crate::tokens::fresh;
use crate::verbs::{Claim, Claimed, Take};

/// Runs that a claim sets aside at most because their key is full, before it leaves the rest to the next one.
const MAX_SET_ASIDE: usize = 20_000;
const PAGE: i64 = 64;
const LARGEST_PAGE: usize = 1_000;

pub async fn claim(session: &Session, claim: &Claim) -> Result<Vec<Claimed>> {
    intake::check_name("worker", &claim.worker)?;
    if claim.limit == 0 || claim.queues.is_empty() {
        return Ok(Vec::new());
    }
    // The functions of `verbs.sql` make one move at a time.
    let plain =
        if claim.start { plain::Taken::Some(Vec::new()) } else { plain::claim(session, claim).await? };
    let mut first = match plain {
        plain::Taken::All(taken) => return Ok(taken),
        plain::Taken::Some(taken) => taken,
    };
    let rest = Claim { limit: claim.limit - first.len(), ..claim.clone() };
    first.extend(decide_on(session, &rest).await?);
    Ok(first)
}

async fn decide_on(session: &Session, claim: &Claim) -> Result<Vec<Claimed>> {
    let tx = session.begin().await?;
    let taken = take_best(&tx, claim).await;
    let now = tx.now;
    let (taken, looks) = tx.end(taken).await?;
    // What was locked is gone now, so the marks may go ahead.
    let mut marks = session.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
    for look in looks.into_iter().filter(|look| look.was_read) {
        let exhausted = look.done && look.page.is_empty();
        let Look { start, place, stopped, began, .. } = look;
        marks.set(look.lane, look.revision, End { start, place, stopped, exhausted, began });
    }
    drop(marks);
    taken.into_iter().map(|run| claimed(now, run)).collect()
}

async fn take_best(tx: &Tx, claim: &Claim) -> Result<(Vec<RunRow>, Vec<Look>)> {
    let queues: Vec<&str> = claim.queues.iter().map(String::as_str).collect();
    let rooms = limits::rooms(tx, &queues).await?;
    let open = queues.into_iter().zip(rooms).filter(|(_, room)| *room != Room::Paused);
    let mut open: BTreeMap<&str, Room> = open.collect();
    watch::look(tx).await?;
    let mut taken = left_behind(tx, claim, &open).await?;
    let mut looks = Vec::new();
    if taken.len() < claim.limit {
        let wish = claim.limit - taken.len();
        taken.extend(ready(tx, claim, wish, &mut open, &mut looks).await?);
    }
    Ok((taken, looks))
}

/// Leases that are vacant or ran out.
async fn left_behind(tx: &Tx, claim: &Claim, open: &BTreeMap<&str, Room>) -> Result<Vec<RunRow>> {
    let queues: Vec<&str> = open.keys().copied().collect();
    let mut taken = Vec::new();
    let mut after = BEGINNING;
    while taken.len() < claim.limit {
        let found = watch::adrift(tx, &queues, after, PAGE).await?;
        let Some(last) = found.last() else { break };
        after = (row::stale_after(&last.row.run).unwrap_or_default(), last.rid);
        let mut pending = Vec::new();
        for stored in found {
            // What is stolen and not taken over (cron) is its plan's.
            let state = stored.row.lifecycle.state(stored.row.run.state);
            let vacant = stored.row.run.lease.as_ref().is_some_and(Lease::is_vacant);
            let left = vacant || state.on_stale != Some(OnStale::Steal);
            let more = taken.len() + pending.len() < claim.limit;
            if more && left && claim.wants(&stored.row) {
                pending.extend(decided(tx, stored, &claim.take())?);
            }
        }
        taken.extend(write(tx, pending).await?);
    }
    Ok(taken)
}

/// Writes what was decided, and gives it in the order in which it was found; others may have been faster with some.
async fn write(tx: &Tx, pending: Vec<Pending>) -> Result<Vec<RunRow>> {
    let saved = save::save(tx, &pending).await?;
    let won: Vec<&Pending> = pending.iter().filter(|it| saved.has(it.before.rid)).collect();
    let adrift: Vec<&Stored> =
        won.iter().map(|it| &it.before).filter(|it| it.row.phase() == Phase::Held).collect();
    watch::ashore(tx, &adrift).await?;
    Ok(pending.into_iter().filter(|it| saved.has(it.before.rid)).map(|it| it.row).collect())
}

/// One lane, read in its own order.
#[derive(Debug)]
struct Look {
    lane: Lane,
    revision: i64,
    start: Start,
    began: Instant,
    /// The last that was read.
    read_to: Place,
    /// Up to here everything is gone.
    place: Option<Place>,
    /// Something was left where it is.
    stopped: bool,
    done: bool,
    was_read: bool,
    page: VecDeque<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    place: Place,
    /// Where in the table, as text.
    at: String,
    /// Nothing: the run has moved on, and the row is an orphan.
    run: Option<Stored>,
}

/// What becomes of the rows of `ready` that were met.
#[derive(Debug, Default)]
struct Met {
    pending: Vec<Pending>,
    gone: Vec<String>,
    aside: Vec<String>,
    /// Free slots by key, less those that were taken here.
    free: BTreeMap<String, i64>,
    /// Others count these at the moment.
    busy: BTreeSet<String>,
    /// Places of rows that were met; a second look finds them again.
    seen: HashSet<String>,
}

async fn ready(
    tx: &Tx,
    claim: &Claim,
    wish: usize,
    open: &mut BTreeMap<&str, Room>,
    looks: &mut Vec<Look>,
) -> Result<Vec<RunRow>> {
    let mut lanes = lanes(tx, claim, open).await?;
    let mut met = Met::default();
    // Best priority first; those of several queues are one order.
    for again in [false, true] {
        let mut at = 0;
        while at < lanes.len() && met.pending.len() < wish {
            let level = lanes[at].lane.priority;
            let end = lanes[at..]
                .iter()
                .position(|look| look.lane.priority != level)
                .map_or(lanes.len(), |more| at + more);
            level_of(tx, claim, wish, open, &mut lanes[at..end], &mut met).await?;
            at = end;
        }
        if again || met.pending.len() >= wish || !look_again(tx, &mut lanes) {
            break;
        }
    }
    looks.append(&mut lanes);
    let taken = write(tx, met.pending).await?;
    if !met.gone.is_empty() {
        tx.run("DELETE FROM waypost.ready WHERE ctid = ANY ($1::tid[])", args![met.gone]).await?;
    }
    limits::set_aside(tx, &met.aside).await?;
    Ok(taken)
}

/// The lanes of the open queues, with the places where this store's claims stopped.
async fn lanes(tx: &Tx, claim: &Claim, open: &BTreeMap<&str, Room>) -> Result<Vec<Look>> {
    let names: Vec<&str> = open.keys().copied().collect();
    let sql = "SELECT queue, priority, sum(revision)::bigint, count(*) FROM waypost.lanes WHERE queue = ANY ($1) GROUP BY queue, priority \
               ORDER BY priority DESC, queue";
    let rows = tx.query(sql, args![names]).await?;
    tx.session.0.plain.set_lanes(&names, &rows)?;
    let wanted = claim.kind();
    let began = Instant::now();
    let mut marks = tx.session.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
    let look = |row| {
        let columns = Columns(row);
        let lane = Lane { queue: columns.get(0)?, priority: columns.get(1)?, wanted: wanted.clone() };
        let revision = columns.get(2)?;
        let start = marks.start(&lane, revision, began);
        Ok(Look::new(lane, revision, start, began))
    };
    rows.iter().map(look).collect()
}

/// Too few were found: lanes that were read from a mark on are read from the beginning, unless that is too dear.
fn look_again(tx: &Tx, lanes: &mut [Look]) -> bool {
    let now = Instant::now();
    let marks = tx.session.0.marks.lock().unwrap_or_else(PoisonError::into_inner);
    let mut any = false;
    for look in lanes.iter_mut().filter(|look| !look.start.is_full && marks.may_look_again(&look.lane, now)) {
        *look = Look::new(look.lane.clone(), look.revision, Start::FULL, now);
        any = true;
    }
    any
}

impl Look {
    fn new(lane: Lane, revision: i64, start: Start, began: Instant) -> Look {
        let (read_to, page) = (start.place, VecDeque::new());
        Look {
            lane,
            revision,
            start,
            began,
            read_to,
            place: None,
            stopped: false,
            done: false,
            was_read: false,
            page,
        }
    }

    /// The head is gone from the queue, or stays where it is.
    fn pass(&mut self, place: Place, is_gone: bool) {
        self.stopped |= !is_gone;
        if !self.stopped {
            self.place = self.place.max(Some(place));
        }
    }
}

/// All lanes of one priority, until they are empty or there is enough.
async fn level_of(
    tx: &Tx,
    claim: &Claim,
    wish: usize,
    open: &mut BTreeMap<&str, Room>,
    lanes: &mut [Look],
    met: &mut Met,
) -> Result<()> {
    let mut size = (wish - met.pending.len()).clamp(1, LARGEST_PAGE);
    while met.pending.len() < wish && met.aside.len() < MAX_SET_ASIDE {
        for look in lanes.iter_mut().filter(|look| open.get(look.lane.queue.as_str()) == Some(&Room::Left(0)))
        {
            look.stopped = true;
            look.done = true;
            look.page.clear();
        }
        if lanes.iter().any(|look| look.page.is_empty() && !look.done) {
            fill(tx, claim, lanes, size, met).await?;
            // What is set aside or gone is passed in ever larger steps.
            size = (size * 2).clamp(64, LARGEST_PAGE);
            continue;
        }
        let heads = lanes.iter_mut().filter(|look| !look.page.is_empty());
        let Some(best) = heads.min_by_key(|look| look.page.front().map(|it| it.place)) else { return Ok(()) };
        let Some(candidate) = best.page.pop_front() else { return Ok(()) };
        let place = candidate.place;
        let before = met.pending.len();
        let gone = met.meet(tx, claim, candidate)?;
        best.pass(place, gone);
        if let Some(Room::Left(left)) =
            open.get_mut(best.lane.queue.as_str()).filter(|_| met.pending.len() > before)
        {
            *left = (*left - 1).max(0);
        }
    }
    Ok(())
}

impl Met {
    /// Takes a run if it may be taken. Says whether its row of `ready` is done with.
    fn meet(&mut self, tx: &Tx, claim: &Claim, candidate: Candidate) -> Result<bool> {
        let Candidate { at, run, .. } = candidate;
        if !self.seen.insert(at.clone()) {
            return Ok(true);
        }
        let Some(stored) = run else {
            self.gone.push(at);
            return Ok(true);
        };
        let key = stored.row.concurrency_key.clone();
        if let Some(key) = &key {
            if self.busy.contains(key) {
                self.seen.remove(&at);
                return Ok(false);
            }
            if self.free.get(key).is_some_and(|free| *free <= 0) {
                self.aside.push(at);
                return Ok(true);
            }
        }
        // What the kernel refuses stays refused until the run moves, which gives it another row.
        let Some(pending) = decided(tx, stored, &claim.take())? else { return Ok(true) };
        self.pending.push(pending);
        self.gone.push(at);
        if let Some(free) = key.and_then(|key| self.free.get_mut(&key)) {
            *free -= 1;
        }
        Ok(true)
    }
}

/// Reads on in the lanes that have nothing left of what was read.
async fn fill(tx: &Tx, claim: &Claim, lanes: &mut [Look], size: usize, met: &mut Met) -> Result<()> {
    let hungry: Vec<usize> = lanes
        .iter()
        .enumerate()
        .filter(|(_, look)| look.page.is_empty() && !look.done)
        .map(|(at, _)| at)
        .collect();
    let wanted = (!claim.lifecycles.is_empty()).then(|| {
        tx.session.known().codes(|lifecycle, _| claim.lifecycles.iter().any(|name| **name == *lifecycle.name))
    });
    let rows = tx
        .query(
            "SELECT m.place, q.available_at, q.rid, q.seq, q.state, q.ctid::text FROM unnest($1, $2, $3, $4, $5) AS m(place, queue, priority, at, rid) \
             CROSS JOIN LATERAL (SELECT q.ctid, q.* FROM waypost.ready q WHERE q.queue = m.queue AND q.priority = m.priority \
               AND (q.available_at, q.rid) > (m.at, m.rid) AND q.available_at <= $6 AND ($7::smallint[] IS NULL OR q.state = ANY ($7)) \
               AND ($9 IS NULL OR EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = q.rid AND r.tenant = $9)) \
               AND ($10::text[] IS NULL OR EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = q.rid \
                 AND (r.playbook = ANY ($10) OR $11 AND r.carried IS NOT NULL))) \
               ORDER BY q.available_at, q.rid LIMIT $8 FOR UPDATE SKIP LOCKED) q ORDER BY m.place, q.available_at, q.rid",
            args![
                hungry.iter().map(|at| *at as i32).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.queue.as_str()).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].lane.priority).collect::<Vec<_>>(),
                hungry.iter().map(|at| stamp(lanes[*at].read_to.0)).collect::<Vec<_>>(),
                hungry.iter().map(|at| lanes[*at].read_to.1).collect::<Vec<_>>(),
                stamp(tx.now),
                wanted,
                size as i64,
                claim.tenant.as_deref(),
                claim.can.as_ref().map(|can| can.playbooks.iter().map(String::as_str).collect::<Vec<_>>()),
                claim.can.as_ref().is_some_and(|can| can.carried),
            ],
        )
        .await?;
    let rids = rows.iter().map(|row| Columns(row).get::<i64>(2)).collect::<Result<Vec<_>>>()?;
    let mut runs: HashMap<i64, Stored> =
        row::by_rids(tx, &rids).await?.into_iter().map(|run| (run.rid, run)).collect();
    for row in &rows {
        let columns = Columns(row);
        let (rid, seq): (i64, i32) = (columns.get(2)?, columns.get(3)?);
        let place = (time(columns.get(1)?), rid);
        let counts = |run: &Stored| run.row.run.seq == seq as u64 && run.row.phase() == Phase::Ready;
        let run = if runs.get(&rid).is_some_and(counts) { runs.remove(&rid) } else { None };
        let look = &mut lanes[columns.get::<i32>(0)? as usize];
        look.read_to = place;
        look.page.push_back(Candidate { place, at: columns.get(5)?, run });
    }
    for at in hungry {
        lanes[at].done = lanes[at].page.len() < size;
        lanes[at].was_read = true;
    }
    count_keys(tx, lanes, met).await
}

/// The keys of what was read: locked, so that nobody else counts them now, and counted.
async fn count_keys(tx: &Tx, lanes: &[Look], met: &mut Met) -> Result<()> {
    let runs = lanes.iter().flat_map(|look| &look.page).filter_map(|it| it.run.as_ref());
    let new: BTreeSet<String> = runs
        .filter_map(|run| run.row.concurrency_key.clone())
        .filter(|key| !met.free.contains_key(key) && !met.busy.contains(key))
        .collect();
    let locked = limits::try_lock_keys(tx, &new).await?;
    met.free.extend(limits::free_slots(tx, &locked).await?);
    met.busy.extend(new.into_iter().filter(|key| !locked.contains(key)));
    Ok(())
}

pub async fn claim_run(session: &Session, run_id: &str, how: &Take) -> Result<Claimed> {
    intake::check_name("worker", &how.worker)?;
    let tx = session.begin().await?;
    let taken = take_one(&tx, run_id, how).await;
    let now = tx.now;
    claimed(now, tx.end(taken).await?)
}

async fn take_one(tx: &Tx, run_id: &str, how: &Take) -> Result<RunRow> {
    let stored = row::by_id(tx, run_id).await?;
    if let Some(reason) = wait_reason(tx, &stored.row).await? {
        return Err(StoreError::not_yet(&stored.row, reason).into());
    }
    take(tx, stored, how, fresh()).await
}

/// Why a run may not be taken now, though its lifecycle may let it. One that is held already keeps its slot.
async fn wait_reason(tx: &Tx, row: &RunRow) -> Result<Option<&'static str>> {
    let ready = row.phase() == Phase::Ready;
    let room = limits::rooms(tx, &[&row.queue]).await?.pop().unwrap_or(Room::Any);
    match room {
        Room::Paused => return Ok(Some("its queue is paused")),
        Room::Left(left) if ready && left <= 0 => return Ok(Some("its queue is at its limit")),
        _ => {}
    }
    let Some(key) = row.concurrency_key.clone().filter(|_| ready) else { return Ok(None) };
    limits::lock_keys(tx, BTreeSet::from([key.as_str()])).await?;
    let free = limits::free_slots(tx, &BTreeSet::from([key])).await?;
    Ok(free.values().any(|free| *free <= 0).then_some("its concurrency key is at its limit"))
}

/// What the kernel makes of a claim; nothing if it refuses.
fn decided(tx: &Tx, stored: Stored, how: &Take) -> Result<Option<Pending>> {
    match decide(tx, stored, how, fresh()) {
        Ok(pending) => Ok(Some(pending)),
        Err(Fault::Told(StoreError::Refused(_))) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn decide(tx: &Tx, stored: Stored, how: &Take, token: Token) -> Result<Pending> {
    let who = Who { actor: waypost_kernel::Actor::Worker, by: &how.worker, fresh: token };
    let request = Request { who, ask: Ask::Claim { lease: how.lease, start: how.start } };
    let change = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)?;
    let mut pending = Pending::new(stored);
    pending.add(change, Extra::default());
    Ok(pending)
}

pub async fn take(tx: &Tx, stored: Stored, how: &Take, token: Token) -> Result<RunRow> {
    let pending = decide(tx, stored, how, token)?;
    Ok(save::save_one(tx, pending).await?.0.row)
}

pub fn claimed(now: Time, run: RunRow) -> Result<Claimed> {
    let lease = run.run.lease.as_ref();
    let (token, expires_at) = lease
        .map(|lease| (lease.token, lease.until))
        .ok_or_else(|| StoreError::Unavailable(format!("{} has no lease", run.id())))?;
    Ok(Claimed { token, fence: run.run.fence, expires_at, now, run })
}
