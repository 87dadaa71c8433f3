//! The rows of schedules, of their scopes and of executions.

use std::collections::HashMap;

use serde_json::Value;
use waypost_kernel::Time;

use crate::seam::error::Result;
use crate::seam::schedules::{Counts, ScheduleRow, ScopeRow};
use crate::seam::verbs::Pause;
use crate::statement::{Cells, Sql, query, query_rows, values};

pub(super) const SCHEDULE: &str = "SELECT name, definition::text, folder, hash, timing, carried, updated_at, paused_by, pause_reason, \
  paused_at FROM waypost.schedules";
const SCOPE: &str = "SELECT c.schedule, c.kind, c.id, c.through, c.since, c.wake_at, c.retired, c.counts, c.last_plan, c.last_status, \
  c.last_success, c.failures FROM waypost.schedule_scopes c";
/// Whether something of the scope `c` is under way.
pub(super) const IS_RUNNING: &str = "EXISTS (SELECT 1 FROM waypost.executions e, @RUN WHERE e.schedule = c.schedule AND e.kind = c.kind \
  AND e.id = c.id AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL AND @IS_RUN AND @UNSETTLED)";

/// Whether that is a plan of the schedule itself, and not only what somebody asked for by hand.
pub(super) const RUNS_PLANNED: &str = "EXISTS (SELECT 1 FROM waypost.executions e, @RUN WHERE e.schedule = c.schedule AND e.kind = c.kind \
  AND e.id = c.id AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL AND e.manual IS NULL AND @IS_RUN AND @UNSETTLED)";

/// A scope's schedule, kind and id.
pub(super) type ScopeKey = (String, String, String);

/// An execution's scope and plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecutionKey<'a> {
    pub schedule: &'a str,
    pub kind: &'a str,
    pub id: &'a str,
    pub plan: Time,
}

impl ExecutionKey<'_> {
    pub fn scope(&self) -> ScopeKey {
        (self.schedule.to_owned(), self.kind.to_owned(), self.id.to_owned())
    }
}

pub(super) fn schedule(row: &Cells) -> Result<ScheduleRow> {
    let pause = Pause {
        by: row.get::<Option<String>>(7)?.unwrap_or_default(),
        reason: row.get::<Option<String>>(8)?.unwrap_or_default(),
        at: row.get(9)?,
    };
    Ok(ScheduleRow {
        name: row.get(0)?,
        definition: serde_json::from_str(&row.get::<String>(1)?).unwrap_or(Value::Null),
        folder: row.get(2)?,
        hash: row.get(3)?,
        timing: row.get(4)?,
        carried: row.get(5)?,
        updated_at: row.get(6)?,
        paused: Some(pause).filter(|pause| pause.at.is_some()),
    })
}

/// Reads a schedule and locks it, so that changes and firings of it come one after the other.
pub(super) async fn locked_schedule<T: Sql>(tx: &mut T, name: &str) -> Result<Option<ScheduleRow>> {
    let sql = format!("{SCHEDULE} WHERE name = $1 @lock(FOR UPDATE)");
    query(tx, &sql, values![name]).await?.first().map(schedule).transpose()
}

fn scope(row: &Cells) -> Result<ScopeRow> {
    Ok(ScopeRow {
        kind: row.get(1)?,
        id: row.get(2)?,
        through: row.get(3)?,
        since: row.get(4)?,
        wake_at: row.get(5)?,
        retired: row.get(6)?,
        counts: Counts::read(&row.get::<String>(7)?),
        last_plan: row.get(8)?,
        last_status: row.get(9)?,
        last_success: row.get(10)?,
        failures: u32::try_from(row.get::<u64>(11)?).unwrap_or(u32::MAX),
        running: 0,
        stale: 0,
    })
}

/// Locks scopes. Those that somebody else has locked are left out and not waited for.
pub(super) async fn lock_scopes<T: Sql>(
    tx: &mut T,
    keys: impl Iterator<Item = ScopeKey>,
) -> Result<HashMap<ScopeKey, ScopeRow>> {
    let sql = format!(
        "{SCOPE} WHERE (c.schedule, c.kind, c.id) IN (SELECT u.schedule, u.kind, u.id FROM @rows(schedule text, kind text, id text)) \
         @lock(FOR UPDATE OF c SKIP LOCKED)"
    );
    let rows = keys.map(|(schedule, kind, id)| values![schedule, kind, id]).collect();
    let found = query_rows(tx, &sql, Vec::new(), rows).await?;
    let keyed = |row: &Cells| scope(row).and_then(|it| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), it)));
    found.iter().map(keyed).collect()
}

/// Locks a scope, and waits for it, so that executions of a scope begin one after the other.
pub(super) async fn wait_for_scope<T: Sql>(tx: &mut T, of: &ExecutionKey<'_>) -> Result<Option<ScopeRow>> {
    let sql = format!("{SCOPE} WHERE c.schedule = $1 AND c.kind = $2 AND c.id = $3 @lock(FOR UPDATE)");
    query(tx, &sql, values![of.schedule, of.kind, of.id]).await?.first().map(scope).transpose()
}

/// Writes scopes that the caller has locked.
pub(super) async fn save_scopes<T: Sql>(
    tx: &mut T,
    scopes: impl Iterator<Item = (&str, &ScopeRow)>,
) -> Result<()> {
    let row = |(schedule, it): (&str, &ScopeRow)| {
        values![
            schedule,
            &it.kind,
            &it.id,
            it.through,
            it.since,
            it.wake_at,
            it.counts.to_json().to_string(),
            it.last_plan,
            &it.last_status,
            it.last_success,
            it.failures,
        ]
    };
    let sql = "UPDATE waypost.schedule_scopes AS c SET through = u.through, since = u.since, wake_at = u.wake_at, counts = u.counts, \
         last_plan = u.last_plan, last_status = u.last_status, last_success = u.last_success, failures = u.failures \
         FROM @rows(schedule text, kind text, id text, through time, since time, wake_at time, counts text, last_plan time, \
           last_status text, last_success time, failures int) WHERE c.schedule = u.schedule AND c.kind = u.kind AND c.id = u.id";
    query_rows(tx, sql, Vec::new(), scopes.map(row).collect()).await.map(drop)
}

/// The scopes of several schedules, by their names, each with how many of its executions are under way.
pub(super) async fn scopes_of<T: Sql>(
    tx: &mut T,
    names: &[String],
    now: Time,
) -> Result<HashMap<String, Vec<ScopeRow>>> {
    let mut found: HashMap<String, Vec<ScopeRow>> = HashMap::new();
    let sql = format!("{SCOPE} WHERE c.schedule = ANY ($1) ORDER BY c.kind, c.id");
    for row in &query(tx, &sql, values![names]).await? {
        found.entry(row.get(0)?).or_default().push(scope(row)?);
    }
    let sql = "SELECT e.schedule, e.kind, e.id, count(*), count(CASE WHEN @STALE < $2 THEN 1 END) FROM waypost.executions e, @RUN \
               WHERE e.schedule = ANY ($1) AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL AND @IS_RUN AND @UNSETTLED \
               GROUP BY e.schedule, e.kind, e.id";
    for row in &query(tx, sql, values![names, now]).await? {
        let (kind, id): (String, String) = (row.get(1)?, row.get(2)?);
        let scopes = found.get_mut(&row.get::<String>(0)?).into_iter().flatten();
        for scope in scopes.filter(|scope| scope.kind == kind && scope.id == id) {
            (scope.running, scope.stale) = (row.get(3)?, row.get(4)?);
        }
    }
    Ok(found)
}

/// Sets when executions are looked at next (never, without a time) and, if it is given, which run each has.
pub(super) async fn wake<'k, T: Sql>(
    tx: &mut T,
    executions: impl Iterator<Item = (ExecutionKey<'k>, Option<Time>, Option<&'k str>)>,
) -> Result<()> {
    let row = |(key, at, run_id): (ExecutionKey<'_>, Option<Time>, Option<&str>)| {
        values![key.schedule, key.kind, key.id, key.plan, at, run_id]
    };
    let sql = "UPDATE waypost.executions AS e SET wake_at = u.wake_at, run_id = coalesce(u.run_id, e.run_id) \
               FROM @rows(schedule text, kind text, id text, plan_time time, wake_at time, run_id text) \
               WHERE e.schedule = u.schedule AND e.kind = u.kind AND e.id = u.id AND e.plan_time = u.plan_time";
    query_rows(tx, sql, Vec::new(), executions.map(row).collect()).await.map(drop)
}
