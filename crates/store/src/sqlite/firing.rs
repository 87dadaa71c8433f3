//! What is due of the schedules, and beginning it.

use std::sync::Arc;

use rusqlite::{params, params_from_iter, types as sql};
use serde_json::Value;
use waypost_kernel::Time;

use super::fault::Result;
use super::primitives::ready;
use super::row;
use super::schedules::{ms, one, one_scope, save_scope, time};
use super::session::Tx;
use crate::engine::{self, CheckedRun, Taken};
use crate::error::StoreError;
use crate::run::RunRow;
use crate::schedules::*;
use crate::tokens::fresh;
use crate::verbs::Take;

/// Mine: applied and I may, or my own, and none that I cannot execute just now. ?1, ?2 and ?3 of a statement; ?4 is now.
const MINE: &str = "((s.carried AND ?1 OR s.hash IN (SELECT value FROM json_each(?2))) \
  AND s.hash NOT IN (SELECT value FROM json_each(?3)))";
/// Whether something of the scope `c` is under way.
const IS_RUNNING: &str = "EXISTS (SELECT 1 FROM executions e JOIN run_born b ON b.run_id = e.run_id JOIN run_now n ON n.rid = b.rid \
  WHERE e.schedule = c.schedule AND e.kind = c.kind AND e.id = c.id AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL AND n.state & 7 <> 4)";

/// Who asks, as a statement takes it.
struct Asker {
    carried: bool,
    hashes: String,
    except: String,
}

pub fn due(tx: &Tx<'_>, mine: &Mine, limit: usize) -> Result<Due> {
    let list = |hashes: &[String]| Value::from(hashes.to_vec()).to_string();
    let asker = Asker { carried: mine.carried, hashes: list(&mine.hashes), except: list(&mine.except) };
    let mut due = Due { now: tx.now, ..Due::default() };
    look_after(tx, &asker, limit, &mut due)?;
    if limit > 0 {
        look_at_waiting(tx, &asker, &mut due)?;
    }
    due.listings = listings(tx, &asker)?;
    due.scopes = tx.list(
        &format!(
            "SELECT s.name, s.hash, c.kind, c.id, c.through, c.since, {IS_RUNNING}, c.wake_at \
             FROM schedule_scopes c CROSS JOIN schedules s ON s.name = c.schedule WHERE c.wake_at <= ?4 AND s.paused_at IS NULL AND {MINE} \
             ORDER BY c.wake_at, c.schedule, c.id LIMIT ?5"
        ),
        params![asker.carried, asker.hashes, asker.except, tx.now.ms(), limit as i64],
        |row| {
            Ok(DueScope {
                schedule: row.get(0)?,
                hash: row.get(1)?,
                kind: row.get(2)?,
                id: row.get(3)?,
                through: time(row, 4)?,
                since: time(row, 5)?,
                is_running: row.get(6)?,
                wake_at: time(row, 7)?.unwrap_or_default(),
            })
        },
    )?;
    due.more |= limit > 0 && due.scopes.len() == limit;
    Ok(due)
}

/// One process at a time lists the scopes of a schedule.
fn listings(tx: &Tx<'_>, asker: &Asker) -> Result<Vec<DueListing>> {
    let wake_at = Time::from_ms(ms(tx.now + LISTING));
    let found = tx.list(
        &format!(
            "SELECT s.name, s.hash FROM schedules s WHERE {MINE} AND s.scopes_at <= ?4 AND s.paused_at IS NULL ORDER BY s.name"
        ),
        params![asker.carried, asker.hashes, asker.except, tx.now.ms()],
        |row| Ok(DueListing { schedule: row.get(0)?, hash: row.get(1)?, wake_at }),
    )?;
    let sql = "UPDATE schedules SET scopes_at = ?2 WHERE name = ?1";
    found.iter().try_for_each(|it| tx.execute(sql, params![it.schedule, ms(wake_at)]).map(drop))?;
    Ok(found)
}

/// Those that have begun: their ends, their retries, and those that nobody holds any more.
fn look_after(tx: &Tx<'_>, asker: &Asker, limit: usize, due: &mut Due) -> Result<()> {
    let found = tx.list(
        &format!(
            "SELECT e.schedule, s.hash, e.kind, e.id, e.plan_time, e.run_id, e.manual, s.paused_at IS NOT NULL \
             FROM executions e CROSS JOIN schedules s ON s.name = e.schedule \
             WHERE e.wake_at <= ?4 AND e.run_id IS NOT NULL AND {MINE} ORDER BY e.wake_at LIMIT ?5"
        ),
        params![asker.carried, asker.hashes, asker.except, tx.now.ms(), LOOKED_AT as i64],
        |row| {
            let execution = DueExecution {
                schedule: row.get(0)?,
                hash: row.get(1)?,
                kind: row.get(2)?,
                id: row.get(3)?,
                plan: time(row, 4)?.unwrap_or_default(),
                run_id: row.get(5)?,
                manual: row.get(6)?,
                is_running: false,
                wake_at: tx.now,
            };
            Ok((execution, row.get::<_, bool>(7)?))
        },
    )?;
    due.more |= found.len() == LOOKED_AT;
    let mut look = Look { now: tx.now, room: limit };
    for (mut execution, is_paused) in found {
        let stored = row::find(tx, execution.run_id.as_deref().unwrap_or_default())?;
        let (wake_at, is_taken) = look.at(stored.as_ref().map(|stored| &*stored.row), is_paused);
        let DueExecution { schedule, kind, id, plan, .. } = &execution;
        wake(tx, (schedule, kind, id, *plan), None, wake_at)?;
        if let (None, Some(stored)) = (wake_at, &stored)
            && let Some(mut scope) = one_scope(tx, schedule, kind, id)?
        {
            close(&mut scope, *plan, &stored.row);
            save_scope(tx, schedule, &scope)?;
        }
        if let Some(wake_at) = wake_at.filter(|_| is_taken) {
            execution.wake_at = Time::from_ms(ms(wake_at));
            due.executions.push(execution);
        }
    }
    Ok(())
}

/// Of each scope, the first plan that waits to begin. One process at a time is told of a scope's.
fn look_at_waiting(tx: &Tx<'_>, asker: &Asker, due: &mut Due) -> Result<()> {
    let scopes = tx.list(
        &format!(
            "SELECT s.name, s.hash, c.kind, c.id, {IS_RUNNING} FROM schedule_scopes c CROSS JOIN schedules s ON s.name = c.schedule \
             WHERE c.waiting_at <= ?4 AND s.paused_at IS NULL AND {MINE} ORDER BY c.waiting_at LIMIT ?5"
        ),
        params![asker.carried, asker.hashes, asker.except, tx.now.ms(), LOOKED_AT as i64],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
    )?;
    due.more |= scopes.len() == LOOKED_AT;
    for (schedule, hash, kind, id, is_running) in scopes {
        let (schedule, hash, kind, id): (String, String, String, String) = (schedule, hash, kind, id);
        let first: Option<(Option<Time>, Option<String>, Option<Time>)> = tx.find(
            "SELECT plan_time, manual, wake_at FROM executions WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND run_id IS NULL \
             AND wake_at <= ?4 ORDER BY plan_time LIMIT 1",
            params![schedule, kind, id, tx.now.ms()],
            |row| Ok((time(row, 0)?, row.get(1)?, time(row, 2)?)),
        )?;
        tx.execute(
            "UPDATE schedule_scopes SET waiting_at = coalesce(?4, (SELECT min(e.wake_at) FROM executions e WHERE e.schedule = ?1 \
             AND e.kind = ?2 AND e.id = ?3 AND e.run_id IS NULL AND e.wake_at IS NOT NULL)) WHERE schedule = ?1 AND kind = ?2 AND id = ?3",
            params![schedule, kind, id, first.as_ref().map(|_| ms(tx.now + SOON))],
        )?;
        if let Some((Some(plan), manual, Some(wake_at))) = first {
            let run_id = None;
            due.executions.push(DueExecution {
                schedule,
                hash,
                kind,
                id,
                plan,
                run_id,
                manual,
                is_running,
                wake_at,
            });
        }
    }
    Ok(())
}

type Key<'a> = (&'a str, &'a str, &'a str, Time);

fn wake(
    tx: &Tx<'_>,
    (schedule, kind, id, plan): Key<'_>,
    run_id: Option<&str>,
    at: Option<Time>,
) -> Result<()> {
    tx.execute(
        "UPDATE executions SET wake_at = ?5, run_id = coalesce(?6, run_id) WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND plan_time = ?4",
        params![schedule, kind, id, ms(plan), at.map(ms), run_id],
    )?;
    Ok(())
}

/// Whether an execution of the scope, but for one, is under way.
fn is_running(tx: &Tx<'_>, schedule: &str, kind: &str, id: &str, but: Option<&str>) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM executions e JOIN run_born b ON b.run_id = e.run_id JOIN run_now n ON n.rid = b.rid \
         WHERE e.schedule = ?1 AND e.kind = ?2 AND e.id = ?3 AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL \
         AND e.run_id IS NOT ?4 AND n.state & 7 <> 4)";
    Ok(tx.prepare(sql)?.query_row(params![schedule, kind, id, but], |row| row.get(0))?)
}

/// Something that has begun, before it is the caller's.
pub enum Fired {
    Held(Time, Taken),
    Queued(Time, Arc<RunRow>),
}

impl Fired {
    fn run(&self) -> &RunRow {
        match self {
            Fired::Held(_, taken) => taken.run(),
            Fired::Queued(_, row) => row,
        }
    }

    pub fn begun(self) -> crate::error::Result<Begun> {
        Ok(match self {
            Fired::Held(plan, taken) => Begun::Held(plan, Box::new(taken.claimed()?)),
            Fired::Queued(plan, row) => Begun::Queued(plan, row.id().to_owned()),
        })
    }
}

pub fn fire(tx: &Tx<'_>, firing: Firing) -> Result<Option<Vec<Fired>>> {
    let Firing { schedule, kind, id, .. } = &firing;
    if one(tx, schedule)?.is_none_or(|row| row.paused.is_some()) {
        return Ok(None);
    }
    let Some(mut scope) = one_scope(tx, schedule, kind, id)? else { return Ok(None) };
    let is_free = !firing.alone || !is_running(tx, schedule, kind, id, None)?;
    if scope.through != firing.expected || scope.wake_at.is_none() || !is_free {
        return Ok(None);
    }
    (scope.through, scope.wake_at, scope.since) = (firing.through, firing.wake_at, None);
    scope.failures = 0;
    scope.counts.add(&firing.skipped);
    let mut fired = Vec::new();
    for (plan, birth) in firing.plans {
        let new = tx.execute(
            "INSERT INTO executions(schedule, kind, id, plan_time) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            params![firing.schedule, firing.kind, firing.id, ms(plan)],
        )?;
        if new == 1 {
            fired.push(born(tx, (&firing.schedule, &firing.kind, &firing.id, plan), birth)?);
        }
    }
    scope.counts.add(&Counts { won: fired.len() as u64, ..Counts::default() });
    save_scope(tx, &firing.schedule, &scope)?;
    Ok(Some(fired))
}

/// A run that has the key already is somebody else's: that a plan begins once is the execution's to keep.
fn born(tx: &Tx<'_>, key: Key<'_>, birth: Birth) -> Result<Fired> {
    let run = CheckedRun::of(birth.run)?;
    let fired = match birth.lease {
        Some(_) => {
            let made = ready(engine::new_held(&mut tx.engine(), vec![(run, birth.lease)]))?;
            made.into_iter().next().map(|taken| Fired::Held(key.3, taken))
        }
        None => {
            let made = ready(engine::new_queued(&mut tx.engine(), vec![run]))?;
            made.into_iter().next().map(|row| Fired::Queued(key.3, row))
        }
    };
    let fired = fired.ok_or_else(|| StoreError::Unavailable("the plan's run was not written".into()))?;
    let row = fired.run();
    wake(tx, key, Some(row.id()), Some(first_look(row, tx.now)))?;
    Ok(fired)
}

pub fn begin(tx: &Tx<'_>, begin: &Begin) -> Result<Option<Fired>> {
    let Begin { schedule, kind, id, plan, .. } = begin;
    let key = (schedule.as_str(), kind.as_str(), id.as_str(), *plan);
    if one(tx, schedule)?.is_none_or(|row| row.paused.is_some()) {
        return Ok(None);
    }
    let found: Option<Option<String>> = tx.find(
        "SELECT run_id FROM executions WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND plan_time = ?4 AND wake_at IS NOT NULL",
        params![schedule, kind, id, ms(*plan)],
        |row| row.get(0),
    )?;
    let Some(run_id) = found else { return Ok(None) };
    if begin.alone && is_running(tx, schedule, kind, id, run_id.as_deref())? {
        // One that has not begun keeps its place before those that come after it.
        if run_id.is_some() {
            wake(tx, key, None, Some(tx.now + SOON))?;
        }
        return Ok(None);
    }
    let (fired, counts) = match run_id {
        None => (Some(born(tx, key, begin.birth.clone())?), taken_as(None)),
        Some(run_id) => {
            let stored = row::by_id(tx, &run_id)?;
            let counts = taken_as(Some(&stored.row));
            let how = Take { worker: begin.by.clone(), lease: begin.birth.lease, start: false };
            match ready(engine::take(&mut tx.engine(), stored, &how, fresh())) {
                Ok(Some(taken)) => {
                    wake(tx, key, None, Some(first_look(taken.run(), tx.now)))?;
                    (Some(Fired::Held(*plan, taken)), counts)
                }
                Ok(None) => (None, counts),
                Err(fault) if matches!(fault.error(), StoreError::Refused(_)) => (None, counts),
                Err(fault) => return Err(fault),
            }
        }
    };
    if fired.is_some()
        && let Some(mut scope) = one_scope(tx, schedule, kind, id)?
    {
        scope.counts.add(&counts);
        save_scope(tx, schedule, &scope)?;
        let sql = "UPDATE executions SET failures = 0 WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND plan_time = ?4 AND failures > 0";
        tx.execute(sql, params![schedule, kind, id, ms(*plan)])?;
        if !begin.alone {
            let sql = "UPDATE schedule_scopes SET waiting_at = ?4 WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND waiting_at IS NOT NULL";
            tx.execute(sql, params![schedule, kind, id, tx.now.ms()])?;
        }
    }
    Ok(fired)
}

pub fn put_off(tx: &Tx<'_>, failed: &Failed) -> Result<()> {
    let text = |text: &str| sql::Value::Text(text.to_owned());
    let (table, at, failures) = match &failed.what {
        Failing::Listing => ("schedules", "scopes_at", "scopes_failures"),
        Failing::Scope { .. } => ("schedule_scopes", "wake_at", "failures"),
        Failing::Execution { .. } => ("executions", "wake_at", "failures"),
    };
    let mut key = match &failed.what {
        Failing::Listing => vec![("name", text(&failed.schedule))],
        Failing::Scope { kind, id } | Failing::Execution { kind, id, .. } => {
            vec![("schedule", text(&failed.schedule)), ("kind", text(kind)), ("id", text(id))]
        }
    };
    if let Failing::Execution { plan, .. } = &failed.what {
        key.push(("plan_time", sql::Value::Integer(ms(*plan))));
    }
    key.push((at, sql::Value::Integer(ms(failed.wake_at))));
    let is_it = key.iter().map(|(column, _)| format!("{column} = ?")).collect::<Vec<_>>().join(" AND ");
    let values: Vec<sql::Value> = key.into_iter().map(|(_, value)| value).collect();
    let count = format!("SELECT {failures} FROM {table} WHERE {is_it}");
    let found: Option<u32> = tx.find(&count, params_from_iter(values.iter()), |row| row.get(0))?;
    let Some(count) = found.map(|found| found.saturating_add(1)) else { return Ok(()) };
    let next = [i64::from(count), ms(tx.now + wait_after(count))].map(sql::Value::Integer);
    let sql = format!("UPDATE {table} SET {failures} = ?, {at} = ? WHERE {is_it}");
    tx.execute(&sql, params_from_iter(next.into_iter().chain(values)))?;
    Ok(())
}
