//! What time does: leases and times to live run out. Any process may ask, any number of times: nothing due
//! means nothing written.

use super::claim::{is_abandoned, may_steal, may_take_over};
use super::command::carry_out;
use super::{Draft, VACANT_FOR_LOST};
use crate::event::{Change, Effect, Hold};
use crate::lifecycle::{Actor, Lifecycle, OnStale, Outcome, Phase, StateId, Transition};
use crate::refusal::Refusal;
use crate::run::{Intent, Lease, Run, Want};
use crate::time::{Span, Time};

pub(super) fn sweep(mut draft: Draft<'_>) -> Result<Change, Refusal> {
    match draft.phase() {
        Phase::Draft | Phase::Ready => {
            let expires =
                draft.lifecycle.transitions_from(draft.run.state).any(|row| &*row.command == "expire");
            if expires && draft.run.expires_at.is_some_and(|at| at <= draft.now) {
                end(&mut draft, "expire", "its time to live ran out")?;
            }
        }
        Phase::Held => lease_ran_out(&mut draft)?,
        Phase::Parked if draft.run.expires_at.is_some_and(|at| at <= draft.now) => go_on(&mut draft),
        Phase::Parked | Phase::Settled => {}
    }
    draft.done()
}

/// A run that was given back is not lost because its queue is paused. It is looked at often, and written twice a day.
pub(super) fn queue_paused(mut draft: Draft<'_>) -> Result<Change, Refusal> {
    let now = draft.now;
    if let Some(lease) = draft.after.lease.as_mut().filter(|lease| has_waited(lease, now)) {
        lease.until = now;
    }
    draft.done()
}

/// Of a vacant lease: whether half of the time has passed after which it counts as lost.
pub fn has_waited(lease: &Lease, now: Time) -> bool {
    lease.is_vacant() && lease.until + Span::from_ms(VACANT_FOR_LOST.ms() / 2) < now
}

/// Nobody has answered in time. What is made of that the next worker knows; the run is taken up again as if a person insisted on it.
fn go_on(draft: &mut Draft<'_>) {
    let lifecycle = draft.lifecycle;
    let effect = Effect { forced: true, ..Effect::default() };
    let mut rows = lifecycle.transitions_from(draft.run.state).filter(|row| row.by.any_person());
    let onward = |row: &&Transition| {
        lifecycle.phase(row.to) == Phase::Ready && draft.failing_guard(row, &effect).is_none()
    };
    if let Some(row) = rows.find(onward) {
        draft.make(row, Actor::Engine, effect, None);
    }
}

fn lease_ran_out(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let run = draft.run;
    let Some(lease) = &run.lease else { return Ok(()) };
    let over = if lease.is_vacant() { is_abandoned(lease, draft.now) } else { lease.is_expired(draft.now) };
    if !over {
        return Ok(());
    }
    if let Some(intent) = run.intent.as_ref().filter(|_| !run.requires_cleanup)
        && carry_out(draft, intent, Actor::Engine)
    {
        return Ok(());
    }
    // A cancel does not wait for ever for a worker to come and clean up.
    let forgotten = is_abandoned(lease, draft.now) && final_intent(run).is_some();
    if !lease.is_vacant() && !forgotten && (may_take_over(draft) || may_steal(draft)) {
        return Ok(());
    }
    give_up(draft)
}

/// Nobody may or will take the run on. What it requires comes first: once, with a budget of its own.
fn give_up(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let run = draft.run;
    let final_intent = final_intent(run);
    if let Some(intent) = final_intent
        && carry_out(draft, intent, Actor::Engine)
    {
        return Ok(());
    }
    let state = draft.lifecycle.state(run.state);
    let command = state.on_stale.map_or("lose", OnStale::command);
    if run.requires_cleanup && final_intent.is_none() {
        let failure = draft.failure_of(command, "the worker's lease ran out");
        let to = failed_state(draft.lifecycle, run.state, command);
        let intent =
            Intent { want: Want::Fail, by: draft.who.by.into(), reason: None, to, failure, graceful: false };
        let shifts = draft.shifts_on(command, Some("lost"), None);
        draft.stay(
            command,
            Actor::Engine,
            Effect { intent: Some(intent), shifts, ..Effect::hold(Hold::Vacate) },
        );
        draft.vacate(draft.now);
        return Ok(());
    }
    let message = match state.deadline {
        Some(deadline) => {
            format!("Stale run ({} for >{} without events)", state.name, deadline.in_words())
        }
        None => "the worker's lease ran out".to_owned(),
    };
    end(draft, command, &message)
}

fn final_intent(run: &Run) -> Option<&Intent> {
    run.intent.as_ref().filter(|intent| intent.want != Want::Pause)
}

/// Where the engine's own command leads: its cleanup done, a lost run ends there.
fn failed_state(lifecycle: &Lifecycle, from: StateId, command: &str) -> Option<StateId> {
    let rows = || lifecycle.transitions_from(from).filter(|row| &*row.command == command);
    let failed = rows().find(|row| lifecycle.state(row.to).outcome == Some(Outcome::Failed));
    failed.or_else(|| rows().next()).map(|row| row.to)
}

fn end(draft: &mut Draft<'_>, command: &str, message: &str) -> Result<(), Refusal> {
    // What may be taken up again is, at once; the table and the attempts decide whether it may.
    let available_at = draft.run.reentrant.then_some(draft.now);
    let effect = Effect { available_at, ..Effect::failing(draft.failure_of(command, message)) };
    let row = draft.pick(command, Actor::Engine, &effect)?;
    draft.make(row, Actor::Engine, effect, None);
    Ok(())
}
