//! Replays every run's log and compares it with its row and its items.

use rusqlite::params;
use waypost_kernel::Time;

use super::open::database;
use super::row::{self, Stored};
use super::save::prepare;
use super::session::Tx;
use crate::error::Result;
use crate::replay::{Replay, Written};
use crate::verbs::Verified;

const PAGE: usize = 500;

pub fn verify(tx: &Tx<'_>, progress: &dyn Fn(u64, u64)) -> Result<Verified> {
    let total: u64 = tx
        .conn
        .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
        .map_err(|error| database(&error))?;
    let mut verified = Verified::default();
    let mut after = 0;
    loop {
        let page = row::select(tx, "WHERE rid > ?1 ORDER BY rid LIMIT ?2", params![after, PAGE as i64])?;
        let Some(last) = page.last() else { break };
        after = last.rid;
        for stored in &page {
            one(tx, stored, &mut verified)?;
            verified.runs += 1;
        }
        progress(verified.runs, total);
    }
    let unread = total.saturating_sub(verified.runs);
    if unread > 0 {
        verified.differences.push(format!("{unread} runs have a lifecycle that this binary cannot read"));
    }
    let lost: u64 = tx
        .conn
        .query_row(
            "SELECT count(*) FROM event_log e WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.rid = e.rid)",
            [],
            |row| row.get(0),
        )
        .map_err(|error| database(&error))?;
    if lost > 0 {
        verified.differences.push(format!("{lost} events belong to no run"));
    }
    Ok(verified)
}

fn one(tx: &Tx<'_>, stored: &Stored, verified: &mut Verified) -> Result<()> {
    let row = &stored.row;
    let mut replay = Replay::new(&row.lifecycle, row.id());
    let mut statement = prepare(
        tx,
        "SELECT seq, at, command, src, dst, actor, who, effect FROM event_log WHERE rid = ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query(params![stored.rid]).map_err(|error| database(&error))?;
    while let Some(found) = rows.next().map_err(|error| database(&error))? {
        let written = written(found).map_err(|error| database(&error))?;
        verified.events += 1;
        replay.add(&written);
    }
    let items = row::items(tx, &row.lifecycle, "WHERE run_id = ?1 ORDER BY kind, key", params![row.id()])?;
    let items: Vec<_> = items.into_iter().map(|found| found.item).collect();
    verified.differences.extend(replay.differences(row, &items));
    Ok(())
}

fn written(row: &rusqlite::Row<'_>) -> rusqlite::Result<Written> {
    let effect: Option<String> = row.get(7)?;
    Ok(Written {
        seq: row.get(0)?,
        at: Time::from_ms(row.get(1)?),
        command: row.get(2)?,
        from: row.get(3)?,
        to: row.get(4)?,
        actor: row.get(5)?,
        by: row.get(6)?,
        effect: effect.map(|text| row::json(&text)),
    })
}
