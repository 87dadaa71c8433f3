//! Fences, tokens and whose a run is.

use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::{Lease, Phase};

use crate::model::action::{Action, Report};
use crate::model::setup::Command;
use crate::model::world::World;

use super::{Faults, Law, Step};

pub fn check(step: &Step<'_>, faults: &mut Faults) {
    let fence = step.was().map_or(0, |was| was.fence);
    faults.unless(Law::Fence, step.run.fence == fence + u64::from(step.granted()));
    let held = step.phase(step.run.state) == Phase::Held;
    faults.unless(Law::HeldIsLeased, held == step.run.lease.is_some());
    tokens(step, faults);
    writer(step, faults);
    faults.unless(Law::LiveLease, respects_a_live_lease(step));
    let bound = step.setup.lifecycle.states.iter().map(|state| state.max_take_overs).max();
    // A cleanup that is owed has five of its own, where the state has none.
    let bound = bound.filter(|bound| *bound > 0).unwrap_or(5);
    faults.unless(Law::TakeOvers, step.after.expired_in_a_row <= bound);
}

/// Of all workers that were told of a lease, no two were told the same fence.
pub fn beliefs(world: &mut World) {
    let known = || world.grants.iter().filter(|grant| grant.known);
    let shared = known().any(|one| known().any(|two| two.token != one.token && two.fence == one.fence));
    let doubled = known().any(|one| known().any(|two| two.token == one.token && two.fence != one.fence));
    if shared || doubled {
        world.faults.add(Law::Beliefs);
    }
}

fn tokens(step: &Step<'_>, faults: &mut Faults) {
    let Some(lease) = &step.run.lease else { return };
    let used = step.before.grants.iter().any(|grant| grant.token == lease.token);
    if step.granted() {
        faults.unless(Law::Rotates, !used);
    } else if lease.is_vacant() {
        faults.unless(Law::Vacant, !used);
    } else {
        let same = step.was().and_then(|was| was.lease.as_ref()).map(|was| was.token);
        faults.unless(Law::Rotates, same == Some(lease.token));
    }
}

/// A write under a token is the latest holder's, and the lease is still its own.
fn writer(step: &Step<'_>, faults: &mut Faults) {
    let Action::Held(grant, report) = step.action else { return };
    let answered_again = !step.writes() && matches!(report, Report::Finish(_));
    let Some(was) = step.was().filter(|_| !answered_again) else { return };
    let writer = &step.before.grants[grant];
    let latest = step.before.grants.last().is_some_and(|latest| latest == writer);
    faults.unless(Law::Stale, latest && writer.fence == was.fence);
    let vacant = was.lease.as_ref().is_some_and(Lease::is_vacant);
    faults.unless(Law::Vacant, !vacant);
}

fn respects_a_live_lease(step: &Step<'_>) -> bool {
    let Some(lease) = step.was().and_then(|was| was.lease.as_ref()) else { return true };
    let expired = lease.until < step.before.now;
    let abandoned = lease.until + VACANT_FOR_LOST < step.before.now;
    let idle = step.was().is_some_and(|was| step.setup.lifecycle.state(was.state).deadline.is_some());
    let moved = step.was().is_some_and(|was| was.state != step.run.state);
    match step.action {
        Action::Claim(_) | Action::ClaimArrives(_) if step.granted() => lease.is_vacant() || expired,
        Action::Sweep if step.writes() && lease.is_vacant() => abandoned,
        Action::Sweep if step.writes() => expired,
        Action::Client(Command::Cancel | Command::Pause) if moved => lease.is_vacant() || expired || idle,
        _ => true,
    }
}
