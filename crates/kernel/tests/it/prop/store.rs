//! Items as a store keeps them, made from the events alone.

use waypost_kernel::event::Event;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::tally::Tallies;
use waypost_kernel::{Lifecycle, Time};

/// What an event does to the items. The shifts of one event look at the items as they were before it.
pub fn apply(lifecycle: &Lifecycle, items: &mut Vec<Item>, event: &Event) -> Result<(), String> {
    let before = items.clone();
    for shift in &event.effect.shifts {
        let kind = &lifecycle.items[usize::from(shift.kind)];
        let mut count = 0;
        for (was, item) in before.iter().zip(items.iter_mut()) {
            let chosen = shift.chosen.as_ref().is_none_or(|chosen| chosen.contains(&was.key));
            if was.kind == shift.kind && was.state == shift.from && !was.stays(kind) && chosen {
                leave(kind, item);
                item.state = shift.to;
                settle(kind, item, event.at);
                item.failure = shift.failure.clone().or(item.failure.take());
                count += 1;
            }
        }
        if count != shift.count {
            return Err(format!("{count} items follow, the event says {}: {event:?}", shift.count));
        }
    }
    for moved in &event.effect.moved {
        let known = items.iter_mut().find(|item| item.kind == moved.item.kind && item.key == moved.item.key);
        match (known, moved.from) {
            (Some(item), Some(from)) if item.state == from => *item = moved.item.clone(),
            (None, None) => items.push(moved.item.clone()),
            (known, from) => return Err(format!("{known:?} was moved from {from:?}: {event:?}")),
        }
    }
    Ok(())
}

/// Leaving a settled state begins a new budget, as `item` has it for moves one by one.
fn leave(kind: &Lifecycle, item: &mut Item) {
    item.not_before = None;
    if kind.phase(item.state) == Phase::Settled {
        item.attempts = 0;
        item.progress = 0;
        item.failure = None;
        item.finished_at = None;
    }
}

fn settle(kind: &Lifecycle, item: &mut Item, at: Time) {
    if kind.phase(item.state) == Phase::Settled {
        item.finished_at = Some(at);
    }
}

/// The tallies that these items should have.
pub fn tallies(lifecycle: &Lifecycle, items: &[Item]) -> Tallies {
    let mut tallies = lifecycle.no_items.clone();
    for item in items {
        let kind = &lifecycle.items[usize::from(item.kind)];
        let tally = &mut tallies[usize::from(item.kind)];
        tally.add(item.state, 1);
        tally.staying[usize::from(item.state.0)] += u32::from(item.stays(kind));
    }
    tallies
}
