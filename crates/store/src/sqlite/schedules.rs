//! Schedules: definitions, scopes, and plans by hand. What fires is in `firing`.

use rusqlite::{Row, params};
use serde_json::Value;
use waypost_kernel::Time;

use super::fault::Result;
use super::session::Tx;
use crate::error::StoreError;
use crate::schedules::*;
use crate::verbs::Pause;

/// Rounded up: what is due at an instant must not be looked at before it.
pub fn ms(time: Time) -> i64 {
    (time + waypost_kernel::Span::from_micros(999)).ms()
}

pub fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Time>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(Time::from_ms))
}

pub const SCHEDULE: &str = "SELECT name, definition, folder, hash, timing, carried, updated_at, paused_by, pause_reason, paused_at FROM schedules";

pub fn schedule(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let definition: String = row.get(1)?;
    let pause = Pause {
        by: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
        reason: row.get::<_, Option<String>>(8)?.unwrap_or_default(),
        at: time(row, 9)?,
    };
    Ok(ScheduleRow {
        name: row.get(0)?,
        definition: serde_json::from_str(&definition).unwrap_or(Value::Null),
        folder: row.get(2)?,
        hash: row.get(3)?,
        timing: row.get(4)?,
        carried: row.get(5)?,
        updated_at: time(row, 6)?.unwrap_or_default(),
        paused: Some(pause).filter(|pause| pause.at.is_some()),
    })
}

pub fn one(tx: &Tx<'_>, name: &str) -> Result<Option<ScheduleRow>> {
    let sql = format!("{SCHEDULE} WHERE name = ?1");
    Ok(tx.find(&sql, [name], schedule)?)
}

pub fn schedules(tx: &Tx<'_>, name: Option<&str>) -> Result<Vec<ScheduleRow>> {
    let sql = format!("{SCHEDULE} WHERE ?1 IS NULL OR name = ?1 ORDER BY name");
    Ok(tx.list(&sql, [name], schedule)?)
}

pub fn put(tx: &Tx<'_>, write: &ScheduleWrite) -> Result<Put> {
    check_schedule(write)?;
    let was = one(tx, &write.name)?;
    let put = match &was {
        None => Put::Added,
        Some(was) if was.hash == write.hash && was.carried == write.carried => Put::Same,
        Some(_) => Put::Changed,
    };
    let now = tx.now.ms();
    if put != Put::Same {
        tx.execute(
            "INSERT INTO schedules(name, definition, folder, hash, timing, carried, updated_at, scopes_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
             ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, folder = excluded.folder, hash = excluded.hash, \
             timing = excluded.timing, carried = excluded.carried, updated_at = excluded.updated_at, scopes_at = excluded.scopes_at",
            params![
                write.name,
                write.definition.to_string(),
                write.folder,
                write.hash,
                write.timing,
                write.carried,
                now,
                write.ids.is_none().then_some(now)
            ],
        )?;
    }
    if was.as_ref().is_some_and(|was| was.timing != write.timing) {
        let sql = "UPDATE schedule_scopes SET wake_at = ?2, since = ?2, through = NULL WHERE schedule = ?1 AND wake_at IS NOT NULL";
        tx.execute(sql, params![write.name, now])?;
    }
    if let Some(ids) = &write.ids {
        list(tx, &write.name, &write.kind, ids)?;
    }
    wake_failed(tx, &write.name)?;
    Ok(put)
}

/// Whoever changes a schedule, or applies it once more, may have mended it.
fn wake_failed(tx: &Tx<'_>, name: &str) -> Result<()> {
    for sql in [
        "UPDATE schedules SET scopes_at = ?2, scopes_failures = 0 WHERE name = ?1 AND scopes_failures > 0 AND scopes_at IS NOT NULL",
        "UPDATE schedule_scopes SET wake_at = ?2, failures = 0 WHERE schedule = ?1 AND failures > 0 AND wake_at IS NOT NULL",
        "UPDATE schedule_scopes SET waiting_at = ?2 WHERE schedule = ?1 AND waiting_at IS NOT NULL",
        "UPDATE executions SET wake_at = ?2, failures = 0 WHERE schedule = ?1 AND failures > 0 AND wake_at IS NOT NULL",
    ] {
        tx.execute(sql, params![name, tx.now.ms()])?;
    }
    Ok(())
}

pub fn put_scopes(tx: &Tx<'_>, schedule: &str, kind: &str, ids: &[String]) -> Result<()> {
    check_scopes(kind, ids)?;
    one(tx, schedule)?.ok_or_else(|| no_schedule(schedule))?;
    let sql = "UPDATE schedules SET scopes_at = ?2, scopes_failures = 0 WHERE name = ?1";
    tx.execute(sql, params![schedule, ms(tx.now + SCOPES_EVERY)])?;
    list(tx, schedule, kind, ids)
}

fn list(tx: &Tx<'_>, schedule: &str, kind: &str, ids: &[String]) -> Result<()> {
    let ids = Value::from(ids.to_vec()).to_string();
    let values = params![schedule, kind, ids, tx.now.ms()];
    tx.execute(
        "UPDATE schedule_scopes SET wake_at = NULL, retired = 1 WHERE schedule = ?1 AND ?4 IS NOT NULL \
         AND (kind <> ?2 OR id NOT IN (SELECT value FROM json_each(?3)))",
        values,
    )?;
    tx.execute(
        "INSERT INTO schedule_scopes(schedule, kind, id, wake_at) SELECT ?1, ?2, j.value, iif(s.paused_at IS NULL, ?4, NULL) \
         FROM json_each(?3) j, schedules s WHERE s.name = ?1 ON CONFLICT (schedule, kind, id) DO UPDATE \
         SET retired = 0, wake_at = excluded.wake_at, since = ?4, through = NULL WHERE retired = 1",
        values,
    )?;
    Ok(())
}

pub fn remove(tx: &Tx<'_>, name: &str) -> Result<bool> {
    tx.execute("UPDATE executions SET wake_at = NULL WHERE schedule = ?1 AND wake_at IS NOT NULL", [name])?;
    tx.execute("DELETE FROM schedule_scopes WHERE schedule = ?1", [name])?;
    Ok(tx.execute("DELETE FROM schedules WHERE name = ?1", [name])? > 0)
}

pub fn pause(tx: &Tx<'_>, name: &str, pause: Option<&Pause>) -> Result<ScheduleRow> {
    check_pause(pause)?;
    let was = one(tx, name)?.ok_or_else(|| no_schedule(name))?;
    let now = tx.now.ms();
    tx.execute(
        "UPDATE schedules SET paused_by = ?2, pause_reason = ?3, paused_at = ?4 WHERE name = ?1",
        params![name, pause.map(|it| &it.by), pause.map(|it| &it.reason), pause.map(|_| now)],
    )?;
    if pause.is_some() {
        tx.execute(
            "UPDATE schedule_scopes SET wake_at = NULL, waiting_at = NULL WHERE schedule = ?1",
            [name],
        )?;
    } else if was.paused.is_some() {
        let sql = "UPDATE schedule_scopes SET wake_at = ?2, since = ?2 WHERE schedule = ?1 AND retired = 0";
        tx.execute(sql, params![name, now])?;
        wake_failed(tx, name)?;
        wake_open(tx, name)?;
    }
    Ok(one(tx, name)?.unwrap_or(was))
}

/// What a pause kept from being begun.
fn wake_open(tx: &Tx<'_>, name: &str) -> Result<()> {
    for sql in [
        "UPDATE executions SET wake_at = ?2 WHERE schedule = ?1 AND wake_at IS NOT NULL AND run_id IS NOT NULL",
        "UPDATE schedule_scopes SET waiting_at = ?2 WHERE schedule = ?1 AND EXISTS (SELECT 1 FROM executions e \
         WHERE e.schedule = ?1 AND e.kind = schedule_scopes.kind AND e.id = schedule_scopes.id AND e.run_id IS NULL AND e.wake_at IS NOT NULL)",
    ] {
        tx.execute(sql, params![name, tx.now.ms()])?;
    }
    Ok(())
}

const SCOPE: &str = "SELECT kind, id, through, since, wake_at, retired, counts, last_plan, last_status, last_success, failures FROM schedule_scopes";

fn scope(row: &Row<'_>) -> rusqlite::Result<ScopeRow> {
    Ok(ScopeRow {
        kind: row.get(0)?,
        id: row.get(1)?,
        through: time(row, 2)?,
        since: time(row, 3)?,
        wake_at: time(row, 4)?,
        retired: row.get(5)?,
        counts: Counts::read(&row.get::<_, String>(6)?),
        last_plan: time(row, 7)?,
        last_status: row.get(8)?,
        last_success: time(row, 9)?,
        failures: row.get(10)?,
        running: 0,
        stale: 0,
    })
}

pub fn one_scope(tx: &Tx<'_>, schedule: &str, kind: &str, id: &str) -> Result<Option<ScopeRow>> {
    let sql = format!("{SCOPE} WHERE schedule = ?1 AND kind = ?2 AND id = ?3");
    Ok(tx.find(&sql, [schedule, kind, id], scope)?)
}

pub fn save_scope(tx: &Tx<'_>, schedule: &str, scope: &ScopeRow) -> Result<()> {
    tx.execute(
        "UPDATE schedule_scopes SET through = ?4, since = ?5, wake_at = ?6, counts = ?7, last_plan = ?8, last_status = ?9, \
         last_success = ?10, failures = ?11 WHERE schedule = ?1 AND kind = ?2 AND id = ?3",
        params![
            schedule,
            scope.kind,
            scope.id,
            scope.through.map(ms),
            scope.since.map(ms),
            scope.wake_at.map(ms),
            scope.counts.to_json().to_string(),
            scope.last_plan.map(ms),
            scope.last_status,
            scope.last_success.map(ms),
            scope.failures
        ],
    )?;
    Ok(())
}

pub fn scopes(tx: &Tx<'_>, schedule: &str) -> Result<Vec<ScopeRow>> {
    one(tx, schedule)?.ok_or_else(|| no_schedule(schedule))?;
    let mut found = tx.list(&format!("{SCOPE} WHERE schedule = ?1 ORDER BY kind, id"), [schedule], scope)?;
    let held = tx.list(
        "SELECT e.kind, e.id, count(*), sum(n.state & 7 = 2 AND n.claimed_by IS NOT NULL AND n.due_at < ?2) FROM executions e \
         JOIN run_born b ON b.run_id = e.run_id JOIN run_now n ON n.rid = b.rid \
         WHERE e.schedule = ?1 AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL AND n.state & 7 <> 4 GROUP BY e.kind, e.id",
        params![schedule, tx.now.ms()],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?)),
    )?;
    for (kind, id, running, stale) in held {
        if let Some(scope) = found.iter_mut().find(|scope| scope.kind == kind && scope.id == id) {
            (scope.running, scope.stale) = (running, stale);
        }
    }
    Ok(found)
}

pub fn ask_scopes(tx: &Tx<'_>, sql: &str) -> Result<Vec<String>> {
    let wrong = |error: rusqlite::Error| StoreError::invalid("sql", error.to_string());
    let mut statement = tx.conn.prepare(sql).map_err(wrong)?;
    let text = |row: &Row<'_>| {
        Ok(match row.get::<_, rusqlite::types::Value>(0)? {
            rusqlite::types::Value::Integer(number) => Some(number.to_string()),
            rusqlite::types::Value::Text(text) => Some(text),
            _ => None,
        })
    };
    let rows = statement.query_map([], text).map_err(wrong)?;
    let found = rows.collect::<rusqlite::Result<Vec<_>>>().map_err(wrong)?;
    Ok(found.into_iter().flatten().collect())
}

pub fn add_plans(tx: &Tx<'_>, plans: &ManualPlans) -> Result<u64> {
    check_manual(plans)?;
    one(tx, &plans.schedule)?.ok_or_else(|| no_schedule(&plans.schedule))?;
    let now = tx.now.ms();
    let times = plans.plans.clone().unwrap_or_else(|| vec![Time::from_ms(now)]);
    let mut added = 0;
    for id in &plans.ids {
        // A scope that nobody lists is there from now on, and rests.
        tx.execute(
            "INSERT INTO schedule_scopes(schedule, kind, id, retired, waiting_at) SELECT s.name, ?2, ?3, 1, iif(s.paused_at IS NULL, ?4, NULL) \
             FROM schedules s WHERE s.name = ?1 ON CONFLICT (schedule, kind, id) DO UPDATE SET waiting_at = excluded.waiting_at",
            params![plans.schedule, plans.kind, id, now],
        )?;
        for plan in &times {
            added += tx.execute(
                "INSERT INTO executions(schedule, kind, id, plan_time, manual, who, wake_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
                 ON CONFLICT DO NOTHING",
                params![plans.schedule, plans.kind, id, ms(*plan), plans.how, plans.by, now],
            )?;
        }
    }
    Ok(added as u64)
}

pub fn look_again(tx: &Tx<'_>, run_ids: &[String]) -> Result<()> {
    let sql = "UPDATE executions SET wake_at = ?2 WHERE run_id = ?1 AND wake_at IS NOT NULL";
    for run_id in run_ids {
        tx.execute(sql, params![run_id, tx.now.ms()])?;
    }
    Ok(())
}
