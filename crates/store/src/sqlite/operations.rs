//! A run of lifecycle `operation` works on its parent. When it settles, the parent is free again, in the same
//! transaction.

use rusqlite::params;
use waypost_kernel::{Actor, Ask, Phase, Request};

use super::open::database;
use super::row::{self, Stored};
use super::save::{self, Extra, prepare};
use super::session::Tx;
use crate::error::{Result, StoreError};

const OPERATION: &str = "operation";

pub fn after_move(tx: &Tx<'_>, stored: &Stored, was: Phase) -> Result<()> {
    let row = &stored.row;
    let settled = row.phase() == Phase::Settled && was != Phase::Settled;
    let Some(parent) = row.parent_run_id.as_deref().filter(|_| settled && &*row.lifecycle.name == OPERATION)
    else {
        return Ok(());
    };
    let others: i64 = prepare(
        tx,
        "SELECT count(*) FROM run_born b CROSS JOIN run_now n ON n.rid = b.rid JOIN state_codes s ON s.code = n.state \
         WHERE b.parent_run_id = ?1 AND s.lifecycle = ?2 AND n.state & 7 <> 4",
    )?
    .query_row(params![parent, OPERATION], |row| row.get(0))
    .map_err(|error| database(&error))?;
    if others > 0 {
        return Ok(());
    }
    let mut parent = match row::by_id(tx, parent) {
        Ok(parent) => parent,
        Err(StoreError::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let request = Request { who: tx.who(Actor::Engine, "engine"), ask: Ask::OperationEnded };
    let change = waypost_kernel::decide(&parent.row.lifecycle, &parent.row.run, &request, tx.now)?;
    if change.is_repeat(&parent.row.run) {
        return Ok(());
    }
    save::save(tx, &mut parent, change, &Extra::default()).map(drop)
}
