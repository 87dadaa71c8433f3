//! Moves are those of the table, made by whom it names, and their guards hold of the items themselves.

use waypost_kernel::lifecycle::Transition;
use waypost_kernel::{Actor, Event, Guard, Outcome, Phase};

use super::{Faults, Law, Step};

/// What happens to a run without leading it anywhere.
const STAYS: [&str; 11] = [
    "take-over",
    "release",
    "note",
    "items",
    "require-cleanup",
    "cancel",
    "pause",
    "lose",
    "expire",
    "rollback",
    "operation",
];

pub fn check(step: &Step<'_>, faults: &mut Faults) {
    let mut state = step.was().map(|run| run.state);
    for event in &step.change.events {
        let row = declared(step, event);
        let legal = match (event.from, row) {
            (None, _) => step.setup.lifecycle.initial.contains(&event.to),
            (Some(_), Some(row)) => may(step, event, row),
            (Some(from), None) => from == event.to && STAYS.contains(&&*event.command),
        };
        faults.unless(Law::Edges, legal && event.from == state);
        state = Some(event.to);
    }
    faults.unless(Law::Edges, state == Some(step.run.state));
    if let Some(row) = step.change.events.last().and_then(|event| declared(step, event)) {
        faults.unless(Law::Guards, row.guards.iter().all(|guard| holds(step, *guard)));
    }
}

/// The row of the table that an event followed. Of several with one command and end there is none.
fn declared<'a>(step: &Step<'a>, event: &Event) -> Option<&'a Transition> {
    let mut rows = step.setup.lifecycle.transitions_from(event.from?);
    rows.find(|row| row.command == event.command && row.to == event.to)
}

/// The table names the actor, or it carries out what a person asked for.
fn may(step: &Step<'_>, event: &Event, row: &Transition) -> bool {
    let intent = step.was().and_then(|was| was.intent.as_ref());
    row.by.permits(event.actor)
        || event.actor == Actor::Engine && row.by.any_person() && intent.is_some()
        || intent.is_some_and(|intent| intent.to == Some(row.to))
}

/// Counted from the items, where the kernel asks its tally.
fn holds(step: &Step<'_>, guard: Guard) -> bool {
    let (mut open, mut ok, mut failed) = (0, 0, 0);
    for item in &step.after.items {
        let state = step.setup.lifecycle.items[usize::from(item.kind)].state(item.state);
        open += u32::from(matches!(state.phase, Phase::Ready | Phase::Held | Phase::Parked));
        ok += u32::from(state.outcome == Some(Outcome::Succeeded));
        failed += u32::from(state.outcome == Some(Outcome::Failed));
    }
    match guard {
        Guard::HasItems => !step.after.items.is_empty(),
        Guard::SomeItemOpen => open > 0,
        Guard::AllItemsOk => open == 0 && failed == 0 && ok > 0,
        Guard::SomeItemFailed => open == 0 && failed > 0 && ok > 0,
        Guard::NoItemOk => open == 0 && ok == 0,
        Guard::AttemptsLeft => step.run.attempt <= step.setup.max_attempts,
        Guard::Reentrant => step.setup.reentrant,
        Guard::NoOperation => !step.run.operating,
        _ => true,
    }
}
