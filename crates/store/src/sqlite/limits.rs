//! Concurrency keys. A ready run whose key is at its limit is set aside (`blocked`) when a claim meets it, so that
//! a hundred thousand of them cost each claim nothing; when one of the key leaves, the next best is let in again.

use rusqlite::{OptionalExtension, params};
use waypost_kernel::Phase;

use super::open::database;
use super::row::Stored;
use super::save::prepare;
use super::session::Tx;
use crate::error::Result;

/// How many more runs with this key may be held.
pub fn free_slots(tx: &Tx<'_>, key: &str) -> Result<i64> {
    let limit: Option<i64> = prepare(tx, "SELECT at_most FROM key_limits WHERE name = ?1")?
        .query_row(params![key], |row| row.get(0))
        .optional()
        .map_err(|error| database(&error))?;
    let held: i64 = prepare(tx, "SELECT count(*) FROM runs WHERE concurrency_key = ?1 AND phase = 'held'")?
        .query_row(params![key], |row| row.get(0))
        .map_err(|error| database(&error))?;
    Ok(limit.unwrap_or(1) - held)
}

pub fn set_aside(tx: &Tx<'_>, rid: i64) -> Result<()> {
    let mut statement = prepare(tx, "UPDATE runs SET blocked = 1 WHERE rid = ?1")?;
    statement.execute(params![rid]).map(drop).map_err(|error| database(&error))
}

/// A run with a key has moved: if it held a slot, or was next in line, another one may come in.
pub fn after_move(tx: &Tx<'_>, stored: &Stored, was: Phase) -> Result<()> {
    let Some(key) = &stored.row.concurrency_key else { return Ok(()) };
    let is = stored.row.phase();
    if is != Phase::Held && matches!(was, Phase::Held | Phase::Ready) {
        let_in(tx, key)?;
    }
    Ok(())
}

/// Lets in as many as there are slots. Too many would do no harm: a claim sets them aside again.
pub fn let_in(tx: &Tx<'_>, key: &str) -> Result<usize> {
    let free = free_slots(tx, key)?;
    if free <= 0 {
        return Ok(0);
    }
    let mut statement = prepare(
        tx,
        "UPDATE runs SET blocked = 0 WHERE rid IN (SELECT rid FROM runs WHERE concurrency_key = ?1 AND blocked = 1 \
         ORDER BY priority DESC, available_at, rid LIMIT ?2)",
    )?;
    statement.execute(params![key, free]).map_err(|error| database(&error))
}

/// The sweeper's look: no key waits while it has a free slot, whatever happened.
pub fn let_in_all(tx: &Tx<'_>) -> Result<()> {
    let mut last = String::new();
    loop {
        let next: Option<String> =
            prepare(tx, "SELECT min(concurrency_key) FROM runs WHERE blocked = 1 AND concurrency_key > ?1")?
                .query_row(params![last], |row| row.get(0))
                .map_err(|error| database(&error))?;
        let Some(key) = next else { return Ok(()) };
        let_in(tx, &key)?;
        last = key;
    }
}
