//! Writes of items: those that come at once are one transaction, each all or none.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use waypost_kernel::event::{Change, Event};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::{Time, Token};

use super::batch::{Decided, Entry, each};
use super::fault::Result;
use super::items::{self, BornItem, ItemResult};
use super::plain::{self, Holding};
use super::row::{Stored, StoredItem};
use super::save::{Extra, Pending, item_count};
use super::session::{Line, Session, Tx};
use crate::error::StoreError;
use crate::intake;
use crate::item_writes::{Wanted, decide, failed_states, wanted};
use crate::run::ItemRow;
use crate::verbs::{Each, ItemWrite, ItemsWrite, NewItem};

struct Put<'a> {
    write: &'a ItemsWrite,
    /// What it leaves, if it comes to be.
    left: Mutex<Option<Holding>>,
}

/// By run, kind and key.
pub type Items = HashMap<(i64, String, String), StoredItem>;

/// One write at a time to each run: a second one has to see what the first one left.
pub async fn put(session: &Session, writes: &[ItemsWrite]) -> Result<Each<Vec<ItemRow>>> {
    let mut answers: Vec<Option<Result<Vec<ItemRow>, StoreError>>> = writes.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..writes.len()).collect();
    while !left.is_empty() {
        let mut runs = HashSet::new();
        let (now, later): (Vec<usize>, _) =
            left.into_iter().partition(|at: &usize| runs.insert(&writes[*at].held.run_id));
        left = later;
        plain::put(session, writes, &now, &mut answers).await?;
        let now: Vec<usize> = now.into_iter().filter(|at| answers[*at].is_none()).collect();
        let puts: Vec<Put<'_>> =
            now.iter().map(|at| Put { write: &writes[*at], left: Mutex::default() }).collect();
        for ((at, put), answer) in now.into_iter().zip(&puts).zip(together(session, &puts).await?) {
            let left = put.left.lock().unwrap_or_else(PoisonError::into_inner).take();
            session.0.plain.hold(left.filter(|_| answer.is_ok()).into_iter());
            answers[at] = Some(answer);
        }
    }
    let lost = || Err(StoreError::Unavailable("the write was given up".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect())
}

/// What the database refuses of one must not fail its neighbours.
async fn together(session: &Session, puts: &[Put<'_>]) -> Result<Each<Vec<ItemRow>>> {
    match each(session, Line::Work, puts).await {
        Err(_) if puts.len() > 1 => {
            let mut answers = Vec::new();
            for put in puts {
                answers.extend(each(session, Line::Work, std::slice::from_ref(put)).await?);
            }
            Ok(answers)
        }
        answers => answers,
    }
}

impl Entry for Put<'_> {
    type Answer = Vec<ItemRow>;
    type Seen = Items;

    fn run_id(&self) -> &str {
        &self.write.held.run_id
    }

    async fn see(tx: &Tx, entries: &[(usize, &Self, &Stored)]) -> Result<Items> {
        see(tx, entries.iter().map(|(_, put, stored)| (*stored, put.write.items.as_slice()))).await
    }

    fn decide(
        &self,
        tx: &Tx,
        _: usize,
        known: &Items,
        pending: &mut Pending,
    ) -> Result<Decided<Vec<ItemRow>>, StoreError> {
        let rows = decide_on(self.write, tx.now, known, pending)?.add_to(pending);
        let left = Holding::after(pending, known, &rows);
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        Ok(Decided::Now(rows))
    }
}

/// What a write of items comes to.
pub struct Moves {
    pub change: Change,
    born: Vec<BornItem>,
    results: Vec<ItemResult>,
    rows: Vec<ItemRow>,
}

impl Moves {
    /// Gives the items as they are then.
    pub fn add_to(self, pending: &mut Pending) -> Vec<ItemRow> {
        pending.born.extend(self.born);
        pending.results.extend(self.results);
        if !self.change.is_repeat(&pending.row.run) {
            pending.add(self.change, Extra::default());
        }
        self.rows
    }
}

pub fn decide_on(
    write: &ItemsWrite,
    now: Time,
    known: &Items,
    pending: &Pending,
) -> Result<Moves, StoreError> {
    decide_moves((write.held.token, &write.by), &write.items, now, known, pending)
}

/// Decides on a run with these items; whatever is not among them is new.
pub fn decide_moves(
    holder: (Token, &str),
    writes: &[ItemWrite],
    now: Time,
    known: &Items,
    pending: &Pending,
) -> Result<Moves, StoreError> {
    let rid = pending.before.rid;
    let lifecycle = pending.row.lifecycle.clone();
    let stored = |kind: &str, key: &str| known.get(&(rid, kind.to_owned(), key.to_owned()));
    let find = |at: u8, key: &str| {
        let found = stored(&lifecycle.items[usize::from(at)].name, key);
        Ok(found.map(|found| (found.item.clone(), found.row.name.clone())))
    };
    let wanted = wanted(&lifecycle, writes, now, find)?;
    let ends =
        |it: &&StoredItem| it.rid == rid && it.item.ends_course(&lifecycle.items[usize::from(it.item.kind)]);
    let failed: Vec<Item> = known.values().filter(ends).map(|it| it.item.clone()).collect();
    let change = decide(&pending.row, holder, (&wanted, &failed), now)?;
    // They are born with the event that adds them; the one that moves them on, if any, is a later one.
    let adds = |event: &&Event| event.effect.moved.iter().any(|moved| moved.from.is_none());
    let seq = change.events.iter().find(adds).map_or(change.after.seq, |event| event.seq);
    let born = born(pending, &wanted, seq);
    let mut results = Vec::new();
    let mut rows = Vec::new();
    for it in &wanted {
        let mut moved = change.events.iter().flat_map(|event| &event.effect.moved);
        let last = moved.rfind(|moved| moved.item.kind == it.kind && moved.item.key == it.item.key);
        let after = last.map_or(&it.item, |moved| &moved.item);
        let kind = &lifecycle.items[usize::from(it.kind)];
        let was = stored(&kind.name, &it.write.key).map(|found| &found.row);
        let mut row = row_of(it, after, &kind.name, &kind.state(after.state).name, was);
        // The same again, of an item that is done, is a replay and changes nothing.
        if last.is_some() || kind.phase(it.item.state) != Phase::Settled {
            results.extend(result(it, &mut row));
        }
        rows.push(row);
    }
    Ok(Moves { change, born, results, rows })
}

/// The named items of runs' writes, as they are stored, and of each run and kind one that ended the run's course.
pub async fn see<'w>(
    tx: &Tx,
    writes: impl Iterator<Item = (&'w Stored, &'w [ItemWrite])> + Clone,
) -> Result<Items> {
    let mut named = Vec::new();
    for (stored, writes) in writes.clone() {
        named.extend(writes.iter().map(|it| (stored.rid, it.kind.as_str(), it.key.as_str())));
    }
    if named.is_empty() {
        return Ok(Items::new());
    }
    let of = |rid: i64| {
        let mut runs = writes.clone().map(|(stored, _)| stored);
        runs.find(|stored| stored.rid == rid).map(|stored| &*stored.row.lifecycle)
    };
    let mut kinds = Vec::new();
    for (stored, writes) in writes.clone() {
        for kind in stored.row.lifecycle.items.iter().filter(|kind| kind.stops_run) {
            if writes.iter().any(|it| *it.kind == *kind.name) {
                kinds.extend(failed_states(kind).map(|state| (stored.rid, &*kind.name, state)));
            }
        }
    }
    let mut found = items::of_runs(tx, &named, of).await?;
    found.extend(items::failed_steps(tx, &kinds, of).await?);
    Ok(found)
}

/// What an item brought forth is a handler's output: cleaned and cut, never refused.
fn result(it: &Wanted<'_>, row: &mut ItemRow) -> Option<ItemResult> {
    if it.write.output.is_none() && it.write.details.is_empty() {
        return None;
    }
    intake::merge(&mut row.details, &it.write.details);
    let mut output = it.write.output.clone().map(intake::cleaned_output);
    output.iter_mut().for_each(super::row::as_stored);
    row.details.values_mut().for_each(super::row::as_stored);
    if let Some(output) = &output {
        row.output.clone_from(output);
    }
    Some(ItemResult { kind: row.kind.clone(), key: row.key.clone(), output, details: row.details.clone() })
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
        progress: item.progress,
        not_before: item.not_before,
        discarded: item.discarded,
        role: item.role,
        failure: item.failure.clone(),
        started_at: item.started_at,
        finished_at: item.finished_at,
        output: was.map(|row| row.output.clone()).unwrap_or_default(),
        details: was.map(|row| row.details.clone()).unwrap_or_default(),
    }
}

fn born(pending: &Pending, wanted: &[Wanted<'_>], seq: u64) -> Vec<BornItem> {
    let first = item_count(&pending.row) as usize;
    let new = wanted.iter().filter(|it| it.is_new);
    let one = |(at, it): (usize, &Wanted<'_>)| {
        let new = NewItem {
            kind: it.write.kind.clone(),
            key: it.write.key.clone(),
            name: it.name.clone(),
            status: None,
            max_retries: it.item.max_retries,
            reruns: it.item.reruns,
            role: it.item.role,
            details: serde_json::Map::new(),
        };
        BornItem { place: first + at, new, item: it.item.clone(), seq }
    };
    new.enumerate().map(one).collect()
}
