//! The parts of a run: added and moved under its lease, all or none, as one event.

use rusqlite::params;
use waypost_kernel::Token;
use waypost_kernel::event::{Change, Event};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Phase};
use waypost_kernel::run::Text;

use super::open::database;
use super::row::{self, Stored, StoredItem};
use super::save::{self, Extra, prepare};
use super::session::Tx;
use crate::error::Result;
use crate::intake;
use crate::item_writes::{Wanted, decide, failed_states, kinds_that_begin, wanted};
use crate::run::{ItemRow, iso};
use crate::verbs::{ItemWrite, ItemsWrite, NewItem};

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
        "INSERT INTO items(run_id, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, \
         progress, not_before) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
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
        item.role.name(),
        item.stays(kind),
        save::text(&new.details),
        seq,
        item.progress,
        item.not_before.map(iso),
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
    Ok(find(tx, stored, kind, key)?.map(|found| found.item))
}

fn find(tx: &Tx<'_>, stored: &Stored, kind: &str, key: &str) -> Result<Option<StoredItem>> {
    let condition = "WHERE run_id = ?1 AND kind = ?2 AND key = ?3";
    let found = row::items(tx, &stored.row.lifecycle, condition, params![stored.row.id(), kind, key])?;
    Ok(found.into_iter().next())
}

pub fn put(tx: &Tx<'_>, write: &ItemsWrite) -> Result<Vec<ItemRow>> {
    let mut stored = row::by_id(tx, &write.held.run_id)?;
    let (wanted, change) = moves(tx, &stored, (write.held.token, &write.by), &write.items)?;
    save_moves(tx, &mut stored, &wanted, change)?;
    let mut rows = Vec::new();
    for it in &wanted {
        rows.extend(find_row(tx, &stored, it)?.map(|found| found.row));
    }
    Ok(rows)
}

/// What writes of items come to; nothing is written yet.
pub fn moves<'w>(
    tx: &Tx<'_>,
    stored: &Stored,
    holder: (Token, &str),
    writes: &'w [ItemWrite],
) -> Result<(Vec<Wanted<'w>>, Change)> {
    let lifecycle = &stored.row.lifecycle;
    let find = |at: u8, key: &str| {
        let found = find(tx, stored, &lifecycle.items[usize::from(at)].name, key)?;
        Ok(found.map(|found| (found.item, found.row.name)))
    };
    let wanted = wanted(lifecycle, writes, tx.now, find)?;
    let failed = failed(tx, stored, &kinds_that_begin(lifecycle, &wanted))?;
    let change = decide(&stored.row, holder, (&wanted, &failed), tx.now)?;
    Ok((wanted, change))
}

/// Of each kind an item that ended the run's course, if there is one.
fn failed(tx: &Tx<'_>, stored: &Stored, kinds: &[u8]) -> Result<Vec<Item>> {
    let mut failed = Vec::new();
    for kind in kinds.iter().map(|at| &stored.row.lifecycle.items[usize::from(*at)]) {
        for state in failed_states(kind) {
            let condition = "WHERE run_id = ?1 AND kind = ?2 AND status = ?3 AND role = 'step' LIMIT 1";
            let values = params![stored.row.id(), &*kind.name, state];
            let found = row::items(tx, &stored.row.lifecycle, condition, values)?;
            failed.extend(found.into_iter().map(|found| found.item));
        }
    }
    Ok(failed)
}

pub fn save_moves(tx: &Tx<'_>, stored: &mut Stored, wanted: &[Wanted<'_>], change: Change) -> Result<()> {
    add(tx, stored, wanted, &change)?;
    let moved: Vec<(u8, Text)> = change
        .events
        .iter()
        .flat_map(|event| &event.effect.moved)
        .map(|moved| (moved.item.kind, moved.item.key.clone()))
        .collect();
    if !change.is_repeat(&stored.row.run) {
        save::save(tx, stored, change, &Extra::default())?;
    }
    for it in wanted {
        let settled = stored.row.lifecycle.items[usize::from(it.kind)].phase(it.item.state) == Phase::Settled;
        // The same again, of an item that is done, is a replay and changes nothing.
        if moved.contains(&(it.kind, it.item.key.clone())) || !settled {
            keep_results(tx, stored, it)?;
        }
    }
    Ok(())
}

fn find_row(tx: &Tx<'_>, stored: &Stored, it: &Wanted<'_>) -> Result<Option<StoredItem>> {
    find(tx, stored, &it.write.kind, &it.write.key)
}

fn add(tx: &Tx<'_>, stored: &Stored, wanted: &[Wanted<'_>], change: &Change) -> Result<()> {
    let new: Vec<&Wanted<'_>> = wanted.iter().filter(|it| it.is_new).collect();
    if new.is_empty() {
        return Ok(());
    }
    // They are born with the event that adds them; the one that moves them on, if any, is a later one.
    let adds = |event: &&Event| event.effect.moved.iter().any(|moved| moved.from.is_none());
    let seq = change.events.iter().find(adds).map_or(change.after.seq, |event| event.seq);
    let place: i64 = prepare(tx, "SELECT count(*) FROM items WHERE run_id = ?1")?
        .query_row(params![stored.row.id()], |row| row.get(0))
        .map_err(|error| database(&error))?;
    for (at, it) in new.iter().enumerate() {
        let born = NewItem {
            kind: it.write.kind.clone(),
            key: it.write.key.clone(),
            name: it.name.clone(),
            status: None,
            max_retries: it.item.max_retries,
            reruns: it.item.reruns,
            role: it.item.role,
            details: serde_json::Map::new(),
        };
        let place = place as usize + at;
        insert(tx, stored.row.id(), &stored.row.lifecycle, place, (&born, &it.item), seq)?;
    }
    prepare(tx, "UPDATE run_now SET items = items + ?2 WHERE rid = ?1")?
        .execute(params![stored.rid, new.len() as i64])
        .map(drop)
        .map_err(|error| database(&error))
}

/// What an item brought forth is a handler's output: cleaned and cut, never refused.
fn keep_results(tx: &Tx<'_>, stored: &Stored, it: &Wanted<'_>) -> Result<()> {
    if it.write.output.is_none() && it.write.details.is_empty() {
        return Ok(());
    }
    let Some(found) = find_row(tx, stored, it)? else { return Ok(()) };
    let mut details = found.row.details;
    intake::merge(&mut details, &it.write.details);
    let output = it.write.output.clone().map(|output| intake::cleaned_output(output).to_string());
    let sql = "UPDATE items SET output = coalesce(?4, output), details = ?5 WHERE run_id = ?1 AND kind = ?2 AND key = ?3";
    prepare(tx, sql)?
        .execute(params![stored.row.id(), it.write.kind, it.write.key, output, save::text(&details)])
        .map(drop)
        .map_err(|error| database(&error))
}
