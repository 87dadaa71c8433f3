//! Why runs wait. What is known around them is read for all of them together, by a number of statements that does not grow with
//! them; the kernel says what it comes to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use waypost_kernel::waiting::{
    Ahead, Around, Asks, LimitFacts, PauseFacts, Reason, WorkerFacts, is_orphaned, is_to_be_taken, waiting,
};
use waypost_kernel::{Phase, Time};

use super::tx::{Slot, Tx};
use super::workers;
use crate::seam::access::EVERY_TENANT;
use crate::seam::error::Result;
use crate::seam::run::{RunRow, parse_time};
use crate::seam::workers::WorkerRow;
use crate::statement::{Cell, Cells, Sql, query, values};

/// How a database is asked for what is around runs. Tenants are named in full.
pub(crate) trait WaitTx: Tx + Sql {
    /// Tenant, queue and run id of the runs of the queues `$1` that somebody holds: one that was given back has no place there.
    const HELD_IN_QUEUES: &'static str;
    /// Tenant, key and run id of those that hold the keys `$1`.
    const HELD_WITH_KEYS: &'static str;
    /// The same of those that somebody has: one that was given back waits for them.
    const WORKED_WITH_KEYS: &'static str;
    /// Who holds runs, how many, and when the first of these leases ends.
    const HELD_BY: &'static str;
    /// Those of the runs `$1` that bring along what they execute.
    const BRINGING: &'static str;
    /// The runs `$1` with their details.
    const DETAILS: &'static str;
    /// How many are due at `$2` and come before each of the runs `$1` in its queue, at most `$3` of each kind: what was given back comes
    /// before what is ready, in the order of its times. Of those that are ready with one concurrency key as many count as the key lets
    /// through now: a claim passes the others over.
    const BEFORE: &'static str;
    /// How many are due at `$2` and come before each of the runs `$1` among those that wait for its concurrency key, at most `$3`.
    const BEFORE_WITH_KEY: &'static str;
    /// At most `$4` keys that are held or limited, after the key `$1` of the tenant `$2`, of the tenant `$3` if there is one: tenant and key.
    const KEYS: &'static str;
    /// Tenant, key and count of runs with the keys `$1` that are ready and due at `$2`, of which so many are counted.
    const WAITING_WITH_KEYS: &'static str;
    /// When each of the runs `$1`, drafts and parked ones, came into its state.
    const MOVED: &'static str;
    /// When each of the runs `$1`, which nobody holds, was given back.
    const RELEASED: &'static str;
}

/// Of those who hold a key or a queue, so many are named.
const NAMED: usize = 3;
/// Those before a run are counted up to this; of many runs up to less, so that a page costs about as much.
const MOST_BEFORE: usize = 1_000;
const MOST_BEFORE_EACH: usize = 100;
const FEW: usize = 10;
const MOST_POSITION: usize = 10_000;

/// A key whose limit nobody set.
pub(super) const KEY_LIMIT: u64 = 1;

#[derive(Debug, Default)]
struct Facts {
    settings: BTreeMap<Slot, Settings>,
    queue_limits: BTreeMap<Slot, LimitFacts>,
    /// For those that are ready, and for those that were given back.
    key_limits: BTreeMap<Slot, LimitFacts>,
    worked_limits: BTreeMap<Slot, LimitFacts>,
    /// By the tenant whose runs they take; `*` is everybody's.
    workers: Vec<(String, WorkerFacts)>,
    bringing: HashSet<String>,
    before: HashMap<String, Ahead>,
    moved: HashMap<String, Time>,
    /// Of those that ask people something: what is open, and whether anything is decided.
    asked: HashMap<String, (Vec<String>, bool)>,
}

#[derive(Debug, Default)]
struct Settings {
    at_most: Option<u64>,
    paused: Option<(String, String, Option<Time>)>,
}

/// The same rows, each with why it waits.
pub(crate) async fn explain<T: WaitTx>(tx: &mut T, rows: &[RunRow]) -> Result<Vec<RunRow>> {
    let now = tx.now();
    let mut facts = Facts::default();
    let due: Vec<&RunRow> = rows.iter().filter(|row| is_due(row, now)).collect();
    let is_left = |row: &RunRow| row.run.lease.as_ref().is_some_and(|lease| is_orphaned(lease, now));
    let to_be_worked: Vec<&RunRow> = rows.iter().filter(|row| is_due(row, now) || is_left(row)).collect();
    facts.read_queues(tx, &to_be_worked).await?;
    facts.read_keys(tx, &due).await?;
    facts.read_workers(tx, &to_be_worked).await?;
    let still = |row: &&RunRow| matches!(row.phase(), Phase::Parked | Phase::Draft);
    facts.read_moves(tx, T::MOVED, &rows.iter().filter(still).collect::<Vec<_>>()).await?;
    facts.read_asked(tx, &rows.iter().filter(still).collect::<Vec<_>>()).await?;
    let put_off = |row: &&RunRow| row.run.lease.as_ref().is_some_and(|it| it.is_vacant() && it.until > now);
    facts.read_moves(tx, T::RELEASED, &rows.iter().filter(put_off).collect::<Vec<_>>()).await?;
    let busy = |row: &&&RunRow| facts.of(row, now).is_some_and(|it| it.reason == Reason::SlotsBusy);
    let in_line: Vec<&RunRow> = due.iter().filter(busy).copied().collect();
    facts.read_line(tx, &in_line).await?;
    let queue_position = match (rows, due.as_slice()) {
        ([_], [row]) => position(tx, row).await?,
        _ => None,
    };
    let explained = rows.iter().map(|row| RunRow {
        waits: Some(Box::new(facts.of(row, now))),
        queue_position,
        ..row.clone()
    });
    Ok(explained.collect())
}

/// Of a run that is ready and due. Beyond so many nobody counts.
async fn position<T: WaitTx>(tx: &mut T, row: &RunRow) -> Result<Option<u64>> {
    if row.phase() != Phase::Ready {
        return Ok(None);
    }
    let sql = if row.concurrency_key.is_some() { T::BEFORE_WITH_KEY } else { T::BEFORE };
    let now = tx.now();
    let rows = query(tx, sql, values![ids(&[row]), now, MOST_POSITION + 1]).await?;
    let before: Option<u64> = rows.first().map(|row| row.get(1)).transpose()?;
    Ok(before.filter(|before| *before <= MOST_POSITION as u64).map(|before| before + 1))
}

/// Whether a worker may take it: it is ready, or was given back, and its time has come.
fn is_due(row: &RunRow, now: Time) -> bool {
    match row.phase() {
        Phase::Ready => row.run.available_at.is_some_and(|at| at <= now),
        Phase::Held => row.run.lease.as_ref().is_some_and(|lease| is_to_be_taken(lease, now)),
        Phase::Draft | Phase::Parked | Phase::Settled => false,
    }
}

fn ids(rows: &[&RunRow]) -> Vec<String> {
    rows.iter().map(|row| row.id().to_owned()).collect()
}

fn slot(tenant: &str, name: &str) -> Slot {
    (tenant.to_owned(), name.to_owned())
}

/// Distinct names.
fn names<'r>(names: impl Iterator<Item = &'r str>) -> Vec<String> {
    names.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect()
}

/// A time, as either database keeps that of a pause.
fn paused_at(row: &Cells, at: usize) -> Option<Time> {
    match row.0.get(at) {
        Some(Cell::Time(time)) => Some(*time),
        Some(Cell::Text(text)) => parse_time(text),
        _ => None,
    }
}

impl Facts {
    async fn read_queues<T: WaitTx>(&mut self, tx: &mut T, rows: &[&RunRow]) -> Result<()> {
        let queues = names(rows.iter().map(|row| row.queue.as_str()));
        if queues.is_empty() {
            return Ok(());
        }
        let sql = "SELECT tenant, name, at_most, paused_by, pause_reason, paused_at FROM waypost.queues WHERE name = ANY ($1)";
        for row in query(tx, sql, values![&queues]).await? {
            let at = paused_at(&row, 5);
            let by: Option<String> = row.get(3)?;
            let reason: Option<String> = row.get(4)?;
            let paused = at.map(|at| (by.unwrap_or_default(), reason.unwrap_or_default(), Some(at)));
            let settings = Settings { at_most: row.get(2)?, paused };
            self.settings.insert((row.get(0)?, row.get(1)?), settings);
        }
        let limited = self.settings.iter().filter_map(|(of, it)| Some((of.clone(), it.at_most?)));
        self.queue_limits = held(tx, T::HELD_IN_QUEUES, limited.collect(), NAMED).await?;
        Ok(())
    }

    async fn read_keys<T: WaitTx>(&mut self, tx: &mut T, rows: &[&RunRow]) -> Result<()> {
        let keyed = rows.iter().filter_map(|row| Some(slot(&row.tenant, row.concurrency_key.as_deref()?)));
        let mut limits: BTreeMap<Slot, u64> = keyed.map(|slot| (slot, KEY_LIMIT)).collect();
        if limits.is_empty() {
            return Ok(());
        }
        read_key_limits(tx, &mut limits).await?;
        self.key_limits = held(tx, T::HELD_WITH_KEYS, limits.clone(), NAMED).await?;
        let is_held = |row: &&RunRow| row.phase() == Phase::Held;
        if rows.iter().any(is_held) {
            // A limit of 0 stops what waits, not what was begun.
            limits.values_mut().for_each(|limit| *limit = (*limit).max(1));
            self.worked_limits = held(tx, T::WORKED_WITH_KEYS, limits, NAMED).await?;
        }
        Ok(())
    }

    async fn read_workers<T: WaitTx>(&mut self, tx: &mut T, rows: &[&RunRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let live = workers::live(tx, &names(rows.iter().map(|row| row.tenant.as_str()))).await?;
        if !live.is_empty() {
            let mut held: HashMap<String, (u64, Option<Time>)> = HashMap::new();
            for row in query(tx, T::HELD_BY, values![]).await? {
                held.insert(row.get(0)?, (row.get(1)?, row.get(2)?));
            }
            let now = tx.now();
            let facts = |row: WorkerRow| {
                let (busy, until) = held.get(&row.name).copied().unwrap_or_default();
                // Who let a lease run out and gave no sign since is gone, however lately it was seen.
                if until.is_some_and(|until| until <= now && row.seen_at <= Some(until)) {
                    return None;
                }
                // One that only claims asks for as many as it has free.
                let slots = row.slots.unwrap_or_default() + if row.by_claims { busy } else { 0 };
                let can = row.can.map(|can| (can.playbooks, can.carried));
                let WorkerRow { name, queues, lifecycles, only, .. } = row;
                let seen_at = row.seen_at.unwrap_or_default();
                let is_own = row.tenant != EVERY_TENANT;
                let facts = WorkerFacts { name, is_own, seen_at, queues, lifecycles, can, only, slots, busy };
                Some((row.tenant, facts))
            };
            self.workers = live.into_iter().filter_map(facts).collect();
        }
        for row in query(tx, T::BRINGING, values![ids(rows)]).await? {
            self.bringing.insert(row.get(0)?);
        }
        Ok(())
    }

    async fn read_moves<T: WaitTx>(&mut self, tx: &mut T, sql: &str, rows: &[&RunRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        for row in query(tx, sql, values![ids(rows)]).await? {
            if let Some(at) = row.get::<Option<Time>>(1)? {
                self.moved.insert(row.get(0)?, at);
            }
        }
        Ok(())
    }

    /// A list's rows come without their details.
    async fn read_asked<T: WaitTx>(&mut self, tx: &mut T, rows: &[&RunRow]) -> Result<()> {
        let asking = rows.iter().filter(|row| row.lifecycle.decisions.is_some()).copied();
        let asking: HashMap<&str, &RunRow> = asking.map(|row| (row.id(), row)).collect();
        if asking.is_empty() {
            return Ok(());
        }
        let rows: Vec<&RunRow> = asking.values().copied().collect();
        for cells in query(tx, T::DETAILS, values![ids(&rows)]).await? {
            let (id, details): (String, String) = (cells.get(0)?, cells.get(1)?);
            let Some(row) = asking.get(id.as_str()) else { continue };
            let row = RunRow {
                details: Arc::new(serde_json::from_str(&details).unwrap_or_default()),
                ..(*row).clone()
            };
            let mut open: Vec<String> = row.undecided().into_iter().map(|(it, _)| it.to_owned()).collect();
            // A database may keep them in another order than another.
            open.sort();
            self.asked.insert(id, (open, row.is_partly_decided()));
        }
        Ok(())
    }

    async fn read_line<T: WaitTx>(&mut self, tx: &mut T, rows: &[&RunRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let most = if rows.len() > FEW { MOST_BEFORE_EACH } else { MOST_BEFORE };
        let now = tx.now();
        for row in query(tx, T::BEFORE, values![ids(rows), now, most + 1]).await? {
            let count: u64 = row.get(1)?;
            let ahead = Ahead { count: count.min(most as u64), is_cut: count > most as u64 };
            self.before.insert(row.get(0)?, ahead);
        }
        Ok(())
    }

    fn of(&self, row: &RunRow, now: Time) -> Option<waypost_kernel::waiting::Waiting> {
        let of_queue = slot(&row.tenant, &row.queue);
        let pause = self.settings.get(&of_queue).and_then(|settings| settings.paused.as_ref());
        let key = row.concurrency_key.as_deref();
        let is_ready = row.phase() == Phase::Ready;
        let key_limits = if is_ready { &self.key_limits } else { &self.worked_limits };
        let takes = |tenant: &str| tenant == row.tenant || tenant == EVERY_TENANT;
        let workers: Vec<WorkerFacts> =
            self.workers.iter().filter(|(tenant, _)| takes(tenant)).map(|(_, facts)| facts.clone()).collect();
        let around = Around {
            now,
            tenant: &row.tenant,
            queue: &row.queue,
            schedule_at: row.schedule_at,
            moved_at: self.moved.get(row.id()).copied(),
            playbook: row.playbook.as_deref(),
            brings: row.carried.is_some() || self.bringing.contains(row.id()),
            pause: pause.map(|(by, reason, at)| PauseFacts { by, reason, at: *at }),
            queue_limit: self.queue_limits.get(&of_queue),
            key_limit: key.and_then(|key| Some((key, key_limits.get(&slot(&row.tenant, key))?))),
            workers: &workers,
            ahead: self.before.get(row.id()).copied().unwrap_or(Ahead { count: 0, is_cut: true }),
            asks: self.asked.get(row.id()).map_or_else(Asks::default, |(open, is_partly_decided)| Asks {
                open,
                is_partly_decided: *is_partly_decided,
            }),
        };
        waiting(&row.lifecycle, &row.run, &around)
    }
}

/// Where somebody said otherwise than [`KEY_LIMIT`].
pub(super) async fn read_key_limits<T: Sql>(tx: &mut T, limits: &mut BTreeMap<Slot, u64>) -> Result<()> {
    let keys = names(limits.keys().map(|(_, key)| key.as_str()));
    let sql = "SELECT tenant, name, at_most FROM waypost.key_limits WHERE name = ANY ($1)";
    for row in query(tx, sql, values![&keys]).await? {
        if let Some(limit) = limits.get_mut(&(row.get(0)?, row.get(1)?)) {
            *limit = row.get(2)?;
        }
    }
    Ok(())
}

/// What is held of each, with some of those who hold it.
pub(super) async fn held<T: Sql>(
    tx: &mut T,
    sql: &str,
    limits: BTreeMap<Slot, u64>,
    named: usize,
) -> Result<BTreeMap<Slot, LimitFacts>> {
    let of = |(slot, at_most): (&Slot, &u64)| {
        (slot.clone(), LimitFacts { at_most: *at_most, ..LimitFacts::default() })
    };
    let mut facts: BTreeMap<Slot, LimitFacts> = limits.iter().map(of).collect();
    if facts.is_empty() {
        return Ok(facts);
    }
    let asked = names(limits.keys().map(|(_, name)| name.as_str()));
    for row in query(tx, sql, values![asked]).await? {
        let Some(facts) = facts.get_mut(&(row.get(0)?, row.get(1)?)) else { continue };
        facts.held += 1;
        if facts.by.len() < named {
            facts.by.push(row.get(2)?);
        }
    }
    Ok(facts)
}
