//! Figures.

use std::collections::HashMap;

use tokio_postgres::Row;
use waypost_kernel::lifecycle::CANCELLED;
use waypost_kernel::waiting::waits_for_people;

use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result;
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Columns, args, stamp, time};
use crate::postgres::{list, row};
use crate::seam::run::RunRow;
use crate::seam::stats::{
    Holder, LATELY, LOOKED_AT, LOOKED_AT_FOR_TARGETS, MOST_BULK_RUNS, Stats, TargetFigures, WEEK,
    counts_targets, is_reverted,
};
use crate::seam::targets::retried_states;
use crate::seam::verbs::HOUSEKEEPING;

pub async fn stats(tx: &Tx, tenant: &Option<String>) -> Result<Stats> {
    let known = tx.known_now().await?;
    let newest = "(SELECT * FROM waypost.runs ORDER BY rid DESC LIMIT $1) r \
      WHERE r.finished_at > $2 AND ($3 IS NULL OR r.tenant = $3) AND r.queue <> $4 ORDER BY r.rid DESC";
    let (week, tenant_name) = (stamp(tx.now - WEEK), tenant.as_deref());
    let values = args![LOOKED_AT as i64, week, tenant_name, HOUSEKEEPING];
    let mut stats = Stats::of(&list::sampled(tx, &known, ("1::bigint", newest), values).await?, tx.now);
    for_people(tx, &known, tenant, &mut stats).await?;
    Ok(stats)
}

/// The log has an index of what came into such a state: of each the newest that did are looked at, and count if they are there still.
async fn for_people(
    tx: &Tx,
    known: &LifecycleCodes,
    tenant: &Option<String>,
    stats: &mut Stats,
) -> Result<()> {
    let sql = "SELECT s.state, count(DISTINCT r.rid) FROM unnest($1) AS s(state) CROSS JOIN LATERAL (SELECT e.rid FROM waypost.events e \
        WHERE e.dst = s.state AND (e.dst < 2000 OR e.dst BETWEEN 4000 AND 4999 OR e.dst >= 6000) ORDER BY e.rid DESC LIMIT $2) e \
      JOIN waypost.runs r ON r.rid = e.rid AND r.state = s.state WHERE ($3 IS NULL OR r.tenant = $3) AND r.queue <> $4 GROUP BY s.state";
    let codes = known.codes(waits_for_people);
    for row in tx.query(sql, args![codes, LOOKED_AT as i64, tenant.as_deref(), HOUSEKEEPING]).await? {
        if let Some((lifecycle, state)) = known.state(Columns(&row).get(0)?) {
            stats.add_for_people(lifecycle, *state, Columns(&row).get::<i64>(1)?.unsigned_abs());
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
    let (looked_at, most, since) =
        (LOOKED_AT_FOR_TARGETS as i64, MOST_BULK_RUNS as i64, stamp(tx.now - LATELY));
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
