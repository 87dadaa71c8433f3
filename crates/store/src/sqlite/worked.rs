//! How long runs were worked, from their events where their rows do not tell.

use std::collections::HashMap;

use rusqlite::{Row, params};
use serde_json::json;
use waypost_kernel::{Span, Time};

use crate::seam::run::RunRow;
use crate::seam::worked::{Begun, Look, to_be_read, told, worked};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;

/// What a run was born with, and its later events, which hang on one another from the last one back.
const EVENTS: &str = "WITH RECURSIVE log(position, prev, at, dst) AS ( \
    SELECT e.position, e.prev, e.at, e.dst FROM run_now n CROSS JOIN run_events e ON e.position = n.last WHERE n.rid = ?1 \
    UNION ALL SELECT e.position, e.prev, e.at, e.dst FROM log l CROSS JOIN run_events e ON e.position = l.prev) \
  SELECT dst & 7 = 2, at FROM (SELECT 0 AS position, at, state AS dst FROM run_born WHERE rid = ?1 UNION ALL SELECT position, at, dst FROM log) \
  ORDER BY position";

pub fn took(tx: &Tx<'_>, runs: &[RunRow]) -> Result<Vec<Option<Span>>> {
    let ids = json!(runs.iter().map(RunRow::id).collect::<Vec<_>>()).to_string();
    let sql = "SELECT b.run_id, b.rid FROM json_each(?1) j CROSS JOIN run_born b ON b.run_id = j.value";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?));
    let rids: HashMap<String, i64> = tx.list(sql, params![ids], read)?.into_iter().collect();
    let look = |row: &RunRow| {
        let rid = rids.get(row.id()).copied().unwrap_or_default();
        Look::new(rid, row.run.seq, &Begun::from(row), tx.now)
    };
    of_looks(tx, &runs.iter().map(look).collect::<Vec<_>>())
}

pub fn of_looks(tx: &Tx<'_>, looks: &[Look]) -> Result<Vec<Option<Span>>> {
    let mut read = HashMap::new();
    let event = |row: &Row<'_>| Ok((row.get(0)?, Time::from_ms(row.get(1)?)));
    for rid in to_be_read(looks) {
        read.insert(rid, worked(tx.list(EVENTS, [rid], event)?, tx.now));
    }
    Ok(told(looks, &read))
}
