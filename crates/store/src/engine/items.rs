//! Writes of items, each all or none.

use std::collections::HashMap;

use serde_json::{Map, Value};
use waypost_kernel::Token;
use waypost_kernel::event::{Change, Event};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Phase;

use super::batch::{Decided, Entry};
use super::edit::{Edit, Extra, ItemChange, NewItemRow, Stored, StoredItem, note_changes};
use super::hold::in_turns;
use super::tx::{ItemsOf, Tx};
use crate::rules::intake;
use crate::rules::item_writes::{self, Wanted, wanted};
use crate::seam::error::Result;
use crate::seam::run::ItemRow;
use crate::seam::verbs::{Each, ItemWrite, ItemsWrite, NewItem};

/// By run, kind and key.
pub(crate) type Items = HashMap<(i64, String, String), StoredItem>;

struct Put<'a>(&'a ItemsWrite);

impl Entry for Put<'_> {
    type Answer = Vec<ItemRow>;
    type Seen = Items;

    fn run_id(&self) -> &str {
        &self.0.held.run_id
    }

    async fn look_up<T: Tx>(tx: &mut T, entries: &[(usize, &Self, &Stored)]) -> Result<Items> {
        look_up(tx, entries.iter().map(|(_, put, stored)| (*stored, put.0.items.as_slice()))).await
    }

    fn decide<T: Tx>(
        &self,
        tx: &T,
        _: usize,
        known: &Items,
        edit: &mut Edit,
    ) -> Result<Decided<Vec<ItemRow>>> {
        let holder = (self.0.held.token, self.0.by.as_str());
        let moves = decide(tx, holder, &self.0.items, known, edit)?;
        Ok(Decided::Now(moves.add_to(edit)))
    }
}

pub(crate) async fn put_items<T: Tx>(tx: &mut T, writes: &[ItemsWrite]) -> Result<Each<Vec<ItemRow>>> {
    in_turns(tx, writes.iter().map(Put).collect()).await
}

/// The named items of runs' writes, as they are stored, and of each run and kind one that ended the run's course.
pub(super) async fn look_up<'w, T: Tx>(
    tx: &mut T,
    writes: impl Iterator<Item = (&'w Stored, &'w [ItemWrite])>,
) -> Result<Items> {
    let mut asks = Vec::new();
    for (stored, writes) in writes.filter(|(_, writes)| !writes.is_empty()) {
        let lifecycle = &stored.row.lifecycle;
        let kinds = lifecycle.items.iter().enumerate();
        // The run's counts tell whether there is such an item to look for.
        let stops = |(at, kind): &(usize, &std::sync::Arc<waypost_kernel::Lifecycle>)| {
            kind.stops_run
                && writes.iter().any(|it| *lifecycle.item_name(&it.kind) == *kind.name)
                && stored.row.run.tallies[*at].counts(kind).failed > 0
        };
        asks.push(ItemsOf {
            stored,
            names: writes.iter().map(|it| (lifecycle.item_name(&it.kind), it.key.as_str())).collect(),
            failed: kinds.filter(stops).map(|(at, _)| at as u8).collect(),
        });
    }
    if asks.is_empty() {
        return Ok(Items::new());
    }
    let found = tx.items(&asks).await?;
    Ok(found.into_iter().map(|it| ((it.rid, it.row.kind.clone(), it.row.key.clone()), it)).collect())
}

/// What a write of items comes to.
pub(super) struct Moves {
    pub change: Change,
    new_items: Vec<NewItemRow>,
    items: Vec<ItemChange>,
    item_rows: Vec<StoredItem>,
    rows: Vec<ItemRow>,
}

impl Moves {
    /// Gives the items as they are then.
    pub fn add_to(self, edit: &mut Edit) -> Vec<ItemRow> {
        edit.new_items.extend(self.new_items);
        edit.items.extend(self.items);
        edit.item_rows.extend(self.item_rows);
        if !self.change.is_repeat(edit.run()) {
            edit.add(self.change, Extra::default());
        }
        self.rows
    }
}

/// Decides on a run with these items; whatever is not among them is new.
pub(super) fn decide<T: Tx>(
    tx: &T,
    holder: (Token, &str),
    writes: &[ItemWrite],
    known: &Items,
    edit: &Edit,
) -> Result<Moves> {
    let now = tx.now();
    let rid = edit.stored.rid;
    let lifecycle = edit.row().lifecycle.clone();
    let stored = |kind: &str, key: &str| known.get(&(rid, kind.to_owned(), key.to_owned()));
    let find = |at: u8, key: &str| {
        let found = stored(&lifecycle.items[usize::from(at)].name, key);
        Ok(found.map(|found| (found.item.clone(), found.row.name.clone())))
    };
    let wanted = wanted(&lifecycle, writes, now, find)?;
    let ends =
        |it: &&StoredItem| it.rid == rid && it.item.ends_course(&lifecycle.items[usize::from(it.item.kind)]);
    let failed: Vec<Item> = known.values().filter(ends).map(|it| it.item.clone()).collect();
    let change = item_writes::decide(edit.row(), holder, (&wanted, &failed), now)?;
    let mut items = Vec::new();
    let mut item_rows = Vec::new();
    let mut rows = Vec::new();
    for it in &wanted {
        let kind = &lifecycle.items[usize::from(it.kind)];
        let was = stored(&kind.name, &it.write.key).map(|found| &found.row);
        let (after, row, changed) = changed(tx, it, &change, kind, was);
        items.extend(changed);
        if tx.remembers_items() {
            item_rows.push(StoredItem { rid, item: after, row: row.clone() });
        }
        rows.push(row);
    }
    let new_items = new_items(edit, &wanted, &change);
    Ok(Moves { change, new_items, items, item_rows, rows })
}

/// An item as it is answered, and what is written of it.
fn changed<T: Tx>(
    tx: &T,
    it: &Wanted<'_>,
    change: &Change,
    kind: &waypost_kernel::Lifecycle,
    was: Option<&ItemRow>,
) -> (Item, ItemRow, Option<ItemChange>) {
    let moves =
        change.events.iter().flat_map(|event| event.effect.moved.iter().map(move |moved| (event.seq, moved)));
    let same =
        |moved: &waypost_kernel::event::Moved| moved.item.kind == it.kind && moved.item.key == it.item.key;
    let last = moves.rev().find(|(_, moved)| same(moved));
    let after = last.map_or(&it.item, |(_, moved)| &moved.item);
    let mut row = row_of(it, after, &kind.name, &kind.state(after.state).name, was);
    let moved = last.filter(|(_, moved)| moved.from.is_some());
    // The same again, of an item that is done, is a replay and changes nothing.
    let keeps = last.is_some() || kind.phase(it.item.state) != Phase::Settled;
    let (output, details) = if keeps { results(tx, it, &mut row) } else { (None, None) };
    let writes = moved.is_some() || output.is_some() || details.is_some();
    let mut patch = Map::new();
    if let Some(details) = &details {
        note_changes(&mut patch, &intake::cleaned_patch(&it.write.details), details, |_| false);
    }
    let changed = writes.then(|| ItemChange {
        item: after.clone(),
        seq: moved.map(|(seq, _)| seq),
        stays: last.is_some_and(|(_, moved)| moved.stays),
        output,
        details,
        patch,
    });
    (after.clone(), row, changed)
}

/// An item's output comes from a handler: it is cleaned and cut, never refused.
fn results<T: Tx>(tx: &T, it: &Wanted<'_>, row: &mut ItemRow) -> (Option<Value>, Option<Map<String, Value>>) {
    if it.write.output.is_none() && it.write.details.is_empty() {
        return (None, None);
    }
    intake::merge(&mut row.details, &it.write.details);
    let mut output = it.write.output.clone().map(intake::cleaned_output);
    output.iter_mut().chain(row.details.values_mut()).for_each(|value| tx.as_stored(value));
    if let Some(output) = &output {
        row.output.clone_from(output);
    }
    (output, Some(row.details.clone()))
}

fn row_of(it: &Wanted<'_>, item: &Item, kind: &str, status: &str, was: Option<&ItemRow>) -> ItemRow {
    ItemRow {
        kind: kind.to_owned(),
        key: it.write.key.clone(),
        name: it.name.clone(),
        status: status.to_owned(),
        attempts: item.attempts,
        max_retries: item.max_retries,
        try_no: item.try_no,
        throttled: item.throttled,
        waited_ms: item.waited_ms,
        in_doubt: item.in_doubt,
        progress: item.progress,
        not_before: item.not_before,
        discarded: item.discarded,
        reruns: item.reruns,
        role: item.role,
        failure: item.failure.clone(),
        started_at: item.started_at,
        finished_at: item.finished_at,
        output: was.map(|row| row.output.clone()).unwrap_or_default(),
        details: was.map(|row| row.details.clone()).unwrap_or_default(),
    }
}

/// New items carry the seq of the event that adds them. An event that moves them on, if any, is a later one.
fn new_items(edit: &Edit, wanted: &[Wanted<'_>], change: &Change) -> Vec<NewItemRow> {
    let adds = |event: &&Event| event.effect.moved.iter().any(|moved| moved.from.is_none());
    let seq = change.events.iter().find(adds).map_or(change.after.seq, |event| event.seq);
    let first = edit.row().item_count();
    let one = |(at, it): (usize, &Wanted<'_>)| {
        let new = NewItem {
            kind: edit.row().lifecycle.item_name(&it.write.kind).to_owned(),
            key: it.write.key.clone(),
            name: it.name.clone(),
            status: None,
            max_retries: it.item.max_retries,
            reruns: it.item.reruns,
            role: it.item.role,
            details: Map::new(),
            copied: false,
        };
        NewItemRow { place: first + at, new, item: it.item.clone(), seq, copy_of: None }
    };
    wanted.iter().filter(|it| it.is_new).enumerate().map(one).collect()
}
