//! A claim's way through its queues: from priority to priority, within one from tenant to tenant, and of a tenant from the
//! earliest on. The cost does not depend on how many runs are finished, for later, or waiting for a key, nor on what other
//! tenants have waiting.

use std::collections::{BTreeMap, VecDeque};

use rusqlite::{Row, params};
use serde_json::json;
use waypost_kernel::Time;

use super::slots;
use crate::engine::turns::{ClaimTurns, named, short};
use crate::engine::{Candidate, Room, Scan};
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claim, PAGE_BYTES};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::row;

const READY: &str = "SELECT due_at, rid FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND tenant = ?3 AND due_at <= ?4 AND (due_at, rid) > (?5, ?6) ORDER BY due_at, rid LIMIT ?7";
/// Those that somebody can execute who has these playbooks.
const READY_FOR: &str = "SELECT due_at, rid FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND tenant = ?3 AND due_at <= ?4 AND (due_at, rid) > (?5, ?6) AND EXISTS (SELECT 1 FROM run_born b WHERE b.rid = run_now.rid \
    AND (b.playbook IN (SELECT value FROM json_each(?8)) OR ?9 AND b.carried IS NOT NULL)) ORDER BY due_at, rid LIMIT ?7";
/// The next tenant of a priority; if there is none, the last one of the next priority. Two looks: SQLite would step through all
/// runs of a lane to find what is below it, if both were asked for in one.
const NEXT_TENANT: &str = "SELECT priority, tenant FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority = ?2 AND tenant < ?3 ORDER BY tenant DESC LIMIT 1";
const NEXT_PRIORITY: &str = "SELECT priority, tenant FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 AND queue = ?1 \
  AND priority < ?2 ORDER BY priority DESC, tenant DESC LIMIT 1";

/// Where a claim stands.
pub struct Cursor {
    queues: Vec<QueueScan>,
    /// The claim's tenant, in short, if it asks for one's runs alone.
    tenant: Option<String>,
    /// The playbooks that the claimer has, as JSON, and whether it takes what runs bring along.
    can: Option<(String, bool)>,
    level: Option<Level>,
    /// Lanes from here on were read.
    read_to: LaneKey,
    /// How many more of each tenant's queue may be held; candidates name theirs by its number here.
    rooms: Vec<Room>,
    room_numbers: BTreeMap<(usize, String), usize>,
    pub turns: Option<ClaimTurns>,
}

/// A queue's runs of one priority and tenant.
type LaneKey = (i64, String);

struct QueueScan {
    name: String,
    /// The lane that comes next, once it was looked up; none within: there is no other.
    next: Option<Option<LaneKey>>,
    /// The first one of the present priority.
    top: Option<LaneKey>,
}

/// The tenants of one priority.
#[derive(Default)]
struct Level {
    priority: i64,
    /// Who had the last turn: looking for tenants begins after that one, and ends with it.
    last: Option<String>,
    begins_again: bool,
    is_searched: bool,
    /// Tenants that had no turn yet, and those that had one and may have more.
    fresh: VecDeque<Tenant>,
    served: VecDeque<Tenant>,
    /// Those of the latter whose turn is not over, each as often as it is not.
    unserved: VecDeque<String>,
}

struct Tenant {
    name: String,
    lanes: Vec<Lane>,
}

struct Lane {
    queue: usize,
    room: usize,
    after: (i64, i64),
    page: VecDeque<(i64, i64)>,
    /// Nothing comes after the page.
    is_done: bool,
}

pub fn begin(tx: &Tx<'_>, claim: &Claim) -> Result<Scan<Cursor>> {
    let mut queues: Vec<QueueScan> = Vec::with_capacity(claim.queues.len());
    for name in &claim.queues {
        if queues.iter().all(|queue| queue.name != *name) {
            queues.push(QueueScan { name: name.clone(), next: None, top: None });
        }
    }
    let turns = tx.cache.turns.borrow().begin(claim);
    let cursor = Cursor {
        queues,
        tenant: claim.tenant.as_deref().map(|tenant| short(tenant).to_owned()),
        can: claim.can.as_ref().map(|can| (json!(can.playbooks).to_string(), can.carried)),
        level: None,
        read_to: (i64::MAX, String::new()),
        rooms: Vec::new(),
        room_numbers: BTreeMap::new(),
        turns,
    };
    Ok(Scan { cursor, has_abandoned: true, is_repeat: claim.idempotency_key.is_some() })
}

/// How many more of a queue may be held.
pub fn room(tx: &Tx<'_>, tenant: &str, queue: &str) -> Result<Room> {
    let sql = "SELECT at_most, paused_at IS NOT NULL FROM queues WHERE tenant = ?1 AND name = ?2";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found: Option<(Option<i64>, bool)> = tx.find(sql, [tenant, queue], read)?;
    let at_most = match found {
        Some((_, true)) => return Ok(Room::Paused),
        Some((Some(at_most), false)) => at_most,
        Some((None, false)) | None => return Ok(Room::Any),
    };
    let held = "SELECT count(*) FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND queue = ?1 AND tenant = ?2 AND claimed_by IS NOT NULL";
    let held: i64 = tx.prepare(held)?.query_row([queue, short(tenant)], |row| row.get(0))?;
    Ok(Room::Left(at_most - held))
}

impl Cursor {
    pub fn next(&mut self, tx: &Tx<'_>, claim: &Claim, limit: usize) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        // More is asked for when these are taken and there is room for more.
        while found.len() < limit && bytes < PAGE_BYTES {
            let Some(mut level) = self.level.take().map_or_else(|| self.next_level(tx), |it| Ok(Some(it)))?
            else {
                break;
            };
            match self.turn(tx, claim, &mut level, limit - found.len())? {
                Some(candidate) => {
                    bytes += candidate.stored.weight();
                    found.push(candidate);
                    self.level = Some(level);
                }
                None => self.read_to = (level.priority, String::new()),
            }
        }
        Ok(found)
    }

    pub fn room_of(&mut self, number: usize) -> &mut Room {
        &mut self.rooms[number]
    }

    /// The queue of a tenant has no room for more.
    pub fn close(&mut self, room: usize) {
        for lane in self.lanes().filter(|lane| lane.room == room) {
            lane.page.clear();
            lane.is_done = true;
        }
    }

    /// With all that waits for the same keys, so that a hundred thousand of them are not met one by one.
    pub fn set_aside(&mut self, tx: &Tx<'_>, candidates: &[Candidate]) -> Result<usize> {
        let key =
            |it: &Candidate| Some((it.stored.row.concurrency_key.clone()?, it.stored.row.tenant.clone()));
        let mut keys: Vec<(String, String)> = candidates.iter().filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut count = 0;
        for (key, tenant) in keys {
            count += slots::set_aside(tx, &tenant, &key)?;
        }
        // Read again from where each stands, without those.
        for lane in self.lanes().filter(|lane| !lane.page.is_empty()) {
            lane.page.clear();
            lane.is_done = false;
        }
        Ok(count)
    }

    /// The next claim of the same kind goes on with whose turn it is then.
    pub fn keep_turns(self, tx: &Tx<'_>) {
        if let Some(turns) = self.turns {
            tx.cache.turns.borrow_mut().keep(turns);
        }
    }

    pub fn turn_goes_on(&mut self, row: &RunRow) {
        let level = self.level.as_mut().filter(|level| level.priority == i64::from(row.priority));
        if let Some(level) = level {
            level.unserved.push_back(short(&row.tenant).to_owned());
        }
    }

    fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        let tenants = self.level.iter_mut().flat_map(|level| level.fresh.iter_mut().chain(&mut level.served));
        tenants.flat_map(|tenant| &mut tenant.lanes)
    }

    fn next_level(&mut self, tx: &Tx<'_>) -> Result<Option<Level>> {
        for queue in &mut self.queues {
            // What is left of a priority was read before the search began again.
            queue.next =
                queue.next.take().filter(|next| next.as_ref().is_none_or(|next| *next < self.read_to));
            queue.look(tx, self.tenant.as_deref(), &self.read_to)?;
        }
        let Some(priority) = self.queues.iter().filter_map(QueueScan::priority).max() else {
            return Ok(None);
        };
        let last = self.turns.as_ref().and_then(|turns| turns.last(priority)).map(str::to_owned);
        for queue in &mut self.queues {
            queue.top = queue.next.clone().flatten().filter(|next| next.0 == priority);
            if last.is_some() && queue.top.is_some() {
                queue.next = None;
            }
        }
        self.read_to = (priority, last.clone().unwrap_or_default());
        Ok(Some(Level { priority, last, ..Level::default() }))
    }

    /// Adds the tenant that comes next to those that wait for their turn.
    fn look_for_tenant(&mut self, tx: &Tx<'_>, level: &mut Level) -> Result<()> {
        for queue in &mut self.queues {
            queue.look(tx, self.tenant.as_deref(), &self.read_to)?;
        }
        let found = self.queues.iter().filter_map(|queue| queue.tenant_of(level.priority)).max();
        let is_over =
            |tenant: &str| level.last.as_deref().is_some_and(|last| level.begins_again && tenant < last);
        match found.filter(|tenant| !is_over(tenant)).map(str::to_owned) {
            Some(name) => {
                let mut lanes = Vec::new();
                for at in 0..self.queues.len() {
                    if self.queues[at].tenant_of(level.priority) == Some(&name) {
                        self.queues[at].next = None;
                        lanes.extend(self.lane(tx, at, &name)?);
                    }
                }
                self.read_to = (level.priority, name.clone());
                if !lanes.is_empty() {
                    level.fresh.push_back(Tenant { name, lanes });
                }
            }
            None if level.last.is_some() && !level.begins_again => {
                level.begins_again = true;
                for queue in self.queues.iter_mut().filter(|queue| queue.top.is_some()) {
                    queue.next = Some(queue.top.take());
                }
            }
            None => level.is_searched = true,
        }
        Ok(())
    }

    /// None if the tenant's queue is paused or full.
    fn lane(&mut self, tx: &Tx<'_>, queue: usize, tenant: &str) -> Result<Option<Lane>> {
        let key = (queue, tenant.to_owned());
        let number = match self.room_numbers.get(&key) {
            Some(number) => *number,
            None => {
                self.rooms.push(room(tx, named(tenant), &self.queues[queue].name)?);
                self.room_numbers.insert(key, self.rooms.len() - 1);
                self.rooms.len() - 1
            }
        };
        let is_open = !matches!(self.rooms[number], Room::Paused | Room::Left(..=0));
        Ok(is_open.then(|| Lane {
            queue,
            room: number,
            after: (i64::MIN, 0),
            page: VecDeque::new(),
            is_done: false,
        }))
    }

    /// The best run of the tenant whose turn it is. None: there is nothing left of this priority.
    fn turn(
        &mut self,
        tx: &Tx<'_>,
        claim: &Claim,
        level: &mut Level,
        wish: usize,
    ) -> Result<Option<Candidate>> {
        loop {
            // As many as are needed at most: one more costs a look at the index.
            while !level.is_searched && level.fresh.len() < wish {
                self.look_for_tenant(tx, level)?;
            }
            // A place among those that were served, which a turn that is not over leaves as it is.
            let goes_on = level.unserved.pop_front();
            let at = match &goes_on {
                Some(name) => level.served.iter().position(|tenant| tenant.name == *name),
                None => (level.fresh.is_empty() && !level.served.is_empty()).then_some(0),
            };
            let tenant = match at {
                Some(at) => level.served.remove(at),
                None if goes_on.is_some() => continue,
                None => level.fresh.pop_front(),
            };
            let Some(mut tenant) = tenant else { return Ok(None) };
            let share = wish.div_ceil(1 + level.fresh.len() + level.served.len());
            let candidate = self.best_of(tx, claim, level.priority, &mut tenant, share)?;
            if candidate.is_some() {
                if tenant.lanes.iter().any(|lane| !lane.is_done || !lane.page.is_empty()) {
                    let at = at.filter(|_| goes_on.is_some()).unwrap_or(level.served.len());
                    level.served.insert(at, tenant);
                }
                return Ok(candidate);
            }
        }
    }

    /// The earliest of its queues. What this binary cannot read, or the claimer does not want, stays where it is.
    fn best_of(
        &self,
        tx: &Tx<'_>,
        claim: &Claim,
        priority: i64,
        tenant: &mut Tenant,
        wish: usize,
    ) -> Result<Option<Candidate>> {
        loop {
            for lane in &mut tenant.lanes {
                let queue = &self.queues[lane.queue].name;
                lane.fill(tx, (queue, priority, &tenant.name), self.can.as_ref(), wish)?;
            }
            let heads = tenant.lanes.iter_mut().filter(|lane| !lane.page.is_empty());
            let Some(lane) = heads.min_by_key(|lane| lane.page.front().copied()) else { return Ok(None) };
            let Some(place) = lane.page.pop_front() else { return Ok(None) };
            lane.after = place;
            if let Some(stored) = row::by_rid(tx, place.1)?.filter(|stored| claim.wants(&stored.row)) {
                let place = (Time::from_ms(place.0), place.1);
                return Ok(Some(Candidate { stored, lane: lane.room, place, entry: String::new() }));
            }
        }
    }
}

impl QueueScan {
    /// Finds the next lane below a place, if it is not known yet. Of a tenant's own, those of others are skipped.
    fn look(&mut self, tx: &Tx<'_>, tenant: Option<&str>, below: &LaneKey) -> Result<()> {
        if self.next.is_some() {
            return Ok(());
        }
        let after = |tenant: &str| format!("{tenant}\0");
        let mut below = below.clone();
        self.next = loop {
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let mut found: Option<LaneKey> = None;
            // Nobody comes after the one without a name.
            if !below.1.is_empty() {
                found = tx.find(NEXT_TENANT, params![self.name, below.0, below.1], read)?;
            }
            if found.is_none() {
                found = tx.find(NEXT_PRIORITY, params![self.name, below.0], read)?;
            }
            match (&found, tenant) {
                (Some((priority, other)), Some(tenant)) if **other > *tenant => {
                    below = (*priority, after(tenant));
                }
                (Some((priority, other)), Some(tenant)) if **other < *tenant => {
                    below = (priority - 1, after(tenant));
                }
                _ => break Some(found),
            }
        };
        Ok(())
    }

    fn priority(&self) -> Option<i64> {
        self.next.as_ref()?.as_ref().map(|next| next.0)
    }

    fn tenant_of(&self, priority: i64) -> Option<&str> {
        let next = self.next.as_ref()?.as_ref()?;
        (next.0 == priority).then_some(&next.1)
    }
}

impl Lane {
    fn fill(
        &mut self,
        tx: &Tx<'_>,
        (queue, priority, tenant): (&str, i64, &str),
        can: Option<&(String, bool)>,
        wish: usize,
    ) -> Result<()> {
        if !self.page.is_empty() || self.is_done {
            return Ok(());
        }
        let ((at, rid), now, wish) = (self.after, tx.now.ms(), wish.clamp(1, 1_000));
        let limit = wish as i64;
        let found = match can {
            None => row::places(tx, READY, params![queue, priority, tenant, now, at, rid, limit])?,
            Some((playbooks, carried)) => {
                let values = params![queue, priority, tenant, now, at, rid, limit, playbooks, carried];
                row::places(tx, READY_FOR, values)?
            }
        };
        self.is_done = found.len() < wish;
        self.page = found.into();
        Ok(())
    }
}
