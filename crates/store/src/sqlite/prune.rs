//! Retention: settled runs leave when their time is over, with their items and events, and are counted.

use rusqlite::params;
use waypost_kernel::Phase;

use crate::engine::{Stored, retention};
use crate::seam::retention::Retention;
use crate::seam::run::iso;
use crate::seam::verbs::Pruned;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::log;
use crate::sqlite::primitives::ready;
use crate::sqlite::row::{self, BOTH};

/// Looked at in one go, whether they may leave or not: the oldest come first and leave first.
const LOOK: usize = 2_000;

pub fn prune(tx: &Tx<'_>, limit: usize) -> Result<Pruned> {
    let mut pruned = Pruned::default();
    let cursor: i64 = tx.conn.query_row(
        "SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_to'), 0)",
        [],
        |row| row.get(0),
    )?;
    let found = row::select_bare(
        tx,
        &format!("{BOTH} WHERE n.rid > ?1 ORDER BY n.rid LIMIT ?2"),
        params![cursor, LOOK as i64],
    )?;
    let newest: i64 = tx
        .conn
        .query_row(
            "SELECT coalesce((SELECT rid FROM (SELECT * FROM (SELECT position, rid FROM run_events ORDER BY position DESC LIMIT 1) \
             UNION ALL SELECT * FROM (SELECT position, rid FROM run_born ORDER BY rid DESC LIMIT 1)) ORDER BY position DESC LIMIT 1), 0)",
            [],
            |row| row.get(0),
        )?;
    let rules = ready(retention(&mut tx.engine(), &None))?;
    let mut next = found.last().map_or(0, |last| last.rid);
    for stored in &found {
        if pruned.runs as usize >= limit {
            pruned.more = true;
            next = stored.rid - 1;
            break;
        }
        let row = &stored.row;
        let keep = Retention::keep(&rules, row);
        let over = row.phase() == Phase::Settled
            && !row.run.operating
            && keep.zip(row.run.finished_at).is_some_and(|(keep, finished_at)| finished_at + keep < tx.now);
        // The newest event stays: its position must not be given out again.
        if over && stored.rid != newest {
            pruned.events += remove(tx, stored)?;
            pruned.runs += 1;
        }
    }
    // At the end of the table the next look begins again with the oldest.
    let cursor = if found.len() < LOOK && !pruned.more { 0 } else { next };
    tx.conn.execute(
        "INSERT INTO meta VALUES ('pruned_to', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![cursor.to_string()],
    )?;
    pruned.more |= found.len() == LOOK;
    Ok(pruned)
}

fn remove(tx: &Tx<'_>, stored: &Stored) -> Result<u64> {
    let run = |sql: &str, value: &dyn rusqlite::ToSql| -> Result<usize> { Ok(tx.execute(sql, [value])?) };
    let positions = log::positions(tx, stored)?;
    let events = positions.len();
    // The run goes first: nothing of it leaves while it is there.
    run("DELETE FROM run_now WHERE rid = ?1", &stored.rid)?;
    for position in positions {
        run("DELETE FROM run_events WHERE position = ?1", &position)?;
    }
    run("DELETE FROM items WHERE run_id = ?1", &stored.row.id())?;
    run("DELETE FROM approvals WHERE run_id = ?1", &stored.row.id())?;
    run("DELETE FROM run_born WHERE rid = ?1", &stored.rid)?;
    tx.prepare(
        "INSERT INTO pruned VALUES (?1, ?2, 1, ?3) ON CONFLICT (day, lifecycle) \
         DO UPDATE SET runs = runs + 1, events = events + excluded.events",
    )?
    .execute(params![&iso(tx.now)[..10], &*stored.row.lifecycle.name, events as i64])?;
    Ok(events as u64)
}
