//! Writing what the kernel decided: the items first (the guards of the run count them), then the run by
//! compare-and-set, then its events.

use rusqlite::params;
use serde_json::{Map, Value};
use waypost_kernel::Lifecycle;
use waypost_kernel::event::{Change, Event, Moved, Shift};
use waypost_kernel::lifecycle::Phase;

use super::limits;
use super::open::database;
use super::operations;
use super::row::Stored;
use super::session::Tx;
use crate::codec;
use crate::error::{Result, StoreError};
use crate::intake;
use crate::run::{RunRow, iso};

/// What is written with a change beside what the kernel knows: merged into the row, and kept in the event.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    pub key: Option<String>,
}

/// Writes a change of a run that was read in this transaction. Returns the position of its last event.
pub fn save(tx: &Tx<'_>, stored: &mut Stored, change: Change, extra: &Extra) -> Result<i64> {
    let before = stored.row.run.seq;
    let was = (stored.row.phase(), stored.row.run.state);
    let lifecycle = stored.row.lifecycle.clone();
    for event in &change.events {
        for shift in &event.effect.shifts {
            shift_items(tx, &stored.row.run.id, &lifecycle, shift, event)?;
        }
        // New ones were put in by whoever knows their names and details.
        for moved in event.effect.moved.iter().filter(|moved| moved.from.is_some()) {
            move_item(tx, &stored.row.run.id, &lifecycle, moved, event.seq)?;
        }
    }
    stored.row.run = change.after;
    intake::merge(&mut stored.row.metadata, &extra.metadata);
    intake::merge(&mut stored.row.details, &extra.details);
    let moved = stored.row.run.state != was.1
        || change.events.iter().any(|event| event.from == Some(event.to) && &*event.command == "steal");
    let merged = !extra.metadata.is_empty() || !extra.details.is_empty();
    let written = if moved || merged || stored.row.run.lease.is_none() {
        update_all(tx, stored, before)?
    } else {
        update_held(tx, stored, before)?
    };
    if written != 1 {
        return Err(StoreError::Unavailable(format!("{} changed meanwhile", stored.row.run.id)));
    }
    let mut position = 0;
    let last = change.events.len();
    for (at, event) in change.events.iter().enumerate() {
        let extra = if at + 1 == last { Some(extra) } else { None };
        position = insert_event(tx, stored.rid, &lifecycle, event, extra)?;
    }
    if moved {
        limits::after_move(tx, stored, was.0)?;
        operations::after_move(tx, stored, was.0)?;
    }
    Ok(position)
}

fn update_all(tx: &Tx<'_>, stored: &Stored, before: u64) -> Result<usize> {
    let row = &stored.row;
    let run = &row.run;
    let lease = run.lease.as_ref();
    let mut statement = prepare(
        tx,
        "UPDATE OR FAIL runs SET status = ?2, phase = ?3, seq = ?4, attempt = ?5, take_overs = ?6, fence = ?7, lease_token = ?8, \
         claimed_by = ?9, lease_ms = ?10, stale_after = ?11, ended_by = ?12, last_command = ?13, intent = ?14, \
         owes_cleanup = ?15, cleanup_failed = ?16, operating = ?17, resolved = ?18, forced = ?19, reason = ?20, \
         error_code = ?21, error_msg = ?22, started_at = ?23, finished_at = ?24, available_at = ?25, expires_at = ?26, \
         metadata = ?27, details = ?28, blocked = 0 WHERE rid = ?1 AND seq = ?29",
    )?;
    let written = statement.execute(params![
        stored.rid,
        row.status(),
        row.phase().name(),
        run.seq,
        run.attempt,
        run.take_overs,
        run.fence,
        lease.map(|lease| codec::token_text(lease.token)),
        lease.and_then(|lease| lease.worker.as_deref()),
        lease.map(|lease| lease.length.ms()),
        lease.map(|lease| iso(lease.until)),
        run.ended_by.map(codec::token_text),
        &*run.last_command,
        run.intent.as_ref().map(|intent| codec::intent_json(intent, &row.lifecycle).to_string()),
        run.owes_cleanup,
        run.cleanup_failed,
        run.operating,
        run.resolved,
        run.forced,
        run.reason.as_deref(),
        run.failure.as_ref().map(|failure| &*failure.code),
        run.failure.as_ref().map(|failure| &*failure.message),
        run.started_at.map(iso),
        run.finished_at.map(iso),
        run.available_at.map(iso),
        run.expires_at.map(iso),
        text(&row.metadata),
        text(&row.details),
        before,
    ]);
    written.map_err(|error| refused(&error))
}

/// A held run that stays where it is: a heartbeat, a note, a take-over, an intent. Touches no index but the
/// one of leases.
fn update_held(tx: &Tx<'_>, stored: &Stored, before: u64) -> Result<usize> {
    let run = &stored.row.run;
    let Some(lease) = &run.lease else { return Ok(0) };
    let mut statement = prepare(
        tx,
        "UPDATE OR FAIL runs SET seq = ?2, take_overs = ?3, fence = ?4, lease_token = ?5, claimed_by = ?6, lease_ms = ?7, \
         stale_after = ?8, intent = ?9, owes_cleanup = ?10, operating = ?11 WHERE rid = ?1 AND seq = ?12",
    )?;
    let written = statement.execute(params![
        stored.rid,
        run.seq,
        run.take_overs,
        run.fence,
        codec::token_text(lease.token),
        lease.worker.as_deref(),
        lease.length.ms(),
        iso(lease.until),
        run.intent.as_ref().map(|intent| codec::intent_json(intent, &stored.row.lifecycle).to_string()),
        run.owes_cleanup,
        run.operating,
        before,
    ]);
    written.map_err(|error| refused(&error))
}

pub fn insert_run(tx: &Tx<'_>, row: &RunRow, fingerprint: Option<&str>) -> Result<i64> {
    let blocked = limits::starts_aside(tx, row)?;
    let run = &row.run;
    let lease = run.lease.as_ref();
    let mut statement = prepare(
        tx,
        "INSERT OR FAIL INTO runs(run_id, tenant, lifecycle, version, status, phase, queue, priority, seq, attempt, max_attempts, \
         fence, lease_token, claimed_by, lease_ms, stale_after, last_command, reentrant, queued_at, started_at, \
         schedule_at, available_at, expires_at, concurrency_key, correlation_id, idempotency_key, fingerprint, \
         parent_run_id, retry_of, playbook, carried, item_count, input, metadata, details, blocked) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, \
         ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36)",
    )?;
    let inserted = statement.insert(params![
        &*run.id,
        row.tenant,
        &*row.lifecycle.name,
        row.lifecycle.version,
        row.status(),
        row.phase().name(),
        row.queue,
        row.priority,
        run.seq,
        run.attempt,
        run.max_attempts,
        run.fence,
        lease.map(|lease| codec::token_text(lease.token)),
        lease.and_then(|lease| lease.worker.as_deref()),
        lease.map(|lease| lease.length.ms()),
        lease.map(|lease| iso(lease.until)),
        &*run.last_command,
        run.reentrant,
        iso(run.created_at),
        run.started_at.map(iso),
        row.schedule_at.map(iso),
        run.available_at.map(iso),
        run.expires_at.map(iso),
        row.concurrency_key,
        row.correlation_id,
        row.idempotency_key,
        fingerprint,
        row.parent_run_id,
        row.retry_of,
        row.playbook,
        row.carried.as_ref().map(Value::to_string),
        run.tallies.iter().flat_map(|tally| &tally.by_state).sum::<u32>(),
        row.input.to_string(),
        text(&row.metadata),
        text(&row.details),
        blocked,
    ]);
    inserted.map_err(|error| refused(&error))
}

pub fn insert_event(
    tx: &Tx<'_>,
    rid: i64,
    lifecycle: &Lifecycle,
    event: &Event,
    extra: Option<&Extra>,
) -> Result<i64> {
    let note = event.note.as_ref();
    let mut effect = codec::effect_json(event, lifecycle);
    if let Some(extra) = extra {
        codec::add_patch(&mut effect, "metadata", &extra.metadata);
        codec::add_patch(&mut effect, "details", &extra.details);
    }
    let payload = note.map(|note| &note.payload).filter(|payload| !codec::is_blank(payload));
    let mut statement = prepare(
        tx,
        "INSERT OR FAIL INTO event_log(rid, seq, at, command, src, dst, actor, who, level, message, payload, effect, key) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    let inserted = statement.insert(params![
        rid,
        event.seq,
        event.at.ms(),
        &*event.command,
        event.from.map(|from| &*lifecycle.state(from).name),
        &*lifecycle.state(event.to).name,
        event.actor.name(),
        &*event.by,
        note.map(|note| note.level.name()),
        note.map(|note| &*note.message),
        payload.map(Value::to_string),
        effect.map(|effect| effect.to_string()),
        extra.and_then(|extra| extra.key.as_deref()),
    ]);
    inserted.map_err(|error| refused(&error))
}

fn shift_items(tx: &Tx<'_>, run_id: &str, lifecycle: &Lifecycle, shift: &Shift, event: &Event) -> Result<()> {
    let kind = &lifecycle.items[usize::from(shift.kind)];
    let settles = kind.phase(shift.to) == Phase::Settled;
    let revives = kind.phase(shift.from) == Phase::Settled;
    let chosen = shift
        .chosen
        .as_ref()
        .map(|keys| Value::from(keys.iter().map(|key| &**key).collect::<Vec<_>>()).to_string());
    let mut statement = prepare(
        tx,
        "UPDATE items SET status = ?4, seq = ?11, not_before = NULL, \
           finished_at = CASE WHEN ?5 THEN ?6 WHEN ?7 THEN NULL ELSE finished_at END, \
           attempts = iif(?7, 0, attempts), progress = iif(?7, 0, progress), \
           error_code = CASE WHEN ?8 IS NOT NULL THEN ?8 WHEN ?7 THEN NULL ELSE error_code END, \
           error_msg = CASE WHEN ?8 IS NOT NULL THEN ?9 WHEN ?7 THEN NULL ELSE error_msg END \
         WHERE run_id = ?1 AND kind = ?2 AND status = ?3 AND stays = 0 \
           AND (?10 IS NULL OR key IN (SELECT value FROM json_each(?10)))",
    )?;
    let moved = statement
        .execute(params![
            run_id,
            &*kind.name,
            &*kind.state(shift.from).name,
            &*kind.state(shift.to).name,
            settles,
            iso(event.at),
            revives,
            shift.failure.as_ref().map(|failure| &*failure.code),
            shift.failure.as_ref().map(|failure| &*failure.message),
            chosen,
            event.seq,
        ])
        .map_err(|error| refused(&error))?;
    if moved as u32 != shift.count {
        let message =
            format!("{moved} of {} chosen {} are {}", shift.count, kind.name, kind.state(shift.from).name);
        return Err(StoreError::invalid("items", message));
    }
    Ok(())
}

fn move_item(tx: &Tx<'_>, run_id: &str, lifecycle: &Lifecycle, moved: &Moved, seq: u64) -> Result<()> {
    let item = &moved.item;
    let kind = &lifecycle.items[usize::from(item.kind)];
    let mut statement = prepare(
        tx,
        "UPDATE items SET status = ?4, attempts = ?5, try_no = ?6, progress = ?7, not_before = ?8, discarded = ?9, stays = ?10, \
         error_code = ?11, error_msg = ?12, started_at = ?13, finished_at = ?14, seq = ?15 WHERE run_id = ?1 AND kind = ?2 AND key = ?3",
    )?;
    statement
        .execute(params![
            run_id,
            &*kind.name,
            &*item.key,
            &*kind.state(item.state).name,
            item.attempts,
            item.try_no,
            item.progress,
            item.not_before.map(iso),
            item.discarded,
            moved.stays,
            item.failure.as_ref().map(|failure| &*failure.code),
            item.failure.as_ref().map(|failure| &*failure.message),
            item.started_at.map(iso),
            item.finished_at.map(iso),
            seq,
        ])
        .map(drop)
        .map_err(|error| refused(&error))
}

pub fn text(map: &Map<String, Value>) -> String {
    if map.is_empty() { "{}".into() } else { serde_json::to_string(map).unwrap_or_else(|_| "{}".into()) }
}

pub fn prepare<'c>(tx: &'c Tx<'_>, sql: &str) -> Result<rusqlite::CachedStatement<'c>> {
    tx.conn.prepare_cached(sql).map_err(|error| database(&error))
}

/// The database's own guard said no to what the kernel allowed: their definitions differ, or a row was changed
/// by hand into something that no lifecycle knows.
fn refused(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation) => {
            StoreError::Unavailable(format!("the database's guard refused the write: {error}"))
        }
        _ => database(error),
    }
}
