//! Reminders of leases. When one is due its runs are looked up: those that are not held any more are forgotten, renewed
//! ones are reminded of again, and what is left behind is adrift until a worker takes it over or the engine ends it.

use super::fault::Result;
use super::row::{self, Stored};
use super::session::Tx;
use super::sql::{Columns, args, stamp};

const PAGE: i64 = 64;
/// One claim's or sweep's share.
const MAX_PAGES: usize = 64;

/// Looks after reminders that are due.
pub async fn look(tx: &Tx) -> Result<()> {
    let sql = "WITH due AS (SELECT w.ctid AS place, w.rids FROM waypost.watch w WHERE NOT w.adrift AND w.due_at < $1 \
                 ORDER BY w.due_at LIMIT $2 FOR UPDATE SKIP LOCKED), \
               gone AS (DELETE FROM waypost.watch WHERE ctid = ANY (ARRAY(SELECT place FROM due))), \
               held AS (SELECT DISTINCT r.rid, r.stale_after, r.claimed_by IS NULL OR r.stale_after < $1 AS adrift \
                 FROM due CROSS JOIN unnest(due.rids) AS u(rid) JOIN waypost.runs r ON r.rid = u.rid WHERE r.state / 1000 = 3), \
               kept AS (INSERT INTO waypost.watch(due_at, adrift, rids) \
                 SELECT min(stale_after), false, array_agg(rid) FROM held WHERE NOT adrift GROUP BY date_trunc('second', stale_after) \
                 UNION ALL SELECT stale_after, true, ARRAY[rid] FROM held WHERE adrift) \
               SELECT count(*) FROM due";
    for _ in 0..MAX_PAGES {
        let found: i64 = Columns(&tx.one(sql, args![stamp(tx.now), PAGE]).await?).get(0)?;
        if found < PAGE {
            break;
        }
    }
    Ok(())
}

/// Runs of these queues that nobody works any more, the longest waiting first. The kernel says which of them a worker may
/// take; the rest is the sweeper's.
pub async fn adrift(
    tx: &Tx,
    queues: &[&str],
    after: (waypost_kernel::Time, i64),
    limit: i64,
) -> Result<Vec<Stored>> {
    row::select(
        tx,
        "FROM (SELECT DISTINCT w.rids[1] AS rid FROM waypost.watch w WHERE w.adrift AND w.due_at <= $1) w JOIN waypost.runs r ON r.rid = w.rid \
         WHERE r.queue = ANY ($2) AND r.state / 1000 = 3 AND (r.claimed_by IS NULL OR r.stale_after < $1) \
         AND (r.stale_after, r.rid) > ($3, $4) ORDER BY r.stale_after, r.rid LIMIT $5",
        args![stamp(tx.now), queues.to_vec(), stamp(after.0), after.1, limit],
    )
    .await
}

/// Those have a holder again, or an end.
pub async fn ashore(tx: &Tx, runs: &[&Stored]) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let ends: Vec<_> = runs.iter().map(|it| row::stale_after(&it.row.run).map(stamp)).collect();
    let sql = "DELETE FROM waypost.watch w USING unnest($1, $2) AS u(due_at, rid) WHERE w.adrift AND w.due_at = u.due_at AND w.rids = ARRAY[u.rid]";
    tx.run(sql, args![ends, runs.iter().map(|it| it.rid).collect::<Vec<_>>()]).await.map(drop)
}

/// What is said to be adrift but has a holder again is reminded of as all are; what is not held is forgotten.
pub async fn tidy(tx: &Tx) -> Result<()> {
    let sql = "WITH wrong AS (SELECT w.ctid AS place, w.rids[1] AS rid FROM waypost.watch w LEFT JOIN waypost.runs r ON r.rid = w.rids[1] \
                 WHERE w.adrift AND w.due_at <= $1 AND NOT coalesce(r.state / 1000 = 3 AND (r.claimed_by IS NULL OR r.stale_after < $1), false) \
                 LIMIT 10000 FOR UPDATE OF w SKIP LOCKED), \
               gone AS (DELETE FROM waypost.watch WHERE ctid = ANY (ARRAY(SELECT place FROM wrong))) \
               INSERT INTO waypost.watch(due_at, rids) SELECT r.stale_after, ARRAY[r.rid] FROM wrong JOIN waypost.runs r ON r.rid = wrong.rid \
                 WHERE r.state / 1000 = 3";
    tx.run(sql, args![stamp(tx.now)]).await.map(drop)
}
