//! Plans that somebody asks for: now, or those of a range.

use waypost_kernel::{Catalog, Span, Time};
use waypost_store::{
    ExecutionFilter, MAX_MANUAL, ManualPlans, Result, ScheduleChange, ScheduleChanged, ScheduleFilter,
    ScheduleRow, Store, StoreError, Who,
};

use super::definitions;
use super::schedule::Schedule;

/// How plans of a range, or ones that failed, were asked for.
pub(super) const BACKFILL: &str = "backfill";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// One plan, whose time is now.
    Now,
    /// Those that the schedule has, from the first instant to the second.
    Range(Time, Time),
    /// These.
    Times(Vec<Time>),
}

/// Gives how many are to be executed. Without scopes: all that it has. With `again` also those that failed for good.
pub async fn add_plans(
    store: &dyn Store,
    name: &str,
    asked: Asked,
    scopes: Vec<String>,
    again: bool,
    who: Who,
) -> Result<u64> {
    let (_, schedule) = find(store, name).await?;
    let how = if asked == Asked::Now { "trigger" } else { BACKFILL };
    let plans = match asked {
        Asked::Now => None,
        Asked::Range(from, to) => Some(range(store, &schedule, from, to).await?),
        Asked::Times(times) => {
            check_times(&schedule, &times, again, store.now().await?)?;
            Some(times)
        }
    };
    let ids = chosen(store, name, scopes).await?;
    let kind = schedule.scopes.kind().to_owned();
    let (schedule, by) = (name.to_owned(), who.by.clone());
    let plans = ManualPlans { schedule, kind, ids, plans, again, how: how.into(), by };
    planned(store, plans, who).await
}

async fn planned(store: &dyn Store, plans: ManualPlans, who: Who) -> Result<u64> {
    match store.change_schedule(ScheduleChange::Plan(plans), who).await? {
        ScheduleChanged::Planned(added) => Ok(added),
        _ => Ok(0),
    }
}

/// Executes the plan of a run once more, if the run is an execution that failed for good. `None`: it is no execution.
pub async fn again(store: &dyn Store, run_id: &str, who: Who) -> Result<Option<u64>> {
    let filter = ExecutionFilter { run_id: Some(run_id.to_owned()), limit: 1, ..ExecutionFilter::default() };
    let Some(execution) = store.executions(filter).await?.executions.pop() else { return Ok(None) };
    let plans = ManualPlans {
        schedule: execution.schedule,
        kind: execution.kind,
        ids: vec![execution.id],
        plans: Some(vec![execution.plan]),
        again: true,
        how: BACKFILL.into(),
        by: who.by.clone(),
    };
    planned(store, plans, who).await.map(Some)
}

/// What has no plan of the schedule's at that time, or not yet, is none to be executed. A plan of a trigger, which has any
/// time, may be executed again.
fn check_times(schedule: &Schedule, times: &[Time], again: bool, now: Time) -> Result<()> {
    let timing = &schedule.policy.timing;
    for time in times {
        if *time > now {
            let message = format!("{time} lies ahead; allowed: plan times of the past");
            return Err(StoreError::invalid("plan_times", message));
        }
        let latest = timing.latest(*time);
        if latest != Some(*time) && !again {
            let around = [latest, timing.next(*time)].into_iter().flatten().map(|plan| plan.to_string());
            let around: Vec<String> = around.collect();
            let message =
                format!("{} has no plan at {time}; around it are {}", schedule.name, around.join(" and "));
            return Err(StoreError::invalid("plan_times", message));
        }
    }
    Ok(())
}

/// A stored schedule, typed.
pub async fn find(store: &dyn Store, name: &str) -> Result<(ScheduleRow, Schedule)> {
    let found = store.schedules(ScheduleFilter::named(name)).await?.pop();
    let row = found.map(|it| it.row);
    let row = row.ok_or_else(|| StoreError::NotFound { what: "schedule", id: name.to_owned() })?;
    let schedule = typed(&row, &store.lifecycles().await?)?;
    Ok((row, schedule))
}

pub fn typed(row: &ScheduleRow, catalog: &Catalog) -> Result<Schedule> {
    definitions::typed(row, catalog).map_err(|problems| StoreError::invalid(&row.name, problems.to_string()))
}

async fn range(store: &dyn Store, schedule: &Schedule, from: Time, to: Time) -> Result<Vec<Time>> {
    if to < from || to > store.now().await? {
        let message = "is not after from, or lies ahead; allowed: a range of the past, oldest first";
        return Err(StoreError::invalid("to", message));
    }
    let timing = &schedule.policy.timing;
    let mut plans = timing.between(from - Span::from_micros(1), to, MAX_MANUAL);
    // One more than is allowed is refused; fewer than were asked for would be planned without a word.
    let next = plans.last().and_then(|last| timing.next(*last));
    plans.extend(next.filter(|next| *next <= to));
    Ok(plans)
}

/// Those that were named, or all that there are.
async fn chosen(store: &dyn Store, name: &str, asked: Vec<String>) -> Result<Vec<String>> {
    let scopes = store.scopes(name.to_owned()).await?;
    let known: Vec<String> =
        scopes.into_iter().filter(|scope| !scope.retired).map(|scope| scope.id).collect();
    match asked.iter().find(|id| !known.contains(id)) {
        Some(unknown) => {
            let some: Vec<&str> = known.iter().take(20).map(String::as_str).collect();
            let message = format!("{name} has no {unknown:?}; it has {}", some.join(", "));
            Err(StoreError::invalid("scopes", message))
        }
        None if asked.is_empty() => Ok(known),
        None => Ok(asked),
    }
}
