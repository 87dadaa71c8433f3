//! Commands by name: what people ask for, and what the engine does that is not time's doing.

use super::Draft;
use crate::event::{Change, Effect, Hold};
use crate::guard::Guard;
use crate::item::Item;
use crate::lifecycle::{Actor, Phase, Transition};
use crate::refusal::{Code, Refusal};
use crate::request::{DECIDE, With};
use crate::run::{Intent, Want};

pub(super) fn command(mut draft: Draft<'_>, name: &str, with: &With<'_>) -> Result<Change, Refusal> {
    let actor = draft.who.actor;
    if actor.is_person() && draft.lifecycle.operations.iter().any(|(command, _)| &**command == name) {
        return begin_operation(draft, name);
    }
    let declared = draft.lifecycle.transitions_from(draft.run.state).any(|row| &*row.command == name);
    if !declared && led_here(&draft, name, with) {
        return draft.done();
    }
    if draft.phase() == Phase::Held && declared {
        return match actor {
            Actor::Engine => Err(draft.refusal(Code::LeaseHeld, "a held run is the sweep's".to_owned())),
            _ => ask_holder(draft, name, with),
        };
    }
    let effect = effect_of(&draft, name, with);
    if with.partly && !with.force && draft.phase() == Phase::Parked {
        // It may be asked for by whom the whole may; the guard alone is not met yet.
        let row = draft.pick(name, actor, &Effect { resolved: true, ..effect.clone() })?;
        if row.guards.contains(&Guard::ResolvedOrForced) {
            draft.stay(DECIDE, actor, Effect::default());
            return draft.done();
        }
    }
    let row = draft.pick(name, actor, &effect)?;
    let waits = draft.run.expires_at.is_none_or(|at| at > draft.now);
    if actor == Actor::Engine && name == "expire" && waits {
        return Err(draft.refusal(Code::NotDue, "its time to live has not run out".to_owned()));
    }
    let into_held = draft.lifecycle.phase(row.to) == Phase::Held;
    let hold = if into_held { Hold::Vacate } else { Hold::Keep };
    draft.make(row, actor, Effect { hold, ..effect }, None);
    if into_held {
        draft.vacate(draft.now);
    }
    draft.done()
}

/// The run is where this command of theirs led it: the same again is answered as the first time.
/// Chosen items that could still follow make it another request.
fn led_here(draft: &Draft<'_>, name: &str, with: &With<'_>) -> bool {
    let run = draft.run;
    let open = |item: &Item| {
        let kind = draft.lifecycle.items.get(usize::from(item.kind));
        kind.is_some_and(|kind| kind.state(item.state).follow(name).is_some() && !item.stays(kind))
    };
    if with.chosen.is_some_and(|items| items.iter().any(open)) {
        return false;
    }
    let actor = draft.who.actor;
    let led = |row: &Transition| &*row.command == name && row.to == run.state && row.by.permits(actor);
    &*run.last_command == name && draft.lifecycle.transitions.iter().any(led)
}

fn effect_of(draft: &Draft<'_>, name: &str, with: &With<'_>) -> Effect {
    let message = in_words(name, draft.who.by, with.reason);
    Effect {
        reason: with.reason.map(Into::into),
        resolved: with.resolved,
        forced: with.force,
        available_at: with.available_at,
        failure: with.failure.cloned().or_else(|| draft.failure_of(name, &message)),
        ..Effect::default()
    }
}

pub(super) fn in_words(command: &str, by: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| format!("{command} by {by}"), str::to_owned)
}

/// Somebody else holds the run: what is wanted of it is stored, and carried out at once only if in truth
/// nobody holds it, or nothing was begun.
fn ask_holder(mut draft: Draft<'_>, name: &str, with: &With<'_>) -> Result<Change, Refusal> {
    let actor = draft.who.actor;
    if !draft
        .lifecycle
        .transitions_from(draft.run.state)
        .any(|row| &*row.command == name && row.by.permits(actor))
    {
        let message = format!("{name} is not for {} here", actor.name());
        return Err(draft.refusal(Code::ActorNotAllowed, message));
    }
    let want = if name == Want::Cancel.command() { Want::Cancel } else { Want::Pause };
    let intent = Intent {
        want,
        by: draft.who.by.into(),
        reason: with.reason.map(Into::into),
        to: None,
        failure: None,
        graceful: with.graceful,
    };
    if let Some(standing) = &draft.run.intent {
        match (standing.want, want) {
            (Want::Cancel, Want::Cancel) if with.graceful || !standing.graceful => return draft.done(),
            (Want::Pause, Want::Pause) => return draft.done(),
            (Want::Cancel, Want::Pause) => {
                return Err(draft.refusal(Code::CancelRequested, "a cancel was asked for already".to_owned()));
            }
            (Want::Fail, Want::Pause) => {
                return Err(draft.refusal(Code::FailureRecorded, "it is failing already".to_owned()));
            }
            (_, Want::Cancel) | (_, Want::Fail) => {}
        }
    }
    let reason_missing = with.reason.is_none_or(|reason| reason.trim().is_empty());
    let needs_reason = |row: &Transition| row.guards.contains(&Guard::HasReason);
    let mut rows = draft.lifecycle.transitions_from(draft.run.state).filter(|row| &*row.command == name);
    if reason_missing && rows.any(needs_reason) {
        let message = format!("{name} needs that {}", Guard::HasReason.meaning());
        return Err(Refusal {
            guard: Some(Guard::HasReason),
            ..draft.refusal(Code::InvalidTransition, message)
        });
    }
    let now = draft.now;
    let idle = draft.lifecycle.state(draft.run.state).deadline.is_some();
    let free =
        idle || draft.run.lease.as_ref().is_none_or(|lease| lease.is_vacant() || lease.is_expired(now));
    if free && !draft.run.requires_cleanup && carry_out(&mut draft, &intent, actor) {
        return draft.done();
    }
    draft.stay(name, actor, Effect { intent: Some(intent), ..Effect::default() });
    if let Some(lease) = draft.after.lease.as_mut().filter(|lease| lease.is_vacant()) {
        // Whoever comes to clean up need not wait for what the run waited for.
        lease.until = lease.until.min(now);
    }
    draft.done()
}

/// Makes the move that an intent stands for. False if the table has none whose guards hold: then the intent
/// stays for the holder.
pub(super) fn carry_out(draft: &mut Draft<'_>, intent: &Intent, actor: Actor) -> bool {
    let command = intent.want.command();
    let message = in_words(command, &intent.by, intent.reason.as_deref());
    let effect = Effect {
        reason: intent.reason.clone(),
        failure: intent.failure.clone().or_else(|| draft.failure_of(command, &message)),
        cleanup_failed: draft.run.requires_cleanup,
        ..Effect::default()
    };
    let lifecycle = draft.lifecycle;
    let rows = || lifecycle.transitions_from(draft.after.state).filter(|row| row.from != row.to);
    let holds = |row: &&Transition| draft.failing_guard(row, &effect).is_none();
    let row = match intent.to {
        None => rows().filter(|row| &*row.command == command).find(holds),
        // Where a failure was to lead; or, if the guards leave no way there, what they say it came to.
        Some(to) => rows().filter(|row| row.to == to).find(holds).or_else(|| {
            rows()
                .filter(|row| row.by.contains(Actor::Worker) && lifecycle.phase(row.to) == Phase::Settled)
                .find(holds)
        }),
    };
    let Some(row) = row else { return false };
    draft.make(row, actor, effect, None);
    true
}

/// A run of its own will carry it out; this one remembers that it is under way.
fn begin_operation(mut draft: Draft<'_>, name: &str) -> Result<Change, Refusal> {
    let offered = draft
        .lifecycle
        .operations
        .iter()
        .any(|(command, states)| &**command == name && states.contains(&draft.run.state));
    if !offered {
        return Err(draft.no_such_move(name));
    }
    if draft.run.operating {
        let guard = Guard::NoOperation;
        let message = format!("{name} needs that {}", guard.meaning());
        return Err(Refusal { guard: Some(guard), ..draft.refusal(Code::InvalidTransition, message) });
    }
    draft.stay(name, draft.who.actor, Effect { operating: Some(true), ..Effect::default() });
    draft.done()
}

pub(super) fn operation_ended(mut draft: Draft<'_>) -> Result<Change, Refusal> {
    if draft.run.operating {
        draft.stay("operation", Actor::Engine, Effect { operating: Some(false), ..Effect::default() });
    }
    draft.done()
}
