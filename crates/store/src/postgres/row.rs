//! Rows that are looked up within a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::Lifecycle;
use waypost_kernel::text::MAX_PAYLOAD_BYTES;

use crate::columns::parse;
use crate::engine::{Stored, StoredItem};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result;
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Args, Columns, args};
use crate::postgres::tables::rows;
use crate::rules::room::Room;
use crate::seam::error::StoreError;
use crate::seam::verbs::{PAGE_BYTES, Parts};

pub async fn by_id(tx: &Tx, run_id: &str) -> Result<Stored> {
    let found = match is_askable(run_id) {
        true => select(tx, "FROM waypost.runs r WHERE r.run_id = $1", args![run_id]).await?.pop(),
        false => None,
    };
    Ok(found.ok_or_else(|| StoreError::no_run(run_id))?)
}

/// Ids that the database cannot hold, or nobody made, are not.
pub fn is_askable(id: &str) -> bool {
    !id.is_empty() && id.len() <= 512 && !id.contains('\0')
}

/// Each with what of its row cannot be read.
pub async fn with_unread(tx: &Tx, rids: &[i64]) -> Result<Vec<(Stored, Vec<String>)>> {
    let read = |known: &LifecycleCodes, row: &Row| match rows::run(known, row, 0)? {
        Some(stored) => rows::unread(&stored.row, row).map(|lines| Some((stored, lines))),
        None => Ok(None),
    };
    let condition = "FROM waypost.runs r WHERE r.rid = ANY ($1)";
    select_columns(tx, &rows::SELECTED, condition, args![rids.to_vec()], read).await
}

/// All runs `r` that a condition finds. Those of a lifecycle that this binary cannot read are left out.
pub async fn select(tx: &Tx, condition: &str, values: &Args<'_>) -> Result<Vec<Stored>> {
    select_columns(tx, &rows::SELECTED, condition, values, run).await
}

/// The same without the parts that may be large.
pub async fn select_lean(tx: &Tx, condition: &str, values: &Args<'_>) -> Result<Vec<Stored>> {
    select_columns(tx, &rows::LEAN, condition, values, run).await
}

fn run(known: &LifecycleCodes, row: &Row) -> Result<Option<Stored>> {
    rows::run(known, row, 0)
}

async fn select_columns<T>(
    tx: &Tx,
    columns: &str,
    condition: &str,
    values: &Args<'_>,
    read: impl Fn(&LifecycleCodes, &Row) -> Result<Option<T>>,
) -> Result<Vec<T>> {
    let found = tx.query(&format!("SELECT {columns} {condition}"), values).await?;
    let codes = found.iter().map(|row| Columns(row).get::<i16>(1)).collect::<Result<Vec<_>>>()?;
    let known = tx.known_with(codes).await?;
    let read = found.iter().map(|row| read(&known, row)).collect::<Result<Vec<_>>>()?;
    Ok(read.into_iter().flatten().collect())
}

/// How many times its stored size a compressed value may have at most.
const MOST_COMPRESSED: usize = 256;
/// What is asked for at once, by such a guess.
const ASKED_BYTES: usize = 2 * PAGE_BYTES;

/// Gives runs the parts that are asked for, as far as a page has room for them; whether some had to be left out. How long a
/// value is the server tells only by unpacking it, so that no more are asked for at a time than may be held here.
pub async fn fill_in(tx: &Tx, parts: Parts, found: &mut Vec<Stored>) -> Result<bool> {
    let rids: Vec<i64> = found.iter().map(|stored| stored.rid).collect();
    let size = |name: &&str| format!("coalesce(pg_column_size(r.{name}), 0)");
    let asked: Vec<&str> = Parts::NAMES.into_iter().filter(|name| parts.has(name)).collect();
    let sizes = asked.iter().map(size).collect::<Vec<_>>().join(" + ");
    let sql = format!("SELECT r.rid, ({sizes})::bigint FROM waypost.runs r WHERE r.rid = ANY ($1)");
    let mut sizes = HashMap::new();
    for row in tx.query(&sql, args![rids]).await? {
        sizes.insert(Columns(&row).get::<i64>(0)?, Columns(&row).get::<i64>(1)?.unsigned_abs() as usize);
    }
    let guess = |rid: &i64| {
        let stored = sizes.get(rid).copied().unwrap_or_default();
        stored.saturating_mul(MOST_COMPRESSED).min(asked.len() * MAX_PAYLOAD_BYTES)
    };
    let sql = format!("SELECT {} FROM waypost.runs r WHERE r.rid = ANY ($1)", rows::selecting_parts(parts));
    let mut room = Room::of_a_page();
    let mut filled = 0;
    while filled < found.len() {
        let mut bytes = 0;
        let fits = |rid: &&i64| {
            bytes += guess(rid);
            bytes <= ASKED_BYTES
        };
        let count = rids[filled..].iter().take_while(fits).count().max(1);
        let mut rows: HashMap<i64, Row> = HashMap::new();
        for row in tx.query(&sql, args![rids[filled..filled + count].to_vec()]).await? {
            rows.insert(Columns(&row).get(0)?, row);
        }
        for stored in &mut found[filled..filled + count] {
            let Some(row) = rows.remove(&stored.rid) else { continue };
            if !room.has_for(rows::texts(&row)) {
                found.truncate(filled);
                return Ok(true);
            }
            rows::set_parts(Arc::make_mut(&mut stored.row), parts, &row)?;
            filled += 1;
        }
    }
    Ok(false)
}

/// Items `i` that a condition finds; `of` gives the lifecycle of their run.
pub async fn items<'l>(
    tx: &Tx,
    condition: &str,
    values: &Args<'_>,
    of: impl Fn(i64) -> Option<&'l Lifecycle>,
) -> Result<Vec<StoredItem>> {
    let sql = format!("SELECT {} FROM waypost.items i {condition}", *rows::ITEM_SELECTED);
    let found = tx.query(&sql, values).await?;
    let mut items = Vec::with_capacity(found.len());
    for row in &found {
        if let Some(lifecycle) = of(rows::item_rid(row)?) {
            items.push(rows::item(row, lifecycle)?);
        }
    }
    Ok(items)
}

/// A number as it comes back out of `jsonb`, which writes no exponents: what the log has as `1e16`, the row has as a
/// whole number.
pub fn as_stored(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            if let Some(plain) = text.contains('e').then(|| without_exponent(&text)).flatten() {
                *value = parse(&plain);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(as_stored),
        Value::Object(members) => members.values_mut().for_each(as_stored),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn without_exponent(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = whole.len() as i32 + exponent;
    Some(if point <= 0 {
        format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize))
    } else if point as usize >= digits.len() {
        format!("{sign}{digits}{}", "0".repeat(point as usize - digits.len()))
    } else {
        let (before, after) = digits.split_at(point as usize);
        format!("{sign}{before}.{after}")
    })
}
