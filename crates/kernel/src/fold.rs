//! Events make the row. `decide` uses the same function to make the row that it returns, so that replaying
//! the log gives what was stored: all of it but the lease's token and end, which are not in the log.

use crate::event::{Born, Effect, Event, Hold};
use crate::guard::Guard;
use crate::lifecycle::{Lifecycle, Phase, StateId};
use crate::run::{Lease, Run, Text, Token};
use crate::time::{Span, Time};

/// Stands in a folded lease for the token that the log does not hold.
pub const UNKNOWN: Token = Token(0);

/// Replays a run's events from the first. Nothing if they do not begin with its birth or have a gap.
pub fn fold<'a>(lifecycle: &Lifecycle, events: impl IntoIterator<Item = &'a Event>) -> Option<Run> {
    let mut run = None;
    for event in events {
        run = Some(follow(lifecycle, run, event)?);
    }
    run
}

/// The run after the next event of its log, which the first one begins. None if it does not follow.
pub fn follow(lifecycle: &Lifecycle, run: Option<Run>, event: &Event) -> Option<Run> {
    let mut run = match run {
        Some(run) if event.seq != run.seq + 1 || event.from != Some(run.state) => return None,
        Some(run) => run,
        None if event.seq != 1 => return None,
        None => unborn(lifecycle, event.effect.born.as_ref()?, event),
    };
    apply(lifecycle, &mut run, event);
    Some(run)
}

/// The row as the log can know it.
pub fn without_secrets(run: &Run) -> Run {
    let mut run = run.clone();
    run.ended_by = None;
    run.ended_with = None;
    if let Some(lease) = &mut run.lease {
        *lease =
            Lease { token: UNKNOWN, length: Span::ZERO, until: Time::default(), worker: lease.worker.take() };
    }
    run
}

/// A run of which nothing is known but its state.
pub fn blank(lifecycle: &Lifecycle, state: StateId) -> Run {
    Run {
        id: Text::default(),
        state,
        seq: 0,
        attempt: 0,
        max_attempts: 0,
        take_overs: 0,
        fence: 0,
        lease: None,
        ended_by: None,
        ended_with: None,
        last_command: Text::default(),
        intent: None,
        requires_cleanup: false,
        cleanup_failed: false,
        operating: false,
        reentrant: false,
        reason: None,
        resolved: false,
        forced: false,
        failure: None,
        created_at: Time::default(),
        started_at: None,
        finished_at: None,
        available_at: None,
        expires_at: None,
        tallies: lifecycle.no_items.clone(),
    }
}

/// A run before its first event.
pub(crate) fn unborn(lifecycle: &Lifecycle, born: &Born, first: &Event) -> Run {
    Run {
        id: born.id.clone(),
        max_attempts: born.max_attempts,
        last_command: first.command.clone(),
        reentrant: born.reentrant,
        created_at: first.at,
        ..blank(lifecycle, first.to)
    }
}

/// The row after one more event: what a second teller of the same story is held against.
pub fn applied(lifecycle: &Lifecycle, run: &Run, event: &Event) -> Run {
    let mut run = run.clone();
    apply(lifecycle, &mut run, event);
    run
}

pub(crate) fn apply(lifecycle: &Lifecycle, run: &mut Run, event: &Event) {
    let effect = &event.effect;
    run.seq = event.seq;
    run.state = event.to;
    hold(run, event);
    // A steal stays where it is, but begins anew: it counts as entering.
    if event.from != Some(event.to) || &*event.command == "steal" {
        run.last_command = event.command.clone();
        enter(lifecycle, run, event);
    }
    if effect.expired {
        run.take_overs += 1;
    }
    if effect.intent.is_some() {
        run.intent.clone_from(&effect.intent);
        if effect.hold == Hold::Vacate {
            // Left for another worker's cleanup: that one gets a budget of its own.
            run.take_overs = 0;
        }
        if run.lease.as_ref().is_some_and(Lease::is_vacant) {
            // Whatever it waited for: it is to be cleaned up now.
            run.reason = None;
        }
    }
    run.requires_cleanup = effect.requires_cleanup.unwrap_or(run.requires_cleanup);
    run.operating = effect.operating.unwrap_or(run.operating);
    count_items(run, effect);
}

fn hold(run: &mut Run, event: &Event) {
    let was_vacant = run.lease.as_ref().is_some_and(Lease::is_vacant);
    let worker = match event.effect.hold {
        Hold::Keep => return,
        Hold::Grant => Some(event.by.clone()),
        Hold::Vacate => None,
    };
    // What a run that nobody has waits for.
    match &worker {
        Some(_) if was_vacant => run.reason = None,
        None if event.effect.reason.is_some() => run.reason.clone_from(&event.effect.reason),
        _ => {}
    }
    run.fence += u64::from(worker.is_some());
    run.lease = Some(Lease { token: UNKNOWN, worker, length: Span::ZERO, until: Time::default() });
}

/// What follows from the phases that a move leads between.
fn enter(lifecycle: &Lifecycle, run: &mut Run, event: &Event) {
    let effect = &event.effect;
    let from = event.from.map(|from| lifecycle.phase(from));
    let to = lifecycle.phase(event.to);
    if to != Phase::Held {
        run.lease = None;
        run.intent = None;
    }
    run.reason =
        effect.reason.clone().filter(|_| to == Phase::Parked || asked_for_a_reason(lifecycle, event));
    match to {
        Phase::Draft => {
            reopen(run);
            run.expires_at = effect.expires_at;
        }
        Phase::Ready => {
            reopen(run);
            run.available_at = Some(effect.available_at.unwrap_or(event.at));
            run.expires_at = effect.expires_at;
            run.resolved |= effect.resolved;
            run.forced |= effect.forced;
        }
        Phase::Held if from == Some(Phase::Held) && &*event.command != "steal" => {}
        Phase::Held => {
            run.attempt += 1;
            run.take_overs = 0;
            // A resumed run keeps its first start; one that had finished, or is stolen, starts again.
            if run.started_at.is_none() || from != Some(Phase::Ready) {
                run.started_at = Some(event.at);
            }
            reopen(run);
            run.available_at = None;
            run.expires_at = None;
        }
        Phase::Parked => {
            reopen(run);
            run.available_at = None;
            run.expires_at = effect.expires_at;
            run.resolved = false;
            run.forced = false;
        }
        Phase::Settled if from == Some(Phase::Settled) => {}
        Phase::Settled => {
            run.finished_at = Some(event.at);
            run.failure.clone_from(&effect.failure);
            run.available_at = effect.available_at;
            run.expires_at = None;
            run.requires_cleanup = false;
            run.cleanup_failed |= effect.cleanup_failed;
        }
    }
}

/// A guard looks at the row as it will be, so what it asks for has to be there.
fn asked_for_a_reason(lifecycle: &Lifecycle, event: &Event) -> bool {
    lifecycle.transitions.iter().any(|row| {
        Some(row.from) == event.from
            && row.to == event.to
            && row.command == event.command
            && row.guards.contains(&Guard::HasReason)
    })
}

/// What was settled is not any more, if it was.
fn reopen(run: &mut Run) {
    run.finished_at = None;
    run.failure = None;
}

fn count_items(run: &mut Run, effect: &Effect) {
    for shift in &effect.shifts {
        let tally = &mut run.tallies[usize::from(shift.kind)];
        tally.remove(shift.from, shift.count);
        tally.add(shift.to, shift.count);
    }
    for moved in &effect.moved {
        let tally = &mut run.tallies[usize::from(moved.item.kind)];
        if let Some(from) = moved.from {
            tally.remove(from, 1);
            tally.staying[usize::from(from.0)] -= u32::from(moved.was_staying);
        }
        tally.add(moved.item.state, 1);
        tally.staying[usize::from(moved.item.state.0)] += u32::from(moved.stays);
    }
}
