//! Runs and items as they are read.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use tokio_postgres::Row;
use waypost_kernel::Lifecycle;
use waypost_kernel::text::MAX_PAYLOAD_BYTES;

use crate::columns::{COLUMNS, Cell, Column, Kind, RunColumn};
use crate::engine::{Stored, StoredItem};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::{Fault, Result, damaged};
use crate::postgres::sql::Columns;
use crate::rules::room::weight;
use crate::seam::run::{ITEM_COLUMNS, ItemRow, RunRow};
use crate::seam::verbs::Parts;

fn selected<R>(of: &str, column: &Column<R>) -> String {
    let cast = if column.kind.is_json() { "::text" } else { "" };
    format!("{of}.{}{cast}", column.name)
}

/// The columns of a run `r`: its number, its state, those of the table, and how many items it has in which states. The
/// items are counted in the same statement: a second one would see another instant.
pub static SELECTED: LazyLock<String> = LazyLock::new(|| selecting(Parts::ALL));
/// The same without the parts that may be large.
pub static LEAN: LazyLock<String> = LazyLock::new(|| selecting(Parts::NONE));

/// The same with those parts that are small; and, beside them, how many bytes all have, if one is not.
pub static SMALL: LazyLock<String> = LazyLock::new(|| {
    let columns = selecting_columns(|column| match Parts::NAMES.contains(&column.name) {
        true => {
            format!("CASE WHEN {} <= {SMALL_BYTES} THEN {} END", bytes(column.name), selected("r", column))
        }
        false => selected("r", column),
    });
    let all = Parts::NAMES.map(bytes);
    format!(
        "{columns}, CASE WHEN greatest({}) <= {SMALL_BYTES} THEN 0 ELSE {} END",
        all.join(", "),
        all.join(" + ")
    )
});

/// About how long the text of a part is. The server tells it only by unpacking what it has compressed, which may be a thousand times as
/// long: of what is long even so, the most that it may have is told.
fn bytes(name: &str) -> String {
    format!(
        "CASE WHEN pg_column_compression(r.{name}) IS NULL THEN 2 * coalesce(pg_column_size(r.{name}), 0) \
         WHEN pg_column_size(r.{name}) <= {UNPACKED_BYTES} THEN octet_length(r.{name}::text) ELSE {MAX_PAYLOAD_BYTES} END"
    )
}

const SMALL_BYTES: usize = 16 * 1024;
/// What is stored in as many bytes is unpacked.
const UNPACKED_BYTES: usize = 8 * 1024;

fn selecting(parts: Parts) -> String {
    selecting_columns(|column| match parts.leaves_out(column.name) {
        true => "NULL::text".to_owned(),
        false => selected("r", column),
    })
}

fn selecting_columns(column: impl Fn(&RunColumn) -> String) -> String {
    let columns: Vec<String> = COLUMNS.iter().map(column).collect();
    format!(
        "r.rid, r.state, {}, CASE WHEN r.tally IS NOT NULL THEN r.tally::text WHEN r.item_count > 0 THEN (SELECT json_agg(json_build_array(c.kind, c.status, c.n, c.stays))::text \
         FROM (SELECT i.kind, i.status, count(*) AS n, count(*) FILTER (WHERE i.stays) AS stays FROM waypost.items i \
         WHERE i.rid = r.rid GROUP BY i.kind, i.status) c) END",
        columns.join(", ")
    )
}

/// The large parts of a run `r` that are asked for: its number, and they in the order of the table.
pub fn selecting_parts(parts: Parts) -> String {
    let asked = COLUMNS.iter().filter(|column| parts.has(column.name));
    let asked: String = asked.map(|column| format!(", {}", selected("r", column))).collect();
    format!("r.rid{asked}")
}

/// Gives a run its parts, as they were selected.
pub fn set_parts(run: &mut RunRow, parts: Parts, row: &Row) -> Result<()> {
    let asked = COLUMNS.iter().filter(|column| parts.has(column.name));
    for (at, column) in asked.enumerate() {
        (column.set)(run, cell(&Columns(row), column.kind, at + 1)?);
    }
    Ok(())
}

/// The texts of a row of parts.
pub fn texts(row: &Row) -> impl Iterator<Item = &[u8]> {
    let texts = (1..row.len()).map(|at| row.try_get::<_, Option<&str>>(at));
    texts.filter_map(|text| Some(text.ok()??.as_bytes()))
}

/// A run whose columns begin at `from`. None: its lifecycle is unknown here.
pub fn run(known: &LifecycleCodes, row: &Row, from: usize) -> Result<Option<Stored>> {
    let columns = Columns(row);
    let Some((lifecycle, state)) = known.state(columns.get(from + 1)?) else { return Ok(None) };
    let mut run = RunRow::blank(lifecycle.clone(), *state);
    let mut bytes = 0;
    for (at, column) in COLUMNS.iter().enumerate() {
        let cell = cell(&columns, column.kind, from + 2 + at)?;
        if let (true, Cell::Text(text)) = (column.kind.is_json(), &cell) {
            bytes += weight(text.as_bytes());
        }
        (column.set)(&mut run, cell);
    }
    count_items(&mut run, columns.get(from + 2 + COLUMNS.len())?)?;
    Ok(Some(Stored { rid: columns.get(from)?, row: Arc::new(run), last: None, bytes, recalled: false }))
}

/// What of its row a run does not have: a line for each value that cannot be read.
pub fn unread(run: &RunRow, row: &Row) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (at, column) in COLUMNS.iter().enumerate() {
        if let Cell::Text(text) = cell(&Columns(row), column.kind, 2 + at)? {
            lines.extend(column.unread(run, &text));
        }
    }
    Ok(lines)
}

/// Of a row of [`SMALL`]: about how many bytes its parts have, if some of them are large and were left out.
pub fn left_out(row: &Row, from: usize) -> Result<Option<usize>> {
    let bytes: i32 = Columns(row).get(from + 3 + COLUMNS.len())?;
    Ok(Some(bytes.unsigned_abs() as usize).filter(|bytes| *bytes > 0))
}

fn cell<'r>(columns: &Columns<'r>, kind: Kind, at: usize) -> Result<Cell<'r>> {
    Ok(match kind {
        Kind::Flag => columns.get::<Option<bool>>(at)?.map_or(Cell::Null, Cell::Flag),
        Kind::Int2 => {
            columns.get::<Option<i16>>(at)?.map_or(Cell::Null, |number| Cell::Number(number.into()))
        }
        Kind::Int4 => {
            columns.get::<Option<i32>>(at)?.map_or(Cell::Null, |number| Cell::Number(number.into()))
        }
        Kind::Int8 => columns.get::<Option<i64>>(at)?.map_or(Cell::Null, Cell::Number),
        Kind::Time => columns.time(at)?.map_or(Cell::Null, Cell::Time),
        Kind::Token => columns.token(at)?.map_or(Cell::Null, Cell::Token),
        Kind::Text | Kind::Json | Kind::Jsonb => {
            columns.get::<Option<&str>>(at)?.map_or(Cell::Null, |text| Cell::Text(Cow::Borrowed(text)))
        }
    })
}

/// Few are counted when they are needed; of many the row has the counts, as its last event left them.
fn count_items(run: &mut RunRow, counted: Option<&str>) -> Result<()> {
    let counted = counted.map_or(Ok(()), |text| run.take_tally(text));
    counted.map_err(|(column, value)| unknown(column, &value))
}

fn unknown(column: &str, value: &str) -> Fault {
    damaged(&format!("{column} holds {value:?}, which its lifecycle does not know"))
}

/// The columns of an item `i`: its run, whether it runs again on resume, and those of the table.
pub static ITEM_SELECTED: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<String> = ITEM_COLUMNS.iter().map(|column| selected("i", column)).collect();
    format!("i.rid, i.reruns, {}", columns.join(", "))
});

pub fn item_rid(row: &Row) -> Result<i64> {
    Columns(row).get(0)
}

pub fn item(row: &Row, lifecycle: &Lifecycle) -> Result<StoredItem> {
    item_from(row, 0, lifecycle)
}

/// An item whose columns begin at `from`.
pub fn item_from(row: &Row, from: usize, lifecycle: &Lifecycle) -> Result<StoredItem> {
    let columns = Columns(row);
    let mut found = ItemRow::default();
    for (at, column) in ITEM_COLUMNS.iter().enumerate() {
        (column.set)(&mut found, cell(&columns, column.kind, from + at + 2)?);
    }
    let read = StoredItem::read(columns.get(from)?, found, columns.get(from + 1)?, lifecycle);
    read.map_err(|(column, value)| unknown(column, &value))
}
