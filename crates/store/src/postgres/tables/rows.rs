//! Runs and items as they are read.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::item::Role;
use waypost_kernel::tally::Tallies;
use waypost_kernel::{Failure, Lifecycle};

use super::super::fault::{Fault, Result, damaged};
use super::super::known::Known;
use super::super::row::{json, object};
use super::super::sql::Columns;
use crate::columns::{COLUMNS, Cell, Kind};
use crate::engine::{Stored, StoredItem};
use crate::run::{ItemRow, RunRow};

/// The columns of a run `r`: its number, its state, those of the table, and how many items it has in which states. The
/// items are counted in the same statement: a second one would see another instant.
pub static SELECTED: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|column| match column.kind {
            Kind::Json | Kind::Jsonb => format!("r.{}::text", column.name),
            _ => format!("r.{}", column.name),
        })
        .collect();
    format!(
        "r.rid, r.state, {}, CASE WHEN r.item_count > 0 THEN (SELECT json_agg(json_build_array(c.kind, c.status, c.n, c.stays))::text \
         FROM (SELECT i.kind, i.status, count(*) AS n, count(*) FILTER (WHERE i.stays) AS stays FROM waypost.items i \
         WHERE i.rid = r.rid GROUP BY i.kind, i.status) c) END",
        columns.join(", ")
    )
});

/// A run whose columns begin at `from`. None: its lifecycle is unknown here.
pub fn run(known: &Known, row: &Row, from: usize) -> Result<Option<Stored>> {
    let columns = Columns(row);
    let Some((lifecycle, state)) = known.state(columns.get(from + 1)?) else { return Ok(None) };
    let mut run = RunRow::blank(lifecycle.clone(), *state);
    for (at, column) in COLUMNS.iter().enumerate() {
        (column.set)(&mut run, cell(&columns, column.kind, from + 2 + at)?);
    }
    run.run.tallies = tallies(columns.get(from + 2 + COLUMNS.len())?, lifecycle)?;
    Ok(Some(Stored { rid: columns.get(from)?, row: Arc::new(run), last: None, bytes: 0, recalled: false }))
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

/// Counted when they are needed: a number kept beside the items could be wrong.
fn tallies(counted: Option<&str>, lifecycle: &Lifecycle) -> Result<Tallies> {
    let mut tallies = lifecycle.no_items.clone();
    let counted: Vec<(String, String, u32, u32)> = match counted {
        None => return Ok(tallies),
        Some(text) => serde_json::from_str(text).map_err(|error| damaged(&error.to_string()))?,
    };
    for (kind, status, count, staying) in counted {
        let place = lifecycle.items.iter().position(|known| *known.name == *kind);
        let place = place.ok_or_else(|| unknown("kind", &kind))?;
        let state = lifecycle.items[place].state_named(&status).ok_or_else(|| unknown("item", &status))?;
        tallies[place].by_state[usize::from(state.0)] = count;
        tallies[place].staying[usize::from(state.0)] = staying;
    }
    Ok(tallies)
}

fn unknown(column: &str, value: &str) -> Fault {
    damaged(&format!("{column} holds {value:?}, which its lifecycle does not know"))
}

/// The columns of an item `i`.
pub const ITEM_COLUMNS: &str = "i.kind, i.key, i.name, i.status, i.attempts, i.max_retries, i.try_no, i.progress, i.not_before, i.discarded, \
  i.reruns, i.error_code, i.error_msg, i.started_at, i.finished_at, i.output::text, i.details::text, i.rid, i.role";

pub fn item_rid(row: &Row) -> Result<i64> {
    Columns(row).get(17)
}

pub fn item(row: &Row, lifecycle: &Lifecycle) -> Result<StoredItem> {
    let columns = Columns(row);
    let number = |at: usize| Ok::<u32, Fault>(columns.get::<i32>(at)?.unsigned_abs());
    let code: Option<&str> = columns.get(11)?;
    let message: Option<&str> = columns.get(12)?;
    let row = ItemRow {
        kind: columns.get(0)?,
        key: columns.get(1)?,
        name: columns.get(2)?,
        status: columns.get(3)?,
        attempts: number(4)?,
        max_retries: number(5)?,
        try_no: number(6)?,
        progress: columns.get::<i16>(7)? as u8,
        not_before: columns.time(8)?,
        discarded: columns.get(9)?,
        role: Role::named(columns.get(18)?).unwrap_or_default(),
        failure: code.map(|code| Failure::new(code, message.unwrap_or_default())),
        started_at: columns.time(13)?,
        finished_at: columns.time(14)?,
        output: columns.get::<Option<&str>>(15)?.map_or(Value::Null, json),
        details: object(columns.get(16)?),
    };
    let read = StoredItem::read(columns.get(17)?, row, columns.get(10)?, lifecycle);
    read.map_err(|(column, value)| unknown(column, &value))
}
