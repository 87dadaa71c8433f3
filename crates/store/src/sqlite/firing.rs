//! What is due of the schedules, and beginning it.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use waypost_kernel::Time;

use super::claim::{self, Taken};
use super::enqueue::{self, Asked};
use super::open::database;
use super::row;
use super::save::prepare;
use super::schedules::{all, ms, one, one_scope, run, save_scope, time};
use super::session::Tx;
use crate::error::{Result, StoreError};
use crate::schedules::*;
use crate::tokens::fresh;

/// Mine: applied and I may, or my own. ?1 and ?2 of a statement.
const MINE: &str = "(s.carried AND ?1 OR s.hash IN (SELECT value FROM json_each(?2)))";

pub fn due(tx: &Tx<'_>, mine: &Mine, limit: usize) -> Result<Due> {
    let hashes = Value::from(mine.hashes.clone()).to_string();
    let now = tx.now.ms();
    let mut due = Due { now: tx.now, ..Due::default() };
    look_after(tx, mine, &hashes, limit, &mut due)?;
    due.refresh = all(
        tx,
        &format!(
            "SELECT s.name FROM schedules s WHERE {MINE} AND s.scopes_at <= ?3 AND s.paused_at IS NULL ORDER BY s.name"
        ),
        params![mine.carried, hashes, now],
        |row| row.get(0),
    )?;
    due.scopes = all(
        tx,
        &format!(
            "SELECT s.name, s.hash, c.kind, c.id, c.through, c.since, EXISTS (SELECT 1 FROM executions e JOIN run_born b ON b.run_id = e.run_id \
               JOIN run_now n ON n.rid = b.rid WHERE e.schedule = c.schedule AND e.kind = c.kind AND e.id = c.id AND e.wake_at IS NOT NULL \
               AND n.state & 7 <> 4) \
             FROM schedule_scopes c CROSS JOIN schedules s ON s.name = c.schedule WHERE c.wake_at <= ?3 AND s.paused_at IS NULL AND {MINE} \
             ORDER BY c.wake_at, c.schedule, c.id LIMIT ?4"
        ),
        params![mine.carried, hashes, now, limit as i64],
        |row| {
            Ok(DueScope {
                schedule: row.get(0)?,
                hash: row.get(1)?,
                kind: row.get(2)?,
                id: row.get(3)?,
                through: time(row, 4)?,
                since: time(row, 5)?,
                is_running: row.get(6)?,
            })
        },
    )?;
    due.more = due.scopes.len() == limit;
    Ok(due)
}

fn look_after(tx: &Tx<'_>, mine: &Mine, hashes: &str, limit: usize, due: &mut Due) -> Result<()> {
    let found = all(
        tx,
        &format!(
            "SELECT e.schedule, s.hash, e.kind, e.id, e.plan_time, e.run_id, e.manual, s.paused_at IS NOT NULL \
             FROM executions e CROSS JOIN schedules s ON s.name = e.schedule WHERE e.wake_at <= ?3 AND {MINE} ORDER BY e.wake_at LIMIT ?4"
        ),
        params![mine.carried, hashes, tx.now.ms(), limit as i64],
        |row| {
            let execution = DueExecution {
                schedule: row.get(0)?,
                hash: row.get(1)?,
                kind: row.get(2)?,
                id: row.get(3)?,
                plan: time(row, 4)?.unwrap_or_default(),
                run_id: row.get(5)?,
                manual: row.get(6)?,
            };
            Ok((execution, row.get::<_, bool>(7)?))
        },
    )?;
    for (execution, is_paused) in found {
        let stored = execution.run_id.as_deref().map(|run_id| row::by_id(tx, run_id)).transpose();
        let stored = match stored {
            Err(StoreError::NotFound { .. }) => None,
            other => other?,
        };
        let next = match (&stored, &execution.run_id) {
            (Some(stored), _) => next_of(&stored.row, tx.now),
            (None, Some(_)) => Next::Close,
            (None, None) => Next::Take(tx.now + SOON),
        };
        let (wake_at, take) = match next {
            Next::Close => (None, false),
            Next::Wake(at) => (Some(at), false),
            Next::Take(_) if is_paused => (Some(tx.now + SOON), false),
            Next::Take(at) => (Some(at), true),
        };
        let DueExecution { schedule, kind, id, plan, .. } = &execution;
        wake(tx, (schedule, kind, id, *plan), None, wake_at)?;
        if let (None, Some(stored)) = (wake_at, &stored)
            && let Some(mut scope) = one_scope(tx, schedule, kind, id)?
        {
            close(&mut scope, *plan, &stored.row);
            save_scope(tx, schedule, &scope)?;
        }
        if take {
            due.executions.push(execution);
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
    run(
        tx,
        "UPDATE executions SET wake_at = ?5, run_id = coalesce(?6, run_id) WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND plan_time = ?4",
        params![schedule, kind, id, ms(plan), at.map(ms), run_id],
    )
    .map(drop)
}

/// Whether an execution of the scope, but for one, is under way.
fn is_running(tx: &Tx<'_>, schedule: &str, kind: &str, id: &str, but: Option<&str>) -> Result<bool> {
    prepare(
        tx,
        "SELECT EXISTS (SELECT 1 FROM executions e JOIN run_born b ON b.run_id = e.run_id JOIN run_now n ON n.rid = b.rid \
         WHERE e.schedule = ?1 AND e.kind = ?2 AND e.id = ?3 AND e.wake_at IS NOT NULL AND e.run_id IS NOT ?4 AND n.state & 7 <> 4)",
    )?
    .query_row(params![schedule, kind, id, but], |row| row.get(0))
    .map_err(|error| database(&error))
}

/// Something that has begun, before it is the caller's.
pub enum Fired {
    Held(Time, Taken),
    Queued(Time, String),
}

impl Fired {
    pub fn begun(self) -> Result<Begun> {
        Ok(match self {
            Fired::Held(plan, taken) => Begun::Held(plan, Box::new(taken.claimed()?)),
            Fired::Queued(plan, run_id) => Begun::Queued(plan, run_id),
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
    scope.counts.add(&firing.skipped);
    let mut fired = Vec::new();
    for (plan, birth) in firing.plans {
        let new = run(
            tx,
            "INSERT INTO executions(schedule, kind, id, plan_time) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            params![firing.schedule, firing.kind, firing.id, ms(plan)],
        )?;
        if new == 1 {
            fired.extend(born(tx, (&firing.schedule, &firing.kind, &firing.id, plan), birth)?);
        }
    }
    scope.counts.add(&Counts { won: fired.len() as u64, ..Counts::default() });
    save_scope(tx, &firing.schedule, &scope)?;
    Ok(Some(fired))
}

fn born(tx: &Tx<'_>, key: Key<'_>, birth: Birth) -> Result<Option<Fired>> {
    let asked = Asked::of(birth.run)?;
    if birth.lease.is_some() {
        let Some(taken) = enqueue::claim_plan(tx, asked, birth.lease)? else { return Ok(None) };
        wake(tx, key, Some(taken.run().id()), Some(first_look(taken.run(), tx.now)))?;
        return Ok(Some(Fired::Held(key.3, taken)));
    }
    let queued = enqueue::enqueue(tx, vec![Ok(asked)])?.pop().transpose()?;
    let Some((row, _)) = queued else { return Ok(None) };
    wake(tx, key, Some(row.id()), Some(first_look(&row, tx.now)))?;
    Ok(Some(Fired::Queued(key.3, row.id().to_owned())))
}

pub fn begin(tx: &Tx<'_>, begin: &Begin) -> Result<Option<Fired>> {
    let Begin { schedule, kind, id, plan, .. } = begin;
    let key = (schedule.as_str(), kind.as_str(), id.as_str(), *plan);
    if one(tx, schedule)?.is_none_or(|row| row.paused.is_some()) {
        return Ok(None);
    }
    let found: Option<Option<String>> = prepare(
        tx,
        "SELECT run_id FROM executions WHERE schedule = ?1 AND kind = ?2 AND id = ?3 AND plan_time = ?4 AND wake_at IS NOT NULL",
    )?
    .query_row(params![schedule, kind, id, ms(*plan)], |row| row.get(0))
    .optional()
    .map_err(|error| database(&error))?;
    let Some(run_id) = found else { return Ok(None) };
    if begin.alone && is_running(tx, schedule, kind, id, run_id.as_deref())? {
        wake(tx, key, None, Some(tx.now + SOON))?;
        return Ok(None);
    }
    let (fired, counts) = match run_id {
        None => (born(tx, key, begin.birth.clone())?, taken_as(None)),
        Some(run_id) => {
            let mut stored = row::by_id(tx, &run_id)?;
            let counts = taken_as(Some(&stored.row));
            match claim::take(tx, &mut stored, &begin.by, begin.birth.lease, fresh()) {
                Ok(()) => {
                    wake(tx, key, None, Some(first_look(&stored.row, tx.now)))?;
                    (Some(Fired::Held(*plan, Taken::of(tx, stored))), counts)
                }
                Err(StoreError::Refused(_)) => (None, counts),
                Err(error) => return Err(error),
            }
        }
    };
    if fired.is_some()
        && let Some(mut scope) = one_scope(tx, schedule, kind, id)?
    {
        scope.counts.add(&counts);
        save_scope(tx, schedule, &scope)?;
    }
    Ok(fired)
}
