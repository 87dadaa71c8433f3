//! Liveness, checked as safety: from a given row, the clock, the sweeper and one worker that does all it should
//! bring the run to its end.

use waypost_kernel::Phase;

use super::action::{self, Action, Answer, Owing, Report, is_settled};
use super::judge::Judge;
use super::setup::{Command, Setup};
use super::store;
use super::world::World;

/// More than any run needs: all its attempts and take-overs, each with its lease's end.
const ROUNDS: usize = 24;

pub fn settles(setup: &Setup, judge: Judge, world: &World) -> bool {
    let mut world = world.clone();
    for _ in 0..ROUNDS {
        attempt(setup, judge, &mut world, Action::Sweep);
        if !is_settled(setup, &world) && attempt(setup, judge, &mut world, Action::Claim(0)) {
            work(setup, judge, &mut world);
        }
        if is_settled(setup, &world) {
            return true;
        }
        // Parked runs wait for a person.
        attempt(setup, judge, &mut world, Action::Client(Command::Resume));
        match action::next_instant(&world) {
            Some(at) => world.now = at,
            None if !may_be_claimed(setup, &world) => return false,
            None => {}
        }
    }
    false
}

fn may_be_claimed(setup: &Setup, world: &World) -> bool {
    world.run.as_ref().is_some_and(|run| setup.lifecycle.phase(run.state) == Phase::Ready)
}

/// Everything that a lease's holder has left to do: its targets, its cleanup, and whichever end the run still takes.
fn work(setup: &Setup, judge: Judge, world: &mut World) {
    let grant = world.grants.len() - 1;
    for target in 0..world.items.len() {
        attempt(setup, judge, world, Action::Held(grant, Report::Target(target, Answer::Applied)));
    }
    if world.run.as_ref().is_some_and(|run| run.requires_cleanup) {
        attempt(setup, judge, world, Action::Held(grant, Report::RequireCleanup(Owing::Nothing)));
    }
    for ending in 0..setup.endings.len() {
        if attempt(setup, judge, world, Action::Held(grant, Report::Finish(ending))) {
            return;
        }
    }
}

fn attempt(setup: &Setup, judge: Judge, world: &mut World, action: Action) -> bool {
    let ruling = store::rule(setup, judge, world, action);
    let change = ruling.and_then(Result::ok).filter(|change| !change.events.is_empty());
    if let Some(change) = &change {
        *world = store::write(setup, world, action, change);
    }
    change.is_some()
}
