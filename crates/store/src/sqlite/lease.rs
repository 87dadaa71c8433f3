//! What holders write: heartbeats, events, ends.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use waypost_kernel::request::{Finish, Note};
use waypost_kernel::{Actor, Ask, Request, Span};

use super::items;
use super::log;
use super::open::database;
use super::row::{self, Stored};
use super::save::{self, Extra, prepare};
use super::session::Tx;
use crate::details;
use crate::error::{Result, StoreError};
use crate::intake;
use crate::item_writes::left_to_move;
use crate::run::RunRow;
use crate::verbs::{Each, FinishWrite, Held, NoteWrite, Noted, OweWrite, Renewed, Repeat};

const WINDOW: Span = Span::from_seconds(10);

/// One entry of a list: refused by itself, or failing the whole list with the database.
fn each<T, W>(entries: Vec<W>, mut one: impl FnMut(W) -> Result<T>) -> Result<Each<T>> {
    let mut answers = Vec::with_capacity(entries.len());
    for entry in entries {
        match one(entry) {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unusable(_))) => return Err(error),
            answer => answers.push(answer),
        }
    }
    Ok(answers)
}

/// Decides and writes; a repeat writes nothing.
fn decided(tx: &Tx<'_>, stored: &mut Stored, by: &str, ask: Ask<'_>, extra: &Extra) -> Result<Option<i64>> {
    let request = Request { who: tx.who(Actor::Worker, by), ask };
    let change = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)?;
    if change.is_repeat(&stored.row.run) {
        return Ok(None);
    }
    save::save(tx, stored, change, extra).map(Some)
}

pub fn renew(tx: &Tx<'_>, leases: Vec<Held>) -> Result<Each<Renewed>> {
    each(leases, |held| {
        let mut stored = row::by_id(tx, &held.run_id)?;
        decided(tx, &mut stored, "", Ask::Renew { token: held.token }, &Extra::default())?;
        Ok(Renewed::of(&stored.row.run, tx.now))
    })
}

pub fn note(tx: &Tx<'_>, notes: Vec<NoteWrite>) -> Result<Each<Noted>> {
    each(notes, |write| one_note(tx, &write))
}

/// A worker's words are cleaned and cut, never refused: an event is not lost because of what it carries.
fn one_note(tx: &Tx<'_>, write: &NoteWrite) -> Result<Noted> {
    let key = match &write.repeat {
        Repeat::Key(key) => {
            intake::check_name("key", key)?;
            Some(key.clone())
        }
        Repeat::Window | Repeat::Never => None,
    };
    let mut stored = row::by_id(tx, &write.held.run_id)?;
    let payload = intake::cleaned_payload(write.payload.clone());
    let message = intake::cleaned_message(&write.message);
    let note =
        Note { level: write.level, message: message.into(), payload, key: key.as_deref().map(Into::into) };
    let ask = Ask::Note { token: write.held.token, note: &note };
    // The lease comes first: a repeat is only answered to the run's holder.
    let by = intake::cleaned_name(&write.by);
    let request = Request { who: tx.who(Actor::Worker, &by), ask };
    let change = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)?;
    if let Some((position, seq)) = repeated(tx, &stored, &note, &write.repeat)? {
        return Ok(Noted { event_id: format!("evt-{position}"), seq, repeated: true });
    }
    let metadata = intake::cleaned_patch(&write.metadata);
    let extra = Extra { metadata, details: details::cleaned(&write.details), key };
    let position = save::save(tx, &mut stored, change, &extra)?;
    Ok(Noted { event_id: format!("evt-{position}"), seq: stored.row.run.seq, repeated: false })
}

fn repeated(tx: &Tx<'_>, stored: &Stored, note: &Note, repeat: &Repeat) -> Result<Option<(i64, u64)>> {
    match repeat {
        Repeat::Never => Ok(None),
        Repeat::Key(key) => prepare(tx, "SELECT position, seq FROM run_events WHERE rid = ?1 AND key = ?2")?
            .query_row(params![stored.rid, key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|error| database(&error)),
        Repeat::Window => log::same_note(tx, stored, tx.now - WINDOW, note),
    }
}

/// A finish as it is written: cleaned before the writer's turn comes.
#[derive(Debug)]
pub struct Ending {
    write: FinishWrite,
    extra: Extra,
}

impl Ending {
    pub fn of(mut write: FinishWrite) -> Ending {
        write.by = intake::cleaned_name(&write.by);
        write.failure = write.failure.as_ref().map(intake::cleaned_failure);
        write.reason = write.reason.as_deref().map(intake::cleaned_reason);
        let metadata = intake::cleaned_patch(&write.metadata);
        let extra = Extra { metadata, details: details::cleaned(&write.details), key: None };
        Ending { write, extra }
    }
}

pub fn finish(tx: &Tx<'_>, endings: Vec<Ending>) -> Result<Each<Arc<RunRow>>> {
    each(endings, |Ending { write, extra }| {
        let mut stored = row::by_id(tx, &write.run_id)?;
        let finish = Finish {
            to: &write.status,
            failure: write.failure.as_ref(),
            reason: write.reason.as_deref(),
            retry_in: write.retry_in,
        };
        let token = write.token.unwrap_or(waypost_kernel::fold::UNKNOWN);
        let ask = Ask::Finish { token, finish };
        let writes = left_to_move(&stored.row, &write);
        if writes.is_empty() {
            decided(tx, &mut stored, &write.by, ask, &extra)?;
            return Ok(stored.row);
        }
        // Both are decided before either is written: a refusal of one leaves nothing of the other.
        let (wanted, moves) = items::moves(tx, &stored, (token, &write.by), writes)?;
        let request = Request { who: tx.who(Actor::Worker, &write.by), ask };
        let end = waypost_kernel::decide(&stored.row.lifecycle, &moves.after, &request, tx.now)?;
        items::save_moves(tx, &mut stored, &wanted, moves)?;
        save::save(tx, &mut stored, end, &extra)?;
        Ok(stored.row)
    })
}

pub fn release(tx: &Tx<'_>, leases: Vec<Held>) -> Result<Each<Arc<RunRow>>> {
    each(leases, |held| {
        let mut stored = row::by_id(tx, &held.run_id)?;
        let by = stored.row.run.lease.as_ref().and_then(|lease| lease.worker.clone()).unwrap_or_default();
        let by = intake::cleaned_name(&by);
        decided(tx, &mut stored, &by, Ask::Release { token: held.token }, &Extra::default())?;
        Ok(stored.row)
    })
}

pub fn owe(tx: &Tx<'_>, write: &OweWrite) -> Result<Arc<RunRow>> {
    let mut stored = row::by_id(tx, &write.held.run_id)?;
    let failing = write.failing.as_ref().map(|(to, failure)| (to.as_str(), intake::cleaned_failure(failure)));
    let failing = failing.as_ref().map(|(to, failure)| (*to, failure));
    let ask = Ask::Owe { token: write.held.token, owes: write.owes, failing };
    decided(tx, &mut stored, &intake::cleaned_name(&write.by), ask, &Extra::default())?;
    Ok(stored.row)
}
