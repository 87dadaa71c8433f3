//! From columns to rows. One list of columns for all reads of runs, so that a place is written once.

use rusqlite::{Row, params};
use serde_json::{Map, Value};
use waypost_kernel::item::Item;
use waypost_kernel::tally::Tally;
use waypost_kernel::{Failure, Lease, Lifecycle, Run, Span, Time, Token};

use super::open::database;
use super::session::Tx;
use crate::codec;
use crate::error::{Result, StoreError};
use crate::run::{ItemRow, RunRow, parse_time};

pub const COLUMNS: &str = "rid, run_id, tenant, lifecycle, version, status, queue, priority, seq, attempt, max_attempts, \
  take_overs, fence, lease_token, claimed_by, lease_ms, stale_after, ended_by, last_command, intent, owes_cleanup, \
  cleanup_failed, operating, reentrant, resolved, forced, reason, error_code, error_msg, queued_at, started_at, \
  finished_at, schedule_at, available_at, expires_at, concurrency_key, correlation_id, idempotency_key, \
  parent_run_id, retry_of, playbook, carried, item_count, input, metadata, details";

/// A run and its place in the table.
#[derive(Clone, Debug)]
pub struct Stored {
    pub rid: i64,
    pub row: RunRow,
}

pub fn by_id(tx: &Tx<'_>, run_id: &str) -> Result<Stored> {
    let mut found = select(tx, "WHERE run_id = ?1", params![run_id])?;
    found.pop().ok_or_else(|| StoreError::no_run(run_id))
}

/// All runs that a condition finds. Those of a lifecycle that this binary cannot read are left out.
pub fn select(tx: &Tx<'_>, condition: &str, values: impl rusqlite::Params) -> Result<Vec<Stored>> {
    let sql = format!("SELECT {COLUMNS} FROM runs {condition}");
    let mut statement = tx.conn.prepare_cached(&sql).map_err(|error| database(&error))?;
    let mut rows = statement.query(values).map_err(|error| database(&error))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| database(&error))? {
        found.extend(read(tx, row)?);
    }
    Ok(found)
}

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Result<Option<Stored>> {
    let columns = Columns(row);
    let (name, version): (String, u32) = (columns.get(3)?, columns.get(4)?);
    let lifecycle = match tx.lifecycle(&name, version) {
        Ok(lifecycle) => lifecycle,
        Err(_) => return Ok(None),
    };
    let tallies = tallies(tx, &columns, &lifecycle)?;
    let run = kernel_run(&columns, &lifecycle, tallies)?;
    Ok(Some(Stored {
        rid: columns.get(0)?,
        row: RunRow {
            run,
            lifecycle,
            tenant: columns.get(2)?,
            queue: columns.get(6)?,
            priority: columns.get(7)?,
            schedule_at: columns.time(32)?,
            concurrency_key: columns.get(35)?,
            correlation_id: columns.get(36)?,
            idempotency_key: columns.get(37)?,
            parent_run_id: columns.get(38)?,
            retry_of: columns.get(39)?,
            playbook: columns.get(40)?,
            carried: columns.get::<Option<String>>(41)?.map(|text| json(&text)),
            input: json(&columns.get::<String>(43)?),
            metadata: object(&columns.get::<String>(44)?),
            details: object(&columns.get::<String>(45)?),
        },
    }))
}

fn kernel_run(columns: &Columns<'_, '_>, lifecycle: &Lifecycle, tallies: Vec<Tally>) -> Result<Run> {
    let status: String = columns.get(5)?;
    let state = lifecycle.state_named(&status).ok_or_else(|| damaged("status", &status))?;
    let intent: Option<String> = columns.get(19)?;
    let ended_by: Option<String> = columns.get(17)?;
    Ok(Run {
        id: columns.get::<String>(1)?.into(),
        state,
        seq: columns.get(8)?,
        attempt: columns.get(9)?,
        max_attempts: columns.get(10)?,
        take_overs: columns.get(11)?,
        fence: columns.get(12)?,
        lease: lease(columns)?,
        ended_by: ended_by.as_deref().and_then(codec::token_from),
        last_command: columns.get::<String>(18)?.into(),
        intent: intent.and_then(|text| codec::intent_from(&json(&text), lifecycle)),
        owes_cleanup: columns.get(20)?,
        cleanup_failed: columns.get(21)?,
        operating: columns.get(22)?,
        reentrant: columns.get(23)?,
        resolved: columns.get(24)?,
        forced: columns.get(25)?,
        reason: columns.get::<Option<String>>(26)?.map(Into::into),
        failure: failure(columns, 27)?,
        created_at: columns.time(29)?.unwrap_or_default(),
        started_at: columns.time(30)?,
        finished_at: columns.time(31)?,
        available_at: columns.time(33)?,
        expires_at: columns.time(34)?,
        tallies,
    })
}

/// Counted when they are needed: a number kept beside the items could be wrong.
fn tallies(tx: &Tx<'_>, columns: &Columns<'_, '_>, lifecycle: &Lifecycle) -> Result<Vec<Tally>> {
    let mut tallies: Vec<Tally> = lifecycle.items.iter().map(|kind| Tally::new(kind)).collect();
    if columns.get::<i64>(42)? == 0 {
        return Ok(tallies);
    }
    let sql = "SELECT kind, status, count(*), sum(stays) FROM items WHERE run_id = ?1 GROUP BY kind, status";
    let mut statement = tx.conn.prepare_cached(sql).map_err(|error| database(&error))?;
    let mut rows = statement.query(params![columns.get::<String>(1)?]).map_err(|error| database(&error))?;
    while let Some(row) = rows.next().map_err(|error| database(&error))? {
        let found = Columns(row);
        let (kind, status): (String, String) = (found.get(0)?, found.get(1)?);
        let place = lifecycle.items.iter().position(|known| *known.name == *kind);
        let place = place.ok_or_else(|| damaged("kind", &kind))?;
        let state = lifecycle.items[place].state_named(&status).ok_or_else(|| damaged("item", &status))?;
        tallies[place].by_state[usize::from(state.0)] = found.get(2)?;
        tallies[place].staying[usize::from(state.0)] = found.get(3)?;
    }
    Ok(tallies)
}

fn lease(columns: &Columns<'_, '_>) -> Result<Option<Lease>> {
    let Some(token) = columns.get::<Option<String>>(13)? else { return Ok(None) };
    // A token that somebody typed in by hand is one that no worker can have.
    let token = codec::token_from(&token).unwrap_or(Token(0));
    Ok(Some(Lease {
        token,
        worker: columns.get::<Option<String>>(14)?.map(Into::into),
        length: Span::from_ms(columns.get::<Option<i64>>(15)?.unwrap_or(60_000)),
        until: columns.time(16)?.unwrap_or_default(),
    }))
}

/// The code's column; the message is the next one.
fn failure(columns: &Columns<'_, '_>, at: usize) -> Result<Option<Failure>> {
    let (code, message): (Option<String>, Option<String>) = (columns.get(at)?, columns.get(at + 1)?);
    Ok(code.map(|code| Failure::new(&code, &message.unwrap_or_default())))
}

fn damaged(column: &str, value: &str) -> StoreError {
    StoreError::Unusable(format!("runs.{column} holds {value:?}, which its lifecycle does not know"))
}

struct Columns<'r, 's>(&'r Row<'s>);

impl Columns<'_, '_> {
    fn get<T: rusqlite::types::FromSql>(&self, at: usize) -> Result<T> {
        self.0.get(at).map_err(|error| database(&error))
    }

    fn time(&self, at: usize) -> Result<Option<Time>> {
        let text: Option<String> = self.get(at)?;
        Ok(text.and_then(|text| parse_time(&text)))
    }
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

pub fn object(text: &str) -> Map<String, Value> {
    if text == "{}" {
        return Map::new();
    }
    match json(text) {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

const ITEM_COLUMNS: &str = "kind, key, name, status, attempts, max_retries, try_no, progress, not_before, discarded, reruns, \
  error_code, error_msg, started_at, finished_at, output, details";

/// An item as the kernel decides on it, and as callers see it.
#[derive(Clone, Debug)]
pub struct StoredItem {
    pub item: Item,
    pub row: ItemRow,
}

pub fn items(
    tx: &Tx<'_>,
    lifecycle: &Lifecycle,
    condition: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<StoredItem>> {
    let sql = format!("SELECT {ITEM_COLUMNS} FROM items {condition}");
    let mut statement = tx.conn.prepare_cached(&sql).map_err(|error| database(&error))?;
    let mut rows = statement.query(values).map_err(|error| database(&error))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| database(&error))? {
        found.push(read_item(&Columns(row), lifecycle)?);
    }
    Ok(found)
}

fn read_item(columns: &Columns<'_, '_>, lifecycle: &Lifecycle) -> Result<StoredItem> {
    let row = ItemRow {
        kind: columns.get(0)?,
        key: columns.get(1)?,
        name: columns.get(2)?,
        status: columns.get(3)?,
        attempts: columns.get(4)?,
        max_retries: columns.get(5)?,
        try_no: columns.get(6)?,
        progress: columns.get(7)?,
        not_before: columns.time(8)?,
        discarded: columns.get(9)?,
        failure: failure(columns, 11)?,
        started_at: columns.time(13)?,
        finished_at: columns.time(14)?,
        output: columns.get::<Option<String>>(15)?.map_or(Value::Null, |text| json(&text)),
        details: object(&columns.get::<String>(16)?),
    };
    let kind = lifecycle.items.iter().position(|kind| *kind.name == *row.kind);
    let kind = kind.ok_or_else(|| damaged("kind", &row.kind))?;
    let state = lifecycle.items[kind].state_named(&row.status).ok_or_else(|| damaged("item", &row.status))?;
    let item = Item {
        kind: kind as u8,
        key: row.key.as_str().into(),
        state,
        attempts: row.attempts,
        max_retries: row.max_retries,
        try_no: row.try_no,
        not_before: row.not_before,
        discarded: row.discarded,
        reruns: columns.get(10)?,
        progress: row.progress,
        failure: row.failure.clone(),
        started_at: row.started_at,
        finished_at: row.finished_at,
    };
    Ok(StoredItem { item, row })
}
