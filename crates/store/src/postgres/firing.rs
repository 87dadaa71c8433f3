//! What is due of the schedules, and beginning it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use waypost_kernel::Time;

use super::fault::{Fault, Result, damaged};
use super::row;
use super::schedules::{Keys, Locked, ScopeKey, keys, lock_scopes, one_scope, save_scope, save_scopes};
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp};
use super::tables::PgTx;
use crate::engine::{self, CheckedRun, Stored};
use crate::error::StoreError;
use crate::run::RunRow;
use crate::schedules::*;
use crate::tokens::fresh;
use crate::verbs::Take;

/// Mine: applied and I may, or my own, and none that I cannot execute just now. $1, $2 and $3 of a statement; $4 is now.
const MINE: &str = "((s.carried AND $1 OR s.hash = ANY ($2)) AND NOT s.hash = ANY ($3))";
/// The same of a scope: it has its schedule's columns.
const MY_SCOPE: &str = "((c.carried AND $1 OR c.hash = ANY ($2)) AND NOT c.hash = ANY ($3))";
/// Whether something of the scope `c` is under way.
const IS_RUNNING: &str = "EXISTS (SELECT 1 FROM waypost.executions e JOIN waypost.runs r ON r.run_id = e.run_id \
  WHERE e.schedule = c.schedule AND e.kind = c.kind AND e.id = c.id AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL AND r.state < 5000)";

/// Who asks, as a statement takes it.
struct Asker<'m> {
    carried: bool,
    hashes: Vec<&'m str>,
    except: Vec<&'m str>,
}

pub async fn due(session: &Session, mine: &Mine, limit: usize) -> Result<Due> {
    let tx = session.begin().await?;
    let due = due_in(&tx, mine, limit).await;
    tx.end(due).await
}

async fn due_in(tx: &Tx, mine: &Mine, limit: usize) -> Result<Due> {
    let asker = Asker {
        carried: mine.carried,
        hashes: mine.hashes.iter().map(String::as_str).collect(),
        except: mine.except.iter().map(String::as_str).collect(),
    };
    let mut due = Due { now: tx.now, ..Due::default() };
    look_after(tx, &asker, limit, &mut due).await?;
    if limit > 0 {
        look_at_waiting(tx, &asker, &mut due).await?;
    }
    due.listings = listings(tx, &asker).await?;
    let sql = due_scopes();
    let rows =
        tx.query(&sql, args![asker.carried, asker.hashes, asker.except, stamp(tx.now), limit as i64]).await?;
    for row in &rows {
        let columns = Columns(row);
        due.scopes.push(DueScope {
            schedule: columns.get(0)?,
            hash: columns.get(1)?,
            kind: columns.get(2)?,
            id: columns.get(3)?,
            through: columns.time(4)?,
            since: columns.time(5)?,
            is_running: columns.get(6)?,
            wake_at: columns.time(7)?.unwrap_or_default(),
        });
    }
    due.more |= limit > 0 && due.scopes.len() == limit;
    Ok(due)
}

/// What one tick reads: the scopes that are due, by the index of their times, each with what is open of it; nothing of
/// schedules, nor of what was executed before. A scope of a paused one has no time.
pub fn due_scopes() -> String {
    format!(
        "SELECT c.schedule, c.hash, c.kind, c.id, c.through, c.since, {IS_RUNNING}, c.wake_at \
         FROM waypost.schedule_scopes c WHERE c.wake_at <= $4 AND {MY_SCOPE} ORDER BY c.wake_at LIMIT $5"
    )
}

/// One process at a time lists the scopes of a schedule.
async fn listings(tx: &Tx, asker: &Asker<'_>) -> Result<Vec<DueListing>> {
    let wake_at = tx.now + LISTING;
    let sql = format!(
        "WITH found AS (SELECT s.name FROM waypost.schedules s WHERE {MINE} AND s.scopes_at <= $4 AND s.paused_at IS NULL \
           ORDER BY s.name FOR UPDATE OF s SKIP LOCKED) \
         UPDATE waypost.schedules s SET scopes_at = $5 FROM found WHERE s.name = found.name RETURNING s.name, s.hash"
    );
    let (now, next) = (stamp(tx.now), stamp(wake_at));
    let rows = tx.query(&sql, args![asker.carried, asker.hashes, asker.except, now, next]).await?;
    let listing =
        |row| Ok(DueListing { schedule: Columns(row).get(0)?, hash: Columns(row).get(1)?, wake_at });
    rows.iter().map(listing).collect()
}

/// Those that have begun: their ends, their retries, and those that nobody holds any more. One process at a time looks at
/// an execution; the others pass over it.
async fn look_after(tx: &Tx, asker: &Asker<'_>, limit: usize, due: &mut Due) -> Result<()> {
    let sql = format!(
        "SELECT e.schedule, s.hash, e.kind, e.id, e.plan_time, e.run_id, e.manual, s.paused_at IS NOT NULL FROM waypost.executions e \
         JOIN waypost.schedules s ON s.name = e.schedule WHERE e.wake_at <= $4 AND e.run_id IS NOT NULL AND {MINE} \
         ORDER BY e.wake_at LIMIT $5 FOR UPDATE OF e SKIP LOCKED"
    );
    let now = stamp(tx.now);
    let rows =
        tx.query(&sql, args![asker.carried, asker.hashes, asker.except, now, LOOKED_AT as i64]).await?;
    due.more |= rows.len() == LOOKED_AT;
    let mut found = Vec::new();
    for row in &rows {
        let columns = Columns(row);
        let execution = DueExecution {
            schedule: columns.get(0)?,
            hash: columns.get(1)?,
            kind: columns.get(2)?,
            id: columns.get(3)?,
            plan: columns.time(4)?.unwrap_or_default(),
            run_id: columns.get(5)?,
            manual: columns.get(6)?,
            is_running: false,
            wake_at: tx.now,
        };
        found.push((execution, columns.get::<bool>(7)?));
    }
    let ids: Vec<&str> = found.iter().filter_map(|(it, _)| it.run_id.as_deref()).collect();
    let stored = if ids.is_empty() { Vec::new() } else { row::by_ids(tx, &ids).await? };
    let runs: HashMap<String, Arc<RunRow>> =
        stored.into_iter().map(|stored| (stored.row.id().to_owned(), stored.row)).collect();
    let mut look = Look { now: tx.now, room: limit };
    let mut looked = Vec::new();
    for (execution, is_paused) in found {
        let run = execution.run_id.as_deref().and_then(|run_id| runs.get(run_id)).map(|row| &**row);
        let (wake_at, is_taken) = look.at(run, is_paused);
        looked.push(Looked { run, execution, wake_at, is_taken });
    }
    close_all(tx, &mut looked).await?;
    let keys: Vec<Key<'_>> = looked.iter().map(Looked::key).collect();
    wake_all(tx, &keys, &vec![None; keys.len()], looked.iter().map(|it| it.wake_at).collect()).await?;
    for it in looked.into_iter().filter(|it| it.is_taken) {
        let wake_at = it.wake_at.unwrap_or(tx.now);
        due.executions.push(DueExecution { wake_at, ..it.execution });
    }
    Ok(())
}

/// Of each scope, the first plan that waits to begin. One process at a time is told of a scope's.
async fn look_at_waiting(tx: &Tx, asker: &Asker<'_>, due: &mut Due) -> Result<()> {
    let sql = format!(
        "WITH found AS MATERIALIZED (SELECT c.schedule, c.hash, c.kind, c.id, {IS_RUNNING} AS is_running FROM waypost.schedule_scopes c \
           WHERE c.waiting_at <= $4 AND {MY_SCOPE} ORDER BY c.waiting_at LIMIT $5 FOR UPDATE OF c SKIP LOCKED), \
         looked AS (SELECT f.*, e.plan_time, e.manual, e.wake_at FROM found f LEFT JOIN LATERAL (SELECT x.plan_time, x.manual, x.wake_at \
           FROM waypost.executions x WHERE x.schedule = f.schedule AND x.kind = f.kind AND x.id = f.id AND x.run_id IS NULL \
           AND x.wake_at <= $4 ORDER BY x.plan_time LIMIT 1) e ON true) \
         UPDATE waypost.schedule_scopes c SET waiting_at = CASE WHEN l.plan_time IS NOT NULL THEN $6 ELSE (SELECT min(x.wake_at) \
           FROM waypost.executions x WHERE x.schedule = c.schedule AND x.kind = c.kind AND x.id = c.id AND x.run_id IS NULL \
           AND x.wake_at IS NOT NULL) END \
         FROM looked l WHERE c.schedule = l.schedule AND c.kind = l.kind AND c.id = l.id \
         RETURNING l.schedule, l.hash, l.kind, l.id, l.is_running, l.plan_time, l.manual, l.wake_at"
    );
    let (now, soon) = (stamp(tx.now), stamp(tx.now + SOON));
    let values = args![asker.carried, asker.hashes, asker.except, now, LOOKED_AT as i64, soon];
    let rows = tx.query(&sql, values).await?;
    due.more |= rows.len() == LOOKED_AT;
    for row in &rows {
        let columns = Columns(row);
        let (Some(plan), Some(wake_at)) = (columns.time(5)?, columns.time(7)?) else { continue };
        due.executions.push(DueExecution {
            schedule: columns.get(0)?,
            hash: columns.get(1)?,
            kind: columns.get(2)?,
            id: columns.get(3)?,
            plan,
            run_id: None,
            manual: columns.get(6)?,
            is_running: columns.get(4)?,
            wake_at,
        });
    }
    Ok(())
}

/// An execution that was looked at, and what becomes of it.
struct Looked<'r> {
    execution: DueExecution,
    run: Option<&'r RunRow>,
    wake_at: Option<Time>,
    is_taken: bool,
}

impl Looked<'_> {
    fn key(&self) -> Key<'_> {
        let DueExecution { schedule, kind, id, plan, .. } = &self.execution;
        (schedule, kind, id, *plan)
    }

    fn scope(&self) -> ScopeKey {
        let DueExecution { schedule, kind, id, .. } = &self.execution;
        (schedule.clone(), kind.clone(), id.clone())
    }
}

/// Counts those that have ended in their scopes. Where a scope is in use just now, they are looked at once more: who
/// holds executions must not wait for scopes.
async fn close_all(tx: &Tx, looked: &mut [Looked<'_>]) -> Result<()> {
    let ended = |it: &Looked<'_>| it.wake_at.is_none() && it.run.is_some();
    if !looked.iter().any(ended) {
        return Ok(());
    }
    let found = looked.iter().filter(|it| ended(it)).map(Looked::key);
    let found = keys(found.map(|(schedule, kind, id, _)| (schedule, kind, id)));
    let mut scopes = lock_scopes(tx, &found).await?;
    let in_use = in_use(tx, &found, &scopes).await?;
    for it in looked.iter_mut().filter(|it| ended(it)) {
        let key = it.scope();
        match (scopes.get_mut(&key), it.run) {
            (Some(scope), Some(run)) => close(scope, it.execution.plan, run),
            _ if in_use.contains(&key) => it.wake_at = Some(tx.now),
            _ => {}
        }
    }
    let all: Vec<(&str, &ScopeRow)> = scopes.iter().map(|(key, scope)| (key.0.as_str(), scope)).collect();
    save_scopes(tx, &all).await
}

/// Scopes that are there, and that somebody else has locked.
async fn in_use(tx: &Tx, asked: &Keys<'_>, locked: &Locked) -> Result<HashSet<ScopeKey>> {
    let is_free = |at: usize| {
        locked.contains_key(&(asked.0[at].to_owned(), asked.1[at].to_owned(), asked.2[at].to_owned()))
    };
    if (0..asked.0.len()).all(is_free) {
        return Ok(HashSet::new());
    }
    let sql = "SELECT c.schedule, c.kind, c.id FROM waypost.schedule_scopes c JOIN unnest($1, $2, $3) AS u(schedule, kind, id) \
               ON c.schedule = u.schedule AND c.kind = u.kind AND c.id = u.id";
    let rows = tx.query(sql, args![asked.0, asked.1, asked.2]).await?;
    let key = |row| Ok((Columns(row).get(0)?, Columns(row).get(1)?, Columns(row).get(2)?));
    let there: HashSet<ScopeKey> = rows.iter().map(key).collect::<Result<_>>()?;
    Ok(there.into_iter().filter(|key| !locked.contains_key(key)).collect())
}

pub type Key<'a> = (&'a str, &'a str, &'a str, Time);

async fn wake(tx: &Tx, key: Key<'_>, run_id: Option<&str>, at: Option<Time>) -> Result<()> {
    wake_all(tx, &[key], &[run_id], vec![at]).await
}

/// Of each: the run that it has now, if that is told, and when it is looked at.
pub async fn wake_all(
    tx: &Tx,
    executions: &[Key<'_>],
    run_ids: &[Option<&str>],
    at: Vec<Option<Time>>,
) -> Result<()> {
    if executions.is_empty() {
        return Ok(());
    }
    let (schedules, kinds, ids) =
        keys(executions.iter().map(|(schedule, kind, id, _)| (*schedule, *kind, *id)));
    tx.run(
        "UPDATE waypost.executions e SET wake_at = u.wake_at, run_id = coalesce(u.run_id, e.run_id) \
         FROM unnest($1, $2, $3, $4, $5, $6) AS u(schedule, kind, id, plan_time, wake_at, run_id) \
         WHERE e.schedule = u.schedule AND e.kind = u.kind AND e.id = u.id AND e.plan_time = u.plan_time",
        args![
            schedules,
            kinds,
            ids,
            executions.iter().map(|(.., plan)| stamp(*plan)).collect::<Vec<_>>(),
            at.into_iter().map(|at| at.map(stamp)).collect::<Vec<_>>(),
            run_ids.to_vec(),
        ],
    )
    .await
    .map(drop)
}

async fn is_running(tx: &Tx, schedule: &str, kind: &str, id: &str, but: Option<&str>) -> Result<bool> {
    let row = tx.one("SELECT waypost.is_running($1, $2, $3, $4)", args![schedule, kind, id, but]).await?;
    Columns(&row).get(0)
}

/// Paused or gone: nothing begins.
async fn is_open(tx: &Tx, schedule: &str) -> Result<bool> {
    let sql = "SELECT 1 FROM waypost.schedules WHERE name = $1 AND paused_at IS NULL FOR SHARE";
    Ok(!tx.query(sql, args![schedule]).await?.is_empty())
}

/// A run that has the key already is somebody else's: that a plan begins once is the execution's to keep.
async fn born(pg: &mut PgTx, key: Key<'_>, birth: &Birth) -> Result<Begun> {
    let run = CheckedRun::of(birth.run.clone())?;
    if birth.lease.is_some() {
        let made = engine::new_held(pg, vec![(run, birth.lease)]).await;
        let taken = pg.outcome(made)?.pop().ok_or_else(|| damaged("a plan has no run"))?;
        let tx = pg.tx()?;
        wake(tx, key, Some(taken.run().id()), Some(first_look(taken.run(), tx.now))).await?;
        return Ok(Begun::Held(key.3, Box::new(taken.claimed()?)));
    }
    let made = engine::new_queued(pg, vec![run]).await;
    let row = pg.outcome(made)?.pop().ok_or_else(|| damaged("a plan has no run"))?;
    let tx = pg.tx()?;
    wake(tx, key, Some(row.id()), Some(first_look(&row, tx.now))).await?;
    Ok(Begun::Queued(key.3, row.id().to_owned()))
}

pub async fn begin(session: &Session, begin: &Begin) -> Result<Option<Begun>> {
    let mut pg = PgTx::begin(session).await?;
    let begun = begin_in(&mut pg, begin).await;
    pg.close(begun).await
}

async fn begin_in(pg: &mut PgTx, begin: &Begin) -> Result<Option<Begun>> {
    let tx = pg.tx()?;
    let Begin { schedule, kind, id, plan, .. } = begin;
    let key = (schedule.as_str(), kind.as_str(), id.as_str(), *plan);
    if !is_open(tx, schedule).await? {
        return Ok(None);
    }
    let scope = one_scope(tx, schedule, kind, id).await?;
    // Its run before itself: whoever moves the run writes both in this order.
    let sql = "SELECT 1 FROM waypost.runs r WHERE r.run_id = (SELECT e.run_id FROM waypost.executions e WHERE e.schedule = $1 AND e.kind = $2 \
               AND e.id = $3 AND e.plan_time = $4) FOR UPDATE";
    tx.query(sql, args![*schedule, *kind, *id, stamp(*plan)]).await?;
    let sql = "SELECT run_id FROM waypost.executions WHERE schedule = $1 AND kind = $2 AND id = $3 AND plan_time = $4 \
               AND wake_at IS NOT NULL FOR UPDATE";
    let rows = tx.query(sql, args![*schedule, *kind, *id, stamp(*plan)]).await?;
    let Some(found) = rows.first() else { return Ok(None) };
    let run_id: Option<String> = Columns(found).get(0)?;
    if begin.alone && is_running(tx, schedule, kind, id, run_id.as_deref()).await? {
        // One that has not begun keeps its place before those that come after it.
        if run_id.is_some() {
            wake(tx, key, None, Some(tx.now + SOON)).await?;
        }
        return Ok(None);
    }
    let (begun, counts) = match run_id {
        None => (Some(born(pg, key, &begin.birth).await?), taken_as(None)),
        Some(run_id) => {
            let stored = row::by_id(tx, &run_id).await?;
            let counts = taken_as(Some(&stored.row));
            (take(pg, key, stored, begin).await?, counts)
        }
    };
    if begun.is_some()
        && let Some(mut scope) = scope
    {
        scope.counts.add(&counts);
        save_scope(pg.tx()?, schedule, &scope).await?;
    }
    if begun.is_some() {
        has_begun(pg.tx()?, key, begin.alone).await?;
    }
    Ok(begun)
}

/// What failed before is forgotten; if others may run beside it, the next that waits is looked at at once.
async fn has_begun(tx: &Tx, (schedule, kind, id, plan): Key<'_>, is_alone: bool) -> Result<()> {
    let sql = "UPDATE waypost.executions SET failures = 0 WHERE schedule = $1 AND kind = $2 AND id = $3 AND plan_time = $4 AND failures > 0";
    tx.run(sql, args![schedule, kind, id, stamp(plan)]).await?;
    if !is_alone {
        let sql = "UPDATE waypost.schedule_scopes SET waiting_at = $4 WHERE schedule = $1 AND kind = $2 AND id = $3 AND waiting_at IS NOT NULL";
        tx.run(sql, args![schedule, kind, id, stamp(tx.now)]).await?;
    }
    Ok(())
}

async fn take(pg: &mut PgTx, key: Key<'_>, stored: Stored, begin: &Begin) -> Result<Option<Begun>> {
    let how = Take { worker: begin.by.clone(), lease: begin.birth.lease, start: false };
    let taken = engine::take(pg, stored, &how, fresh()).await;
    let lost = || Fault::Again(StoreError::Unavailable("its run changed meanwhile; try again".into()));
    match pg.outcome(taken) {
        Ok(taken) => {
            let taken = taken.ok_or_else(lost)?;
            let tx = pg.tx()?;
            wake(tx, key, None, Some(first_look(taken.run(), tx.now))).await?;
            Ok(Some(Begun::Held(key.3, Box::new(taken.claimed()?))))
        }
        Err(Fault::Told(StoreError::Refused(_))) => Ok(None),
        Err(fault) => Err(fault),
    }
}
