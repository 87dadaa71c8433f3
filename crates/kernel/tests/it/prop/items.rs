//! Items under a holder that lives for ever: budgets, keys and times, over long stories of one run.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Outcome, Phase, Transition};
use waypost_kernel::request::With;
use waypost_kernel::*;

use super::ask::Asked;
use super::script::{self, Script};
use super::world::World;
use super::{config, ensure, log, subjects};

const CASES: u32 = 96;

/// Moves a new run on until a worker holds it.
fn held(lifecycle: &'static Lifecycle, script: &Script) -> Option<World> {
    let mut world = World::new(lifecycle, script, false);
    for _ in 0..6 {
        world.now = world.now + Span::from_seconds(200_000);
        let with = With { reason: Some("go on"), force: true, resolved: true, ..With::default() };
        let here = lifecycle.transitions_from(world.run.state);
        let onward =
            here.filter(|row| !row.by.contains(Actor::Worker) && lifecycle.phase(row.to) != Phase::Settled);
        for (row, actor) in onward.flat_map(|row| [(row, Actor::Operator), (row, Actor::Engine)]) {
            let (who, name) = (world.who(actor, 0), &*row.command);
            world.ask(Asked::Run(Request { who, ask: Ask::Command { name, with } }));
        }
        let who = world.who(Actor::Worker, 0);
        world.ask(Asked::Run(Request { who, ask: Ask::Claim { lease: None, start: false } }));
        if world.phase() == Phase::Held {
            return Some(world);
        }
    }
    None
}

/// One row of the table, or two where the first begins the work.
fn leads(kind: &Lifecycle, from: StateId, to: StateId) -> bool {
    let rows = |from| kind.transitions_from(from);
    let begins =
        |row: &Transition| kind.phase(row.to) == Phase::Held && rows(row.to).any(|next| next.to == to);
    rows(from).any(|row| row.to == to || begins(row))
}

fn check(lifecycle: &Lifecycle, before: &Item, after: &Item) -> Result<(), String> {
    let kind = &lifecycle.items[usize::from(after.kind)];
    let state = kind.state(after.state);
    let moved = before.state != after.state;
    ensure!(!moved || leads(kind, before.state, after.state), "no such move: {before:?} {after:?}");
    ensure!(after.attempts <= after.max_retries, "more retries than there are: {after:?}");
    ensure!(after.try_no >= before.try_no && after.try_no <= before.try_no + 1, "{before:?} {after:?}");
    let was_held = kind.phase(before.state) == Phase::Held || state.phase == Phase::Settled;
    ensure!(after.try_no == before.try_no || was_held, "an answer to nothing: {before:?} {after:?}");
    ensure!((state.phase == Phase::Settled) == after.finished_at.is_some(), "{after:?}");
    ensure!(after.progress <= 100, "{after:?}");
    let succeeded = state.outcome == Some(Outcome::Succeeded);
    ensure!(!succeeded || after.failure.is_none() && after.progress == 100, "{after:?}");
    ensure!(after.not_before.is_none() || state.phase == Phase::Ready, "waits for nothing: {after:?}");
    let discarded = after.discarded && !before.discarded;
    ensure!(!discarded || state.outcome == Some(Outcome::Failed), "discarded: {after:?}");
    Ok(())
}

// proves R9: attempts counts the retries of the present budget, try_no only ever rises
#[test]
fn items_keep_to_their_budgets() {
    let mut moves = 0;
    let mut used_up = 0;
    for lifecycle in subjects::all().iter().filter(|lifecycle| !lifecycle.items.is_empty()) {
        let mut runner = TestRunner::new(config(CASES));
        let counts = std::cell::Cell::new((0, 0));
        let result = runner.run(&script::item_script(100..250), |script| {
            let Some(mut world) = held(lifecycle, &script) else { return Ok(()) };
            for step in &script.steps {
                let before = world.items.clone();
                let taken = world.ask(world.asked(step));
                log::check(&world, &taken).map_err(TestCaseError::fail)?;
                for (before, after) in before.iter().zip(&world.items) {
                    check(lifecycle, before, after).map_err(TestCaseError::fail)?;
                    let spent = after.attempts == after.max_retries && before != after;
                    let (moves, used_up) = counts.get();
                    counts.set((moves + u32::from(before != after), used_up + u32::from(spent)));
                }
            }
            Ok(())
        });
        assert!(result.is_ok(), "{}: {}", lifecycle.name, result.unwrap_err());
        moves += counts.get().0;
        used_up += counts.get().1;
    }
    println!("{moves} moves, {used_up} of them with no retry left");
    // Fewer cases than usual may not come that far.
    assert!(used_up > 5 || config(CASES).cases < CASES, "no budget was used up in {moves} moves");
}
