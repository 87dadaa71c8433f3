//! Reading events: a run's own, or all of them in the order of their commits.

use rusqlite::{Row, params};
use serde_json::{Value, json};
use waypost_kernel::Time;
use waypost_kernel::request::Level;

use super::open::database;
use super::row::{self, json as parse};
use super::save::prepare;
use super::session::Tx;
use crate::error::Result;
use crate::messages::standard_message;
use crate::run::EventRow;

const COLUMNS: &str = "SELECT e.position, r.run_id, e.seq, e.at, e.command, e.src, e.dst, e.actor, e.who, e.level, e.message, \
  e.payload, r.lifecycle, r.version, iif(e.src IS NULL, e.effect, NULL) FROM event_log e JOIN runs r ON r.rid = e.rid";

pub fn events(tx: &Tx<'_>, run_id: &str, after_seq: u64, limit: usize) -> Result<Vec<EventRow>> {
    let rid = row::by_id(tx, run_id)?.rid;
    let condition = "WHERE e.rid = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3";
    read(tx, condition, params![rid, after_seq, limit as i64])
}

pub fn feed(tx: &Tx<'_>, after_position: u64, limit: usize) -> Result<Vec<EventRow>> {
    read(tx, "WHERE e.position > ?1 ORDER BY e.position LIMIT ?2", params![after_position, limit as i64])
}

fn read(tx: &Tx<'_>, condition: &str, values: impl rusqlite::Params) -> Result<Vec<EventRow>> {
    let mut statement = prepare(tx, &format!("{COLUMNS} {condition}"))?;
    let mut rows = statement.query(values).map_err(|error| database(&error))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| database(&error))? {
        found.push(event(tx, row).map_err(|error| database(&error))?);
    }
    Ok(found)
}

fn event(tx: &Tx<'_>, row: &Row<'_>) -> rusqlite::Result<EventRow> {
    let (level, message): (Option<String>, Option<String>) = (row.get(9)?, row.get(10)?);
    let (command, from, to): (String, Option<String>, String) = (row.get(4)?, row.get(5)?, row.get(6)?);
    let (by, payload): (String, Option<String>) = (row.get(8)?, row.get(11)?);
    let lifecycle = tx.lifecycle(&row.get::<_, String>(12)?, row.get(13)?).ok();
    let standard = lifecycle.and_then(|lifecycle| {
        let state = |name: &str| lifecycle.state_named(name).map(|id| lifecycle.state(id));
        Some(standard_message(&command, from.as_deref().and_then(state), state(&to)?, &by))
    });
    let (standard_level, standard_message) = standard.unwrap_or((Level::Info, String::new()));
    Ok(EventRow {
        position: row.get(0)?,
        run_id: row.get(1)?,
        seq: row.get(2)?,
        at: Time::from_ms(row.get(3)?),
        command,
        from,
        to,
        actor: row.get(7)?,
        by,
        level: level.unwrap_or_else(|| standard_level.name().to_owned()),
        message: message.unwrap_or(standard_message),
        payload: payload.map_or_else(|| birth_payload(row), |text| Ok(parse(&text)))?,
    })
}

/// What a run was born with, kept once, in the event's effect.
fn birth_payload(row: &Row<'_>) -> rusqlite::Result<Value> {
    let effect: Option<String> = row.get(14)?;
    let metadata = effect.map(|text| parse(&text)["metadata"].take()).filter(|metadata| !metadata.is_null());
    Ok(metadata.map_or_else(|| json!({}), |metadata| json!({ "metadata": metadata })))
}
