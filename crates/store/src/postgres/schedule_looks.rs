//! Looking at schedules and executions.

use std::collections::HashMap;

use super::fault::Result;
use super::row;
use super::schedules::{SCHEDULE, schedule, scopes_of};
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp};
use crate::run::RunRow;
use crate::schedule_looks::*;
use crate::schedules::ScheduleRow;

pub async fn look_at_schedules(session: &Session, filter: &ScheduleFilter) -> Result<Vec<ScheduleLook>> {
    let tx = session.look().await?;
    let found = look_in(&tx, filter).await;
    tx.end(found).await
}

async fn look_in(tx: &Tx, filter: &ScheduleFilter) -> Result<Vec<ScheduleLook>> {
    let sql = format!(
        "{SCHEDULE} WHERE ($1 IS NULL OR name = $1) AND ($2 IS NULL OR name > $2) ORDER BY name LIMIT $3"
    );
    let limit = page_size(filter.limit) as i64;
    let rows = tx.query(&sql, args![filter.name, filter.after, limit]).await?;
    let rows = rows.iter().map(schedule).collect::<Result<Vec<ScheduleRow>>>()?;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let mut scopes = scopes_of(tx, &names).await?;
    let look = |row: ScheduleRow| {
        let scopes = scopes.remove(&row.name).unwrap_or_default();
        ScheduleLook::of(row, &scopes)
    };
    Ok(rows.into_iter().map(look).collect())
}

pub async fn executions(session: &Session, filter: &ExecutionFilter) -> Result<ExecutionPage> {
    let place = Place::read(filter)?;
    let tx = session.look().await?;
    let found = executions_in(&tx, filter, place.as_ref()).await;
    Ok(ExecutionPage::of(tx.end(found).await?, filter.limit))
}

async fn executions_in(
    tx: &Tx,
    filter: &ExecutionFilter,
    place: Option<&Place>,
) -> Result<Vec<ExecutionRow>> {
    let rows = tx
        .query(
            "SELECT e.schedule, e.kind, e.id, e.plan_time, e.manual, e.who, e.run_id FROM waypost.executions e \
             WHERE ($1 IS NULL OR e.schedule = $1) AND ($2 IS NULL OR e.kind = $2) AND ($3 IS NULL OR e.id = $3) AND ($4 IS NULL OR e.run_id = $4) \
             AND ($5 IS NULL OR EXISTS (SELECT 1 FROM waypost.runs r JOIN waypost.lifecycle_states s ON s.code = r.state \
               WHERE r.run_id = e.run_id AND s.state = $5)) \
             AND ($6 IS NULL OR e.plan_time < $6 OR e.plan_time = $6 AND (e.schedule, e.kind, e.id) > ($7, $8, $9)) \
             ORDER BY e.plan_time DESC, e.schedule, e.kind, e.id LIMIT $10",
            args![
                filter.schedule,
                filter.kind,
                filter.id,
                filter.run_id,
                filter.status,
                place.map(|it| stamp(it.plan)),
                place.map(|it| it.schedule.as_str()),
                place.map(|it| it.kind.as_str()),
                place.map(|it| it.id.as_str()),
                page_size(filter.limit) as i64 + 1,
            ],
        )
        .await?;
    let ids = rows.iter().map(|row| Columns(row).get(6)).collect::<Result<Vec<Option<&str>>>>()?;
    let ids: Vec<&str> = ids.into_iter().flatten().collect();
    let stored = if ids.is_empty() { Vec::new() } else { row::by_ids(tx, &ids).await? };
    let runs: HashMap<String, std::sync::Arc<RunRow>> =
        stored.into_iter().map(|stored| (stored.row.id().to_owned(), stored.row)).collect();
    let read = |row| {
        let columns = Columns(row);
        Ok(ExecutionRow {
            schedule: columns.get(0)?,
            kind: columns.get(1)?,
            id: columns.get(2)?,
            plan: columns.time(3)?.unwrap_or_default(),
            manual: columns.get(4)?,
            by: columns.get(5)?,
            run: columns
                .get::<Option<&str>>(6)?
                .and_then(|run_id| runs.get(run_id))
                .map(|row| RunRow::clone(row)),
        })
    };
    rows.iter().map(read).collect()
}
