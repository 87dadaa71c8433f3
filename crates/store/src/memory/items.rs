//! The parts of a run.

use waypost_kernel::event::Change;
use waypost_kernel::item::{Item, ItemAsk, add_items, decide_items};
use waypost_kernel::lifecycle::{Actor, Lifecycle, Phase};
use waypost_kernel::text::MAX_NAME_BYTES;
use waypost_kernel::{Failure, Time};

use super::MemoryStore;
use super::state::{Entry, State, asked_by};
use crate::birth::item_kind;
use crate::error::{Result, StoreError};
use crate::intake::{check_name, cleaned_failure, cleaned_name, cleaned_output, merge};
use crate::run::ItemRow;
use crate::verbs::{ItemWrite, Items, ItemsWrite, Reply};

impl Items for MemoryStore {
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        self.verb(move |state| state.put_items(&write))
    }

    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        self.verb(move |state| {
            let number = state.number_of(&run_id)?;
            let rows = state.entry(number)?.item_rows();
            let wanted = |row: &ItemRow| kind.as_ref().is_none_or(|kind| row.kind == *kind);
            Ok(rows.into_iter().filter(wanted).collect())
        })
    }
}

/// One entry of a write, looked up.
struct Wanted<'a> {
    write: &'a ItemWrite,
    kind: u8,
    /// As it is, or as it will be added.
    item: Item,
    is_new: bool,
    failure: Option<Failure>,
}

impl State {
    fn put_items(&mut self, write: &ItemsWrite) -> Result<Vec<ItemRow>> {
        let number = self.number_of(&write.held.run_id)?;
        let now = self.now;
        let entry = self.entry(number)?;
        let wanted = entry.wanted(&write.items, now)?;
        let change = entry.decide(write, &wanted, now)?;
        let moved: Vec<(u8, String)> = change
            .events
            .iter()
            .flat_map(|event| &event.effect.moved)
            .map(|moved| (moved.item.kind, moved.item.key.to_string()))
            .collect();
        self.commit(number, change)?;
        let entry = self.entry(number)?;
        for it in &wanted {
            let of = (it.kind, it.write.key.clone());
            let settled = entry.row.lifecycle.items[usize::from(it.kind)].phase(it.item.state);
            // The same again, of an item that is done, is a replay and changes nothing.
            if moved.contains(&of) || settled != Phase::Settled {
                entry.store_beside(of, it);
            }
        }
        let rows = entry.item_rows();
        let of = |it: &ItemWrite| rows.iter().find(|row| row.kind == it.kind && row.key == it.key).cloned();
        Ok(write.items.iter().filter_map(of).collect())
    }
}

impl Entry {
    fn wanted<'a>(&self, writes: &'a [ItemWrite], now: Time) -> Result<Vec<Wanted<'a>>> {
        let mut wanted: Vec<Wanted<'a>> = Vec::with_capacity(writes.len());
        for write in writes {
            check_name("key", &write.key)?;
            let (at, kind) = item_kind(&write.kind, &self.row.lifecycle)?;
            if wanted.iter().any(|it| it.kind == at && it.write.key == write.key) {
                return Err(StoreError::invalid("items", format!("{:?} is there twice", write.key)));
            }
            if write.progress.is_some_and(|progress| progress > 100) {
                return Err(StoreError::invalid("progress", "allowed is 0 to 100"));
            }
            let known = self.items.iter().find(|item| item.kind == at && *item.key == *write.key);
            let item = known.cloned().unwrap_or_else(|| born(at, kind, write, now));
            let failure = write.failure.as_ref().map(cleaned_failure);
            wanted.push(Wanted { write, kind: at, item, is_new: known.is_none(), failure });
        }
        Ok(wanted)
    }

    /// New ones are added first and moved on from there, so that the log has both.
    fn decide(&self, write: &ItemsWrite, wanted: &[Wanted<'_>], now: Time) -> Result<Change> {
        let lifecycle = &self.row.lifecycle;
        let by = cleaned_name(&write.by);
        let who = asked_by(Actor::Worker, &by);
        let token = Some(write.held.token);
        let new: Vec<Item> = wanted.iter().filter(|it| it.is_new).map(|it| it.item.clone()).collect();
        let asks: Vec<(Item, ItemAsk<'_>)> = wanted.iter().map(|it| (it.item.clone(), it.ask())).collect();
        let mut change = add_items(lifecycle, &self.row.run, &who, token, &new, now)?;
        let moves = decide_items(lifecycle, &change.after, &who, token, &asks, now)?;
        change.events.extend(moves.events);
        change.after = moves.after;
        Ok(change)
    }

    fn store_beside(&mut self, of: (u8, String), wanted: &Wanted<'_>) {
        let write = wanted.write;
        let beside = self.beside.entry(of).or_default();
        if let Some(name) = write.name.as_ref().filter(|_| wanted.is_new) {
            beside.name = waypost_kernel::text::clean_line(name.as_bytes(), MAX_NAME_BYTES).text;
        }
        if let Some(output) = &write.output {
            beside.output = cleaned_output(output.clone());
        }
        merge(&mut beside.details, write.details.clone());
    }

    /// Kind by kind, in the order in which they were added.
    pub fn item_rows(&self) -> Vec<ItemRow> {
        let mut items: Vec<&Item> = self.items.iter().collect();
        items.sort_by_key(|item| item.kind);
        items.into_iter().map(|item| self.item_row(item)).collect()
    }

    fn item_row(&self, item: &Item) -> ItemRow {
        let kind = &self.row.lifecycle.items[usize::from(item.kind)];
        let beside = self.beside.get(&(item.kind, item.key.to_string())).cloned().unwrap_or_default();
        ItemRow {
            kind: kind.name.to_string(),
            key: item.key.to_string(),
            name: if beside.name.is_empty() { item.key.to_string() } else { beside.name },
            status: kind.state(item.state).name.to_string(),
            attempts: item.attempts,
            max_retries: item.max_retries,
            try_no: item.try_no,
            progress: item.progress,
            not_before: item.not_before,
            discarded: item.discarded,
            failure: item.failure.clone(),
            started_at: item.started_at,
            finished_at: item.finished_at,
            output: beside.output,
            details: beside.details,
        }
    }
}

impl Wanted<'_> {
    fn ask(&self) -> ItemAsk<'_> {
        ItemAsk {
            to: &self.write.status,
            command: self.write.command.as_deref(),
            progress: self.write.progress,
            failure: self.failure.as_ref(),
            retry_in: self.write.retry_in,
            answered: self.write.answered,
            discard: false,
        }
    }
}

/// A new item starts where it is wanted if it may start there, and else where its kind does.
fn born(at: u8, kind: &Lifecycle, write: &ItemWrite, now: Time) -> Item {
    let asked = kind.state_named(&write.status).filter(|state| kind.initial.contains(state));
    let mut item = Item::new(at, &write.key, asked.unwrap_or(kind.initial[0]));
    if let Some(state) = asked {
        item.progress = write.progress.unwrap_or(0);
        item.not_before = write.retry_in.filter(|_| kind.phase(state) == Phase::Ready).map(|wait| now + wait);
    }
    item
}
