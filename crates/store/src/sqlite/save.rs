//! Writing what the kernel decided: the items first (the guards of the run count them), then the run by
//! compare-and-set, then its events.

use std::sync::Arc;

use rusqlite::params;
use serde_json::{Map, Value};
use waypost_kernel::Lifecycle;
use waypost_kernel::event::{Change, Event, Moved, Shift};

use super::children;
use super::events;
use super::limits;
use super::moves::{self, Merged};
use super::open::database;
use super::operations;
use super::row::Stored;
use super::session::Tx;
use crate::children::is_cancel;
use crate::details;
use crate::error::{Result, StoreError};
use crate::follow::Along;
use crate::intake;
use crate::run::iso;

/// What is written with a change beside what the kernel knows: merged into the row, and kept in the event.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
    pub key: Option<String>,
}

/// Writes a change of a run that was read in this transaction. Returns the position of its last event.
pub fn save(tx: &Tx<'_>, stored: &mut Stored, change: Change, extra: &Extra) -> Result<i64> {
    let was = stored.row.phase();
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
    let row = Arc::make_mut(&mut stored.row);
    let before = std::mem::replace(&mut row.run, change.after);
    intake::merge_shared(&mut row.metadata, &extra.metadata);
    details::merge_shared(&mut row.details, &extra.details);
    let merged = Merged { metadata: !extra.metadata.is_empty(), details: !extra.details.is_empty() };
    if merged.metadata || merged.details {
        stored.bytes = usize::MAX;
    }
    let planned = events::plan(tx, &lifecycle, &change.events)?;
    let prev = stored.last;
    stored.last = planned.last().or(prev);
    if moves::update(tx, stored, &before, merged)? != 1 {
        return Err(StoreError::Unavailable(format!("{} changed meanwhile", stored.row.run.id)));
    }
    events::insert(tx, stored, prev, &planned, extra)?;
    tx.kept.rows.borrow_mut().put(stored);
    let stolen = |event: &Event| event.from == Some(event.to) && &*event.command == "steal";
    if before.state != stored.row.run.state || change.events.iter().any(stolen) {
        limits::after_move(tx, stored, was)?;
        operations::after_move(tx, stored, was)?;
    }
    if is_cancel(&change.events) {
        children::left_behind(tx, stored)?;
    }
    Ok(stored.last.unwrap_or_default())
}

/// One that has this event's number already was moved by another shift of it, to where this one's items leave.
fn shift_items(tx: &Tx<'_>, run_id: &str, lifecycle: &Lifecycle, shift: &Shift, event: &Event) -> Result<()> {
    let kind = &lifecycle.items[usize::from(shift.kind)];
    let along = Along::of(kind, shift);
    let chosen = shift
        .chosen
        .as_ref()
        .map(|keys| Value::from(keys.iter().map(|key| &**key).collect::<Vec<_>>()).to_string());
    let mut statement = prepare(
        tx,
        "UPDATE items SET status = ?4, seq = ?11, not_before = NULL, \
           finished_at = CASE WHEN ?5 THEN ?6 WHEN ?7 THEN NULL ELSE finished_at END, \
           started_at = iif(?13, coalesce(started_at, ?6), started_at), \
           attempts = iif(?7, 0, attempts), progress = CASE WHEN ?12 THEN 100 WHEN ?7 THEN 0 ELSE progress END, \
           error_code = CASE WHEN ?12 THEN NULL WHEN ?8 IS NOT NULL THEN ?8 WHEN ?7 THEN NULL ELSE error_code END, \
           error_msg = CASE WHEN ?12 THEN NULL WHEN ?8 IS NOT NULL THEN ?9 WHEN ?7 THEN NULL ELSE error_msg END \
         WHERE run_id = ?1 AND kind = ?2 AND status = ?3 AND stays = 0 AND seq <> ?11 \
           AND (?10 IS NULL OR key IN (SELECT value FROM json_each(?10)))",
    )?;
    let moved = statement
        .execute(params![
            run_id,
            &*kind.name,
            &*kind.state(shift.from).name,
            &*kind.state(shift.to).name,
            along.settles,
            iso(event.at),
            along.revives,
            shift.failure.as_ref().map(|failure| &*failure.code),
            shift.failure.as_ref().map(|failure| &*failure.message),
            chosen,
            event.seq,
            along.succeeds,
            along.begins,
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
pub fn refused(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation) => {
            StoreError::Unavailable(format!("the database's guard refused the write: {error}"))
        }
        _ => database(error),
    }
}
