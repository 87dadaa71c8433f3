//! Items that move because their run did: what such a move makes of each of them.

use waypost_kernel::event::{Event, Shift};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase};
use waypost_kernel::{Guard, Time};

/// Brings a run's items to where an event left them. Each is moved by one shift at most: one that comes to where others
/// leave stays there.
pub(crate) fn follow(lifecycle: &Lifecycle, items: &mut Vec<Item>, event: &Event) {
    for item in items.iter_mut() {
        let kind = &lifecycle.items[usize::from(item.kind)];
        // From where it was before the event: one that follows into a state is not one of those that leave it.
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
    item.kind == shift.kind
        && item.state == shift.from
        && !item.stays(kind)
        && shift.chosen.as_ref().is_none_or(|chosen| chosen.contains(&item.key))
}

/// What a shift does to each of its items: as an item's own move between these phases would, without an answer from
/// outside. Databases write it to all of them at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    /// The item was settled and no longer is, so that it gets a new budget of retries.
    pub revives: bool,
    pub begins: bool,
    pub settles: bool,
    pub succeeds: bool,
}

impl Along {
    pub fn of(kind: &Lifecycle, shift: &Shift) -> Along {
        let (from, to) = (kind.state(shift.from), kind.state(shift.to));
        Along {
            revives: from.phase == Phase::Settled && to.phase != Phase::Settled,
            begins: to.phase == Phase::Held,
            settles: to.phase == Phase::Settled,
            succeeds: to.outcome == Some(Outcome::Succeeded),
        }
    }
}

/// `try_no` stays.
fn move_along(kind: &Lifecycle, item: &mut Item, shift: &Shift, at: Time) {
    let along = Along::of(kind, shift);
    item.state = shift.to;
    item.not_before = None;
    if along.revives {
        item.attempts = 0;
        item.progress = 0;
        item.failure = None;
        item.finished_at = None;
    }
    if along.begins {
        item.started_at = item.started_at.or(Some(at));
    }
    if along.settles {
        item.finished_at = Some(at);
    }
    if along.succeeds {
        item.progress = 100;
        item.failure = None;
    } else if shift.failure.is_some() {
        item.failure.clone_from(&shift.failure);
    }
}

/// A lifecycle whose runs are claimed only with items: one that is made without any gets a single one, so
/// that it can be worked at all.
pub(crate) fn needs_an_item(lifecycle: &Lifecycle, items: &[Item]) -> bool {
    let mut claims = lifecycle.transitions.iter().filter(|row| &*row.command == "claim");
    claims.any(|row| row.guards.contains(&Guard::HasItems)) && items.iter().all(|item| item.kind != 0)
}
