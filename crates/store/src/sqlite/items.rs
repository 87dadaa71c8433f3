//! The parts of a run: added and moved under its lease, all or none, as one event.

use rusqlite::params;
use serde_json::Value;
use waypost_kernel::event::Change;
use waypost_kernel::item::{Item, ItemAsk, add_items, decide_items};
use waypost_kernel::{Actor, Lifecycle};

use super::open::database;
use super::row::{self, Stored, StoredItem};
use super::save::{self, Extra, prepare, who};
use super::session::Tx;
use crate::error::Result;
use crate::run::ItemRow;
use crate::verbs::{ItemWrite, ItemsWrite, NewItem};
use crate::{birth, intake};

pub fn insert(
    tx: &Tx<'_>,
    run_id: &str,
    lifecycle: &Lifecycle,
    place: usize,
    (new, item): (&NewItem, &Item),
    seq: u64,
) -> Result<()> {
    let kind = &lifecycle.items[usize::from(item.kind)];
    prepare(
        tx,
        "INSERT INTO items(run_id, kind, key, version, place, name, status, max_retries, reruns, stays, details, seq) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        run_id,
        &*kind.name,
        new.key,
        kind.version,
        place as i64,
        new.name,
        &*kind.state(item.state).name,
        item.max_retries,
        item.reruns,
        item.stays(kind),
        save::text(&new.details),
        seq,
    ])
    .map(drop)
    .map_err(|error| database(&error))
}

pub fn list(tx: &Tx<'_>, run_id: &str, kind: Option<&str>) -> Result<Vec<ItemRow>> {
    let stored = row::by_id(tx, run_id)?;
    let found = row::items(
        tx,
        &stored.row.lifecycle,
        "WHERE run_id = ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY kind, place, key",
        params![run_id, kind],
    )?;
    Ok(found.into_iter().map(|found| found.row).collect())
}

/// One item of a run, as the kernel decides on it.
pub fn item(tx: &Tx<'_>, stored: &Stored, kind: &str, key: &str) -> Result<Option<Item>> {
    let condition = "WHERE run_id = ?1 AND kind = ?2 AND key = ?3";
    let found = row::items(tx, &stored.row.lifecycle, condition, params![stored.row.id(), kind, key])?;
    Ok(found.into_iter().next().map(|found| found.item))
}

pub fn put(tx: &Tx<'_>, write: &ItemsWrite) -> Result<Vec<ItemRow>> {
    let mut stored = row::by_id(tx, &write.held.run_id)?;
    let mut known = Vec::new();
    let mut fresh = Vec::new();
    for item in &write.items {
        intake::check_name("items.key", &item.key)?;
        birth::item_kind(&item.kind, &stored.row.lifecycle)?;
        match find(tx, &stored, item)? {
            Some(found) => known.push((found, item)),
            None => fresh.push(item),
        }
    }
    let new = add(tx, &mut stored, write, &fresh)?;
    // New items start in an initial state and are moved from there to the one that was asked for.
    known.extend(new.into_iter().zip(fresh));
    let asks: Vec<(Item, ItemAsk<'_>)> =
        known.iter().map(|(found, item)| (found.item.clone(), ask(item))).collect();
    let lifecycle = stored.row.lifecycle.clone();
    let by = who(Actor::Worker, &write.by);
    let change = decide_items(&lifecycle, &stored.row.run, &by, Some(write.held.token), &asks, tx.now)?;
    save_if_any(tx, &mut stored, change)?;
    for (_, item) in &known {
        keep_results(tx, &write.held.run_id, item)?;
    }
    let mut rows = Vec::new();
    for item in &write.items {
        rows.extend(find(tx, &stored, item)?.map(|found| found.row));
    }
    Ok(rows)
}

fn find(tx: &Tx<'_>, stored: &Stored, item: &ItemWrite) -> Result<Option<StoredItem>> {
    let found = row::items(
        tx,
        &stored.row.lifecycle,
        "WHERE run_id = ?1 AND kind = ?2 AND key = ?3",
        params![&*stored.row.run.id, item.kind, item.key],
    )?;
    Ok(found.into_iter().next())
}

fn add(
    tx: &Tx<'_>,
    stored: &mut Stored,
    write: &ItemsWrite,
    fresh: &[&ItemWrite],
) -> Result<Vec<StoredItem>> {
    if fresh.is_empty() {
        return Ok(Vec::new());
    }
    let lifecycle = stored.row.lifecycle.clone();
    let mut items = Vec::new();
    for item in fresh {
        let new = NewItem {
            kind: item.kind.clone(),
            key: item.key.clone(),
            name: item.name.clone().unwrap_or_else(|| item.key.clone()),
            status: None,
            max_retries: 3,
            reruns: false,
            details: item.details.clone(),
        };
        intake::check_name("items.name", &new.name)?;
        let first = birth::first_item(&new, &lifecycle)?;
        items.push((new, first));
    }
    let kernel: Vec<Item> = items.iter().map(|(_, item)| item.clone()).collect();
    let by = who(Actor::Worker, &write.by);
    let change = add_items(&lifecycle, &stored.row.run, &by, Some(write.held.token), &kernel, tx.now)?;
    let place: i64 = prepare(tx, "SELECT count(*) FROM items WHERE run_id = ?1")?
        .query_row(params![&*stored.row.run.id], |row| row.get(0))
        .map_err(|error| database(&error))?;
    for (at, (new, item)) in items.iter().enumerate() {
        insert(tx, &write.held.run_id, &lifecycle, place as usize + at, (new, item), change.after.seq)?;
    }
    save_if_any(tx, stored, change)?;
    prepare(tx, "UPDATE runs SET item_count = item_count + ?2 WHERE rid = ?1")?
        .execute(params![stored.rid, items.len() as i64])
        .map_err(|error| database(&error))?;
    let mut found = Vec::new();
    for item in fresh {
        found.extend(find(tx, stored, item)?);
    }
    Ok(found)
}

fn save_if_any(tx: &Tx<'_>, stored: &mut Stored, change: Change) -> Result<()> {
    if save::is_repeat(&change, &stored.row.run) {
        return Ok(());
    }
    save::save(tx, stored, change, &Extra::default()).map(drop)
}

fn ask(item: &ItemWrite) -> ItemAsk<'_> {
    ItemAsk {
        to: &item.status,
        command: item.command.as_deref(),
        progress: item.progress,
        failure: item.failure.as_ref(),
        retry_in: item.retry_in,
        answered: item.answered,
        try_no: item.try_no,
        discard: false,
    }
}

/// What an item brought forth is a handler's output: cleaned and cut, never refused.
fn keep_results(tx: &Tx<'_>, run_id: &str, item: &ItemWrite) -> Result<()> {
    if item.output.is_none() && item.details.is_empty() {
        return Ok(());
    }
    let output = item.output.clone().map(|output| intake::cleaned_output(output).to_string());
    let details = intake::cleaned_output(Value::Object(item.details.clone())).to_string();
    prepare(
        tx,
        "UPDATE items SET output = coalesce(?4, output), details = json_patch(details, ?5) WHERE run_id = ?1 AND kind = ?2 AND key = ?3",
    )?
    .execute(params![run_id, item.kind, item.key, output, details])
    .map(drop)
    .map_err(|error| database(&error))
}
