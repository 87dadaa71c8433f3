//! Retention: settled runs leave when their time is over, with their items and events, and are counted.

use std::collections::HashMap;

use super::fault::Result;
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp};
use crate::verbs::Pruned;

/// Looked at in one go, whether they may leave or not: the oldest come first and leave first.
const LOOK: usize = 2_000;

pub async fn prune(session: &Session, limit: usize) -> Result<Pruned> {
    let tx = session.begin().await?;
    let pruned = prune_in(&tx, limit).await;
    tx.end(pruned).await
}

struct Over {
    rid: i64,
    seq: i32,
    lifecycle: String,
}

async fn prune_in(tx: &Tx, limit: usize) -> Result<Pruned> {
    // One at a time.
    let first = "INSERT INTO waypost.meta VALUES ('pruned_to', '0') ON CONFLICT (key) DO UPDATE SET value = waypost.meta.value RETURNING value::bigint";
    let cursor: i64 = Columns(&tx.one(first, &[]).await?).get(0)?;
    let sql = "SELECT r.rid, r.seq, r.state, r.finished_at, r.operating FROM waypost.runs r WHERE r.rid > $1 ORDER BY r.rid LIMIT $2";
    let found = tx.query(sql, args![cursor, LOOK as i64]).await?;
    let codes = found.iter().map(|row| Columns(row).get::<i16>(2)).collect::<Result<Vec<_>>>()?;
    let known = tx.known_with(codes).await?;
    let mut pruned = Pruned { more: found.len() == LOOK, ..Pruned::default() };
    let mut next =
        if found.len() < LOOK { 0 } else { found.last().map_or(Ok(0), |row| Columns(row).get(0))? };
    let mut over = Vec::new();
    for row in &found {
        let columns = Columns(row);
        let rid: i64 = columns.get(0)?;
        if over.len() >= limit {
            (pruned.more, next) = (true, rid - 1);
            break;
        }
        let Some((lifecycle, state)) = known.state(columns.get(2)?) else { continue };
        let keep = lifecycle.state(*state).keep.zip(columns.time(3)?);
        if keep.is_some_and(|(keep, finished_at)| finished_at + keep < tx.now) && !columns.get::<bool>(4)? {
            over.push(Over { rid, seq: columns.get(1)?, lifecycle: lifecycle.name.to_string() });
        }
    }
    remove(tx, &over, &mut pruned).await?;
    // At the end of the table the next look begins again with the oldest.
    tx.run("UPDATE waypost.meta SET value = $1 WHERE key = 'pruned_to'", args![next.to_string()]).await?;
    Ok(pruned)
}

/// If they are still what they were when they were looked at.
async fn remove(tx: &Tx, over: &[Over], pruned: &mut Pruned) -> Result<()> {
    if over.is_empty() {
        return Ok(());
    }
    tx.run("SELECT set_config('waypost.pruning', 'on', true)", &[]).await?;
    let (rids, seqs): (Vec<i64>, Vec<i32>) = over.iter().map(|it| (it.rid, it.seq)).unzip();
    let sql = "DELETE FROM waypost.runs r USING unnest($1, $2) AS u(rid, seq) WHERE r.rid = u.rid AND r.seq = u.seq RETURNING r.rid";
    let gone = tx.query(sql, args![rids, seqs]).await?;
    let gone = gone.iter().map(|row| Columns(row).get(0)).collect::<Result<Vec<i64>>>()?;
    tx.run("DELETE FROM waypost.items WHERE rid = ANY ($1)", args![gone]).await?;
    let sql = "WITH gone AS (DELETE FROM waypost.events WHERE rid = ANY ($1) RETURNING rid, via) SELECT rid, count(*) + count(via) FROM gone GROUP BY rid";
    let rows = tx.query(sql, args![gone]).await?;
    let counts = rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?)));
    let counts = counts.collect::<Result<HashMap<i64, i64>>>()?;
    let left: Vec<&Over> = over.iter().filter(|it| gone.contains(&it.rid)).collect();
    let events = |it: &&Over| counts.get(&it.rid).copied().unwrap_or_default();
    tx.run(
        "INSERT INTO waypost.pruned AS p(day, lifecycle, runs, events) SELECT ($3 AT TIME ZONE 'UTC')::date, lifecycle, count(*), sum(events) \
         FROM unnest($1, $2) AS u(lifecycle, events) GROUP BY lifecycle \
         ON CONFLICT (day, lifecycle) DO UPDATE SET runs = p.runs + excluded.runs, events = p.events + excluded.events",
        args![
            left.iter().map(|it| it.lifecycle.as_str()).collect::<Vec<_>>(),
            left.iter().map(events).collect::<Vec<_>>(),
            stamp(tx.now),
        ],
    )
    .await?;
    pruned.runs = left.len() as u64;
    pruned.events = left.iter().map(events).sum::<i64>().unsigned_abs();
    tx.has_written(false);
    Ok(())
}
