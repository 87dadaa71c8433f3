//! Children of runs that are cancelled.

use rusqlite::params;
use waypost_kernel::{Actor, Request};

use super::open::database;
use super::row::{self, Stored};
use super::save::{self, Extra, prepare};
use super::session::Tx;
use crate::children::{Asked, PARENT};
use crate::error::{Result, StoreError};

const PAGE: i64 = 256;
const OLDEST: &str = "SELECT p.run_id FROM cancelled_parents p LEFT JOIN run_born b ON b.run_id = p.run_id ORDER BY b.rid LIMIT 1";

/// Its children are to be asked, if it has any.
pub fn left_behind(tx: &Tx<'_>, parent: &Stored) -> Result<()> {
    prepare(
        tx,
        "INSERT OR IGNORE INTO cancelled_parents(run_id) SELECT ?1 WHERE EXISTS (SELECT 1 FROM run_born WHERE parent_run_id = ?1)",
    )?
    .execute(params![&*parent.row.run.id])
    .map(drop)
    .map_err(|error| database(&error))
}

/// Asks the children of all parents that were left behind, and theirs. Gives those that were; whether that was all.
pub fn ask(tx: &Tx<'_>, limit: usize) -> Result<(Vec<String>, bool)> {
    let mut asked = Vec::new();
    loop {
        let parents: Vec<String> = prepare(tx, OLDEST)?
            .query_map([], |row| row.get(0))
            .and_then(Iterator::collect)
            .map_err(|error| database(&error))?;
        let Some(parent) = parents.first() else { return Ok((asked, true)) };
        if !of_parent(tx, parent, limit, &mut asked)? {
            return Ok((asked, false));
        }
        prepare(tx, "DELETE FROM cancelled_parents WHERE run_id = ?1")?
            .execute(params![parent])
            .map_err(|error| database(&error))?;
    }
}

fn of_parent(tx: &Tx<'_>, parent: &str, limit: usize, asked: &mut Vec<String>) -> Result<bool> {
    let parent = match row::by_id(tx, parent) {
        Ok(parent) => parent,
        Err(StoreError::NotFound { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let request = Asked::by(&parent.row);
    let sql = "SELECT 0, b.rid FROM run_born b CROSS JOIN run_now n ON n.rid = b.rid \
               WHERE b.parent_run_id = ?1 AND n.state & 7 <> 4 AND b.rid > ?2 ORDER BY b.rid LIMIT ?3";
    let mut after = 0;
    loop {
        let found = row::places(tx, sql, params![parent.row.id(), after, PAGE])?;
        let Some((_, last)) = found.last() else { return Ok(true) };
        after = *last;
        for (_, rid) in found {
            let Some(mut child) = row::by_rid(tx, rid)? else { continue };
            let who = tx.who(Actor::Operator, PARENT);
            let ask = Request { who, ask: request.ask() };
            // What takes no cancel where it is, and what was asked before, is left as it is.
            let change = waypost_kernel::decide(&child.row.lifecycle, &child.row.run, &ask, tx.now);
            let Some(change) = change.ok().filter(|change| !change.events.is_empty()) else { continue };
            if asked.len() >= limit {
                return Ok(false);
            }
            save::save(tx, &mut child, change, &Extra::default())?;
            asked.push(child.row.id().to_owned());
        }
    }
}
