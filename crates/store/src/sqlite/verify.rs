//! Replays every run's log and compares it with its row and its items.

use rusqlite::params;

use crate::engine::Stored;
use crate::rules::replay::Replay;
use crate::seam::verbs::Verified;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::log;
use crate::sqlite::row::{self, BOTH};

const PAGE: usize = 500;

pub fn verify(tx: &Tx<'_>, progress: &dyn Fn(u64, u64)) -> Result<Verified> {
    let total: u64 = tx.conn.query_row("SELECT count(*) FROM run_born", [], |row| row.get(0))?;
    let mut verified = Verified::default();
    let mut after = 0;
    loop {
        let from = format!("{BOTH} WHERE n.rid > ?1 ORDER BY n.rid LIMIT ?2");
        let page = row::select(tx, &from, params![after, PAGE as i64])?;
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
    let written: u64 = tx.conn.query_row(
        "SELECT (SELECT count(*) FROM run_born) + (SELECT count(*) + count(via) FROM run_events)",
        [],
        |row| row.get(0),
    )?;
    let lost = written.saturating_sub(verified.events);
    if lost > 0 && unread == 0 {
        verified.differences.push(format!("{lost} events belong to no run"));
    }
    Ok(verified)
}

fn one(tx: &Tx<'_>, stored: &Stored, verified: &mut Verified) -> Result<()> {
    let row = &stored.row;
    let mut replay = Replay::new(&row.lifecycle, row.id());
    for written in log::of(tx, stored)? {
        verified.events += 1;
        replay.add(&written);
    }
    let items = row::items(tx, stored, "WHERE run_id = ?1 ORDER BY kind, key", params![row.id()])?;
    let items: Vec<_> = items.into_iter().map(|found| found.item).collect();
    verified.differences.extend(replay.differences(row, &items));
    Ok(())
}
