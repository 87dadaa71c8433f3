//! X4: the log is gap-free, and folding it gives the row and the items.

use waypost_kernel::fold::{fold, without_secrets};

use super::store;
use super::world::{Taken, World};
use super::{ensure, holds_always};

pub fn check(world: &World, taken: &Taken) -> Result<(), String> {
    let numbers = world.events.iter().map(|event| event.seq);
    ensure!(numbers.eq(1..=world.run.seq), "a gap before {}", world.run.seq);
    ensure!(world.events.is_sorted_by_key(|event| event.at), "events out of order");
    if taken.events().is_empty() && !taken.is_birth {
        let changed = world.run != taken.before;
        let lease_only = without_secrets(&world.run) == without_secrets(&taken.before);
        ensure!(!changed || lease_only, "changed without an event: {:?}\n{:?}", taken.before, world.run);
        return Ok(());
    }
    let folded = fold(world.lifecycle, &world.events).ok_or("the log does not fold")?;
    let row = without_secrets(&world.run);
    ensure!(folded == row, "the log gives\n{folded:?}\nthe row is\n{row:?}");
    for event in taken.events() {
        let text = format!("{event:?}");
        ensure!(!text.contains("Token("), "a secret in the log: {text}");
    }
    items(world)
}

fn items(world: &World) -> Result<(), String> {
    ensure!(world.wrong_items.is_none(), "{:?}", world.wrong_items);
    let counted = store::tallies(world.lifecycle, &world.items);
    let tallies = &world.run.tallies;
    ensure!(counted == *tallies, "the items give\n{counted:?}\nthe row has\n{tallies:?}\n{:?}", world.items);
    let mut replayed = Vec::new();
    for event in &world.events {
        store::apply(world.lifecycle, &mut replayed, event)?;
    }
    ensure!(replayed == world.items, "the log gives\n{replayed:?}\nthe items are\n{:?}", world.items);
    Ok(())
}

// proves X4
#[test]
fn folding_the_log_gives_the_row_and_the_items() {
    holds_always(36, check);
}
