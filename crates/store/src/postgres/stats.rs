//! Figures.

use waypost_kernel::Span;

use crate::postgres::link::fault::{Fault, Result};
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Columns, args, stamp, time};
use crate::seam::stats::{DAY, Ended, Holder, LOOKED_AT, Stats, WEEK};
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
      WHERE r.state / 1000 = 3 AND r.claimed_by IS NOT NULL AND ($1 IS NULL OR r.tenant = $1) \
      GROUP BY r.claimed_by, r.tenant ORDER BY r.claimed_by COLLATE \"C\", r.tenant COLLATE \"C\"";
    let rows = tx.query(sql, args![tenant.as_deref()]).await?;
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
