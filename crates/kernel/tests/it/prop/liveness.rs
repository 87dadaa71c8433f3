//! Wherever a run got stuck, somebody can bring it to its end in a few steps.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use waypost_kernel::item::{Item, ItemAsk};
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::request::{Finish, With};
use waypost_kernel::*;

use super::ask::Asked;
use super::world::World;
use super::{config, play, script, subjects};

const ROUNDS: usize = 12;

/// Waits until nobody else holds the run, takes it, cleans up, ends its items and finishes it.
fn a_worker_works(world: &mut World) {
    world.now = world.now + Span::from_seconds(3_600);
    let at = world.run.available_at.unwrap_or(world.now);
    world.now = world.now.max(at);
    world.ask(world.engine(Ask::Sweep));
    let who = world.who(Actor::Worker, 1);
    let claimed = world.ask(Asked::Run(Request { who, ask: Ask::Claim { lease: None, start: false } }));
    if claimed.answer.is_err() {
        return;
    }
    let token = who.fresh;
    let ask = |world: &mut World, ask| {
        let who = world.who(Actor::Worker, 1);
        world.ask(Asked::Run(Request { who, ask })).answer.is_ok()
    };
    ask(world, Ask::RequireCleanup { token, required: false, failing: None });
    end_items(world, token);
    for state in &world.lifecycle.states {
        let settles = state.phase == Phase::Settled;
        let finish = Finish { to: &state.name, reason: Some("done"), ..Finish::default() };
        if settles && ask(world, Ask::Finish { token, finish }) {
            return;
        }
    }
}

fn end_items(world: &mut World, token: Token) {
    for item in world.items.clone() {
        let kind = &world.lifecycle.items[usize::from(item.kind)];
        if kind.phase(item.state) == Phase::Settled {
            continue;
        }
        for state in kind.states.iter().filter(|state| state.phase == Phase::Settled) {
            let ask = ItemAsk { to: &state.name, ..ItemAsk::default() };
            if move_item(world, token, &item, ask) {
                break;
            }
        }
    }
}

fn move_item(world: &mut World, token: Token, item: &Item, ask: ItemAsk<'static>) -> bool {
    let who = world.who(Actor::Worker, 1);
    world.ask(Asked::Items(who, Some(token), vec![(item.clone(), ask)])).answer.is_ok()
}

/// Cancels, and waits for the engine to carry it out.
fn an_operator_cancels(world: &mut World) {
    let with = With { reason: Some("enough"), force: true, resolved: true, ..With::default() };
    let who = world.who(Actor::Operator, 0);
    world.ask(Asked::Run(Request { who, ask: Ask::Command { name: "cancel", with } }));
    world.now = world.now + Span::from_seconds(25 * 3_600);
    world.ask(world.engine(Ask::Sweep));
    if world.run.requires_cleanup {
        a_worker_works(world);
    }
}

/// Everything that waits for a person goes on.
fn an_operator_goes_on(world: &mut World) {
    if matches!(world.phase(), Phase::Draft | Phase::Parked) {
        let offered = allowed(world.lifecycle, &world.run);
        let rows = world.lifecycle.transitions_from(world.run.state);
        let mut rows = rows.filter(|row| offered.contains(&row.command));
        let onward =
            rows.find(|row| world.lifecycle.phase(row.to) != Phase::Settled).map(|row| &*row.command);
        let with = With { reason: Some("go on"), force: true, resolved: true, ..With::default() };
        let who = world.who(Actor::Operator, 0);
        if let Some(name) = onward {
            world.ask(Asked::Run(Request { who, ask: Ask::Command { name, with } }));
        }
    }
    if world.phase() == Phase::Draft {
        world.now = world.now + Span::from_seconds(30 * 86_400);
    }
    a_worker_works(world);
}

fn settles_by(end: fn(&mut World)) {
    for lifecycle in subjects::all() {
        let mut runner = TestRunner::new(config(48));
        let result = runner.run(&script::any_script(1..150), |script| {
            let mut world = play(lifecycle, &script, |_, _| Ok(())).map_err(TestCaseError::fail)?;
            let mut rounds = 0;
            while world.phase() != Phase::Settled && rounds < ROUNDS {
                end(&mut world);
                rounds += 1;
            }
            prop_assert!(world.phase() == Phase::Settled, "after {rounds} rounds: {:?}", world.run);
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", lifecycle.name, result.unwrap_err());
    }
}

/// The holder gives the run back, and a day later nobody has come.
fn nobody_comes(world: &mut World) -> Result<(), TestCaseError> {
    let lease = world.run.lease.clone().filter(|_| !world.run.requires_cleanup);
    let Some(lease) = lease else { return Ok(()) };
    let who = world.who(Actor::Worker, 0);
    world.ask(Asked::Run(Request { who, ask: Ask::Release { token: lease.token, wait: None } }));
    let Some(vacant) = world.run.lease.clone().filter(Lease::is_vacant) else { return Ok(()) };
    let a_day = vacant.until + decide::VACANT_FOR_LOST;
    world.now = world.now.max(a_day);
    let in_time = world.now == a_day;
    world.ask(world.engine(Ask::Sweep));
    prop_assert!(!in_time || world.phase() == Phase::Held, "too soon: {:?}", world.run);
    world.now = world.now + Span::from_micros(1);
    world.ask(world.engine(Ask::Sweep));
    prop_assert!(world.phase() != Phase::Held, "held by nobody: {:?}", world.run);
    Ok(())
}

// proves X5: after 24 h without a taker a vacant lease counts as lost
#[test]
fn a_vacant_run_is_lost_after_a_day() {
    for lifecycle in subjects::all() {
        let mut runner = TestRunner::new(config(48));
        let result = runner.run(&script::any_script(1..60), |script| {
            let mut world = play(lifecycle, &script, |_, _| Ok(())).map_err(TestCaseError::fail)?;
            nobody_comes(&mut world)
        });
        assert!(result.is_ok(), "{}: {}", lifecycle.name, result.unwrap_err());
    }
}

#[test]
fn an_operator_can_always_cancel() {
    settles_by(an_operator_cancels);
}

/// A job without steps cannot be claimed, and a person's cancel is what is left.
#[test]
fn a_worker_can_always_finish() {
    settles_by(|world| {
        an_operator_goes_on(world);
        let first = world.lifecycle.items.first().zip(world.run.tallies.first());
        let empty = first.is_some_and(|(kind, tally)| tally.counts(kind).total == 0);
        if world.phase() == Phase::Ready && empty {
            an_operator_cancels(world);
        }
    });
}
