//! Attempts, ends, and what is final about them.

use waypost_kernel::Phase;
use waypost_kernel::lifecycle::OnStale;
use waypost_kernel::run::Want;

use crate::model::action::{Action, Report};
use crate::model::setup::{Command, Setup};
use crate::model::store;
use crate::model::world::World;

use super::{Faults, Law, Step};

pub fn check(step: &Step<'_>, faults: &mut Faults) {
    faults.unless(Law::Attempts, step.run.attempt == expected_attempt(step));
    let guarded = step.setup.lifecycle.states.iter().any(|state| state.retry);
    faults.unless(Law::MaxAttempts, !guarded || step.run.attempt <= step.setup.max_attempts);
    let settled = step.phase(step.run.state) == Phase::Settled;
    faults.unless(Law::Settled, settled == step.run.finished_at.is_some() && stays_settled(step));
    faults.unless(Law::Cancel, cancel_is_final(step));
    faults.unless(Law::CancelCode, cancel_is_named(step));
    faults.unless(Law::Failing, failure_is_final(step));
    faults.unless(Law::Replay, !is_replay(step.setup, step.before, step.action) || !step.writes());
    faults.unless(Law::Replay, !is_another_end(step.setup, step.before, step.action));
    let terminal = step.was().is_some_and(|was| step.setup.lifecycle.is_terminal(was.state));
    let closes_operation = step.action == Action::OperationEnds;
    faults.unless(Law::Once, step.after.successes <= 1 && (!terminal || !step.writes() || closes_operation));
}

/// A repeat that is refused was not answered as the first time.
pub fn refused(setup: &Setup, world: &World, action: Action, faults: &mut Faults) {
    faults.unless(Law::Replay, !is_replay(setup, world, action));
}

/// A claim, a client's retry and a steal count; a take-over does not.
fn expected_attempt(step: &Step<'_>) -> u32 {
    let Some(was) = step.was() else { return 1 };
    let from = step.phase(was.state);
    let into_held = from != Phase::Held && step.phase(step.run.state) == Phase::Held;
    let vacant = was.lease.as_ref().is_some_and(waypost_kernel::Lease::is_vacant);
    let steals = step.setup.lifecycle.state(was.state).on_stale == Some(OnStale::Steal);
    let stolen = from == Phase::Held && step.granted() && !vacant && steals;
    was.attempt + u32::from(into_held || stolen)
}

/// Exits are a person's or an operation's move, or a worker's retry that is due; anything else leaves the row.
fn stays_settled(step: &Step<'_>) -> bool {
    let Some(was) = step.was().filter(|_| step.was_phase() == Some(Phase::Settled)) else { return true };
    if was.state != step.run.state {
        let due = was.available_at.is_some_and(|at| at <= step.before.now);
        return match step.action {
            Action::Claim(_) | Action::ClaimArrives(_) => step.setup.lifecycle.state(was.state).retry && due,
            Action::Client(Command::Retry | Command::RetryFirst) | Action::RollBack(_) => true,
            _ => false,
        };
    }
    let operating = was.operating || step.action == Action::Client(Command::Rollback);
    let same = (was.attempt, was.fence, &was.failure, was.finished_at, was.ended_by, was.available_at)
        == (
            step.run.attempt,
            step.run.fence,
            &step.run.failure,
            step.run.finished_at,
            step.run.ended_by,
            step.run.available_at,
        );
    same && (operating || !step.writes())
}

/// Once answered, a run ends by that cancel (where targets count, as what they make of it), and stays ended.
fn cancel_is_final(step: &Step<'_>) -> bool {
    if !step.before.cancelled {
        return true;
    }
    let reopened = step.was_phase() == Some(Phase::Settled)
        && step.phase(step.run.state) != Phase::Settled
        && store::claimer(step.before, step.action).is_some();
    if reopened {
        return false;
    }
    if !step.enters_settled() {
        return true;
    }
    let lost = step
        .run
        .failure
        .as_ref()
        .is_some_and(|failure| ["WORKER_LOST", "stale_timeout", "EXPIRED"].contains(&&*failure.code));
    &*step.run.last_command == "cancel" && !lost
}

/// Where targets count, the worker may say more about what they came to.
fn cancel_is_named(step: &Step<'_>) -> bool {
    let code = step.run.failure.as_ref().map(|failure| &*failure.code);
    let rows = &step.setup.lifecycle.transitions;
    let counted = rows.iter().any(|row| &*row.command == "cancel" && !row.guards.is_empty());
    counted
        || !step.before.cancelled
        || !step.enters_settled()
        || matches!(code, Some("CANCELLED" | "canceled"))
}

/// Only a cancel wins over it.
fn failure_is_final(step: &Step<'_>) -> bool {
    let intent = step.was().and_then(|was| was.intent.as_ref());
    let Some(to) = intent.filter(|intent| intent.want == Want::Fail).and_then(|intent| intent.to) else {
        return true;
    };
    !step.enters_settled() || step.run.state == to || step.action == Action::Client(Command::Cancel)
}

/// The same finish under the token that settled the run, or a cancel that was answered already.
fn is_replay(setup: &Setup, world: &World, action: Action) -> bool {
    match action {
        Action::Held(grant, Report::Finish(ending)) => {
            let to = setup.state(setup.endings[ending].to);
            to.is_some() && world.grants[grant].ended == to
        }
        Action::Client(Command::Cancel) => world.cancelled,
        _ => false,
    }
}

fn is_another_end(setup: &Setup, world: &World, action: Action) -> bool {
    let Action::Held(grant, Report::Finish(ending)) = action else { return false };
    world.grants[grant].ended.is_some_and(|ended| Some(ended) != setup.state(setup.endings[ending].to))
}
