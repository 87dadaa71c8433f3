//! A step that fails ends its run's course: nothing begins after it but cleanups, and the run is one that fails.

use waypost_kernel::item::{Item, Role};
use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::run::Want;
use waypost_kernel::*;

use super::world::{Taken, World};
use super::{ensure, holds_always, store};

fn is_failed_step(lifecycle: &Lifecycle, item: &Item) -> bool {
    let kind = &lifecycle.items[usize::from(item.kind)];
    kind.stops_run && item.role == Role::Step && kind.state(item.state).outcome == Some(Outcome::Failed)
}

fn check(world: &World, taken: &Taken) -> Result<(), String> {
    let lifecycle = world.lifecycle;
    for event in taken.events().iter().filter(|_| !taken.is_birth) {
        if event.effect.moved.is_empty() {
            continue;
        }
        let mut items = Vec::new();
        for earlier in world.events.iter().take_while(|earlier| earlier.seq < event.seq) {
            store::apply(lifecycle, &mut items, earlier)?;
        }
        for moved in &event.effect.moved {
            let item = &moved.item;
            let kind = &lifecycle.items[usize::from(item.kind)];
            let was = moved.from.map(|from| kind.phase(from));
            let done = kind.state(item.state).outcome == Some(Outcome::Succeeded);
            let begins = match kind.phase(item.state) {
                Phase::Held => was != Some(Phase::Held),
                _ => done && matches!(was, Some(Phase::Draft | Phase::Ready | Phase::Parked)),
            };
            let stopped = items.iter().find(|it| it.kind == item.kind && is_failed_step(lifecycle, it));
            let may = item.role == Role::Cleanup || !begins || stopped.is_none();
            ensure!(may, "{item:?} begins after {stopped:?}: {event:?}");
            items.retain(|known| known.kind != item.kind || known.key != item.key);
            items.push(item.clone());
            let fails = moved.from != Some(item.state) && is_failed_step(lifecycle, item);
            if fails && event.actor == Actor::Worker {
                let intent = world.run.intent.as_ref().map(|intent| intent.want);
                let is_told = matches!(intent, Some(Want::Fail | Want::Cancel));
                ensure!(is_told, "{item:?} failed, and the run wants {intent:?}");
            }
        }
    }
    Ok(())
}

// proves J5, X8
#[test]
fn nothing_begins_after_a_failed_step_but_cleanups() {
    holds_always(128, check);
}
