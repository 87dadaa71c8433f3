//! Schedules: definitions, scopes, and plans by hand. What fires is in `firing`.

use std::collections::HashMap;

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::Time;

use super::fault::Result;
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp};
use crate::error::StoreError;
use crate::schedules::*;
use crate::verbs::Pause;

pub const SCHEDULE: &str = "SELECT name, definition::text, folder, hash, timing, carried, updated_at, paused_by, pause_reason, paused_at FROM waypost.schedules";

pub fn schedule(row: &Row) -> Result<ScheduleRow> {
    let columns = Columns(row);
    let pause = Pause {
        by: columns.get::<Option<String>>(7)?.unwrap_or_default(),
        reason: columns.get::<Option<String>>(8)?.unwrap_or_default(),
        at: columns.time(9)?,
    };
    Ok(ScheduleRow {
        name: columns.get(0)?,
        definition: serde_json::from_str(columns.get::<&str>(1)?).unwrap_or(Value::Null),
        folder: columns.get(2)?,
        hash: columns.get(3)?,
        timing: columns.get(4)?,
        carried: columns.get(5)?,
        updated_at: columns.time(6)?.unwrap_or_default(),
        paused: Some(pause).filter(|pause| pause.at.is_some()),
    })
}

/// Locked: whoever changes it, or fires, comes one after the other.
async fn one(tx: &Tx, name: &str) -> Result<Option<ScheduleRow>> {
    let rows = tx.query(&format!("{SCHEDULE} WHERE name = $1 FOR UPDATE"), args![name]).await?;
    rows.first().map(schedule).transpose()
}

pub async fn schedules(session: &Session, name: Option<&str>) -> Result<Vec<ScheduleRow>> {
    let tx = session.look().await?;
    let rows =
        tx.query(&format!("{SCHEDULE} WHERE $1 IS NULL OR name = $1 ORDER BY name"), args![name]).await;
    tx.end(rows).await?.iter().map(schedule).collect()
}

pub async fn put(session: &Session, write: &ScheduleWrite) -> Result<Put> {
    check_schedule(write)?;
    let tx = session.begin().await?;
    let put = put_in(&tx, write).await;
    tx.end(put).await
}

async fn put_in(tx: &Tx, write: &ScheduleWrite) -> Result<Put> {
    let was = one(tx, &write.name).await?;
    let put = match &was {
        None => Put::Added,
        Some(was) if was.hash == write.hash && was.carried == write.carried => Put::Same,
        Some(_) => Put::Changed,
    };
    let now = stamp(tx.now);
    if put != Put::Same {
        tx.run(
            "INSERT INTO waypost.schedules(name, definition, folder, hash, timing, carried, updated_at, scopes_at) \
             VALUES ($1, $2::text::json, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, \
             folder = excluded.folder, hash = excluded.hash, timing = excluded.timing, carried = excluded.carried, \
             updated_at = excluded.updated_at, scopes_at = excluded.scopes_at",
            args![
                write.name,
                write.definition.to_string(),
                write.folder,
                write.hash,
                write.timing,
                write.carried,
                now,
                write.ids.is_none().then_some(now),
            ],
        )
        .await?;
    }
    if put == Put::Changed {
        let sql = "UPDATE waypost.schedule_scopes SET hash = $2, carried = $3 WHERE schedule = $1";
        tx.run(sql, args![write.name, write.hash, write.carried]).await?;
    }
    if was.as_ref().is_some_and(|was| was.timing != write.timing) {
        let sql = "UPDATE waypost.schedule_scopes SET wake_at = $2, since = $2, through = NULL WHERE schedule = $1 AND wake_at IS NOT NULL";
        tx.run(sql, args![write.name, now]).await?;
    }
    if let Some(ids) = &write.ids {
        list(tx, &write.name, &write.kind, ids).await?;
    }
    wake_failed(tx, &write.name).await?;
    Ok(put)
}

/// Whoever changes a schedule, or applies it once more, may have mended it.
async fn wake_failed(tx: &Tx, name: &str) -> Result<()> {
    for sql in [
        "UPDATE waypost.schedules SET scopes_at = $2, scopes_failures = 0 WHERE name = $1 AND scopes_failures > 0 AND scopes_at IS NOT NULL",
        "UPDATE waypost.schedule_scopes SET wake_at = $2, failures = 0 WHERE schedule = $1 AND failures > 0 AND wake_at IS NOT NULL",
        "UPDATE waypost.schedule_scopes SET waiting_at = $2 WHERE schedule = $1 AND waiting_at IS NOT NULL",
        "UPDATE waypost.executions SET wake_at = $2, failures = 0 WHERE schedule = $1 AND failures > 0 AND wake_at IS NOT NULL",
    ] {
        tx.run(sql, args![name, stamp(tx.now)]).await?;
    }
    Ok(())
}

pub async fn put_scopes(session: &Session, schedule: &str, kind: &str, ids: &[String]) -> Result<()> {
    check_scopes(kind, ids)?;
    let tx = session.begin().await?;
    let listed = async {
        let sql = "UPDATE waypost.schedules SET scopes_at = $2, scopes_failures = 0 WHERE name = $1";
        if tx.run(sql, args![schedule, stamp(tx.now + SCOPES_EVERY)]).await? == 0 {
            return Err(no_schedule(schedule).into());
        }
        list(&tx, schedule, kind, ids).await
    };
    let listed = listed.await;
    tx.end(listed).await
}

async fn list(tx: &Tx, schedule: &str, kind: &str, ids: &[String]) -> Result<()> {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let sql = "UPDATE waypost.schedule_scopes SET wake_at = NULL, retired = true WHERE schedule = $1 AND (kind <> $2 OR NOT id = ANY ($3))";
    tx.run(sql, args![schedule, kind, ids]).await?;
    tx.run(
        "INSERT INTO waypost.schedule_scopes AS c(schedule, kind, id, wake_at, hash, carried) SELECT DISTINCT $1, $2, u.id, \
           CASE WHEN s.paused_at IS NULL THEN $4::timestamptz END, s.hash, s.carried FROM unnest($3) AS u(id), waypost.schedules s WHERE s.name = $1 \
         ON CONFLICT (schedule, kind, id) DO UPDATE SET retired = false, wake_at = excluded.wake_at, since = $4, through = NULL WHERE c.retired",
        args![schedule, kind, ids, stamp(tx.now)],
    )
    .await
    .map(drop)
}

pub async fn remove(session: &Session, name: &str) -> Result<bool> {
    let tx = session.begin().await?;
    let removed = async {
        let sql = "UPDATE waypost.executions SET wake_at = NULL WHERE schedule = $1 AND wake_at IS NOT NULL";
        tx.run(sql, args![name]).await?;
        tx.run("DELETE FROM waypost.schedule_scopes WHERE schedule = $1", args![name]).await?;
        Ok(tx.run("DELETE FROM waypost.schedules WHERE name = $1", args![name]).await? > 0)
    };
    let removed = removed.await;
    tx.end(removed).await
}

pub async fn pause(session: &Session, name: &str, pause: Option<&Pause>) -> Result<ScheduleRow> {
    check_pause(pause)?;
    let tx = session.begin().await?;
    let paused = pause_in(&tx, name, pause).await;
    tx.end(paused).await
}

async fn pause_in(tx: &Tx, name: &str, pause: Option<&Pause>) -> Result<ScheduleRow> {
    let was = one(tx, name).await?.ok_or_else(|| no_schedule(name))?;
    let now = stamp(tx.now);
    tx.run(
        "UPDATE waypost.schedules SET paused_by = $2, pause_reason = $3, paused_at = $4 WHERE name = $1",
        args![name, pause.map(|it| it.by.as_str()), pause.map(|it| it.reason.as_str()), pause.map(|_| now),],
    )
    .await?;
    if pause.is_some() {
        let sql = "UPDATE waypost.schedule_scopes SET wake_at = NULL, waiting_at = NULL WHERE schedule = $1";
        tx.run(sql, args![name]).await?;
    } else if was.paused.is_some() {
        let sql =
            "UPDATE waypost.schedule_scopes SET wake_at = $2, since = $2 WHERE schedule = $1 AND NOT retired";
        tx.run(sql, args![name, now]).await?;
        wake_failed(tx, name).await?;
        wake_open(tx, name).await?;
    }
    Ok(one(tx, name).await?.unwrap_or(was))
}

/// What a pause kept from being begun.
async fn wake_open(tx: &Tx, name: &str) -> Result<()> {
    for sql in [
        "UPDATE waypost.schedule_scopes c SET waiting_at = $2 WHERE c.schedule = $1 AND EXISTS (SELECT 1 FROM waypost.executions e \
         WHERE e.schedule = $1 AND e.kind = c.kind AND e.id = c.id AND e.run_id IS NULL AND e.wake_at IS NOT NULL)",
        "UPDATE waypost.executions SET wake_at = $2 WHERE schedule = $1 AND wake_at IS NOT NULL AND run_id IS NOT NULL",
    ] {
        tx.run(sql, args![name, stamp(tx.now)]).await?;
    }
    Ok(())
}

const SCOPE: &str = "SELECT kind, id, through, since, wake_at, retired, counts, last_plan, last_status, last_success, failures";

fn scope(row: &Row) -> Result<ScopeRow> {
    let columns = Columns(row);
    Ok(ScopeRow {
        kind: columns.get(0)?,
        id: columns.get(1)?,
        through: columns.time(2)?,
        since: columns.time(3)?,
        wake_at: columns.time(4)?,
        retired: columns.get(5)?,
        counts: Counts::read(columns.get::<&str>(6)?),
        last_plan: columns.time(7)?,
        last_status: columns.get(8)?,
        last_success: columns.time(9)?,
        failures: columns.get::<i32>(10)?.unsigned_abs(),
        running: 0,
        stale: 0,
    })
}

/// Locked: whatever begins in a scope begins one after the other.
pub async fn one_scope(tx: &Tx, schedule: &str, kind: &str, id: &str) -> Result<Option<ScopeRow>> {
    let sql = format!(
        "{SCOPE} FROM waypost.schedule_scopes WHERE schedule = $1 AND kind = $2 AND id = $3 FOR UPDATE"
    );
    tx.query(&sql, args![schedule, kind, id]).await?.first().map(scope).transpose()
}

pub async fn save_scope(tx: &Tx, schedule: &str, scope: &ScopeRow) -> Result<()> {
    save_scopes(tx, &[(schedule, scope)]).await
}

/// Rows that the caller has locked.
pub async fn save_scopes(tx: &Tx, scopes: &[(&str, &ScopeRow)]) -> Result<()> {
    macro_rules! column {
        ($scope:ident: $value:expr) => {
            scopes.iter().map(|(_, $scope)| $value).collect::<Vec<_>>()
        };
    }
    tx.run(
        "UPDATE waypost.schedule_scopes c SET through = u.through, since = u.since, wake_at = u.wake_at, counts = u.counts, \
         last_plan = u.last_plan, last_status = u.last_status, last_success = u.last_success, failures = u.failures \
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS u(schedule, kind, id, through, since, wake_at, counts, last_plan, \
           last_status, last_success, failures) WHERE c.schedule = u.schedule AND c.kind = u.kind AND c.id = u.id",
        args![
            scopes.iter().map(|(schedule, _)| *schedule).collect::<Vec<_>>(),
            column!(scope: scope.kind.as_str()),
            column!(scope: scope.id.as_str()),
            column!(scope: scope.through.map(stamp)),
            column!(scope: scope.since.map(stamp)),
            column!(scope: scope.wake_at.map(stamp)),
            scopes.iter().map(|(_, scope)| scope.counts.to_json().to_string()).collect::<Vec<String>>(),
            column!(scope: scope.last_plan.map(stamp)),
            column!(scope: scope.last_status.as_deref()),
            column!(scope: scope.last_success.map(stamp)),
            column!(scope: scope.failures as i32),
        ],
    )
    .await
    .map(drop)
}

/// Schedule, kind and id of scopes, each as a column.
pub type Keys<'a> = (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>);

pub fn keys<'a>(scopes: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Keys<'a> {
    let mut keys = Keys::default();
    for (schedule, kind, id) in scopes {
        keys.0.push(schedule);
        keys.1.push(kind);
        keys.2.push(id);
    }
    keys
}

/// Schedule, kind and id.
pub type ScopeKey = (String, String, String);
pub type Locked = HashMap<ScopeKey, ScopeRow>;

/// Locks those that nobody else has locked; the others are not among the answer, and are not waited for.
pub async fn lock_scopes(tx: &Tx, keys: &Keys<'_>) -> Result<Locked> {
    let sql = format!(
        "{}, c.schedule FROM waypost.schedule_scopes c WHERE (c.schedule, c.kind, c.id) IN (SELECT u.schedule, u.kind, u.id \
         FROM unnest($1, $2, $3) AS u(schedule, kind, id)) FOR UPDATE OF c SKIP LOCKED",
        SCOPE.replace("SELECT kind, id", "SELECT c.kind, c.id")
    );
    let mut locked = Locked::new();
    for row in &tx.query(&sql, args![keys.0, keys.1, keys.2]).await? {
        let scope = scope(row)?;
        locked.insert((Columns(row).get(11)?, scope.kind.clone(), scope.id.clone()), scope);
    }
    Ok(locked)
}

pub async fn scopes(session: &Session, schedule: &str) -> Result<Vec<ScopeRow>> {
    let tx = session.look().await?;
    let found = scopes_in(&tx, schedule).await;
    tx.end(found).await
}

async fn scopes_in(tx: &Tx, schedule: &str) -> Result<Vec<ScopeRow>> {
    if tx.query("SELECT 1 FROM waypost.schedules WHERE name = $1", args![schedule]).await?.is_empty() {
        return Err(no_schedule(schedule).into());
    }
    Ok(scopes_of(tx, &[schedule]).await?.remove(schedule).unwrap_or_default())
}

/// The scopes of several schedules, by their names.
pub async fn scopes_of(tx: &Tx, names: &[&str]) -> Result<HashMap<String, Vec<ScopeRow>>> {
    let names = names.to_vec();
    let sql =
        format!("{SCOPE}, schedule FROM waypost.schedule_scopes WHERE schedule = ANY ($1) ORDER BY kind, id");
    let mut found: HashMap<String, Vec<ScopeRow>> = HashMap::new();
    for row in &tx.query(&sql, args![names]).await? {
        found.entry(Columns(row).get(11)?).or_default().push(scope(row)?);
    }
    let held = tx
        .query(
            "SELECT e.schedule, e.kind, e.id, count(*), count(*) FILTER (WHERE r.claimed_by IS NOT NULL AND r.stale_after < $2) \
             FROM waypost.executions e JOIN waypost.runs r ON r.run_id = e.run_id WHERE e.schedule = ANY ($1) AND e.wake_at IS NOT NULL \
             AND e.run_id IS NOT NULL AND r.state < 5000 GROUP BY e.schedule, e.kind, e.id",
            args![names, stamp(tx.now)],
        )
        .await?;
    for row in &held {
        let columns = Columns(row);
        let (schedule, kind, id): (&str, &str, &str) = (columns.get(0)?, columns.get(1)?, columns.get(2)?);
        let scopes = found.get_mut(schedule).into_iter().flatten();
        for scope in scopes.filter(|scope| scope.kind == kind && scope.id == id) {
            scope.running = columns.get::<i64>(3)?.unsigned_abs();
            scope.stale = columns.get::<i64>(4)?.unsigned_abs();
        }
    }
    Ok(found)
}

/// In a transaction that only reads.
pub async fn ask_scopes(session: &Session, sql: &str) -> Result<Vec<String>> {
    let tx = session.look().await?;
    let asked = format!("SELECT asked.id::text FROM ({}\n) AS asked(id)", sql.trim().trim_end_matches(';'));
    let rows = tx.client()?.query(&asked, &[]).await;
    let rows = rows.map_err(|error| {
        let words = error.as_db_error().map_or_else(|| error.to_string(), |told| told.message().to_owned());
        StoreError::invalid("sql", words).into()
    });
    let rows = tx.end(rows).await?;
    let ids = rows.iter().map(|row| Columns(row).get::<Option<String>>(0)).collect::<Result<Vec<_>>>()?;
    Ok(ids.into_iter().flatten().collect())
}

pub async fn add_plans(session: &Session, plans: &ManualPlans) -> Result<u64> {
    check_manual(plans)?;
    let tx = session.begin().await?;
    let added = async {
        let sql = "SELECT 1 FROM waypost.schedules WHERE name = $1";
        if tx.query(sql, args![plans.schedule]).await?.is_empty() {
            return Err(no_schedule(&plans.schedule).into());
        }
        let times = plans.plans.clone().unwrap_or_else(|| vec![Time::from_ms(tx.now.ms())]);
        // A scope that nobody lists is there from now on, and rests.
        tx.run(
            "INSERT INTO waypost.schedule_scopes(schedule, kind, id, retired, waiting_at, hash, carried) SELECT DISTINCT s.name, $2, i.id, true, \
               CASE WHEN s.paused_at IS NULL THEN $4::timestamptz END, s.hash, s.carried FROM unnest($3) AS i(id), waypost.schedules s \
             WHERE s.name = $1 ORDER BY 3 ON CONFLICT (schedule, kind, id) DO UPDATE SET waiting_at = excluded.waiting_at",
            args![
                plans.schedule,
                plans.kind,
                plans.ids.iter().map(String::as_str).collect::<Vec<_>>(),
                stamp(tx.now),
            ],
        )
        .await?;
        tx.run(
            "INSERT INTO waypost.executions(schedule, kind, id, plan_time, manual, who, wake_at) \
             SELECT $1, $2, i.id, p.plan, $5, $6, $7 FROM unnest($3) AS i(id), unnest($4) AS p(plan) ON CONFLICT DO NOTHING",
            args![
                plans.schedule,
                plans.kind,
                plans.ids.iter().map(String::as_str).collect::<Vec<_>>(),
                times.into_iter().map(stamp).collect::<Vec<_>>(),
                plans.how,
                plans.by,
                stamp(tx.now),
            ],
        )
        .await
    };
    let added = added.await;
    tx.end(added).await
}

pub async fn look_again(session: &Session, run_ids: &[String]) -> Result<()> {
    let ids: Vec<&str> = run_ids.iter().map(String::as_str).collect();
    let sql = "UPDATE waypost.executions SET wake_at = waypost.now() WHERE run_id = ANY ($1) AND wake_at IS NOT NULL";
    session.statement(super::session::Line::Work, true, sql, args![ids]).await.map(drop)
}
