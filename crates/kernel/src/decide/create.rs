//! A new run. For cron this is the claim itself: the row is born held.

use super::draft::{self, Draft};
use crate::event::{Born, Change, Effect, Event, Hold, Moved};
use crate::fold;
use crate::guard::{Facts, Guard};
use crate::item::Item;
use crate::lifecycle::{Actor, Lifecycle, Phase, StateId};
use crate::refusal::{Code, Refusal};
use crate::request::{Note, Who};
use crate::run::Run;
use crate::time::{Span, Time};

#[derive(Clone, Debug, Default)]
pub struct NewRun<'a> {
    pub id: &'a str,
    /// Nothing: the lifecycle's first initial state.
    pub state: Option<&'a str>,
    pub available_at: Option<Time>,
    pub ttl: Option<Span>,
    pub lease: Option<Span>,
    /// At least one.
    pub max_attempts: u32,
    pub reentrant: bool,
    pub note: Option<&'a Note>,
    /// Written in the same transaction.
    pub items: &'a [Item],
    /// It repeats another run: an item may be there already as that run left it, if it is done or was skipped.
    pub repeats: bool,
}

pub fn create(lifecycle: &Lifecycle, new: &NewRun<'_>, who: &Who<'_>, now: Time) -> Result<Change, Refusal> {
    let state = initial(lifecycle, new, who)?;
    let declared = lifecycle.state(state);
    let held = declared.phase == Phase::Held;
    if new.ttl.is_some() && !lifecycle.transitions_from(state).any(|row| &*row.command == "expire") {
        let message = format!("ttl: a {} run does not expire as {}", lifecycle.name, declared.name);
        return Err(Refusal { field: Some("ttl"), ..unborn(new, Code::InvalidInput, message) });
    }
    let born = Born { id: new.id.into(), max_attempts: new.max_attempts.max(1), reentrant: new.reentrant };
    let event = Event {
        seq: 1,
        at: now,
        command: if held { "claim" } else { "create" }.into(),
        from: None,
        to: state,
        actor: who.actor,
        by: who.by.into(),
        note: new.note.cloned(),
        effect: Effect {
            hold: if held { Hold::Grant } else { Hold::Keep },
            available_at: new.available_at.filter(|_| declared.phase == Phase::Ready),
            expires_at: new.ttl.or(declared.ttl).filter(|_| !held).map(|ttl| now + ttl),
            born: Some(born.clone()),
            moved: first_items(lifecycle, new, state)?,
            ..Effect::default()
        },
    };
    let mut run = fold::unborn(lifecycle, &born, &event);
    fold::apply(lifecycle, &mut run, &event);
    check_guards(lifecycle, new, who, &run)?;
    if held {
        let mut draft = Draft::new(lifecycle, &run, who, now);
        draft.grant(new.lease);
        run = draft.after;
    }
    Ok(Change { events: vec![event], after: run })
}

fn initial(lifecycle: &Lifecycle, new: &NewRun<'_>, who: &Who<'_>) -> Result<StateId, Refusal> {
    let named = match new.state {
        None => lifecycle.initial.first().copied(),
        Some(name) => lifecycle.state_named(name).filter(|state| lifecycle.initial.contains(state)),
    };
    let Some(state) = named else {
        let names: Vec<&str> = lifecycle.initial.iter().map(|state| &*lifecycle.state(*state).name).collect();
        let message = format!("status: a {} run starts as {}", lifecycle.name, names.join(" or "));
        return Err(Refusal { field: Some("status"), ..unborn(new, Code::InvalidInput, message) });
    };
    // Born held is born claimed, which is a worker's; anything else is asked for.
    if (lifecycle.phase(state) == Phase::Held) != (who.actor == Actor::Worker) {
        let message = format!("{} may not start a run as {}", who.actor.name(), lifecycle.state(state).name);
        return Err(unborn(new, Code::ActorNotAllowed, message));
    }
    Ok(state)
}

/// Items follow the move that starting further on stands for, as they would have if it were made by itself.
fn first_items(lifecycle: &Lifecycle, new: &NewRun<'_>, state: StateId) -> Result<Vec<Moved>, Refusal> {
    let skipped = lifecycle.initial.first().filter(|first| **first != state).and_then(|first| {
        lifecycle.transitions_from(*first).find(|row| row.to == state && row.by.any_person())
    });
    let mut moved = Vec::with_capacity(new.items.len());
    for item in new.items {
        let kind = lifecycle.items.get(usize::from(item.kind));
        if let Some(kind) = kind.filter(|kind| new.repeats && item.may_be_copied(kind)) {
            let stays = item.stays(kind);
            moved.push(Moved { from: None, was_staying: false, stays, item: item.clone() });
            continue;
        }
        let started = kind.filter(|kind| kind.initial.contains(&item.state)).and_then(|kind| {
            let follows = skipped.and_then(|row| kind.state(item.state).follow(&row.command));
            let state = follows.unwrap_or(item.state);
            kind.initial.contains(&state).then_some((kind, state))
        });
        let Some((kind, state)) = started else {
            let message = format!("items: {} cannot start like that in a {} run", item.key, lifecycle.name);
            return Err(Refusal { field: Some("items"), ..unborn(new, Code::InvalidInput, message) });
        };
        let mut item = item.clone();
        item.state = state;
        moved.push(Moved { from: None, was_staying: false, stays: item.stays(kind), item });
    }
    Ok(moved)
}

/// To start further on is to make the client's move from the first initial state at once: its guard holds here too.
fn check_guards(lifecycle: &Lifecycle, new: &NewRun<'_>, who: &Who<'_>, run: &Run) -> Result<(), Refusal> {
    let Some(first) = lifecycle.initial.first().copied().filter(|first| *first != run.state) else {
        return Ok(());
    };
    let facts = Facts { items: draft::counts(lifecycle, run), ..Facts::default() };
    let rows =
        || lifecycle.transitions_from(first).filter(|row| row.to == run.state && row.by.permits(who.actor));
    if rows().any(|row| row.guards.iter().all(|guard| guard.holds(&facts))) {
        return Ok(());
    }
    let guard = rows().flat_map(|row| &row.guards).copied().find(|guard| !guard.holds(&facts));
    let message = format!("to start there it needs that {}", guard.map_or("somebody may", Guard::meaning));
    Err(Refusal { guard, ..unborn(new, Code::InvalidTransition, message) })
}

/// Nothing is there yet, so there is no state to be in and nothing else to ask for.
fn unborn(new: &NewRun<'_>, code: Code, message: String) -> Refusal {
    Refusal {
        code,
        message,
        current: "".into(),
        requested: new.state.unwrap_or_default().to_owned(),
        allowed: Vec::new(),
        guard: None,
        field: None,
    }
}
