//! Figures.

use std::collections::HashMap;

use rusqlite::{Row, params};
use serde_json::json;
use waypost_kernel::Time;
use waypost_kernel::lifecycle::CANCELLED;
use waypost_kernel::{Lifecycle, StateId};

use crate::engine::turns::{named, short};
use crate::seam::run::RunRow;
use crate::seam::stats::{
    Holder, LATELY, LOOKED_AT, LOOKED_AT_FOR_TARGETS, MOST_BULK_RUNS, Stats, TargetFigures, WEEK,
    counts_targets, is_reverted,
};
use crate::seam::targets::retried_states;
use crate::seam::verbs::HOUSEKEEPING;
use crate::sqlite::layout::AnyText;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::{list, row};

pub fn stats(tx: &Tx<'_>, tenant: &Option<String>) -> Result<Stats> {
    let newest = "(SELECT rid, state, seq, queue, started_at, finished_at, fence, last_command FROM run_now ORDER BY rid DESC LIMIT ?1) n \
        CROSS JOIN run_born b ON b.rid = n.rid \
      WHERE n.finished_at > ?2 AND (?3 IS NULL OR b.tenant = ?3) AND n.queue <> ?4 ORDER BY n.rid DESC";
    let values = params![LOOKED_AT as i64, (tx.now - WEEK).ms(), tenant, HOUSEKEEPING];
    let mut stats = Stats::of(&list::sampled(tx, newest, values)?, tx.now);
    for_people(tx, tenant, &mut stats)?;
    Ok(stats)
}

fn for_people(tx: &Tx<'_>, tenant: &Option<String>, stats: &mut Stats) -> Result<()> {
    let sql = "SELECT n.state, count(*) FROM (SELECT rid, state, queue FROM run_now INDEXED BY run_people WHERE state & 7 IN (0, 3) \
        ORDER BY rid DESC LIMIT ?1) n CROSS JOIN run_born b ON b.rid = n.rid WHERE (?2 IS NULL OR b.tenant = ?2) AND n.queue <> ?3 GROUP BY n.state";
    let values = params![LOOKED_AT as i64, tenant, HOUSEKEEPING];
    for (code, count) in tx.list(sql, values, |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))? {
        if let Some((lifecycle, state)) = tx.named(code)?.of {
            stats.add_for_people(&lifecycle, state, count);
        }
    }
    Ok(())
}

pub fn holders(tx: &Tx<'_>, tenant: &Option<String>) -> Result<Vec<Holder>> {
    let sql = "SELECT claimed_by, tenant, count(*), min(due_at) FROM run_now INDEXED BY run_held \
      WHERE state & 7 = 2 AND claimed_by IS NOT NULL AND (?1 IS NULL OR tenant = ?1) AND queue <> ?2 GROUP BY claimed_by, tenant";
    let mut statement = tx.prepare(sql)?;
    let read = |row: &Row<'_>| {
        Ok(Holder {
            worker: row.get::<_, AnyText>(0)?.0,
            tenant: named(row.get_ref(1)?.as_str()?).to_owned(),
            held: row.get(2)?,
            stale_after: Time::from_ms(row.get(3)?),
        })
    };
    let rows = statement.query_map(params![tenant.as_deref().map(short), HOUSEKEEPING], read)?;
    let mut holders = rows.collect::<rusqlite::Result<Vec<Holder>>>()?;
    holders.sort_by(|one, other| (&one.worker, &one.tenant).cmp(&(&other.worker, &other.tenant)));
    Ok(holders)
}

/// The codes of states, as JSON.
pub(super) fn codes_of(tx: &Tx<'_>, is_meant: fn(&Lifecycle, StateId) -> bool) -> Result<String> {
    let mut codes = Vec::new();
    for code in tx.list("SELECT code FROM state_codes", [], |row| row.get::<_, i64>(0))? {
        if tx.named(code)?.of.is_some_and(|(lifecycle, state)| is_meant(&lifecycle, state)) {
            codes.push(code);
        }
    }
    Ok(json!(codes).to_string())
}

/// A run's counts are kept with it, or counted if it has few targets.
pub fn target_figures(tx: &Tx<'_>, tenant: &Option<String>) -> Result<Vec<TargetFigures>> {
    let codes = codes_of(tx, counts_targets)?;
    let sql = "SELECT n.rid FROM (SELECT rid, state, started_at, finished_at FROM run_now ORDER BY rid DESC LIMIT ?1) n JOIN run_born b ON b.rid = n.rid \
          WHERE n.state IN (SELECT value FROM json_each(?2)) AND (?3 IS NULL OR b.tenant = ?3) AND n.started_at IS NOT NULL \
          AND (n.finished_at IS NULL OR n.finished_at > ?4) ORDER BY n.rid DESC LIMIT ?5";
    let since = (tx.now - LATELY).ms();
    let values = params![LOOKED_AT_FOR_TARGETS as i64, codes, tenant, since, MOST_BULK_RUNS as i64];
    let mut runs = Vec::new();
    for rid in tx.list(sql, values, |row| row.get::<_, i64>(0))? {
        runs.extend(row::by_rid(tx, rid)?);
    }
    let runs: Vec<&RunRow> = runs.iter().map(|stored| &*stored.row).collect();
    let kinds = json!(retried_states(&tx.catalog()).0).to_string();
    let ids = json!(runs.iter().map(|run| run.id()).collect::<Vec<_>>()).to_string();
    let counted = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let sql = "SELECT i.run_id, count(*) FROM items i WHERE i.kind IN (SELECT value FROM json_each(?1)) AND i.error_code = ?2 AND i.error_code IS NOT NULL \
          AND i.finished_at IS NOT NULL AND i.run_id IN (SELECT value FROM json_each(?3)) GROUP BY i.run_id";
    let cancelled: HashMap<String, u64> =
        tx.list(sql, params![kinds, CANCELLED, ids], counted)?.into_iter().collect();
    let sql = "SELECT b.tenant, count(*) FROM items i CROSS JOIN run_born b ON b.run_id = i.run_id CROSS JOIN run_now n ON n.rid = b.rid WHERE i.kind IN (SELECT value FROM json_each(?1)) \
          AND i.error_code IS NOT NULL AND i.error_code <> ?3 AND i.finished_at IS NOT NULL AND i.discarded = 0 AND (?2 IS NULL OR b.tenant = ?2) \
          AND n.state NOT IN (SELECT value FROM json_each(?4)) GROUP BY b.tenant";
    let letters = tx.list(sql, params![kinds, tenant, CANCELLED, codes_of(tx, is_reverted)?], counted)?;
    Ok(TargetFigures::of(&runs, &cancelled, letters))
}
