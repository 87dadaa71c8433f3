//! Rows as they are read, and what becomes of them.

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::event::{Change, Event};
use waypost_kernel::item::Item;
use waypost_kernel::{Lifecycle, Phase, Run};

use crate::rules::{details, metadata};
use crate::seam::run::{ItemRow, RunRow};
use crate::seam::verbs::NewItem;

/// A run as it was read, and where it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub rid: i64,
    pub row: Arc<RunRow>,
    /// The position of its last event, where a database keeps that with the run.
    pub last: Option<i64>,
    /// What its JSON takes in memory; `usize::MAX` if that changed since it was read.
    pub bytes: usize,
    /// Not read but remembered. Only a write, which compares, shows whether it is still so: what is decided without one
    /// is decided again on the row as it is.
    pub recalled: bool,
}

impl Stored {
    /// What its JSON takes in memory by now.
    pub fn weight(&self) -> usize {
        match self.bytes {
            usize::MAX => self.row.weight(),
            bytes => bytes,
        }
    }
}

/// An item as the kernel decides on it, and as callers see it.
#[derive(Clone, Debug)]
pub(crate) struct StoredItem {
    pub rid: i64,
    pub item: Item,
    pub row: ItemRow,
}

impl StoredItem {
    /// An item as a database keeps it. An error names the column that its lifecycle does not know, and what it holds.
    pub fn read(
        rid: i64,
        row: ItemRow,
        reruns: bool,
        lifecycle: &Lifecycle,
    ) -> Result<StoredItem, (&'static str, String)> {
        let kind = lifecycle.items.iter().position(|kind| *kind.name == *row.kind);
        let kind = kind.ok_or_else(|| ("kind", row.kind.clone()))?;
        let state = lifecycle.items[kind].state_named(&row.status);
        let item = Item {
            kind: kind as u8,
            key: row.key.as_str().into(),
            state: state.ok_or_else(|| ("item", row.status.clone()))?,
            attempts: row.attempts,
            max_retries: row.max_retries,
            try_no: row.try_no,
            throttled: row.throttled,
            waited_ms: row.waited_ms,
            in_doubt: row.in_doubt,
            not_before: row.not_before,
            discarded: row.discarded,
            reruns,
            role: row.role,
            progress: row.progress,
            failure: row.failure.clone(),
            started_at: row.started_at,
            finished_at: row.finished_at,
        };
        Ok(StoredItem { rid, item, row })
    }
}

/// What is written with a change beside what the kernel knows: merged into the row, and kept in the event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    pub key: Option<String>,
}

impl Extra {
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty() && self.details.is_empty() && self.key.is_none()
    }
}

/// A run that is about to change.
#[derive(Debug)]
pub(crate) struct Edit {
    /// As it will be.
    pub stored: Stored,
    /// As it was decided on; none while nothing has changed.
    before: Option<Run>,
    pub events: Vec<(Event, Extra)>,
    /// Its entry in a queue, which is deleted.
    pub entry: Option<String>,
    /// Items that are added, as they are before they move.
    pub new_items: Vec<NewItemRow>,
    /// Items as they are afterwards.
    pub items: Vec<ItemChange>,
    /// The same, as they will be read, for a database that remembers them.
    pub item_rows: Vec<StoredItem>,
    /// Members of metadata and details that change, as they are afterwards; null takes one away.
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
}

#[derive(Clone, Debug)]
pub(crate) struct NewItemRow {
    pub place: usize,
    pub new: NewItem,
    pub item: Item,
    /// Of the event that adds it.
    pub seq: u64,
    /// The run whose item of this kind and key it is a copy of: what that one gave, it has too.
    pub copy_of: Option<Stored>,
}

#[derive(Clone, Debug)]
pub(crate) struct ItemChange {
    pub item: Item,
    /// Of the event that moved it. Absent if it did not move and only its output or details are written.
    pub seq: Option<u64>,
    pub stays: bool,
    pub output: Option<Value>,
    /// All details as they are afterwards, if any of them change.
    pub details: Option<Map<String, Value>>,
    /// The details that change.
    pub patch: Map<String, Value>,
}

impl Edit {
    pub fn new(stored: Stored) -> Edit {
        Edit {
            stored,
            before: None,
            events: Vec::new(),
            entry: None,
            new_items: Vec::new(),
            items: Vec::new(),
            item_rows: Vec::new(),
            metadata: Map::new(),
            details: Map::new(),
        }
    }

    /// A run, and one decision about it.
    pub fn of(stored: Stored, change: Change, extra: Extra) -> Edit {
        let mut edit = Edit::new(stored);
        edit.add(change, extra);
        edit
    }

    pub fn row(&self) -> &RunRow {
        &self.stored.row
    }

    pub fn run(&self) -> &Run {
        &self.stored.row.run
    }

    pub fn before(&self) -> &Run {
        self.before.as_ref().unwrap_or(&self.stored.row.run)
    }

    pub fn phase_before(&self) -> Phase {
        self.stored.row.lifecycle.phase(self.before().state)
    }

    /// A decision on the row as it is by now; its last event keeps what is merged.
    pub fn add(&mut self, change: Change, mut extra: Extra) {
        let row = Arc::make_mut(&mut self.stored.row);
        if !extra.metadata.is_empty() {
            let left_out = metadata::lay_over_shared(&mut row.metadata, &extra.metadata);
            for name in extra.metadata.keys().filter(|name| !left_out.contains(name)) {
                if let Some(value) = row.metadata.get(name) {
                    self.metadata.insert(name.clone(), value.clone());
                }
            }
            metadata::note_left_out(&mut extra.details, left_out);
            self.stored.bytes = usize::MAX;
        }
        if !extra.details.is_empty() {
            let lifecycle = row.lifecycle.clone();
            details::merge_shared(&lifecycle, &mut row.details, &extra.details);
            let can_go = |name: &str| details::is_engines(&lifecycle, name);
            note_changes(&mut self.details, &extra.details, &row.details, can_go);
            self.stored.bytes = usize::MAX;
        }
        let was = std::mem::replace(&mut row.run, change.after);
        self.before.get_or_insert(was);
        let last = change.events.len();
        let mut extra = Some(extra);
        for (at, event) in change.events.into_iter().enumerate() {
            let kept = if at + 1 == last { extra.take() } else { None };
            self.events.push((event, kept.unwrap_or_default()));
        }
    }

    /// Whether something is to be written.
    pub fn is_changed(&self) -> bool {
        !self.events.is_empty()
            || !self.items.is_empty()
            || self.before.as_ref().is_some_and(|before| *before != self.stored.row.run)
    }

    pub fn moves_items(&self) -> bool {
        let shifts = |(event, _): &(Event, Extra)| !event.effect.shifts.is_empty();
        !self.new_items.is_empty() || !self.items.is_empty() || self.events.iter().any(shifts)
    }

    /// Whether the run gets a holder.
    pub fn is_taken(&self) -> bool {
        self.phase_before() != Phase::Held && self.row().phase() == Phase::Held
    }

    /// The tenant and its concurrency key of which a slot is taken or comes free, or of which the next in line changes.
    pub fn slot_key(&self) -> Option<(&str, &str)> {
        let (was, is) = (self.phase_before(), self.row().phase());
        let counts = was != is && (was == Phase::Held || is == Phase::Held || was == Phase::Ready);
        let key = self.row().concurrency_key.as_deref().filter(|_| counts)?;
        Some((&self.row().tenant, key))
    }
}

/// Of the members that a patch names, and of the mark that something did not fit, what is there now. What is not there was
/// left out, unless a null takes it away.
pub(super) fn note_changes(
    changes: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    now: &Map<String, Value>,
    can_go: impl Fn(&str) -> bool,
) {
    for name in patch.keys().map(String::as_str).chain([details::CUT]) {
        match now.get(name) {
            Some(value) => _ = changes.insert(name.to_owned(), value.clone()),
            None if can_go(name) => _ = changes.insert(name.to_owned(), Value::Null),
            None => {}
        }
    }
}
