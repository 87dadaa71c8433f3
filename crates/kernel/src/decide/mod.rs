//! The one decision function: a row, a request and an instant in; what to write, or why not, out.
//!
//! `claim` takes runs, `hold` is what their holder may do, `command` what people and the engine ask for by
//! name, `sweep` what time does. All of them move a run through `draft`, which alone knows how a move is made.

mod claim;
mod command;
mod create;
mod draft;
pub(crate) mod hold;
mod sweep;

use crate::event::{Change, Effect};
use crate::fold;
use crate::lifecycle::{Actor, Lifecycle, Phase};
use crate::refusal::{Code, Refusal};
use crate::request::{Ask, Request, Who};
use crate::run::{Run, Text, Want};
use crate::time::{Span, Time};

pub use create::{NewRun, create};
pub(crate) use draft::{DEFAULT_LEASE, Draft};
pub use hold::counted_end;
pub use sweep::has_waited;

/// A vacant lease that nobody took on for this long after its time counts as lost.
pub const VACANT_FOR_LOST: Span = Span::from_seconds(24 * 3_600);

pub fn decide(lifecycle: &Lifecycle, run: &Run, request: &Request<'_>, now: Time) -> Result<Change, Refusal> {
    let mut draft = Draft::new(lifecycle, run, &request.who, now);
    match &request.ask {
        Ask::Command { name, with } => (draft.requested, draft.chosen) = (name, with.chosen),
        Ask::Finish { finish, .. } => draft.requested = finish.to,
        _ => {}
    }
    let actor = request.who.actor;
    if !request.ask.is_for(actor) {
        let message = format!("this is not for {}", actor.name());
        return Err(draft.refusal(Code::ActorNotAllowed, message));
    }
    match &request.ask {
        Ask::Claim { lease, start } => claim::claim(draft, *lease, *start),
        Ask::Renew { token } => hold::renew(draft, *token),
        Ask::Note { token, note } => hold::note(draft, *token, note),
        Ask::Finish { token, finish } => hold::finish(draft, *token, finish),
        Ask::Release { token, wait } => hold::release(draft, *token, *wait),
        Ask::RequireCleanup { token, required, failing } => {
            hold::require_cleanup(draft, *token, *required, *failing)
        }
        Ask::Command { name, with } => command::command(draft, name, with),
        Ask::Sweep => sweep::sweep(draft),
        Ask::QueuePaused => sweep::queue_paused(draft),
        Ask::OperationEnded => command::operation_ended(draft),
    }
}

/// The client's and operator's commands that this run would take now: the buttons of the console, and the
/// `allowed` of a refusal. What only the asker can supply (a reason, resolutions) is taken as given.
pub fn allowed(lifecycle: &Lifecycle, run: &Run) -> Vec<Text> {
    let held = lifecycle.phase(run.state) == Phase::Held;
    let who = Who { actor: Actor::Operator, by: "", fresh: fold::UNKNOWN };
    let draft = Draft::new(lifecycle, run, &who, Time::default());
    let given = Effect { reason: Some("given".into()), resolved: true, ..Effect::default() };
    let mut allowed: Vec<Text> = Vec::new();
    for row in lifecycle.transitions_from(run.state).filter(|row| row.by.any_person()) {
        // A held run's guards are looked at when the intent is carried out, so they hide no button.
        let open = if held {
            !is_asked_already(run, &row.command)
        } else {
            draft.failing_guard(row, &given).is_none()
        };
        if open && !allowed.contains(&row.command) {
            allowed.push(row.command.clone());
        }
    }
    for (command, states) in &lifecycle.operations {
        if states.contains(&run.state) && !run.operating {
            allowed.push(command.clone());
        }
    }
    allowed
}

fn is_asked_already(run: &Run, command: &str) -> bool {
    run.intent.as_ref().is_some_and(|intent| match intent.want {
        Want::Cancel => true,
        Want::Pause | Want::Fail => command == Want::Pause.command(),
    })
}
