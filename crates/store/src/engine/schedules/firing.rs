//! Finds what is due of the schedules, and begins it. A row that another process has locked is skipped: that process is about to
//! write it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use waypost_kernel::Time;
use waypost_kernel::schedule::Running;
use waypost_kernel::tenant::{prefix, tenant_of};

use super::of_tenant;
use super::scopes::*;
use crate::engine::claim;
use crate::engine::enqueue::{CheckedRun, new_held, new_queued};
use crate::engine::tx::Tx;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::schedules::*;
use crate::seam::verbs::{NewRun, Take};
use crate::statement::{Arg, Cells, Sql, query, query_rows, values};
use crate::tokens::fresh;

/// Schedules that a process may execute: applied ones of its tenant if it may, or its own, and none that it cannot execute just now. $1, $2,
/// $3 and $6 of a statement; $4 is now. A scope has its schedule's columns, so that a tick need not look there.
macro_rules! may_execute {
    ($of:literal, $name:literal) => {
        concat!(
            "((",
            $of,
            ".carried AND $1 AND ",
            of_tenant!($name, "$6"),
            " OR ",
            $of,
            ".hash = ANY ($2)) AND NOT ",
            $of,
            ".hash = ANY ($3))"
        )
    };
}

fn asked(by: &Ownership, now: Time, limit: usize) -> Vec<Arg> {
    values![by.carried, &by.hashes, &by.except, now, limit, &by.tenant.as_deref().map(prefix)]
}

pub(crate) async fn due<T: Tx + Sql>(tx: &mut T, by: &Ownership, limit: usize) -> Result<Due> {
    let mut due = Due { now: tx.now(), ..Due::default() };
    look_after(tx, by, limit, &mut due).await?;
    if limit > 0 {
        look_at_waiting(tx, by, &mut due).await?;
    }
    due.listings = listings(tx, by).await?;
    for row in &query(tx, &due_scopes(), asked(by, due.now, limit)).await? {
        let running = match (row.get(6)?, row.get(7)?) {
            (false, _) => Running::Nothing,
            (true, true) => Running::Planned,
            (true, false) => Running::ByHand,
        };
        due.scopes.push(DueScope {
            schedule: row.get(0)?,
            hash: row.get(1)?,
            kind: row.get(2)?,
            id: row.get(3)?,
            through: row.get(4)?,
            since: row.get(5)?,
            running,
            wake_at: row.get(8)?,
        });
    }
    due.more |= limit > 0 && due.scopes.len() == limit;
    Ok(due)
}

/// What one tick reads: the scopes that are due, by the index of their times, each with its open executions. Neither the schedules'
/// rows nor past executions are read. Scopes of a paused schedule have no time.
pub(crate) fn due_scopes() -> String {
    let may_execute = may_execute!("c", "c.schedule");
    format!(
        "SELECT c.schedule, c.hash, c.kind, c.id, c.through, c.since, {IS_RUNNING}, {RUNS_PLANNED}, c.wake_at \
         FROM waypost.schedule_scopes c WHERE c.wake_at <= $4 AND {may_execute} ORDER BY c.wake_at LIMIT $5"
    )
}

/// One process at a time lists the scopes of a schedule.
async fn listings<T: Tx + Sql>(tx: &mut T, by: &Ownership) -> Result<Vec<DueListing>> {
    let now = tx.now();
    let sql = concat!(
        "SELECT s.name, s.hash FROM waypost.schedules s WHERE ",
        may_execute!("s", "s.name"),
        " AND s.scopes_at <= $4 AND s.paused_at IS NULL ORDER BY s.name LIMIT $5 @lock(FOR UPDATE OF s SKIP LOCKED)"
    );
    let rows = query(tx, sql, asked(by, now, usize::MAX)).await?;
    let wake_at = now + LISTING;
    let listing = |row: &Cells| Ok(DueListing { schedule: row.get(0)?, hash: row.get(1)?, wake_at });
    let found = rows.iter().map(listing).collect::<Result<Vec<DueListing>>>()?;
    let names: Vec<String> = found.iter().map(|it| it.schedule.clone()).collect();
    let sql = "UPDATE waypost.schedules SET scopes_at = $2 WHERE name = ANY ($1)";
    query(tx, sql, values![names, wake_at]).await?;
    Ok(found)
}

/// An execution that was looked at, and what becomes of it.
struct Looked {
    execution: DueExecution,
    run: Option<Arc<RunRow>>,
    wake_at: Option<Time>,
    is_taken: bool,
}

impl Looked {
    fn key(&self) -> ExecutionKey<'_> {
        let DueExecution { schedule, kind, id, plan, .. } = &self.execution;
        ExecutionKey { schedule, kind, id, plan: *plan }
    }

    /// The run, if the execution has ended.
    fn ended(&self) -> Option<&RunRow> {
        self.run.as_deref().filter(|_| self.wake_at.is_none())
    }
}

/// Those that have begun: their ends, their retries, and those that nobody holds any more. One process at a time looks at
/// an execution; the others pass over it.
async fn look_after<T: Tx + Sql>(tx: &mut T, by: &Ownership, limit: usize, due: &mut Due) -> Result<()> {
    let now = tx.now();
    let sql = concat!(
        "SELECT e.schedule, s.hash, e.kind, e.id, e.plan_time, e.run_id, e.manual, s.paused_at IS NOT NULL FROM waypost.executions e \
         CROSS JOIN waypost.schedules s WHERE s.name = e.schedule AND e.wake_at <= $4 AND e.run_id IS NOT NULL AND ",
        may_execute!("s", "s.name"),
        " ORDER BY e.wake_at LIMIT $5 @lock(FOR UPDATE OF e SKIP LOCKED)"
    );
    let rows = query(tx, sql, asked(by, now, LOOKED_AT)).await?;
    due.more |= rows.len() == LOOKED_AT;
    let ids = rows.iter().map(|row| row.get(5)).collect::<Result<Vec<String>>>()?;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let stored = if ids.is_empty() { Vec::new() } else { tx.runs(&ids).await? };
    let runs: HashMap<String, Arc<RunRow>> =
        stored.into_iter().map(|stored| (stored.row.id().to_owned(), stored.row)).collect();
    let mut look = Look { now, room: limit };
    let mut looked = Vec::with_capacity(rows.len());
    for (row, run_id) in rows.iter().zip(ids) {
        let run = runs.get(run_id).cloned();
        let (wake_at, is_taken) = look.at(run.as_deref(), row.get(7)?);
        let execution = DueExecution {
            schedule: row.get(0)?,
            hash: row.get(1)?,
            kind: row.get(2)?,
            id: row.get(3)?,
            plan: row.get(4)?,
            run_id: Some(run_id.to_owned()),
            manual: row.get(6)?,
            is_running: false,
            wake_at: wake_at.unwrap_or(now),
        };
        looked.push(Looked { execution, run, wake_at, is_taken });
    }
    close_all(tx, &mut looked).await?;
    wake(tx, looked.iter().map(|it| (it.key(), it.wake_at, None))).await?;
    due.executions.extend(looked.into_iter().filter(|it| it.is_taken).map(|it| it.execution));
    Ok(())
}

/// Adds the executions that have ended to the counts of their scopes. If a scope is locked, its executions are looked at once
/// more later: a transaction that has locked executions must not wait for scopes.
async fn close_all<T: Tx + Sql>(tx: &mut T, looked: &mut [Looked]) -> Result<()> {
    let asked: HashSet<ScopeKey> =
        looked.iter().filter(|it| it.ended().is_some()).map(|it| it.key().scope()).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let mut scopes = lock_scopes(tx, asked.iter().cloned()).await?;
    let missing = asked.into_iter().filter(|key| !scopes.contains_key(key));
    let sql = "SELECT c.schedule, c.kind, c.id FROM waypost.schedule_scopes c, @rows(schedule text, kind text, id text) \
               WHERE c.schedule = u.schedule AND c.kind = u.kind AND c.id = u.id";
    let rows = missing.map(|(schedule, kind, id)| values![schedule, kind, id]).collect();
    let in_use = scope_keys(&query_rows(tx, sql, Vec::new(), rows).await?)?;
    for it in looked.iter_mut() {
        let Some(run) = it.ended() else { continue };
        let key = it.key().scope();
        match scopes.get_mut(&key) {
            Some(scope) => close(scope, it.execution.plan, run),
            None if in_use.contains(&key) => it.wake_at = Some(tx.now()),
            None => {}
        }
    }
    save_scopes(tx, scopes.iter().map(|(key, scope)| (key.0.as_str(), scope))).await
}

fn scope_keys(rows: &[Cells]) -> Result<HashSet<ScopeKey>> {
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).collect()
}

/// The first waiting plan of each scope. It is told to one process at a time.
async fn look_at_waiting<T: Tx + Sql>(tx: &mut T, by: &Ownership, due: &mut Due) -> Result<()> {
    let now = tx.now();
    let may_execute = may_execute!("c", "c.schedule");
    let waiting = "FROM waypost.executions x WHERE x.schedule = c.schedule AND x.kind = c.kind AND x.id = c.id AND x.run_id IS NULL";
    let sql = format!(
        "SELECT c.schedule, c.hash, c.kind, c.id, f.plan_time, f.manual, f.wake_at, {IS_RUNNING}, \
           (SELECT min(x.wake_at) {waiting} AND x.wake_at IS NOT NULL) \
         FROM waypost.schedule_scopes c LEFT JOIN waypost.executions f ON f.schedule = c.schedule AND f.kind = c.kind AND f.id = c.id \
           AND f.plan_time = (SELECT x.plan_time {waiting} AND x.wake_at <= $4 ORDER BY x.plan_time LIMIT 1) \
         WHERE c.waiting_at <= $4 AND {may_execute} ORDER BY c.waiting_at LIMIT $5 @lock(FOR UPDATE OF c SKIP LOCKED)"
    );
    let rows = query(tx, &sql, asked(by, now, LOOKED_AT)).await?;
    due.more |= rows.len() == LOOKED_AT;
    let mut next = Vec::with_capacity(rows.len());
    for row in &rows {
        let (schedule, kind, id): (String, String, String) = (row.get(0)?, row.get(2)?, row.get(3)?);
        let plan: Option<Time> = row.get(4)?;
        let again_at: Option<Time> = if plan.is_some() { Some(now + SOON) } else { row.get(8)? };
        next.push(values![&schedule, &kind, &id, again_at]);
        let Some(plan) = plan else { continue };
        due.executions.push(DueExecution {
            schedule,
            hash: row.get(1)?,
            kind,
            id,
            plan,
            run_id: None,
            manual: row.get(5)?,
            is_running: row.get(7)?,
            wake_at: row.get(6)?,
        });
    }
    let sql = "UPDATE waypost.schedule_scopes AS c SET waiting_at = u.at FROM @rows(schedule text, kind text, id text, at time) \
               WHERE c.schedule = u.schedule AND c.kind = u.kind AND c.id = u.id";
    query_rows(tx, sql, Vec::new(), next).await.map(drop)
}

/// Writes plannings together with what they fire, all of them or none. Gives what each has begun, if it was granted.
pub(crate) async fn fire<T: Tx + Sql>(tx: &mut T, firings: &[Firing]) -> Result<Vec<Option<Vec<Begun>>>> {
    let open = open_schedules(tx, firings.iter().map(|firing| &firing.schedule)).await?;
    let mut locked = lock_scopes(tx, firings.iter().map(key_of)).await?;
    let busy = busy_scopes(tx, firings).await?;
    let mut granted: Vec<(usize, ScopeRow)> = Vec::new();
    for (at, firing) in firings.iter().enumerate() {
        let key = key_of(firing);
        let is_free = open.contains(&firing.schedule) && !(firing.alone && busy.contains(&key));
        // If two firings are for the same scope, the second is too late.
        let scope = locked.remove(&key).filter(|_| is_free);
        let fits = |scope: &ScopeRow| scope.through == firing.expected && scope.wake_at.is_some();
        granted.extend(scope.filter(fits).map(|scope| (at, scope)));
    }
    let plans = granted.iter().flat_map(|(at, _)| {
        let Firing { schedule, kind, id, plans, .. } = &firings[*at];
        let key = move |plan: Time| ExecutionKey { schedule, kind, id, plan };
        plans.iter().map(move |(plan, birth)| (*at, key(*plan), birth))
    });
    let plans = new_executions(tx, plans.collect()).await?;
    let mut fired: Vec<Option<Vec<Begun>>> = firings.iter().map(|_| None).collect();
    granted.iter().for_each(|(at, _)| fired[*at] = Some(Vec::new()));
    let (places, plans): (Vec<usize>, Vec<_>) =
        plans.into_iter().map(|(at, key, birth)| (at, (key, birth))).unzip();
    for (at, begun) in places.into_iter().zip(begin_plans(tx, &plans).await?) {
        fired[at].get_or_insert_default().push(begun);
    }
    for (at, scope) in &mut granted {
        let firing = &firings[*at];
        (scope.through, scope.wake_at, scope.since) = (firing.through, firing.wake_at, None);
        scope.failures = 0;
        scope.counts.add(&firing.skipped);
        let won = fired[*at].as_ref().map_or(0, |begun| begun.len() as u64);
        scope.counts.add(&Counts { won, ..Counts::default() });
    }
    save_scopes(tx, granted.iter().map(|(at, scope)| (firings[*at].schedule.as_str(), scope))).await?;
    Ok(fired)
}

fn key_of(firing: &Firing) -> ScopeKey {
    (firing.schedule.clone(), firing.kind.clone(), firing.id.clone())
}

/// The schedules that are neither paused nor removed. They stay so until the transaction ends.
async fn open_schedules<'s, T: Sql>(
    tx: &mut T,
    names: impl Iterator<Item = &'s String>,
) -> Result<HashSet<String>> {
    let sql = "SELECT name FROM waypost.schedules WHERE name = ANY ($1) AND paused_at IS NULL ORDER BY name @lock(FOR SHARE)";
    let rows = query(tx, sql, values![names.cloned().collect::<Vec<String>>()]).await?;
    rows.iter().map(|row| row.get(0)).collect()
}

/// The scopes in which something is under way, among those whose plans must not overlap.
async fn busy_scopes<T: Sql>(tx: &mut T, firings: &[Firing]) -> Result<HashSet<ScopeKey>> {
    let alone = firings.iter().filter(|firing| firing.alone);
    let rows = alone.map(|it| values![&it.schedule, &it.kind, &it.id]).collect();
    let sql = format!(
        "SELECT c.schedule, c.kind, c.id FROM (SELECT u.schedule, u.kind, u.id FROM @rows(schedule text, kind text, id text)) AS c \
         WHERE {IS_RUNNING}"
    );
    scope_keys(&query_rows(tx, &sql, Vec::new(), rows).await?)
}

/// A plan, with the index of its firing.
type Planned<'f> = (usize, ExecutionKey<'f>, &'f Birth);

/// Writes executions for the plans that have none yet, and gives these plans.
async fn new_executions<'f, T: Tx + Sql>(tx: &mut T, plans: Vec<Planned<'f>>) -> Result<Vec<Planned<'f>>> {
    let now = tx.now();
    let sql = "INSERT INTO waypost.executions(schedule, kind, id, plan_time, wake_at) SELECT u.schedule, u.kind, u.id, u.plan_time, $1 \
               FROM @rows(schedule text, kind text, id text, plan_time time) WHERE true ORDER BY 1, 2, 3, 4 ON CONFLICT DO NOTHING \
               RETURNING schedule, kind, id, plan_time";
    let row = |(_, key, _): &Planned<'_>| values![key.schedule, key.kind, key.id, key.plan];
    let made = query_rows(tx, sql, values![now], plans.iter().map(row).collect()).await?;
    let key = |row: &Cells| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?));
    let new = made.iter().map(key).collect::<Result<HashSet<(ScopeKey, Time)>>>()?;
    Ok(plans.into_iter().filter(|(_, key, _)| new.contains(&(key.scope(), key.plan))).collect())
}

/// Makes the runs of new executions, which are their schedule's tenant's. A run that has the same idempotency key already is not taken for the plan's: the execution's
/// key, not the run's, makes a plan begin once.
async fn begin_plans<T: Tx + Sql>(tx: &mut T, plans: &[(ExecutionKey<'_>, &Birth)]) -> Result<Vec<Begun>> {
    let (mut held, mut queued) = (Vec::new(), Vec::new());
    for (key, birth) in plans {
        let tenant = tenant_of(key.schedule).to_owned();
        let run = CheckedRun::of(NewRun { tenant, ..birth.run.clone() })?;
        match birth.lease {
            Some(_) => held.push((run, birth.lease)),
            None => queued.push(run),
        }
    }
    let mut held = new_held(tx, held).await?.into_iter();
    let mut queued = new_queued(tx, queued).await?.into_iter();
    let now = tx.now();
    let missing = || StoreError::Unavailable("a plan's run was not written".into());
    let mut begun = Vec::with_capacity(plans.len());
    let mut first_looks = Vec::with_capacity(plans.len());
    for (key, birth) in plans {
        begun.push(match birth.lease {
            Some(_) => {
                let taken = held.next().ok_or_else(missing)?;
                first_looks.push(first_look(taken.run(), now));
                Begun::Held(key.plan, Box::new(taken.claimed()?))
            }
            None => {
                let row = queued.next().ok_or_else(missing)?;
                first_looks.push(first_look(&row, now));
                Begun::Queued(key.plan, row.id().to_owned())
            }
        });
    }
    let known = plans.iter().zip(&begun).zip(first_looks);
    wake(tx, known.map(|(((key, _), begun), at)| (*key, Some(at), Some(begun.run_id())))).await?;
    Ok(begun)
}

/// Takes up an execution that `due` told of. `None` if it is not to be taken now.
pub(crate) async fn begin<T: Tx + Sql>(tx: &mut T, begin: &Begin) -> Result<Option<Begun>> {
    let Begin { schedule, kind, id, plan, .. } = begin;
    let key = ExecutionKey { schedule, kind, id, plan: *plan };
    if open_schedules(tx, std::iter::once(schedule)).await?.is_empty() {
        return Ok(None);
    }
    let scope = wait_for_scope(tx, &key).await?;
    let Some(run_id) = locked_execution(tx, &key).await? else { return Ok(None) };
    let now = tx.now();
    if begin.alone && is_running(tx, &key, run_id.as_deref()).await? {
        // One that has not begun keeps its place before those that come after it.
        if run_id.is_some() {
            wake(tx, std::iter::once((key, Some(now + SOON), None))).await?;
        }
        return Ok(None);
    }
    let (begun, counts) = match run_id {
        None => (begin_plans(tx, &[(key, &begin.birth)]).await?.pop(), taken_as(None)),
        Some(run_id) => take(tx, &key, &run_id, begin).await?,
    };
    if begun.is_some() {
        if let Some(mut scope) = scope {
            scope.counts.add(&counts);
            save_scopes(tx, std::iter::once((schedule.as_str(), &scope))).await?;
        }
        has_begun(tx, &key, begin.alone).await?;
    }
    Ok(begun)
}

/// Locks an execution and gives its run's id, if it has one. `None` if the execution has ended or is unknown.
async fn locked_execution<T: Tx + Sql>(tx: &mut T, key: &ExecutionKey<'_>) -> Result<Option<Option<String>>> {
    let asked = || values![key.schedule, key.kind, key.id, key.plan];
    let is_it = "e.schedule = $1 AND e.kind = $2 AND e.id = $3 AND e.plan_time = $4";
    if !T::IS_ONE_WRITE {
        // The run is locked before the execution, in the order in which a move of the run writes them.
        let sql = format!(
            "SELECT 1 FROM waypost.runs r WHERE r.run_id = (SELECT e.run_id FROM waypost.executions e WHERE {is_it}) FOR UPDATE"
        );
        query(tx, &sql, asked()).await?;
    }
    let sql = format!(
        "SELECT e.run_id FROM waypost.executions e WHERE {is_it} AND e.wake_at IS NOT NULL @lock(FOR UPDATE)"
    );
    query(tx, &sql, asked()).await?.first().map(|row| row.get(0)).transpose()
}

/// Whether an execution of the scope is under way, other than that of the run `but`.
async fn is_running<T: Sql>(tx: &mut T, key: &ExecutionKey<'_>, but: Option<&str>) -> Result<bool> {
    let sql = "SELECT 1 FROM waypost.executions e, @RUN WHERE e.schedule = $1 AND e.kind = $2 AND e.id = $3 AND e.wake_at IS NOT NULL \
               AND e.run_id IS NOT NULL AND ($4 IS NULL OR e.run_id <> $4) AND @IS_RUN AND @UNSETTLED LIMIT 1";
    Ok(!query(tx, sql, values![key.schedule, key.kind, key.id, but]).await?.is_empty())
}

/// A run that is to be retried, or that its holder left.
async fn take<T: Tx + Sql>(
    tx: &mut T,
    key: &ExecutionKey<'_>,
    run_id: &str,
    begin: &Begin,
) -> Result<(Option<Begun>, Counts)> {
    let stored = tx.runs(&[run_id]).await?.pop().ok_or_else(|| StoreError::no_run(run_id))?;
    let counts = taken_as(Some(&stored.row));
    let how = Take { worker: begin.by.clone(), lease: begin.birth.lease, start: false };
    match claim::take(tx, stored, &how, fresh()).await {
        Ok(Some(taken)) => {
            let at = first_look(taken.run(), tx.now());
            wake(tx, std::iter::once((*key, Some(at), None))).await?;
            Ok((Some(Begun::Held(key.plan, Box::new(taken.claimed()?))), counts))
        }
        Ok(None) | Err(StoreError::Refused(_)) => Ok((None, counts)),
        Err(error) => Err(error),
    }
}

/// Resets the execution's failures. If plans of the scope may overlap, the next one that waits is looked at at once.
async fn has_begun<T: Tx + Sql>(tx: &mut T, key: &ExecutionKey<'_>, is_alone: bool) -> Result<()> {
    let now = tx.now();
    let sql = "UPDATE waypost.executions SET failures = 0 WHERE schedule = $1 AND kind = $2 AND id = $3 AND plan_time = $4 AND failures > 0";
    query(tx, sql, values![key.schedule, key.kind, key.id, key.plan]).await?;
    if !is_alone {
        let sql = "UPDATE waypost.schedule_scopes SET waiting_at = $4 WHERE schedule = $1 AND kind = $2 AND id = $3 AND waiting_at IS NOT NULL";
        query(tx, sql, values![key.schedule, key.kind, key.id, now]).await?;
    }
    Ok(())
}

/// What can fail and be put off: its table, its key there, and the columns of its next look and of its failures in a row.
struct WakeColumns {
    table: &'static str,
    key: &'static [(&'static str, &'static str)],
    at: &'static str,
    failures: &'static str,
}

const SCOPE_KEY: [(&str, &str); 4] =
    [("schedule", "text"), ("kind", "text"), ("id", "text"), ("plan_time", "time")];
const LISTING_WAKE: WakeColumns = WakeColumns {
    table: "schedules",
    key: &[("name", "text")],
    at: "scopes_at",
    failures: "scopes_failures",
};
const SCOPE_WAKE: WakeColumns = WakeColumns {
    table: "schedule_scopes",
    key: SCOPE_KEY.split_at(3).0,
    at: "wake_at",
    failures: "failures",
};
const EXECUTION_WAKE: WakeColumns =
    WakeColumns { table: "executions", key: &SCOPE_KEY, at: "wake_at", failures: "failures" };

/// Puts off what failed: `due` tells of it later, to everybody. A row that somebody else has locked is left to him.
pub(crate) async fn put_off<T: Tx + Sql>(tx: &mut T, failed: &[Failed]) -> Result<()> {
    let (mut listings, mut scopes, mut executions) = (Vec::new(), Vec::new(), Vec::new());
    for Failed { schedule, what, wake_at } in failed {
        match what {
            Failing::Listing => listings.push(values![schedule, *wake_at]),
            Failing::Scope { kind, id } => scopes.push(values![schedule, kind, id, *wake_at]),
            Failing::Execution { kind, id, plan } => {
                executions.push(values![schedule, kind, id, *plan, *wake_at]);
            }
        }
    }
    for (columns, rows) in [(LISTING_WAKE, listings), (SCOPE_WAKE, scopes), (EXECUTION_WAKE, executions)] {
        put_off_at(tx, &columns, rows).await?;
    }
    Ok(())
}

/// `told` has for each row its key and the time that `due` told; a row with another time by now is left alone.
async fn put_off_at<T: Tx + Sql>(tx: &mut T, columns: &WakeColumns, told: Vec<Vec<Arg>>) -> Result<()> {
    let WakeColumns { table, key, at, failures } = columns;
    let now = tx.now();
    let is_it: Vec<String> = key.iter().map(|(column, _)| format!("t.{column} = u.{column}")).collect();
    let is_it = is_it.join(" AND ");
    let typed: Vec<String> = key.iter().map(|(column, kind)| format!("{column} {kind}")).collect();
    let typed = typed.join(", ");
    let found: Vec<String> = key.iter().map(|(column, _)| format!("t.{column}")).collect();
    let found = found.join(", ");
    let sql = format!(
        "SELECT t.{failures}, {found} FROM waypost.{table} t, @rows({typed}, told time) WHERE {is_it} AND t.{at} = u.told \
         @lock(FOR UPDATE OF t SKIP LOCKED)"
    );
    let mut next = Vec::new();
    for row in &query_rows(tx, &sql, Vec::new(), told).await? {
        let count = u32::try_from(row.get::<u64>(0)?.saturating_add(1)).unwrap_or(u32::MAX);
        let mut values = Vec::with_capacity(key.len() + 2);
        for (at, (_, kind)) in key.iter().enumerate() {
            values.push(match *kind {
                "time" => Arg::from(row.get::<Time>(at + 1)?),
                _ => Arg::from(row.get::<String>(at + 1)?),
            });
        }
        values.extend(values![count, now + wait_after(count)]);
        next.push(values);
    }
    let sql = format!(
        "UPDATE waypost.{table} AS t SET {failures} = u.count, {at} = u.at FROM @rows({typed}, count int, at time) WHERE {is_it}"
    );
    query_rows(tx, &sql, Vec::new(), next).await.map(drop)
}
