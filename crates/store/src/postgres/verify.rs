//! Replays every run's log and compares it with its row and its items; then holds the tables beside against `runs`.

use std::collections::HashMap;

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::Lifecycle;

use crate::columns::parse;
use crate::engine::{Stored, StoredItem};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result;
use crate::postgres::link::session::{Session, Tx};
use crate::postgres::row::{self, as_stored};
use crate::postgres::sql::{Columns, args, time};
use crate::rules::replay::{Replay, Written};
use crate::seam::verbs::Verified;

const PAGE: i64 = 500;

/// What must be nothing, and its words.
const BESIDE: &[(&str, &str)] = &[
    (
        "SELECT count(*) FROM waypost.events e WHERE NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = e.rid)",
        "events belong to no run",
    ),
    (
        "SELECT count(*) FROM waypost.runs r WHERE r.state / 1000 = 2 AND NOT EXISTS (SELECT 1 FROM waypost.ready q WHERE q.rid = r.rid AND q.seq = r.seq) \
         AND NOT EXISTS (SELECT 1 FROM waypost.blocked a WHERE a.rid = r.rid AND a.seq = r.seq)",
        "ready runs stand in no queue",
    ),
    (
        "SELECT count(*) FROM waypost.runs r WHERE r.state / 1000 = 3 AND NOT EXISTS (SELECT 1 FROM waypost.watch w WHERE w.rids @> ARRAY[r.rid] \
         AND w.due_at <= r.stale_after)",
        "held runs have nobody who looks after their lease",
    ),
    (
        "SELECT count(*) FROM waypost.holders h LEFT JOIN waypost.runs r ON r.rid = h.rid WHERE r.state / 1000 IS DISTINCT FROM 3",
        "slots are held by runs that are not held",
    ),
    (
        "SELECT count(*) FROM waypost.runs r WHERE r.state / 1000 = 3 AND r.concurrency_key IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM waypost.holders h WHERE NOT h.of_queue AND h.name = r.concurrency_key AND h.rid = r.rid)",
        "held runs do not count for their key",
    ),
];

/// Each page sees one instant of its own: a look at all of them at one would keep the server from cleaning up.
pub async fn verify(session: &Session, progress: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<Verified> {
    let total = count(session, "SELECT count(*) FROM waypost.runs").await?;
    let mut verified = Verified::default();
    let mut after = 0;
    let mut unread = 0;
    loop {
        let tx = session.look().await?;
        let page = page(&tx, after, &mut verified).await;
        let Some((last, skipped)) = tx.end(page).await? else { break };
        after = last;
        unread += skipped;
        progress(verified.runs, total.max(verified.runs));
    }
    if unread > 0 {
        verified.differences.push(format!("{unread} runs have a lifecycle that this binary cannot read"));
    }
    for (sql, words) in BESIDE {
        let wrong = count(session, sql).await?;
        if wrong > 0 {
            verified.differences.push(format!("{wrong} {words}"));
        }
    }
    Ok(verified)
}

async fn count(session: &Session, sql: &str) -> Result<u64> {
    let tx = session.look().await?;
    // There is no telling how many runs there are.
    let row = async {
        tx.run("SET LOCAL statement_timeout = 0", &[]).await?;
        tx.one(sql, &[]).await
    };
    let row = row.await;
    Ok(Columns(&tx.end(row).await?).get::<i64>(0)?.unsigned_abs())
}

/// The last of a page, and how many of it could not be read; nothing at the end.
async fn page(tx: &Tx, after: i64, verified: &mut Verified) -> Result<Option<(i64, u64)>> {
    let sql = "SELECT r.rid FROM waypost.runs r WHERE r.rid > $1 ORDER BY r.rid LIMIT $2";
    let rows = tx.query(sql, args![after, PAGE]).await?;
    let rids = rows.iter().map(|row| Columns(row).get(0)).collect::<Result<Vec<i64>>>()?;
    let Some(last) = rids.last().copied() else { return Ok(None) };
    let mut runs = row::by_rids(tx, &rids).await?;
    runs.sort_by_key(|stored| stored.rid);
    let lifecycles: HashMap<i64, &Lifecycle> = runs.iter().map(|it| (it.rid, &*it.row.lifecycle)).collect();
    let condition = "WHERE i.rid = ANY ($1) ORDER BY i.rid, i.kind, i.key";
    let items = row::items(tx, condition, args![rids], |rid| lifecycles.get(&rid).copied()).await?;
    let sql = "SELECT e.rid, e.seq, e.at, e.command, e.src, e.dst, e.actor, e.who, e.effect::text FROM waypost.log e \
               WHERE e.rid = ANY ($1) ORDER BY e.rid, e.seq";
    let events = tx.query(sql, args![rids]).await?;
    let mut by_run: HashMap<i64, Vec<&Row>> = HashMap::new();
    for row in &events {
        by_run.entry(Columns(row).get(0)?).or_default().push(row);
    }
    let known = tx.session.known();
    for stored in &runs {
        let events = by_run.remove(&stored.rid).unwrap_or_default();
        one(&known, stored, &events, &items, verified)?;
    }
    verified.runs += runs.len() as u64;
    Ok(Some((last, (rids.len() - runs.len()) as u64)))
}

fn one(
    known: &LifecycleCodes,
    stored: &Stored,
    events: &[&Row],
    items: &[StoredItem],
    verified: &mut Verified,
) -> Result<()> {
    let row = &stored.row;
    let mut replay = Replay::new(&row.lifecycle, row.id());
    for event in events {
        verified.events += 1;
        replay.add(&written(known, event)?);
    }
    let items: Vec<_> = items.iter().filter(|it| it.rid == stored.rid).map(|it| it.item.clone()).collect();
    verified.differences.extend(replay.differences(row, &items));
    Ok(())
}

fn written(known: &LifecycleCodes, row: &Row) -> Result<Written> {
    let columns = Columns(row);
    let name = |code: i16| known.state(code).map(|(lifecycle, id)| lifecycle.state(*id).name.to_string());
    Ok(Written {
        seq: u64::from(columns.get::<i32>(1)?.unsigned_abs()),
        at: time(columns.get(2)?),
        command: columns.get(3)?,
        from: columns.get::<Option<i16>>(4)?.and_then(name),
        to: name(columns.get(5)?).unwrap_or_default(),
        actor: columns.get(6)?,
        by: columns.get(7)?,
        effect: columns.get::<Option<&str>>(8)?.map(|text| merged(parse(text))),
    })
}

/// What was merged into the row is compared with it, as the row has it.
fn merged(mut effect: Value) -> Value {
    for key in ["metadata", "details"] {
        if let Some(patch) = effect.get_mut(key) {
            as_stored(patch);
        }
    }
    effect
}
