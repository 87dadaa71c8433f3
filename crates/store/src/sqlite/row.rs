//! From columns to rows. One list of columns for all reads of runs, so that a place is written once.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
use serde_json::{Map, Value};
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::StateId;
use waypost_kernel::tally::Tallies;
use waypost_kernel::{Failure, Lease, Lifecycle, Phase, Run, Span, Time, Token};

use super::fault::{Fault, Result};
use super::session::Tx;
use crate::codec;
use crate::engine::{Stored, StoredItem};
use crate::error::StoreError;
use crate::run::{self, ItemRow, RunRow, parse_time};

const COLUMNS: &str = "n.rid, n.state, n.seq, n.queue, n.priority, n.due_at, n.attempt, n.take_overs, n.fence, n.token, \
  n.claimed_by, n.lease_ms, n.last_command, n.started_at, n.finished_at, n.expires_at, n.concurrency_key, n.items, \
  n.flags, n.intent, n.reason, n.error_code, n.error_msg, coalesce(n.metadata, b.metadata), \
  coalesce(n.details, b.details), b.run_id, b.tenant, b.at, b.max_attempts, b.reentrant, b.schedule_at, \
  b.correlation_id, b.idempotency_key, b.parent_run_id, b.retry_of, b.playbook, b.carried, b.input, n.last";

/// The bits of `run_now.flags`.
pub const OWES_CLEANUP: i64 = 1;
pub const CLEANUP_FAILED: i64 = 2;
pub const OPERATING: i64 = 4;
pub const RESOLVED: i64 = 8;
pub const FORCED: i64 = 16;

pub fn find(tx: &Tx<'_>, run_id: &str) -> Result<Option<Stored>> {
    if let Some(kept) = tx.kept.rows.borrow_mut().take_id(run_id) {
        return Ok(Some(kept));
    }
    let from = "run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.run_id = ?1";
    Ok(select(tx, from, params![run_id])?.pop())
}

pub fn by_id(tx: &Tx<'_>, run_id: &str) -> Result<Stored> {
    find(tx, run_id)?.ok_or_else(|| StoreError::no_run(run_id).into())
}

/// Nothing if this binary cannot read its lifecycle.
pub fn by_rid(tx: &Tx<'_>, rid: i64) -> Result<Option<Stored>> {
    if let Some(kept) = tx.kept.rows.borrow_mut().take(rid) {
        return Ok(Some(kept));
    }
    Ok(select(tx, &format!("{BOTH} WHERE n.rid = ?1"), params![rid])?.pop())
}

/// Times and the places of the runs that they are of, as an index lists them.
pub fn places(tx: &Tx<'_>, sql: &str, values: impl rusqlite::Params) -> Result<Vec<(i64, i64)>> {
    Ok(tx.list(sql, values, |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Both tables of a run, from the one that moves to the one that stays.
pub const BOTH: &str = "run_now n CROSS JOIN run_born b ON b.rid = n.rid";

/// All runs that a condition finds. Those of a lifecycle that this binary cannot read are left out.
pub fn select(tx: &Tx<'_>, from: &str, values: impl rusqlite::Params) -> Result<Vec<Stored>> {
    let sql = format!("SELECT {COLUMNS} FROM {from}");
    let mut statement = tx.prepare(&sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(read(tx, row)?);
    }
    Ok(found)
}

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Result<Option<Stored>> {
    let columns = Columns(row);
    let Some((lifecycle, state)) = tx.named(columns.get(1)?)?.of else { return Ok(None) };
    let tallies = tallies(tx, &columns, &lifecycle)?;
    let run = kernel_run(&columns, &lifecycle, state, tallies)?;
    let texts = [columns.text(37)?, columns.text(23)?, columns.text(24)?, columns.text(36)?];
    Ok(Some(Stored {
        rid: columns.get(0)?,
        last: columns.get(38)?,
        recalled: false,
        bytes: texts.iter().flatten().map(|text| text.len()).sum(),
        row: Arc::new(RunRow {
            run,
            lifecycle,
            tenant: columns.get(26)?,
            queue: columns.get(3)?,
            priority: columns.get(4)?,
            schedule_at: columns.ms(30)?,
            concurrency_key: columns.get(16)?,
            correlation_id: columns.get(31)?,
            idempotency_key: columns.get(32)?,
            parent_run_id: columns.get(33)?,
            retry_of: columns.get(34)?,
            playbook: columns.get(35)?,
            carried: texts[3].map(json),
            input: texts[0].map_or(Value::Null, json).into(),
            metadata: run::shared(texts[1].map(object).unwrap_or_default()),
            details: run::shared(texts[2].map(object).unwrap_or_default()),
        }),
    }))
}

fn kernel_run(
    columns: &Columns<'_, '_>,
    lifecycle: &Lifecycle,
    state: StateId,
    tallies: Tallies,
) -> Result<Run> {
    let held = lifecycle.phase(state) == Phase::Held;
    let flags: i64 = columns.get(18)?;
    let token = columns.token(9)?;
    let due_at = columns.ms(5)?;
    let lease = |token| -> Result<Lease> {
        Ok(Lease {
            token,
            worker: columns.text(10)?.map(Into::into),
            length: Span::from_ms(columns.get::<Option<i64>>(11)?.unwrap_or(60_000)),
            until: due_at.unwrap_or_default(),
        })
    };
    Ok(Run {
        id: columns.text(25)?.unwrap_or_default().into(),
        state,
        seq: columns.get(2)?,
        attempt: columns.get(6)?,
        max_attempts: columns.get(28)?,
        take_overs: columns.get(7)?,
        fence: columns.get(8)?,
        lease: token.filter(|_| held).map(lease).transpose()?,
        ended_by: token.filter(|_| !held),
        last_command: columns.text(12)?.unwrap_or_default().into(),
        intent: columns.text(19)?.and_then(|text| codec::intent_from(&json(text), lifecycle)),
        owes_cleanup: flags & OWES_CLEANUP != 0,
        cleanup_failed: flags & CLEANUP_FAILED != 0,
        operating: flags & OPERATING != 0,
        reentrant: columns.get(29)?,
        resolved: flags & RESOLVED != 0,
        forced: flags & FORCED != 0,
        reason: columns.text(20)?.map(Into::into),
        failure: failure(columns, 21)?,
        created_at: columns.ms(27)?.unwrap_or_default(),
        started_at: columns.ms(13)?,
        finished_at: columns.ms(14)?,
        available_at: due_at.filter(|_| !held),
        expires_at: columns.ms(15)?,
        tallies,
    })
}

/// Counted when they are needed: a number kept beside the items could be wrong.
fn tallies(tx: &Tx<'_>, columns: &Columns<'_, '_>, lifecycle: &Lifecycle) -> Result<Tallies> {
    let mut tallies = lifecycle.no_items.clone();
    if columns.get::<i64>(17)? == 0 {
        return Ok(tallies);
    }
    let sql = "SELECT kind, status, count(*), sum(stays) FROM items WHERE run_id = ?1 GROUP BY kind, status";
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query(params![columns.text(25)?])?;
    while let Some(row) = rows.next()? {
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

/// The code's column; the message is the next one.
fn failure(columns: &Columns<'_, '_>, at: usize) -> Result<Option<Failure>> {
    let (code, message): (Option<String>, Option<String>) = (columns.get(at)?, columns.get(at + 1)?);
    Ok(code.map(|code| Failure::new(&code, &message.unwrap_or_default())))
}

fn damaged(column: &str, value: &str) -> Fault {
    let message = format!("runs.{column} holds {value:?}, which its lifecycle does not know");
    StoreError::Unusable(message).into()
}

struct Columns<'r, 's>(&'r Row<'s>);

impl Columns<'_, '_> {
    fn get<T: rusqlite::types::FromSql>(&self, at: usize) -> Result<T> {
        Ok(self.0.get(at)?)
    }

    fn text(&self, at: usize) -> Result<Option<&str>> {
        let value = self.0.get_ref(at)?;
        Ok(value.as_str_or_null().map_err(rusqlite::Error::from)?)
    }

    fn ms(&self, at: usize) -> Result<Option<Time>> {
        Ok(self.get::<Option<i64>>(at)?.map(Time::from_ms))
    }

    /// A token that somebody typed in by hand may be one that no worker can have.
    fn token(&self, at: usize) -> Result<Option<Token>> {
        Ok(match self.0.get_ref(at)? {
            ValueRef::Null => None,
            ValueRef::Blob(bytes) => {
                Some(bytes.try_into().map_or(Token(0), |bytes| Token(u128::from_be_bytes(bytes))))
            }
            ValueRef::Text(text) => {
                Some(std::str::from_utf8(text).ok().and_then(codec::token_from).unwrap_or(Token(0)))
            }
            _ => Some(Token(0)),
        })
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

/// An object as it is written.
pub fn text(map: &Map<String, Value>) -> String {
    if map.is_empty() { "{}".into() } else { serde_json::to_string(map).unwrap_or_else(|_| "{}".into()) }
}

const ITEM_COLUMNS: &str = "kind, key, name, status, attempts, max_retries, try_no, progress, not_before, discarded, reruns, \
  error_code, error_msg, started_at, finished_at, output, details, role";

pub fn items(
    tx: &Tx<'_>,
    stored: &Stored,
    condition: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<StoredItem>> {
    let sql = format!("SELECT {ITEM_COLUMNS} FROM items {condition}");
    let mut statement = tx.prepare(&sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read_item(&Columns(row), stored)?);
    }
    Ok(found)
}

fn read_item(columns: &Columns<'_, '_>, stored: &Stored) -> Result<StoredItem> {
    let lifecycle = &stored.row.lifecycle;
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
        role: Role::named(&columns.get::<String>(17)?).unwrap_or_default(),
        failure: failure(columns, 11)?,
        started_at: columns.time(13)?,
        finished_at: columns.time(14)?,
        output: columns.get::<Option<String>>(15)?.map_or(Value::Null, |text| json(&text)),
        details: object(&columns.get::<String>(16)?),
    };
    let read = StoredItem::read(stored.rid, row, columns.get(10)?, lifecycle);
    read.map_err(|(column, value)| damaged(column, &value))
}
