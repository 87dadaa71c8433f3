//! Items that move because their run did.

use waypost_kernel::event::{Event, Shift};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase};
use waypost_kernel::{Guard, Time};

/// Brings a run's items to where an event left them. Each is moved by one shift at most: one that comes to where others
/// leave stays there.
pub fn follow(lifecycle: &Lifecycle, items: &mut Vec<Item>, event: &Event) {
    for item in items.iter_mut() {
        let kind = &lifecycle.items[usize::from(item.kind)];
        if let Some(shift) = event.effect.shifts.iter().find(|shift| is_meant(kind, item, shift)) {
            move_along(kind, item, shift, event.at);
        }
    }
    for moved in &event.effect.moved {
        let same = |item: &&mut Item| item.kind == moved.item.kind && item.key == moved.item.key;
        match items.iter_mut().find(same) {
            Some(item) => item.clone_from(&moved.item),
            None => items.push(moved.item.clone()),
        }
    }
}

fn is_meant(kind: &Lifecycle, item: &Item, shift: &Shift) -> bool {
    let is_chosen = shift.chosen.as_ref().is_none_or(|chosen| chosen.contains(&item.key));
    item.kind == shift.kind && item.state == shift.from && !item.stays(kind) && is_chosen
}

/// As an item's own move between these phases would, but without an answer from outside: `try_no` stays, and no retry
/// is used up.
fn move_along(kind: &Lifecycle, item: &mut Item, shift: &Shift, at: Time) {
    let (from, to) = (kind.state(shift.from), kind.state(shift.to));
    item.state = shift.to;
    item.not_before = None;
    // A target that was outside, and of which nothing was heard.
    if !kind.stops_run && from.phase == Phase::Held && to.outcome != Some(Outcome::Succeeded) {
        item.in_doubt = true;
    }
    if from.phase == Phase::Settled && to.phase != Phase::Settled {
        item.attempts = 0;
        item.throttled = 0;
        item.waited_ms = 0;
        item.progress = 0;
        item.failure = None;
        item.finished_at = None;
    }
    match to.phase {
        Phase::Held => item.started_at = item.started_at.or(Some(at)),
        Phase::Settled => item.finished_at = Some(at),
        Phase::Draft | Phase::Ready | Phase::Parked => {}
    }
    if to.outcome == Some(Outcome::Succeeded) {
        item.progress = 100;
        item.failure = None;
    } else if shift.failure.is_some() {
        item.failure.clone_from(&shift.failure);
    }
}

/// Whether runs are claimed only with items: one that comes without any gets a single one, so that it can be worked at all.
pub fn needs_an_item(lifecycle: &Lifecycle, items: &[Item]) -> bool {
    let mut claims = lifecycle.transitions.iter().filter(|row| &*row.command == "claim");
    claims.any(|row| row.guards.contains(&Guard::HasItems)) && items.iter().all(|item| item.kind != 0)
}
