//! X3: a refusal says where the run stands and what may be asked; what already happened is answered again.

use waypost_kernel::lifecycle::Phase;
use waypost_kernel::request::With;
use waypost_kernel::*;

use super::ask::Asked;
use super::world::{Taken, World};
use super::{ensure, holds_always};

pub fn check(world: &World, taken: &Taken) -> Result<(), String> {
    if taken.is_birth {
        return Ok(());
    }
    match &taken.answer {
        Err(refusal) => refused(world, taken, refusal),
        Ok(change) => {
            let moved = !change.events.is_empty();
            if moved { repeated(world, &taken.asked) } else { Ok(()) }
        }
    }?;
    offers(world)
}

fn refused(world: &World, taken: &Taken, refusal: &Refusal) -> Result<(), String> {
    ensure!(world.run == taken.before, "a refusal changed the row");
    let state = world.lifecycle.state(world.run.state);
    ensure!(refusal.current == state.name, "{} is not {}", refusal.current, state.name);
    ensure!(refusal.allowed == allowed(world.lifecycle, &world.run), "{:?}", refusal.allowed);
    ensure!(!refusal.message.is_empty(), "no words: {refusal:?}");
    Ok(())
}

/// What an operator may ask of the run is accepted when everything that it may need comes along, and what is
/// not offered does nothing.
fn offers(world: &World) -> Result<(), String> {
    let offered = allowed(world.lifecycle, &world.run);
    let operations = world.lifecycle.operations.iter().map(|(command, _)| &**command);
    let commands = world.lifecycle.transitions.iter().map(|row| &*row.command).chain(operations);
    for name in commands {
        let with = With { reason: Some("because"), force: true, resolved: true, ..With::default() };
        let asked =
            Asked::Run(Request { who: world.who(Actor::Operator, 0), ask: Ask::Command { name, with } });
        match world.answer(&asked, world.now) {
            Ok(change) => {
                let is_offered = offered.iter().any(|command| &**command == name);
                // A graceful cancel may be made a hard one, which is no new button.
                let urged = world.run.intent.as_ref().is_some_and(|intent| intent.graceful);
                ensure!(
                    is_offered || urged || change.is_repeat(&world.run),
                    "{name} was not offered: {offered:?}"
                );
            }
            Err(refusal) => {
                let is_offered = offered.iter().any(|command| &**command == name);
                ensure!(!is_offered, "{name} was offered: {refusal}");
            }
        }
    }
    Ok(())
}

/// The same finish, claim or command again, now or later, is answered with the same row and no event.
fn repeated(world: &World, asked: &Asked) -> Result<(), String> {
    let Asked::Run(request) = asked else { return Ok(()) };
    let repeats = match &request.ask {
        Ask::Claim { .. } => true,
        Ask::Finish { .. } => world.phase() != Phase::Held,
        // To begin an operation makes a run of its own, whose idempotency key tells a repeat.
        // Chosen items are read anew for each request, which a repeat of this one would not do; and whether decisions are new is
        // told by the store, which keeps them.
        Ask::Command { name, with } => {
            with.chosen.is_none()
                && !with.partly
                && world.lifecycle.operations.iter().all(|(command, _)| &**command != *name)
        }
        _ => false,
    };
    if !repeats {
        return Ok(());
    }
    for later in [Span::ZERO, Span::from_seconds(1), Span::from_seconds(7 * 86_400)] {
        match world.answer(asked, world.now + later) {
            Ok(change) => ensure!(change.is_repeat(&world.run), "{asked:?} again wrote {change:?}"),
            Err(refusal) => return Err(format!("{asked:?} again: {refusal}")),
        }
    }
    Ok(())
}

// proves X3
#[test]
fn refusals_change_nothing_and_repeats_are_answered() {
    holds_always(32, check);
}

/// The same question has the same answer: `decide` looks at nothing but what it is given.
#[test]
fn answers_are_the_same_twice() {
    holds_always(8, |world, taken| {
        let (first, second) = (world.answer(&taken.asked, world.now), world.answer(&taken.asked, world.now));
        ensure!(first == second, "{first:?}\n{second:?}");
        Ok(())
    });
}
