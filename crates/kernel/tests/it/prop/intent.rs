//! X8: a cancel is a stored intent and final; a run that requires cleanup ends only after it.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::run::Want;
use waypost_kernel::*;

use super::ask::Asked;
use super::world::{Taken, World};
use super::{config, ensure, holds_always, play, script, subjects};

/// As many as may die in a cleanup, one whose lease was given back, and the sweep after them.
const DYING_WORKERS: usize = 8;

pub fn check(world: &World, taken: &Taken) -> Result<(), String> {
    if taken.is_birth {
        return Ok(());
    }
    cancel_is_final(world, taken)?;
    cleanup_comes_first(world, taken)?;
    pause_outlives_its_holder(world, taken)?;
    intents_are_kept(world, taken)
}

fn cancel_is_final(world: &World, taken: &Taken) -> Result<(), String> {
    let lifecycle = world.lifecycle;
    let (before, after) = (&taken.before, &world.run);
    let (was, is) = (lifecycle.phase(before.state), lifecycle.phase(after.state));
    if !world.cancelled || before.state == after.state {
        return Ok(());
    }
    let worker = taken.asked.who().is_some_and(|who| who.actor == Actor::Worker);
    if was == Phase::Settled {
        ensure!(!(worker && is == Phase::Held), "taken up again after a cancel");
        return Ok(());
    }
    ensure!(matches!(is, Phase::Held | Phase::Settled), "a cancelled run waits as {:?}", after.state);
    if is != Phase::Settled {
        return Ok(());
    }
    // Where the lifecycle lets the counts decide what a cancel was, they may say that all was done.
    let mut cancels = lifecycle.transitions.iter().filter(|row| &*row.command == "cancel");
    let by_count = cancels.any(|row| row.to == after.state && !row.guards.is_empty());
    let outcome = lifecycle.state(after.state).outcome;
    ensure!(by_count || outcome != Some(Outcome::Succeeded), "a cancelled run succeeded");
    let command = taken.events().last().map(|event| &*event.command);
    ensure!(command == Some("cancel"), "a cancelled run ended by {command:?}");
    let lost = after.failure.as_ref().is_some_and(|failure| &*failure.code == "WORKER_LOST");
    ensure!(!lost, "a dead holder and a cancel end as cancelled: {after:?}");
    Ok(())
}

fn cleanup_comes_first(world: &World, taken: &Taken) -> Result<(), String> {
    let left = world.lifecycle.phase(world.run.state) != Phase::Held && taken.before.requires_cleanup;
    for event in taken.events() {
        ensure!(!left || event.actor == Actor::Engine, "left before its cleanup by {event:?}");
    }
    ensure!(!left || world.run.cleanup_failed, "nobody cleaned up, and nothing says so: {:?}", world.run);
    Ok(())
}

/// What somebody paused waits for somebody, also if its worker died before it could obey.
fn pause_outlives_its_holder(world: &World, taken: &Taken) -> Result<(), String> {
    let before = &taken.before;
    let paused = before.intent.as_ref().is_some_and(|intent| intent.want == Want::Pause);
    let swept = matches!(&taken.asked, Asked::Run(Request { ask: Ask::Sweep, .. }));
    let ended = paused && swept && !before.requires_cleanup && world.phase() == Phase::Settled;
    ensure!(!ended, "a paused run was ended by time: {:?}", world.run);
    Ok(())
}

/// A cancel stays until it is carried out; a pause or a failure gives way to a cancel only.
fn intents_are_kept(world: &World, taken: &Taken) -> Result<(), String> {
    let Some(standing) = &taken.before.intent else { return Ok(()) };
    if world.phase() != Phase::Held {
        return Ok(());
    }
    let now = world.run.intent.as_ref().map(|intent| intent.want);
    let fits = match standing.want {
        Want::Cancel => now == Some(Want::Cancel),
        Want::Fail => matches!(now, Some(Want::Cancel | Want::Fail)),
        Want::Pause => now.is_some(),
    };
    ensure!(fits, "{standing:?} became {now:?} by {:?}", taken.asked);
    Ok(())
}

// proves X8
#[test]
fn a_cancel_is_final_and_cleanup_comes_first() {
    holds_always(48, check);
}

// proves X8: the engine ends a cancelled run; one that requires cleanup, after every worker that took it on died
#[test]
fn a_cancelled_run_ends_though_its_workers_die() {
    for lifecycle in subjects::all() {
        let mut runner = TestRunner::new(config(48));
        let result = runner.run(&script::any_script(10..120), |script| {
            let mut world = play(lifecycle, &script, |_, _| Ok(())).map_err(TestCaseError::fail)?;
            let required = world.run.requires_cleanup;
            for _ in 0..if required { DYING_WORKERS } else { 1 } {
                world.now = world.now + Span::from_seconds(25 * 3_600);
                let taken = world.ask(world.engine(Ask::Sweep));
                prop_assert!(taken.answer.is_ok(), "a sweep is never refused: {:?}", taken.answer);
                if required && world.phase() == Phase::Held {
                    let who = world.who(Actor::Worker, 2);
                    world.ask(Asked::Run(Request { who, ask: Ask::Claim { lease: None, start: false } }));
                }
            }
            let ended = !world.cancelled || world.phase() == Phase::Settled;
            prop_assert!(ended, "cancelled and not ended: {:?}", world.run);
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", lifecycle.name, result.unwrap_err());
    }
}

#[test]
fn a_sweep_is_never_refused() {
    holds_always(16, |world, taken| {
        let sweeps = matches!(&taken.asked, Asked::Run(Request { ask: Ask::Sweep, .. }));
        ensure!(!sweeps || taken.answer.is_ok(), "{:?}", taken.answer);
        let swept = world.answer(&world.engine(Ask::Sweep), world.now);
        ensure!(swept.is_ok(), "{swept:?}");
        Ok(())
    });
}
