//! From columns to rows.

use std::sync::{Arc, LazyLock};

use rusqlite::{Row, params};
use waypost_kernel::{Lifecycle, Phase};

use crate::engine::{Stored, StoredItem};
use crate::rules::room::{self, Room};
use crate::seam::error::StoreError;
use crate::seam::run::{ITEM_COLUMNS, ItemRow, RunRow};
use crate::seam::verbs::Parts;
use crate::sqlite::layout::{self, LAYOUT, Table};
use crate::sqlite::link::fault::{Fault, Result};
use crate::sqlite::link::session::Tx;

/// Where the columns of [`LAYOUT`] begin in a row.
const FIRST: usize = 5;

static SELECT: LazyLock<String> = LazyLock::new(|| selecting(Parts::ALL));

/// What is left out is not read.
fn selecting(parts: Parts) -> String {
    let columns = LAYOUT.iter().map(|place| match (place.table, place.is_patched()) {
        _ if parts.leaves_out(place.name) => ", NULL".to_owned(),
        (_, true) => format!(", coalesce(n.{0}, b.{0})", place.name),
        (Table::Born, false) => format!(", b.{}", place.name),
        (Table::Now, false) => format!(", n.{}", place.name),
    });
    format!("SELECT n.rid, n.state, n.last, n.items, n.tally{} FROM", columns.collect::<String>())
}

static BY_ID: LazyLock<String> = LazyLock::new(|| {
    format!("{} run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.run_id = ?1", *SELECT)
});
static BY_RID: LazyLock<String> = LazyLock::new(|| format!("{} {BOTH} WHERE n.rid = ?1", *SELECT));

pub fn find(tx: &Tx<'_>, run_id: &str) -> Result<Option<Stored>> {
    if let Some(cached) = tx.cache.rows.borrow_mut().take_id(run_id) {
        return Ok(Some(cached));
    }
    Ok(query(tx, &BY_ID, params![run_id])?.pop())
}

pub fn by_id(tx: &Tx<'_>, run_id: &str) -> Result<Stored> {
    find(tx, run_id)?.ok_or_else(|| StoreError::no_run(run_id).into())
}

/// `None` if this binary cannot read the run's lifecycle.
pub fn by_rid(tx: &Tx<'_>, rid: i64) -> Result<Option<Stored>> {
    if let Some(cached) = tx.cache.rows.borrow_mut().take(rid) {
        return Ok(Some(cached));
    }
    Ok(query(tx, &BY_RID, params![rid])?.pop())
}

/// Times and the places of the runs that they are of, as an index lists them.
pub fn places(tx: &Tx<'_>, sql: &str, values: impl rusqlite::Params) -> Result<Vec<(i64, i64)>> {
    Ok(tx.list(sql, values, |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Both tables of a run, from the one that moves to the one that stays.
pub const BOTH: &str = "run_now n CROSS JOIN run_born b ON b.rid = n.rid";

/// All runs that a condition finds. Those of a lifecycle that this binary cannot read are left out.
pub fn select(tx: &Tx<'_>, from: &str, values: impl rusqlite::Params) -> Result<Vec<Stored>> {
    query(tx, &format!("{} {from}", *SELECT), values)
}

/// The same without inputs, metadata, details and what the run carries: of many runs those would be too much to hold at once.
pub fn select_bare(tx: &Tx<'_>, from: &str, values: impl rusqlite::Params) -> Result<Vec<Stored>> {
    query(tx, &format!("{} {from}", selecting(Parts::NONE)), values)
}

/// As many as fit into a page, each with what of its row cannot be read.
pub fn select_with_unread(
    tx: &Tx<'_>,
    from: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<(Stored, Vec<String>)>> {
    let mut statement = tx.prepare(&format!("{} {from}", *SELECT))?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    let mut room = Room::of_a_page();
    while let Some(row) = rows.next()? {
        let Some(stored) = read(tx, row)? else { continue };
        if !room.has_for(texts(row)) {
            break;
        }
        let unread = layout::unread(&stored.row, |at| row.get_ref(FIRST + at).ok()?.as_str().ok());
        found.push((stored, unread));
    }
    Ok(found)
}

/// The same with some parts alone, and no more than fits into a page; whether there are more.
pub fn select_page(
    tx: &Tx<'_>,
    parts: Parts,
    from: &str,
    values: impl rusqlite::Params,
) -> Result<(Vec<Stored>, bool)> {
    let mut room = Room::of_a_page();
    let found = query_within(tx, &format!("{} {from}", selecting(parts)), values, &mut room)?;
    Ok((found, room.is_full))
}

fn query(tx: &Tx<'_>, sql: &str, values: impl rusqlite::Params) -> Result<Vec<Stored>> {
    query_within(tx, sql, values, &mut Room::unbounded())
}

fn query_within(
    tx: &Tx<'_>,
    sql: &str,
    values: impl rusqlite::Params,
    room: &mut Room,
) -> Result<Vec<Stored>> {
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if !room.has_for(texts(row)) {
            break;
        }
        found.extend(read(tx, row)?);
    }
    Ok(found)
}

fn texts<'r>(row: &'r Row<'_>) -> impl Iterator<Item = &'r [u8]> {
    (FIRST..FIRST + LAYOUT.len()).filter_map(|at| row.get_ref(at).ok()?.as_bytes().ok())
}

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Result<Option<Stored>> {
    let Some((lifecycle, state)) = tx.named(row.get(1)?)?.of else { return Ok(None) };
    let is_held = lifecycle.phase(state) == Phase::Held;
    let mut found = RunRow::blank(lifecycle, state);
    let mut bytes = 0;
    for (at, place) in LAYOUT.iter().enumerate() {
        let value = row.get_ref(FIRST + at)?;
        if place.is_json() {
            bytes += value.as_bytes().map_or(0, room::weight);
        }
        place.read(&mut found, value, is_held)?;
    }
    match row.get_ref(4)?.as_str_or_null().ok().flatten() {
        Some(tally) => found.take_tally(tally).map_err(|(column, value)| damaged(column, &value))?,
        None if row.get::<_, i64>(3)? > 0 => count_items(tx, &mut found)?,
        None => {}
    }
    Ok(Some(Stored { rid: row.get(0)?, row: Arc::new(found), last: row.get(2)?, bytes, recalled: false }))
}

/// Few are counted when they are needed; of many the row has the counts, as its last event left them.
fn count_items(tx: &Tx<'_>, row: &mut RunRow) -> Result<()> {
    let sql = "SELECT kind, status, count(*), sum(stays) FROM items WHERE run_id = ?1 GROUP BY kind, status";
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query(params![row.id()])?;
    while let Some(found) = rows.next()? {
        let (kind, status): (String, String) = (found.get(0)?, found.get(1)?);
        let counted = row.count_items((&kind, &status), found.get(2)?, found.get(3)?);
        counted.map_err(|(column, value)| damaged(column, &value))?;
    }
    Ok(())
}

fn damaged(column: &str, value: &str) -> Fault {
    let message = format!("runs.{column} holds {value:?}, which its lifecycle does not know");
    StoreError::Unusable(message).into()
}

static ITEMS: LazyLock<String> = LazyLock::new(|| {
    let columns: String = ITEM_COLUMNS.iter().map(|column| format!(", {}", column.name)).collect();
    format!("SELECT reruns{columns} FROM items")
});

pub fn items(
    tx: &Tx<'_>,
    stored: &Stored,
    condition: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<StoredItem>> {
    items_within(tx, stored, condition, values, &mut Room::unbounded())
}

/// The same, as many as there is room for.
pub fn items_within(
    tx: &Tx<'_>,
    stored: &Stored,
    condition: &str,
    values: impl rusqlite::Params,
    room: &mut Room,
) -> Result<Vec<StoredItem>> {
    let mut statement = tx.prepare(&format!("{} {condition}", *ITEMS))?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let texts = (1..=ITEM_COLUMNS.len()).map(|at| row.get_ref(at));
        if !room.has_for(texts.filter_map(|value| value.ok()?.as_bytes().ok())) {
            break;
        }
        found.push(read_item(row, stored.rid, &stored.row.lifecycle)?);
    }
    Ok(found)
}

fn read_item(row: &Row<'_>, rid: i64, lifecycle: &Lifecycle) -> Result<StoredItem> {
    let mut found = ItemRow::default();
    for (at, column) in ITEM_COLUMNS.iter().enumerate() {
        (column.set)(&mut found, layout::cell(column.kind, row.get_ref(at + 1)?)?);
    }
    let read = StoredItem::read(rid, found, row.get(0)?, lifecycle);
    read.map_err(|(column, value)| damaged(column, &value))
}
