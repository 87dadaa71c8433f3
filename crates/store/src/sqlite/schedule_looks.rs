//! Looking at schedules and executions.

use rusqlite::{Row, params};

use super::fault::Result;
use super::row;
use super::schedules::{SCHEDULE, ms, schedule, scopes, time};
use super::session::Tx;
use crate::schedule_looks::*;
use crate::schedules::ScheduleRow;

pub fn look_at_schedules(tx: &Tx<'_>, filter: &ScheduleFilter) -> Result<Vec<ScheduleLook>> {
    let sql = format!(
        "{SCHEDULE} WHERE (?1 IS NULL OR name = ?1) AND (?2 IS NULL OR name > ?2) ORDER BY name LIMIT ?3"
    );
    let asked = params![filter.name, filter.after, page_size(filter.limit) as i64];
    let look = |row: ScheduleRow| {
        let scopes = scopes(tx, &row.name)?;
        Ok(ScheduleLook::of(row, &scopes))
    };
    tx.list(&sql, asked, schedule)?.into_iter().map(look).collect()
}

pub fn executions(tx: &Tx<'_>, filter: &ExecutionFilter) -> Result<ExecutionPage> {
    let place = Place::read(filter)?;
    let place = place.as_ref();
    let found = tx.list(
        "SELECT e.schedule, e.kind, e.id, e.plan_time, e.manual, e.who, e.run_id FROM executions e \
         WHERE (?1 IS NULL OR e.schedule = ?1) AND (?2 IS NULL OR e.kind = ?2) AND (?3 IS NULL OR e.id = ?3) AND (?4 IS NULL OR e.run_id = ?4) \
         AND (?5 IS NULL OR EXISTS (SELECT 1 FROM run_born b JOIN run_now n ON n.rid = b.rid JOIN state_codes s ON s.code = n.state \
           WHERE b.run_id = e.run_id AND s.state = ?5)) \
         AND (?6 IS NULL OR e.plan_time < ?6 OR e.plan_time = ?6 AND (e.schedule, e.kind, e.id) > (?7, ?8, ?9)) \
         ORDER BY e.plan_time DESC, e.schedule, e.kind, e.id LIMIT ?10",
        params![
            filter.schedule,
            filter.kind,
            filter.id,
            filter.run_id,
            filter.status,
            place.map(|it| ms(it.plan)),
            place.map(|it| &it.schedule),
            place.map(|it| &it.kind),
            place.map(|it| &it.id),
            page_size(filter.limit) as i64 + 1,
        ],
        execution,
    )?;
    let with_run = |(mut execution, run_id): (ExecutionRow, Option<String>)| {
        if let Some(run_id) = run_id {
            execution.run = Some((*row::by_id(tx, &run_id)?.row).clone());
        }
        Ok(execution)
    };
    let found = found.into_iter().map(with_run).collect::<Result<Vec<_>>>()?;
    Ok(ExecutionPage::of(found, filter.limit))
}

fn execution(row: &Row<'_>) -> rusqlite::Result<(ExecutionRow, Option<String>)> {
    let execution = ExecutionRow {
        schedule: row.get(0)?,
        kind: row.get(1)?,
        id: row.get(2)?,
        plan: time(row, 3)?.unwrap_or_default(),
        manual: row.get(4)?,
        by: row.get(5)?,
        run: None,
    };
    Ok((execution, row.get(6)?))
}
