//! From columns to rows. One list of columns for all reads of runs, so that a place is written once.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_postgres::Row;
use waypost_kernel::item::{Item, Role};
use waypost_kernel::run::Text;
use waypost_kernel::tally::Tallies;
use waypost_kernel::{Failure, Lease, Lifecycle, Run, Span, Time};

use super::fault::{Fault, Result, damaged};
use super::known::Known;
use super::session::Tx;
use super::sql::{Args, Columns, args};
use crate::codec;
use crate::error::StoreError;
use crate::run::{self, ItemRow, RunRow};

/// The items are counted in the same statement: a second one would see another instant.
pub const COLUMNS: &str = "r.rid, r.run_id, r.tenant, r.state, r.counted, r.queue, r.priority, r.seq, r.attempt, r.max_attempts, \
  r.take_overs, r.fence, r.lease_token, r.claimed_by, r.lease_ms, r.stale_after, r.ended_by, r.last_command, r.intent::text, r.owes_cleanup, \
  r.cleanup_failed, r.operating, r.reentrant, r.resolved, r.forced, r.reason, r.error_code, r.error_msg, r.queued_at, r.started_at, \
  r.finished_at, r.schedule_at, r.available_at, r.expires_at, r.concurrency_key, r.correlation_id, r.idempotency_key, \
  r.parent_run_id, r.retry_of, r.playbook, r.carried::text, r.input::text, r.metadata::text, r.details::text, \
  CASE WHEN r.item_count > 0 THEN (SELECT json_agg(json_build_array(c.kind, c.status, c.n, c.stays))::text FROM \
    (SELECT i.kind, i.status, count(*) AS n, count(*) FILTER (WHERE i.stays) AS stays FROM waypost.items i \
     WHERE i.rid = r.rid GROUP BY i.kind, i.status) c) END";

/// A run and its place in the table.
#[derive(Clone, Debug)]
pub struct Stored {
    pub rid: i64,
    /// Has rows in `holders`.
    pub counted: bool,
    pub row: RunRow,
}

/// Ids that the database cannot hold, or nobody made.
fn is_askable(id: &str) -> bool {
    !id.is_empty() && id.len() <= 512 && !id.contains('\0')
}

pub async fn by_id(tx: &Tx, run_id: &str) -> Result<Stored> {
    let found = by_ids(tx, &[run_id]).await?.pop();
    Ok(found.ok_or_else(|| StoreError::no_run(run_id))?)
}

pub async fn by_ids(tx: &Tx, run_ids: &[&str]) -> Result<Vec<Stored>> {
    let askable: Vec<&str> = run_ids.iter().copied().filter(|id| is_askable(id)).collect();
    select(tx, "FROM waypost.runs r WHERE r.run_id = ANY ($1)", args![askable]).await
}

/// For those that have lost a race: nobody else writes them until the end of the transaction. Locked by a statement of its
/// own, so that what is read afterwards (a run's items too) is what the one before left behind.
pub async fn by_ids_alone(tx: &Tx, run_ids: &[&str]) -> Result<Vec<Stored>> {
    let askable: Vec<&str> = run_ids.iter().copied().filter(|id| is_askable(id)).collect();
    tx.run("SELECT 1 FROM waypost.runs WHERE run_id = ANY ($1) ORDER BY rid FOR UPDATE", args![askable])
        .await?;
    by_ids(tx, run_ids).await
}

pub async fn by_rids(tx: &Tx, rids: &[i64]) -> Result<Vec<Stored>> {
    if rids.is_empty() {
        return Ok(Vec::new());
    }
    select(tx, "FROM waypost.runs r WHERE r.rid = ANY ($1)", args![rids.to_vec()]).await
}

/// All runs `r` that a condition finds. Those of a lifecycle that this binary cannot read are left out.
pub async fn select(tx: &Tx, condition: &str, values: &Args<'_>) -> Result<Vec<Stored>> {
    let rows = tx.query(&format!("SELECT {COLUMNS} {condition}"), values).await?;
    let codes = rows.iter().map(|row| Columns(row).get::<i16>(3)).collect::<Result<Vec<_>>>()?;
    let known = tx.known_with(codes).await?;
    let read = rows.iter().map(|row| read(&known, row)).collect::<Result<Vec<_>>>()?;
    Ok(read.into_iter().flatten().collect())
}

fn read(known: &Known, row: &Row) -> Result<Option<Stored>> {
    let columns = Columns(row);
    let Some((lifecycle, _)) = known.state(columns.get(3)?) else { return Ok(None) };
    let run = kernel_run(&columns, known, lifecycle)?;
    Ok(Some(Stored {
        rid: columns.get(0)?,
        counted: columns.get(4)?,
        row: RunRow {
            run,
            lifecycle: lifecycle.clone(),
            tenant: columns.get(2)?,
            queue: columns.get(5)?,
            priority: columns.get(6)?,
            schedule_at: columns.time(31)?,
            concurrency_key: columns.get(34)?,
            correlation_id: columns.get(35)?,
            idempotency_key: columns.get(36)?,
            parent_run_id: columns.get(37)?,
            retry_of: columns.get(38)?,
            playbook: columns.get(39)?,
            carried: columns.get::<Option<&str>>(40)?.map(json),
            input: json(columns.get(41)?).into(),
            metadata: shared_object(columns.get(42)?),
            details: shared_object(columns.get(43)?),
        },
    }))
}

fn kernel_run(columns: &Columns<'_>, known: &Known, lifecycle: &Arc<Lifecycle>) -> Result<Run> {
    let code: i16 = columns.get(3)?;
    let state = known.state(code).map(|(_, state)| *state).ok_or_else(|| damaged("state"))?;
    let number = |at: usize| Ok::<u32, Fault>(columns.get::<i32>(at)?.unsigned_abs());
    Ok(Run {
        id: columns.get::<&str>(1)?.into(),
        state,
        seq: u64::from(number(7)?),
        attempt: number(8)?,
        max_attempts: number(9)?,
        take_overs: number(10)?,
        fence: u64::from(number(11)?),
        lease: lease(columns)?,
        ended_by: columns.token(16)?,
        last_command: columns.get::<&str>(17)?.into(),
        intent: columns.get::<Option<&str>>(18)?.and_then(|text| codec::intent_from(&json(text), lifecycle)),
        owes_cleanup: columns.get(19)?,
        cleanup_failed: columns.get(20)?,
        operating: columns.get(21)?,
        reentrant: columns.get(22)?,
        resolved: columns.get(23)?,
        forced: columns.get(24)?,
        reason: columns.text::<Text>(25)?,
        failure: failure(columns, 26)?,
        created_at: columns.time(28)?.unwrap_or_default(),
        started_at: columns.time(29)?,
        finished_at: columns.time(30)?,
        available_at: columns.time(32)?,
        expires_at: columns.time(33)?,
        tallies: tallies(columns.get(44)?, lifecycle)?,
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

fn lease(columns: &Columns<'_>) -> Result<Option<Lease>> {
    let Some(token) = columns.token(12)? else { return Ok(None) };
    Ok(Some(Lease {
        token,
        worker: columns.text::<Text>(13)?,
        length: Span::from_ms(columns.get::<Option<i64>>(14)?.unwrap_or(60_000)),
        until: columns.time(15)?.unwrap_or_default(),
    }))
}

/// The code's column; the message is the next one.
fn failure(columns: &Columns<'_>, at: usize) -> Result<Option<Failure>> {
    let (code, message): (Option<&str>, Option<&str>) = (columns.get(at)?, columns.get(at + 1)?);
    Ok(code.map(|code| Failure::new(code, message.unwrap_or_default())))
}

fn unknown(column: &str, value: &str) -> Fault {
    damaged(&format!("{column} holds {value:?}, which its lifecycle does not know"))
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

pub fn object(text: &str) -> Map<String, Value> {
    match text {
        "{}" => Map::new(),
        _ => match json(text) {
            Value::Object(map) => map,
            _ => Map::new(),
        },
    }
}

pub fn shared_object(text: &str) -> Arc<Map<String, Value>> {
    run::shared(object(text))
}

const ITEM_COLUMNS: &str = "i.kind, i.key, i.name, i.status, i.attempts, i.max_retries, i.try_no, i.progress, i.not_before, i.discarded, \
  i.reruns, i.error_code, i.error_msg, i.started_at, i.finished_at, i.output::text, i.details::text, i.rid, i.role";

/// An item as the kernel decides on it, and as callers see it.
#[derive(Clone, Debug)]
pub struct StoredItem {
    pub rid: i64,
    pub item: Item,
    pub row: ItemRow,
}

/// Items `i` that a condition finds; `of` gives the lifecycle of their run.
pub async fn items<'l>(
    tx: &Tx,
    condition: &str,
    values: &Args<'_>,
    of: impl Fn(i64) -> Option<&'l Lifecycle>,
) -> Result<Vec<StoredItem>> {
    let rows = tx.query(&format!("SELECT {ITEM_COLUMNS} FROM waypost.items i {condition}"), values).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let rid = Columns(row).get(17)?;
        if let Some(lifecycle) = of(rid) {
            found.push(read_item(rid, &Columns(row), lifecycle)?);
        }
    }
    Ok(found)
}

fn read_item(rid: i64, columns: &Columns<'_>, lifecycle: &Lifecycle) -> Result<StoredItem> {
    let number = |at: usize| Ok::<u32, Fault>(columns.get::<i32>(at)?.unsigned_abs());
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
        failure: failure(columns, 11)?,
        started_at: columns.time(13)?,
        finished_at: columns.time(14)?,
        output: columns.get::<Option<&str>>(15)?.map_or(Value::Null, json),
        details: object(columns.get(16)?),
    };
    let kind = lifecycle.items.iter().position(|kind| *kind.name == *row.kind);
    let kind = kind.ok_or_else(|| unknown("kind", &row.kind))?;
    let state = lifecycle.items[kind].state_named(&row.status).ok_or_else(|| unknown("item", &row.status))?;
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
        role: row.role,
        progress: row.progress,
        failure: row.failure.clone(),
        started_at: row.started_at,
        finished_at: row.finished_at,
    };
    Ok(StoredItem { rid, item, row })
}

/// A number as it comes back out of `jsonb`, which writes no exponents: what the log has as `1e16`, the row has as a
/// whole number.
pub fn as_stored(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            if let Some(plain) = text.contains('e').then(|| without_exponent(&text)).flatten() {
                *value = json(&plain);
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

/// The end of a lease, if there is one.
pub fn stale_after(run: &Run) -> Option<Time> {
    run.lease.as_ref().map(|lease| lease.until)
}
