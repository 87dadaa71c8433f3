//! Figures.

use std::collections::HashMap;

use tokio_postgres::Row;
use waypost_kernel::Span;
use waypost_kernel::lifecycle::CANCELLED;

use crate::postgres::link::fault::{Fault, Result};
use crate::postgres::link::session::Tx;
use crate::postgres::row;
use crate::postgres::sql::{Columns, args, stamp, time};
use crate::seam::run::RunRow;
use crate::seam::stats::{
    DAY, Ended, Holder, LATELY, LOOKED_AT, MOST_BULK_RUNS, Stats, TargetFigures, WEEK, counts_targets,
    is_reverted,
};
use crate::seam::targets::retried_states;
use crate::seam::verbs::HOUSEKEEPING;

pub async fn stats(tx: &Tx, tenant: &Option<String>) -> Result<Stats> {
    let sql = "SELECT r.state, count(*) FILTER (WHERE r.finished_at > $1), count(*), count(r.started_at), \
        coalesce(sum(extract(epoch FROM r.finished_at - r.started_at) * 1000000), 0)::bigint \
      FROM (SELECT state, queue, started_at, finished_at, tenant FROM waypost.runs ORDER BY rid DESC LIMIT $3) r \
      WHERE r.finished_at > $2 AND ($4 IS NULL OR r.tenant = $4) AND r.queue <> $5 GROUP BY r.state";
    let (day, week) = (stamp(tx.now - DAY), stamp(tx.now - WEEK));
    let rows = tx.query(sql, args![day, week, LOOKED_AT as i64, tenant.as_deref(), HOUSEKEEPING]).await?;
    let codes = rows.iter().map(|row| Columns(row).get::<i16>(0)).collect::<Result<Vec<_>>>()?;
    let known = tx.known_with(codes.iter().copied()).await?;
    let mut stats = Stats::default();
    for (row, code) in rows.iter().zip(codes) {
        let columns = Columns(row);
        let count = |at| Ok::<u64, Fault>(columns.get::<i64>(at)?.unsigned_abs());
        let Some((lifecycle, state)) = known.state(code) else { continue };
        stats.add(Ended {
            lifecycle: lifecycle.name.to_string(),
            status: lifecycle.state(*state).name.to_string(),
            outcome: lifecycle.state(*state).outcome,
            in_24h: count(1)?,
            in_7d: count(2)?,
            begun: count(3)?,
            took: Span::from_micros(columns.get(4)?),
        });
    }
    for_people(tx, tenant, &mut stats).await?;
    Ok(stats)
}

async fn for_people(tx: &Tx, tenant: &Option<String>, stats: &mut Stats) -> Result<()> {
    let sql = "SELECT r.state, count(*) FROM (SELECT state, queue, tenant FROM waypost.runs ORDER BY rid DESC LIMIT $1) r \
      WHERE (r.state < 2000 OR r.state BETWEEN 4000 AND 4999) AND ($2 IS NULL OR r.tenant = $2) AND r.queue <> $3 GROUP BY r.state";
    let rows = tx.query(sql, args![LOOKED_AT as i64, tenant.as_deref(), HOUSEKEEPING]).await?;
    let codes = rows.iter().map(|row| Columns(row).get::<i16>(0)).collect::<Result<Vec<_>>>()?;
    let known = tx.known_with(codes.iter().copied()).await?;
    for (row, code) in rows.iter().zip(codes) {
        if let Some((lifecycle, state)) = known.state(code) {
            stats.add_for_people(lifecycle, *state, Columns(row).get::<i64>(1)?.unsigned_abs());
        }
    }
    Ok(())
}

pub async fn holders(tx: &Tx, tenant: &Option<String>) -> Result<Vec<Holder>> {
    let sql = "SELECT r.claimed_by, count(*), min(r.stale_after), r.tenant \
      FROM (SELECT DISTINCT u.rid FROM waypost.watch w CROSS JOIN unnest(w.rids) AS u(rid)) h JOIN waypost.runs r ON r.rid = h.rid \
      WHERE r.state / 1000 = 3 AND r.claimed_by IS NOT NULL AND ($1 IS NULL OR r.tenant = $1) AND r.queue <> $2 \
      GROUP BY r.claimed_by, r.tenant ORDER BY r.claimed_by COLLATE \"C\", r.tenant COLLATE \"C\"";
    let rows = tx.query(sql, args![tenant.as_deref(), HOUSEKEEPING]).await?;
    let read = |row| {
        let columns = Columns(row);
        Ok(Holder {
            worker: columns.get(0)?,
            tenant: columns.get(3)?,
            held: columns.get::<i64>(1)?.unsigned_abs(),
            stale_after: time(columns.get(2)?),
        })
    };
    rows.iter().map(read).collect()
}

/// A run's counts are kept with it, or counted if it has few targets.
pub async fn target_figures(tx: &Tx, tenant: &Option<String>) -> Result<Vec<TargetFigures>> {
    if tenant.as_ref().is_some_and(|tenant| tenant.contains('\0')) {
        return Ok(Vec::new());
    }
    let known = tx.known_now().await?;
    let codes = known.codes(counts_targets);
    let condition = "FROM (SELECT x.rid FROM (SELECT rid, state, tenant, started_at, finished_at FROM waypost.runs ORDER BY rid DESC LIMIT $1) x \
          WHERE x.state = ANY ($2) AND ($3 IS NULL OR x.tenant = $3) AND x.started_at IS NOT NULL AND (x.finished_at IS NULL OR x.finished_at > $4) \
          ORDER BY x.rid DESC LIMIT $5) n JOIN waypost.runs r ON r.rid = n.rid";
    let (looked_at, most, since) = (LOOKED_AT as i64, MOST_BULK_RUNS as i64, stamp(tx.now - LATELY));
    let runs =
        row::select_lean(tx, condition, args![looked_at, codes, tenant.as_deref(), since, most]).await?;
    let runs: Vec<&RunRow> = runs.iter().map(|stored| &*stored.row).collect();
    let kinds = retried_states(&known.catalog).0;
    let ids: Vec<&str> = runs.iter().map(|run| run.id()).collect();
    let sql = "SELECT r.run_id, count(*) FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid WHERE i.kind = ANY ($1) AND i.error_code = $2 \
          AND i.finished_at IS NOT NULL AND r.run_id = ANY ($3) GROUP BY r.run_id";
    let cancelled = tx.query(sql, args![kinds, CANCELLED, ids]).await?;
    let cancelled: Result<HashMap<String, u64>> = cancelled.iter().map(counted).collect();
    let sql = "SELECT r.tenant, count(*) FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid WHERE i.kind = ANY ($1) AND i.error_code <> $3 \
          AND i.finished_at IS NOT NULL AND NOT i.discarded AND ($2 IS NULL OR r.tenant = $2) AND r.state <> ALL ($4) GROUP BY r.tenant";
    let reverted = known.codes(is_reverted);
    let rows = tx.query(sql, args![kinds, tenant.as_deref(), CANCELLED, reverted]).await?;
    let letters: Result<Vec<(String, u64)>> = rows.iter().map(counted).collect();
    Ok(TargetFigures::of(&runs, &cancelled?, letters?))
}

/// A name, and how many.
fn counted(row: &Row) -> Result<(String, u64)> {
    Ok((Columns(row).get(0)?, Columns(row).get::<i64>(1)?.unsigned_abs()))
}
