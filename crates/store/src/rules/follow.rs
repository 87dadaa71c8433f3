//! Items that move because their run did: what such a move makes of each of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use waypost_kernel::event::{Event, Shift};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase};
use waypost_kernel::run::Text;
use waypost_kernel::{Guard, Time};

/// A run's items as its log made them, however many there are: one is found by its key, and those that have ended the run's course
/// are known.
#[derive(Debug, Default)]
pub(crate) struct Items {
    all: Vec<Item>,
    places: HashMap<(u8, Text), usize>,
    ended: BTreeSet<usize>,
}

impl Items {
    /// One that is asked for once.
    pub fn take(&mut self, kind: u8, key: &Text) -> Option<&Item> {
        let place = self.places.remove(&(kind, key.clone()))?;
        Some(&self.all[place])
    }

    /// Those that nobody asked for, in the order in which they came.
    pub fn left(&self) -> Vec<&Item> {
        let mut places: Vec<usize> = self.places.values().copied().collect();
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place]).collect()
    }

    /// One of this kind that has ended the course.
    pub fn ended(&self, kind: u8) -> Option<&Item> {
        self.ended.iter().map(|place| &self.all[*place]).find(|item| item.kind == kind)
    }

    /// Brings the items to where an event left them. Each is moved by one shift at most: one that comes to where others
    /// leave stays there.
    pub fn follow(&mut self, lifecycle: &Lifecycle, event: &Event) {
        let chosen = |shift: &Shift| shift.chosen.as_ref().map(|chosen| chosen.iter().cloned().collect());
        let shifts: Vec<(&Shift, Option<HashSet<Text>>)> =
            event.effect.shifts.iter().map(|shift| (shift, chosen(shift))).collect();
        for place in 0..if shifts.is_empty() { 0 } else { self.all.len() } {
            let item = &mut self.all[place];
            let kind = &lifecycle.items[usize::from(item.kind)];
            // From where it was before the event: one that follows into a state is not one of those that leave it.
            let shift = shifts.iter().find(|(shift, chosen)| is_meant(kind, item, shift, chosen.as_ref()));
            if let Some((shift, _)) = shift {
                move_along(kind, item, shift, event.at);
                self.has_changed(lifecycle, place);
            }
        }
        for moved in &event.effect.moved {
            let all = &mut self.all;
            let place = *self.places.entry((moved.item.kind, moved.item.key.clone())).or_insert_with(|| {
                all.push(moved.item.clone());
                all.len() - 1
            });
            self.all[place].clone_from(&moved.item);
            self.has_changed(lifecycle, place);
        }
    }

    fn has_changed(&mut self, lifecycle: &Lifecycle, place: usize) {
        let item = &self.all[place];
        if item.ends_course(&lifecycle.items[usize::from(item.kind)]) {
            self.ended.insert(place);
        } else {
            self.ended.remove(&place);
        }
    }
}

fn is_meant(kind: &Lifecycle, item: &Item, shift: &Shift, chosen: Option<&HashSet<Text>>) -> bool {
    item.kind == shift.kind
        && item.state == shift.from
        && !item.stays(kind)
        && chosen.is_none_or(|chosen| chosen.contains(&item.key))
}

/// What a shift does to each of its items: as an item's own move between these phases would, without an answer from
/// outside. Databases write it to all of them at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    /// The item was settled and no longer is, so that it gets a new budget of retries.
    pub revives: bool,
    /// It was outside, and nobody knows what came of it.
    pub is_lost: bool,
    pub begins: bool,
    pub settles: bool,
    pub succeeds: bool,
}

impl Along {
    pub fn of(kind: &Lifecycle, shift: &Shift) -> Along {
        let (from, to) = (kind.state(shift.from), kind.state(shift.to));
        Along {
            is_lost: !kind.stops_run && from.phase == Phase::Held && to.outcome != Some(Outcome::Succeeded),
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
    item.in_doubt |= along.is_lost;
    if along.revives {
        item.attempts = 0;
        item.throttled = 0;
        item.waited_ms = 0;
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
