//! Plans that somebody asks for: now, or those of a range.

use std::path::Path;

use waypost_kernel::{Catalog, Span, Time};
use waypost_store::{
    MAX_MANUAL, ManualPlans, Result, ScheduleChange, ScheduleChanged, ScheduleFilter, ScheduleRow, Store,
    StoreError, Who,
};

use super::file::stored;
use super::schedule::Schedule;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// One plan, whose time is now.
    Now,
    /// Those that the schedule has, from the first instant to the second.
    Range(Time, Time),
    /// These.
    Times(Vec<Time>),
}

/// Gives how many are new. Without scopes: all that it has.
pub async fn add_plans(
    store: &dyn Store,
    name: &str,
    asked: Asked,
    scopes: Vec<String>,
    who: Who,
) -> Result<u64> {
    let (_, schedule) = find(store, name).await?;
    let how = if asked == Asked::Now { "trigger" } else { "backfill" };
    let plans = match asked {
        Asked::Now => None,
        Asked::Range(from, to) => Some(range(store, &schedule, from, to).await?),
        Asked::Times(times) => Some(times),
    };
    let ids = chosen(store, name, scopes).await?;
    let kind = schedule.scopes.kind().to_owned();
    let (schedule, by) = (name.to_owned(), who.by.clone());
    let plans = ManualPlans { schedule, kind, ids, plans, how: how.into(), by };
    match store.change_schedule(ScheduleChange::Plan(plans), who).await? {
        ScheduleChanged::Planned(added) => Ok(added),
        _ => Ok(0),
    }
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
    let read = stored(&row.definition, Path::new(&row.folder), catalog);
    read.map_err(|problems| StoreError::invalid(&row.name, problems.to_string()))
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
