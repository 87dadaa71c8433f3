//! When plans and executions are looked at again, and what becomes of them.

use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::tenant::{check_given, local_name};
use waypost_kernel::text::MAX_PAYLOAD_BYTES;
use waypost_kernel::{Span, Time};
use waypost_store::{
    Counts, MAX_MANUAL, ManualPlans, Result, RunRow, ScheduleWrite, ScopeRow, StoreError, Who,
};

use crate::oracle::rules::intake::{check_name, check_text};

/// How often the end of a run that was queued is looked for.
const LOOK: Span = Span::from_seconds(5);
/// Who saw that an execution is to be taken has this long to take it before others are told.
const HANDS_OFF: Span = Span::from_seconds(2);
/// What must not overlap is looked at again after this.
pub const SOON: Span = Span::from_seconds(1);
/// Scopes that somebody else lists are asked for again this often.
pub const SCOPES_EVERY: Span = Span::from_seconds(60);
/// Who was told to list scopes has this long before others are told.
pub const LISTING: Span = Span::from_seconds(20);
/// What may not begin because of a pause is looked at again after this.
const PAUSED: Span = Span::from_seconds(60);
/// What fails each time is tried each five minutes.
const LONGEST_WAIT: Span = Span::from_seconds(300);

/// The wait after this many failures in a row: 1, 2, 4 seconds, and so on.
pub fn wait_after(failures: u32) -> Span {
    let doubled = failures.saturating_sub(1).min(20);
    Span::from_seconds(1 << doubled).min(LONGEST_WAIT)
}

/// What becomes of an execution that was looked at.
pub enum Next {
    /// It has ended for good.
    Close,
    Wake(Time),
    /// It is to be taken; others are told at that time.
    Take(Time),
}

/// `has_room` is whether whoever looks takes up more.
pub fn look_at(run: Option<&RunRow>, now: Time, is_paused: bool, has_room: bool) -> Next {
    match run.map_or(Next::Close, |run| next_of(run, now)) {
        Next::Take(_) if is_paused => Next::Wake(now + PAUSED),
        Next::Take(_) if !has_room => Next::Wake(now + SOON),
        next => next,
    }
}

/// Runs of such a lifecycle begin with their holder: they are a scheduler's.
pub fn is_born_held(row: &RunRow) -> bool {
    row.lifecycle.initial.iter().any(|state| row.lifecycle.phase(*state) == Phase::Held)
}

/// It came to nothing, and no retry is to follow.
pub fn is_over_and_failed(row: &RunRow) -> bool {
    let retries = row.run.available_at.is_some() && row.run.attempt < row.run.max_attempts;
    row.phase() == Phase::Settled && !retries && row.outcome() != Some(Outcome::Succeeded)
}

fn next_of(row: &RunRow, now: Time) -> Next {
    let is_born_held = is_born_held(row);
    match (row.phase(), &row.run.lease, row.run.available_at) {
        (Phase::Settled, _, None) => Next::Close,
        (Phase::Settled, _, Some(at)) if at > now => Next::Wake(at),
        (Phase::Settled, _, Some(_)) if row.run.attempt >= row.run.max_attempts => Next::Close,
        (Phase::Settled, _, Some(_)) => Next::Take(now + HANDS_OFF),
        (_, Some(lease), _) if is_born_held && (lease.is_vacant() || lease.is_expired(now)) => {
            Next::Take(now + HANDS_OFF)
        }
        (_, Some(lease), _) if is_born_held => Next::Wake(lease.until + Span::from_ms(1)),
        // Another lifecycle's: its own workers take it.
        _ => Next::Wake(now + LOOK),
    }
}

/// When a new execution is looked at for the first time.
pub fn first_look(row: &RunRow, now: Time) -> Time {
    row.run.lease.as_ref().map_or(now + LOOK, |lease| lease.until + Span::from_ms(1))
}

/// What an execution that has ended leaves in its scope.
pub fn close(scope: &mut ScopeRow, plan: Time, row: &RunRow) {
    if row.outcome() == Some(Outcome::Succeeded) {
        scope.counts.succeeded += 1;
        scope.last_success = scope.last_success.max(Some(plan));
    } else {
        scope.counts.failed += 1;
    }
    if scope.last_plan.is_none_or(|last| last <= plan) {
        scope.last_plan = Some(plan);
        scope.last_status = Some(row.status().to_owned());
    }
}

/// What a taken execution is counted as, by what it was before.
pub fn taken_as(before: Option<&RunRow>) -> Counts {
    let is_left = |row: &RunRow| row.run.lease.as_ref().is_none_or(waypost_kernel::Lease::is_vacant);
    match before {
        None => Counts { won: 1, ..Counts::default() },
        Some(row) if row.phase() == Phase::Settled => Counts { retried: 1, ..Counts::default() },
        Some(row) if is_left(row) => Counts::default(),
        Some(_) => Counts { stolen: 1, ..Counts::default() },
    }
}

/// What is not the tenant's is not there for it.
pub fn check_whose(name: &str, who: &Who) -> Result<()> {
    let own = if who.tenant == "default" { None } else { Some(who.tenant.as_str()) };
    match name.split_once('/').map(|(tenant, _)| tenant) == own {
        true => Ok(()),
        false => Err(no_schedule(name)),
    }
}

pub fn check_own(name: &str) -> Result<()> {
    if local_name(name).starts_with("waypost.") {
        let message =
            format!("is {name:?}, and names that begin with \"waypost.\" are the engine's: choose another");
        return Err(StoreError::invalid("name", message));
    }
    Ok(())
}

pub fn check_removable(name: &str) -> Result<()> {
    if name.starts_with("waypost.") && !name.contains('/') {
        let message = format!("{name} is the engine's own and cannot be removed; pause it instead");
        return Err(StoreError::invalid("name", message));
    }
    Ok(())
}

pub fn check_schedule(write: &ScheduleWrite) -> Result<()> {
    check_name("name", &write.name)?;
    if let Err(error) = check_given("name", local_name(&write.name)) {
        return Err(StoreError::invalid(&error.field, error.message));
    }
    for (field, text) in [("folder", &write.folder), ("hash", &write.hash), ("timing", &write.timing)] {
        check_text(field, text, MAX_PAYLOAD_BYTES)?;
    }
    check_scopes(&write.kind, write.ids.as_deref().unwrap_or_default())
}

pub fn check_scopes(kind: &str, ids: &[String]) -> Result<()> {
    check_name("kind", kind)?;
    ids.iter().try_for_each(|id| check_name("scope", id))
}

pub fn check_manual(plans: &ManualPlans) -> Result<()> {
    check_name("by", &plans.by)?;
    check_name("how", &plans.how)?;
    check_scopes(&plans.kind, &plans.ids)?;
    if plans.plans.as_ref().is_some_and(|times| times.len() * plans.ids.len().max(1) > MAX_MANUAL) {
        let message = format!("at most {MAX_MANUAL} plans at once; name a shorter range");
        return Err(StoreError::invalid("plans", message));
    }
    Ok(())
}

pub fn no_schedule(name: &str) -> StoreError {
    StoreError::NotFound { what: "schedule", id: name.to_owned() }
}
