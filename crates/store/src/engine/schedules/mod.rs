//! Schedules: their definitions, scopes and pauses, and plans by hand. What fires is in `firing`.

pub(crate) mod firing;
mod scopes;

use waypost_kernel::Time;
use waypost_kernel::tenant::{prefix, tenant_of};
use waypost_kernel::text::{MAX_REASON_CHARS, clean_chars};

use super::command::carry_out;
use super::edit::Stored;
use super::tx::Tx;
use crate::rules::intake::check_name;
use crate::seam::access::Who;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::schedule_reads::*;
use crate::seam::schedules::*;
use crate::seam::verbs::{CommandWrite, PAGE_BYTES, Pause};
use crate::statement::{Cells, Sql, query, query_rows, values};
use scopes::{SCHEDULE, locked_schedule, schedule, scopes_of};

/// Whether a stored name is the tenant's whose prefix is given. Without one, whoever's.
macro_rules! of_tenant {
    ($name:literal, $prefix:literal) => {
        concat!(
            "(",
            $prefix,
            " IS NULL OR ",
            $prefix,
            " = '' AND ",
            $name,
            " NOT LIKE '%/%' OR ",
            $prefix,
            " <> '' AND substr(",
            $name,
            ", 1, length(",
            $prefix,
            ")) = ",
            $prefix,
            ")"
        )
    };
}
use of_tenant;

pub(crate) async fn put_schedule<T: Tx + Sql>(tx: &mut T, write: &ScheduleWrite) -> Result<ScheduleChanged> {
    check_schedule(write)?;
    let was = locked_schedule(tx, &write.name).await?;
    let put = match &was {
        None => ScheduleChanged::Added,
        Some(was) if was.hash == write.hash && was.carried == write.carried => ScheduleChanged::Same,
        Some(_) => ScheduleChanged::Changed,
    };
    let now = tx.now();
    if put != ScheduleChanged::Same {
        let sql = "INSERT INTO waypost.schedules(name, definition, folder, hash, timing, carried, updated_at, scopes_at) \
                   VALUES ($1, $2::text::json, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, \
                   folder = excluded.folder, hash = excluded.hash, timing = excluded.timing, carried = excluded.carried, \
                   updated_at = excluded.updated_at, scopes_at = excluded.scopes_at";
        let ScheduleWrite { name, folder, hash, timing, carried, .. } = write;
        let scopes_at = write.ids.is_none().then_some(now);
        let definition = write.definition.to_string();
        query(tx, sql, values![name, definition, folder, hash, timing, *carried, now, scopes_at]).await?;
    }
    if put == ScheduleChanged::Changed {
        let sql = "UPDATE waypost.schedule_scopes SET hash = $2, carried = $3 WHERE schedule = $1";
        query(tx, sql, values![&write.name, &write.hash, write.carried]).await?;
    }
    if was.is_some_and(|was| was.timing != write.timing) {
        let sql = "UPDATE waypost.schedule_scopes SET wake_at = $2, since = $2, through = NULL WHERE schedule = $1 AND wake_at IS NOT NULL";
        query(tx, sql, values![&write.name, now]).await?;
    }
    if let Some(ids) = &write.ids {
        list(tx, &write.name, &write.kind, ids).await?;
    }
    wake_failed(tx, &write.name).await?;
    Ok(put)
}

/// Adds the listed scopes that are new and retires those that are not listed; the others stay as they are.
async fn list<T: Tx + Sql>(tx: &mut T, schedule: &str, kind: &str, ids: &[String]) -> Result<()> {
    let now = tx.now();
    let sql = "UPDATE waypost.schedule_scopes SET wake_at = NULL, retired = true WHERE schedule = $1 AND (kind <> $2 OR NOT id = ANY ($3))";
    query(tx, sql, values![schedule, kind, ids]).await?;
    let sql = "INSERT INTO waypost.schedule_scopes AS c(schedule, kind, id, wake_at, hash, carried) SELECT DISTINCT $1, $2, i.id, \
                 CASE WHEN s.paused_at IS NULL THEN $4::timestamptz END, s.hash, s.carried FROM @ids($3), waypost.schedules s WHERE s.name = $1 \
               ON CONFLICT (schedule, kind, id) DO UPDATE SET retired = false, wake_at = excluded.wake_at, since = $4, through = NULL \
               WHERE c.retired";
    query(tx, sql, values![schedule, kind, ids, now]).await.map(drop)
}

async fn each<T: Tx + Sql>(tx: &mut T, name: &str, statements: &[&str]) -> Result<()> {
    let now = tx.now();
    for sql in statements {
        query(tx, sql, values![name, now]).await?;
    }
    Ok(())
}

/// Ends the wait after failures: whoever changes a schedule, or applies it once more, may have repaired it.
async fn wake_failed<T: Tx + Sql>(tx: &mut T, name: &str) -> Result<()> {
    let statements = [
        "UPDATE waypost.schedules SET scopes_at = $2, scopes_failures = 0 WHERE name = $1 AND scopes_failures > 0 AND scopes_at IS NOT NULL",
        "UPDATE waypost.schedule_scopes SET wake_at = $2, failures = 0 WHERE schedule = $1 AND failures > 0 AND wake_at IS NOT NULL",
        "UPDATE waypost.schedule_scopes SET waiting_at = $2 WHERE schedule = $1 AND waiting_at IS NOT NULL",
        "UPDATE waypost.executions SET wake_at = $2, failures = 0 WHERE schedule = $1 AND failures > 0 AND wake_at IS NOT NULL",
    ];
    each(tx, name, &statements).await
}

/// Wakes what a pause kept from beginning.
async fn wake_open<T: Tx + Sql>(tx: &mut T, name: &str) -> Result<()> {
    let statements = [
        "UPDATE waypost.schedule_scopes AS c SET waiting_at = $2 WHERE c.schedule = $1 AND EXISTS (SELECT 1 FROM waypost.executions e \
         WHERE e.schedule = $1 AND e.kind = c.kind AND e.id = c.id AND e.run_id IS NULL AND e.wake_at IS NOT NULL)",
        "UPDATE waypost.executions SET wake_at = $2 WHERE schedule = $1 AND wake_at IS NOT NULL AND run_id IS NOT NULL",
    ];
    each(tx, name, &statements).await
}

pub(crate) async fn put_scopes<T: Tx + Sql>(
    tx: &mut T,
    schedule: &str,
    kind: &str,
    ids: &[String],
) -> Result<()> {
    check_scopes(kind, ids)?;
    let next = tx.now() + SCOPES_EVERY;
    let sql =
        "UPDATE waypost.schedules SET scopes_at = $2, scopes_failures = 0 WHERE name = $1 RETURNING name";
    if query(tx, sql, values![schedule, next]).await?.is_empty() {
        return Err(no_schedule(schedule));
    }
    list(tx, schedule, kind, ids).await
}

/// Plans that wait go with their schedule: nobody would begin them. What is being executed is asked to cancel, since nobody
/// would take it up if its holder died. Runs that it queued are their queues', and stay.
pub(crate) async fn remove_schedule<T: Tx + Sql>(tx: &mut T, name: &str, who: &Who) -> Result<()> {
    check_removable(name)?;
    // Who fires or plans holds a lock on it: what they begin is seen below, and nothing is begun after.
    locked_schedule(tx, name).await?.ok_or_else(|| no_schedule(name))?;
    for run_id in held_executions(tx, name).await? {
        let reason = format!("the schedule {name} was removed");
        let cancel = CommandWrite {
            tenant: tenant_of(name).into(),
            run_id,
            name: "cancel".into(),
            by: who.by.clone(),
            reason: Some(clean_chars(&reason, MAX_REASON_CHARS).text),
            ..CommandWrite::default()
        };
        match carry_out(tx, &cancel).await {
            // It has ended meanwhile.
            Ok(_) | Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    // Plans that wait leave after their schedule: of one that is there none may.
    let statements = [
        "UPDATE waypost.executions SET wake_at = NULL WHERE schedule = $1 AND run_id IS NOT NULL AND wake_at IS NOT NULL",
        "DELETE FROM waypost.schedule_scopes WHERE schedule = $1",
        "DELETE FROM waypost.schedules WHERE name = $1",
        "DELETE FROM waypost.executions WHERE schedule = $1 AND run_id IS NULL",
    ];
    for sql in statements {
        query(tx, sql, values![name]).await?;
    }
    Ok(())
}

/// The runs of executions that a scheduler holds, or left.
async fn held_executions<T: Tx + Sql>(tx: &mut T, schedule: &str) -> Result<Vec<String>> {
    let sql = "SELECT e.run_id FROM waypost.executions e, @RUN WHERE e.schedule = $1 AND e.wake_at IS NOT NULL AND e.run_id IS NOT NULL \
               AND @IS_RUN AND @UNSETTLED ORDER BY e.run_id";
    let rows = query(tx, sql, values![schedule]).await?;
    let ids = rows.iter().map(|row| row.get(0)).collect::<Result<Vec<String>>>()?;
    let asked: Vec<&str> = ids.iter().map(String::as_str).collect();
    let runs = if asked.is_empty() { Vec::new() } else { tx.runs(&asked).await? };
    let held = runs.iter().filter(|stored| is_born_held(&stored.row));
    Ok(held.map(|stored| stored.row.id().to_owned()).collect())
}

pub(crate) async fn pause_schedule<T: Tx + Sql>(
    tx: &mut T,
    name: &str,
    pause: Option<&Pause>,
) -> Result<ScheduleRow> {
    check_pause(pause)?;
    let was = locked_schedule(tx, name).await?.ok_or_else(|| no_schedule(name))?;
    let now = tx.now();
    let sql =
        "UPDATE waypost.schedules SET paused_by = $2, pause_reason = $3, paused_at = $4 WHERE name = $1";
    let (by, reason) = (pause.map(|it| it.by.as_str()), pause.map(|it| it.reason.as_str()));
    query(tx, sql, values![name, by, reason, pause.map(|_| now)]).await?;
    if pause.is_some() {
        let sql = "UPDATE waypost.schedule_scopes SET wake_at = NULL, waiting_at = NULL WHERE schedule = $1";
        query(tx, sql, values![name]).await?;
    } else if was.paused.is_some() {
        let sql =
            "UPDATE waypost.schedule_scopes SET wake_at = $2, since = $2 WHERE schedule = $1 AND NOT retired";
        query(tx, sql, values![name, now]).await?;
        wake_failed(tx, name).await?;
        wake_open(tx, name).await?;
    }
    Ok(locked_schedule(tx, name).await?.unwrap_or(was))
}

pub(crate) async fn add_plans<T: Tx + Sql>(tx: &mut T, plans: &ManualPlans) -> Result<u64> {
    check_manual(plans)?;
    let ManualPlans { schedule, kind, ids, how, by, .. } = plans;
    // Whoever removes it waits until the plans are there, and takes them along.
    let sql = "SELECT name FROM waypost.schedules WHERE name = $1 @lock(FOR SHARE)";
    if query(tx, sql, values![schedule]).await?.is_empty() {
        return Err(no_schedule(schedule));
    }
    let now = tx.now();
    // A scope that is not listed is added as a retired one.
    let sql = "INSERT INTO waypost.schedule_scopes(schedule, kind, id, retired, waiting_at, hash, carried) SELECT DISTINCT s.name, $2, i.id, true, \
                 CASE WHEN s.paused_at IS NULL THEN $4::timestamptz END, s.hash, s.carried FROM @ids($3), waypost.schedules s \
               WHERE s.name = $1 ORDER BY 3 ON CONFLICT (schedule, kind, id) DO UPDATE SET waiting_at = excluded.waiting_at";
    query(tx, sql, values![schedule, kind, ids, now]).await?;
    let times = plans.plans.clone().unwrap_or_else(|| vec![Time::from_ms(now.ms())]);
    let sql = "INSERT INTO waypost.executions(schedule, kind, id, plan_time, manual, who, wake_at) \
               SELECT $1, $2, i.id, u.plan, $4, $5, $6 FROM @ids($3), @rows(plan time) WHERE true ON CONFLICT DO NOTHING RETURNING plan_time";
    let rows = times.iter().map(|plan| values![*plan]).collect();
    let added = query_rows(tx, sql, values![schedule, kind, ids, how, by, now], rows).await?;
    let again = if plans.again { plan_again(tx, plans, &times).await? } else { 0 };
    Ok(added.len() as u64 + again)
}

/// Those of the plans that failed for good wait to begin once more, by a new run. The execution remembers what was tried.
async fn plan_again<T: Tx + Sql>(tx: &mut T, plans: &ManualPlans, times: &[Time]) -> Result<u64> {
    let ManualPlans { schedule, kind, ids, how, by, .. } = plans;
    let sql = "SELECT e.id, e.plan_time, e.run_id FROM waypost.executions e, @rows(plan time) \
               WHERE e.schedule = $1 AND e.kind = $2 AND e.id = ANY ($3) AND e.plan_time = u.plan AND e.run_id IS NOT NULL";
    let rows = times.iter().map(|plan| values![*plan]).collect();
    let found = query_rows(tx, sql, values![schedule, kind, ids], rows).await?;
    let run_ids = found.iter().map(|row| row.get(2)).collect::<Result<Vec<String>>>()?;
    let asked: Vec<&str> = run_ids.iter().map(String::as_str).collect();
    let runs = if asked.is_empty() { Vec::new() } else { tx.runs(&asked).await? };
    let mut failed = Vec::new();
    for (row, run_id) in found.iter().zip(&run_ids) {
        let run = runs.iter().find(|stored| stored.row.id() == run_id).map(|stored| &stored.row);
        if let Some(run) = run.filter(|run| has_failed_for_good(run)) {
            let (id, plan): (String, Time) = (row.get(0)?, row.get(1)?);
            failed.push(values![id, plan, run_id, run.run.attempt, run.run.max_attempts]);
        }
    }
    let now = tx.now();
    let sql = "UPDATE waypost.executions AS e SET run_id = NULL, wake_at = $3, manual = $4, who = $5, tried = e.tried + u.attempts, \
                 allowed = e.allowed + u.most \
               FROM @rows(id text, plan time, was text, attempts int, most int) WHERE e.schedule = $1 AND e.kind = $2 \
               AND e.id = u.id AND e.plan_time = u.plan AND e.run_id = u.was RETURNING plan_time";
    let changed = query_rows(tx, sql, values![schedule, kind, now, how, by], failed).await?;
    Ok(changed.len() as u64)
}

/// Makes `due` look at these executions at once, because they have ended, and at the plans that waited for their ends.
pub(crate) async fn wake_executions<T: Tx + Sql>(tx: &mut T, run_ids: &[String]) -> Result<()> {
    let now = tx.now();
    // Scopes come before executions, as everywhere.
    let sql = "UPDATE waypost.schedule_scopes AS c SET wake_at = $2 FROM waypost.executions e WHERE e.run_id = ANY ($1) \
               AND c.schedule = e.schedule AND c.kind = e.kind AND c.id = e.id AND c.wake_at > $2 AND c.wake_at <= $3";
    query(tx, sql, values![run_ids, now, now + SOON]).await?;
    let sql = "UPDATE waypost.executions SET wake_at = $2 WHERE run_id = ANY ($1) AND wake_at IS NOT NULL";
    query(tx, sql, values![run_ids, now]).await.map(drop)
}

pub(crate) async fn schedules<T: Tx + Sql>(
    tx: &mut T,
    filter: &ScheduleFilter,
) -> Result<Vec<ScheduleSummary>> {
    let sql = format!(
        "{SCHEDULE} WHERE ($1 IS NULL OR name = $1) AND ($2 IS NULL OR name > $2) AND {} ORDER BY name LIMIT $3",
        of_tenant!("name", "$4")
    );
    let asked =
        values![&filter.name, &filter.after, page_size(filter.limit), &filter.tenant.as_deref().map(prefix)];
    let rows = query(tx, &sql, asked).await?;
    let rows = rows.iter().map(schedule).collect::<Result<Vec<ScheduleRow>>>()?;
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let mut scopes = scopes_of(tx, &names, tx.now()).await?;
    let schedulers = schedulers(tx).await?;
    let summary = |row: ScheduleRow| {
        let scopes = scopes.remove(&row.name).unwrap_or_default();
        let fired_by = schedulers.iter().filter(|sign| sign.fires(&row)).count() as u64;
        ScheduleSummary { fired_by, ..ScheduleSummary::of(row, &scopes) }
    };
    Ok(rows.into_iter().map(summary).collect())
}

/// Those who are gone are forgotten by those who are there.
pub(crate) async fn scheduler_seen<T: Tx + Sql>(tx: &mut T, sign: &SchedulerSign) -> Result<()> {
    check_name("name", &sign.name)?;
    let now = tx.now();
    query(tx, "DELETE FROM waypost.schedulers WHERE seen_at < $1", values![now - SCHEDULER_GONE_AFTER])
        .await?;
    let sql = "INSERT INTO waypost.schedulers(name, carried, tenant, hashes, seen_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) \
               DO UPDATE SET carried = excluded.carried, tenant = excluded.tenant, hashes = excluded.hashes, seen_at = excluded.seen_at";
    // Hashes have no blanks.
    query(tx, sql, values![&sign.name, sign.carried, &sign.tenant, sign.hashes.join(" "), now])
        .await
        .map(drop)
}

async fn schedulers<T: Tx + Sql>(tx: &mut T) -> Result<Vec<SchedulerSign>> {
    let since = tx.now() - SCHEDULER_GONE_AFTER;
    let sql = "SELECT name, carried, hashes, tenant FROM waypost.schedulers WHERE seen_at >= $1";
    let sign = |row: &Cells| {
        let hashes: String = row.get(2)?;
        let hashes = hashes.split_whitespace().map(str::to_owned).collect();
        Ok(SchedulerSign { name: row.get(0)?, carried: row.get(1)?, tenant: row.get(3)?, hashes })
    };
    query(tx, sql, values![since]).await?.iter().map(sign).collect()
}

pub(crate) async fn scopes<T: Tx + Sql>(tx: &mut T, schedule: &str) -> Result<Vec<ScopeRow>> {
    let sql = "SELECT name FROM waypost.schedules WHERE name = $1";
    if query(tx, sql, values![schedule]).await?.is_empty() {
        return Err(no_schedule(schedule));
    }
    let now = tx.now();
    Ok(scopes_of(tx, &[schedule.to_owned()], now).await?.remove(schedule).unwrap_or_default())
}

pub(crate) async fn executions<T: Tx + Sql>(tx: &mut T, filter: &ExecutionFilter) -> Result<ExecutionPage> {
    let after = ExecutionCursor::read(filter)?;
    let after = after.as_ref();
    let sql = concat!(
        "SELECT e.schedule, e.kind, e.id, e.plan_time, e.manual, e.who, e.run_id, e.tried, e.allowed FROM waypost.executions e \
               WHERE ($1 IS NULL OR e.schedule = $1) AND ($2 IS NULL OR e.kind = $2) AND ($3 IS NULL OR e.id = $3) AND ($4 IS NULL OR e.run_id = $4) \
               AND ($5 IS NULL OR EXISTS (SELECT 1 FROM @RUN, @STATES WHERE @IS_RUN AND s.code = r.state AND s.state = $5)) \
               AND ($6 IS NULL OR e.plan_time < $6 OR e.plan_time = $6 AND (e.schedule, e.kind, e.id) > ($7, $8, $9)) AND ",
        of_tenant!("e.schedule", "$11"),
        " \
               ORDER BY e.plan_time DESC, e.schedule, e.kind, e.id LIMIT $10"
    );
    let mut asked = values![
        &filter.schedule,
        &filter.kind,
        &filter.id,
        &filter.run_id,
        &filter.status,
        after.map(|it| it.plan)
    ];
    let text = |read: fn(&ExecutionCursor) -> &String| after.map(|it| read(it).as_str());
    asked.extend(values![text(|it| &it.schedule), text(|it| &it.kind), text(|it| &it.id)]);
    asked.extend(values![page_size(filter.limit) + 1, &filter.tenant.as_deref().map(prefix)]);
    let rows = query(tx, sql, asked).await?;
    let ids = rows.iter().map(|row| row.get(6)).collect::<Result<Vec<Option<String>>>>()?;
    let (runs, fitting) = runs_of_a_page(tx, &ids).await?;
    let read = |(row, run_id): (&Cells, &Option<String>)| {
        let run = runs.iter().find(|stored| Some(stored.row.id()) == run_id.as_deref());
        let earlier = |at| -> Result<u32> { Ok(u32::try_from(row.get::<u64>(at)?).unwrap_or(u32::MAX)) };
        let (attempt, max_attempts) =
            run.map_or((0, 0), |stored| (stored.row.run.attempt, stored.row.run.max_attempts));
        Ok(ExecutionRow {
            schedule: row.get(0)?,
            kind: row.get(1)?,
            id: row.get(2)?,
            plan: row.get(3)?,
            manual: row.get(4)?,
            by: row.get(5)?,
            attempt: attempt.saturating_add(earlier(7)?),
            max_attempts: max_attempts.saturating_add(earlier(8)?),
            run: run.map(|stored| RunRow::clone(&stored.row)),
        })
    };
    let found = rows.iter().zip(&ids).take(fitting).map(read).collect::<Result<Vec<_>>>()?;
    Ok(ExecutionPage::of(found, filter.limit, fitting < rows.len()))
}

/// Runs that are read at a time: their inputs may be large.
const READ_AT_ONCE: usize = 8;

/// The runs of executions as far as a page has room for them, and how many executions that is.
async fn runs_of_a_page<T: Tx>(tx: &mut T, ids: &[Option<String>]) -> Result<(Vec<Stored>, usize)> {
    let mut runs: Vec<Stored> = Vec::new();
    let (mut bytes, mut fitting) = (0, 0);
    for some in ids.chunks(READ_AT_ONCE) {
        let known: Vec<&str> = some.iter().flatten().map(String::as_str).collect();
        let found = tx.runs(&known).await?;
        for id in some {
            let run = found.iter().find(|stored| Some(stored.row.id()) == id.as_deref());
            bytes += run.map_or(0, |stored| stored.row.part_bytes());
            if bytes > PAGE_BYTES && fitting > 0 {
                return Ok((runs, fitting));
            }
            runs.extend(run.cloned());
            fitting += 1;
        }
    }
    Ok((runs, fitting))
}
