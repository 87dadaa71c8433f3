//! Taking runs: those left behind first, then the best of what is due. The cost does not depend on how many runs
//! are finished, for later, or waiting for a key.

use std::cmp::Reverse;
use std::sync::Arc;

use rusqlite::params;
use serde_json::json;
use waypost_kernel::lifecycle::OnStale;
use waypost_kernel::{Ask, Lease, Phase, Request, Time, Token, Who};

use super::limits;
use super::open::database;
use super::row::{self, Stored};
use super::save::{self, Extra, prepare};
use super::session::Tx;
use crate::error::{Result, StoreError};
use crate::intake;
use crate::run::RunRow;
use crate::tokens::fresh;
use crate::verbs::{Claim, Claimed, Take};

/// Runs that a claim sets aside at most because their key is full, before it leaves the rest to the next one.
const MAX_SET_ASIDE: usize = 20_000;
const PAGE: usize = 64;

const READY: &str = "SELECT due_at, rid FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND due_at <= ?3 AND (due_at, rid) > (?4, ?5) ORDER BY due_at, rid LIMIT ?6";
/// Those that somebody can execute who has these playbooks.
const READY_FOR: &str = "SELECT due_at, rid FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND due_at <= ?3 AND (due_at, rid) > (?4, ?5) AND EXISTS (SELECT 1 FROM run_born b WHERE b.rid = run_now.rid \
    AND (b.playbook IN (SELECT value FROM json_each(?7)) OR ?8 AND b.carried IS NOT NULL)) ORDER BY due_at, rid LIMIT ?6";

/// A run with its new lease, as the writer answers it; the caller makes its copy.
#[derive(Debug)]
pub struct Taken {
    row: Arc<RunRow>,
    now: Time,
}

impl Taken {
    pub fn of(tx: &Tx<'_>, stored: Stored) -> Taken {
        Taken { row: stored.row, now: tx.now }
    }

    pub fn run(&self) -> &RunRow {
        &self.row
    }

    pub fn claimed(self) -> Result<Claimed> {
        let run = Arc::unwrap_or_clone(self.row);
        let lease = run.run.lease.as_ref();
        let (token, expires_at) = lease
            .map(|lease| (lease.token, lease.until))
            .ok_or_else(|| StoreError::Unavailable(format!("{} has no lease", run.id())))?;
        Ok(Claimed { token, fence: run.run.fence, expires_at, now: self.now, run })
    }
}

pub fn claim(tx: &Tx<'_>, claim: &Claim) -> Result<Vec<Taken>> {
    intake::check_name("worker", &claim.worker)?;
    let mut taken = Vec::new();
    let mut open = Vec::new();
    for queue in &claim.queues {
        if let Some(room) = room(tx, queue)? {
            open.push((queue.as_str(), room));
        }
    }
    left_behind(tx, claim, &open, &mut taken)?;
    ready(tx, claim, &mut open, &mut taken)?;
    Ok(taken)
}

pub fn claim_run(tx: &Tx<'_>, run_id: &str, how: &Take) -> Result<Taken> {
    intake::check_name("worker", &how.worker)?;
    let mut stored = row::by_id(tx, run_id)?;
    if let Some(reason) = wait_reason(tx, &stored.row)? {
        return Err(StoreError::not_yet(&stored.row, reason));
    }
    take(tx, &mut stored, how, fresh())?;
    Ok(Taken::of(tx, stored))
}

/// Why a run may not be taken now, though its lifecycle may let it. One that is held already keeps its slot.
fn wait_reason(tx: &Tx<'_>, row: &RunRow) -> Result<Option<&'static str>> {
    let ready = row.phase() == Phase::Ready;
    let full = |key: &String| Ok::<bool, StoreError>(limits::free_slots(tx, key)? <= 0);
    Ok(match room(tx, &row.queue)? {
        None => Some("its queue is paused"),
        Some(room) if ready && room <= 0 => Some("its queue is at its limit"),
        Some(_) if ready && row.concurrency_key.as_ref().map(full).transpose()? == Some(true) => {
            Some("its concurrency key is at its limit")
        }
        Some(_) => None,
    })
}

/// How many more of a queue may be held; nothing if it is paused.
fn room(tx: &Tx<'_>, queue: &str) -> Result<Option<i64>> {
    let mut statement = prepare(tx, "SELECT at_most, paused_at FROM queues WHERE name = ?1")?;
    let mut rows = statement.query(params![queue]).map_err(|error| database(&error))?;
    let Some(found) = rows.next().map_err(|error| database(&error))? else { return Ok(Some(i64::MAX)) };
    let (at_most, paused_at): (Option<i64>, Option<String>) =
        (found.get(0).map_err(|error| database(&error))?, found.get(1).map_err(|error| database(&error))?);
    if paused_at.is_some() {
        return Ok(None);
    }
    let Some(at_most) = at_most else { return Ok(Some(i64::MAX)) };
    let held: i64 =
        prepare(tx, "SELECT count(*) FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND queue = ?1")?
            .query_row(params![queue], |row| row.get(0))
            .map_err(|error| database(&error))?;
    Ok(Some(at_most - held))
}

/// Leases that are vacant or ran out. The kernel says which of them a worker may take; the rest is the sweeper's.
fn left_behind(tx: &Tx<'_>, claim: &Claim, open: &[(&str, i64)], taken: &mut Vec<Taken>) -> Result<()> {
    let how = claim.take();
    let mut after = (i64::MIN, 0);
    while taken.len() < claim.limit {
        let found = row::places(
            tx,
            "SELECT due_at, rid FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND due_at <= ?1 \
             AND (due_at, rid) > (?2, ?3) ORDER BY due_at, rid LIMIT ?4",
            params![tx.now.ms(), after.0, after.1, PAGE as i64],
        )?;
        let Some(last) = found.last() else { return Ok(()) };
        after = *last;
        for (_, rid) in found {
            let Some(mut stored) = row::by_rid(tx, rid)? else { continue };
            let queue = open.iter().any(|(queue, _)| *queue == stored.row.queue);
            // What is stolen and not taken over (cron) is its plan's.
            let state = stored.row.lifecycle.state(stored.row.run.state);
            let vacant = stored.row.run.lease.as_ref().is_some_and(Lease::is_vacant);
            let left = vacant || state.on_stale != Some(OnStale::Steal);
            if taken.len() < claim.limit && queue && left && claim.wants(&stored.row) {
                match take(tx, &mut stored, &how, fresh()) {
                    Ok(()) => taken.push(Taken::of(tx, stored)),
                    Err(StoreError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// The best of several queues: each is read in its own order, and the best head is taken first.
fn ready(tx: &Tx<'_>, claim: &Claim, open: &mut [(&str, i64)], taken: &mut Vec<Taken>) -> Result<()> {
    let how = claim.take();
    let mut heads = Vec::new();
    for (at, (queue, _)) in open.iter().enumerate() {
        heads.push(Head::new(at, queue));
    }
    let mut set_aside = 0;
    while taken.len() < claim.limit && set_aside < MAX_SET_ASIDE {
        let wish = claim.limit - taken.len();
        for head in &mut heads {
            head.fill(tx, claim, wish)?;
        }
        let best = heads.iter_mut().filter(|head| open[head.at].1 > 0).max_by_key(|head| head.rank());
        let Some(best) = best else { return Ok(()) };
        let at = best.at;
        let Some(rid) = best.next() else { return Ok(()) };
        let Some(mut stored) = row::by_rid(tx, rid)?.filter(|stored| claim.wants(&stored.row)) else {
            continue;
        };
        if let Some(key) = &stored.row.concurrency_key
            && limits::free_slots(tx, key)? <= 0
        {
            set_aside += limits::set_aside(tx, key)?;
            // Read again from where each stands, without those.
            heads.iter_mut().for_each(|head| head.page.clear());
            continue;
        }
        match take(tx, &mut stored, &how, fresh()) {
            Ok(()) => {
                open[at].1 -= 1;
                taken.push(Taken::of(tx, stored));
            }
            Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where a claim stands in one queue: priority by priority, from the best down; in each from the earliest on.
struct Head<'q> {
    at: usize,
    queue: &'q str,
    priority: Option<i64>,
    after: (i64, i64),
    page: std::collections::VecDeque<(i64, i64)>,
    done: bool,
}

impl<'q> Head<'q> {
    fn new(at: usize, queue: &'q str) -> Head<'q> {
        Head { at, queue, priority: None, after: (i64::MIN, 0), page: [].into(), done: false }
    }

    fn fill(&mut self, tx: &Tx<'_>, claim: &Claim, wish: usize) -> Result<()> {
        let can = claim.can.as_ref().map(|can| (json!(can.playbooks).to_string(), can.carried));
        while self.page.is_empty() && !self.done {
            let Some(priority) = self.priority else {
                self.step_down(tx, i64::MAX)?;
                continue;
            };
            let (now, wish) = (tx.now.ms(), wish.clamp(1, 1_000) as i64);
            let found = match &can {
                None => row::places(
                    tx,
                    READY,
                    params![self.queue, priority, now, self.after.0, self.after.1, wish],
                )?,
                Some((playbooks, carried)) => row::places(
                    tx,
                    READY_FOR,
                    params![self.queue, priority, now, self.after.0, self.after.1, wish, playbooks, carried],
                )?,
            };
            match found.first() {
                None => self.step_down(tx, priority)?,
                Some(_) => self.page = found.into(),
            }
        }
        Ok(())
    }

    fn step_down(&mut self, tx: &Tx<'_>, from: i64) -> Result<()> {
        let next: Option<i64> = prepare(
            tx,
            "SELECT max(priority) FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 AND priority < ?2",
        )?
        .query_row(params![self.queue, from], |row| row.get(0))
        .map_err(|error| database(&error))?;
        self.priority = next;
        self.after = (i64::MIN, 0);
        self.done = next.is_none();
        Ok(())
    }

    /// Best first: higher priority, then earlier, then created before.
    fn rank(&self) -> Option<impl Ord + use<>> {
        let place = self.page.front()?;
        Some((self.priority, Reverse(*place)))
    }

    fn next(&mut self) -> Option<i64> {
        self.after = self.page.pop_front()?;
        Some(self.after.1)
    }
}

pub fn take(tx: &Tx<'_>, stored: &mut Stored, how: &Take, token: Token) -> Result<()> {
    let who = Who { actor: waypost_kernel::Actor::Worker, by: &how.worker, fresh: token };
    let request = Request { who, ask: Ask::Claim { lease: how.lease, start: how.start } };
    let change = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)?;
    save::save(tx, stored, change, &Extra::default()).map(drop)
}
