//! Replays every run's log and compares it with its row and its items; then holds the tables beside against `runs`.

use std::collections::HashMap;

use serde_json::Value;
use tokio_postgres::Row;
use waypost_kernel::Lifecycle;
use waypost_kernel::item::Item;

use crate::columns::parse;
use crate::engine::{self, Stored, StoredItem};
use crate::postgres::doctor::{TRIGGERS_ON, guards_off};
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result;
use crate::postgres::link::session::{Session, Tx};
use crate::postgres::row::{self, as_stored};
use crate::postgres::sql::{Columns, args, time};
use crate::postgres::tables::PgTx;
use crate::rules::replay::{Replay, Written};
use crate::seam::verbs::{HOUSEKEEPING, Verified};

const PAGE: i64 = 500;
/// Items of small runs that are in memory at once; a run with more is read page by page.
const ITEMS: i64 = 2_000;
/// Of such a run's log, at once: an event may have moved hundreds of items.
const EVENTS: i64 = 32;
const LOG: &str =
    "SELECT e.rid, e.seq, e.at, e.command, e.src, e.dst, e.actor, e.who, e.effect::text FROM waypost.log e";

/// Each gives a line for what is wrong, at most as many as people look at.
const BESIDE: &[&str] = &[
    "SELECT format('run number %s is not there, and %s events of it are: %s to %s', e.rid, count(*), min(e.seq), max(e.seq)) FROM waypost.events e \
     WHERE NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = e.rid) GROUP BY e.rid LIMIT 1000",
    "SELECT format('run number %s is not there, and its %s %s is', i.rid, i.kind, i.key) FROM waypost.items i \
     WHERE NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.rid = i.rid) LIMIT 1000",
    // A step that its run was born with and that had ended by then is what it was in the run that is repeated, as long as that is there.
    "SELECT format('%s: %s %s was %s from the beginning, and is no copy of one in %s', r.run_id, i.kind, i.key, i.status, \
       coalesce(r.retry_of, 'another run')) FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid JOIN waypost.lifecycle_states s \
       ON s.lifecycle = i.kind AND s.version = i.version AND s.state = i.status LEFT JOIN waypost.runs o ON o.run_id = r.retry_of \
     WHERE i.seq = 1 AND NOT s.initial AND (r.retry_of IS NULL OR o.finished_at <= r.queued_at) AND NOT EXISTS (SELECT 1 FROM waypost.items c \
       WHERE c.rid = o.rid AND c.kind = i.kind AND c.key = i.key AND c.status = i.status \
       AND coalesce(c.output, 'null') = coalesce(i.output, 'null')) LIMIT 1000",
    // Steps of the same name in another playbook are other steps.
    "SELECT format('%s: %s %s was %s from the beginning, and %s is a run of another playbook or lifecycle', r.run_id, i.kind, i.key, i.status, o.run_id) \
     FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid JOIN waypost.runs o ON o.run_id = r.retry_of \
       JOIN waypost.lifecycle_states s ON s.lifecycle = i.kind AND s.version = i.version AND s.state = i.status \
       JOIN waypost.lifecycle_states t ON t.code = r.state JOIN waypost.lifecycle_states u ON u.code = o.state \
     WHERE i.seq = 1 AND NOT s.initial AND (r.playbook IS DISTINCT FROM o.playbook OR r.tenant <> o.tenant OR t.lifecycle <> u.lifecycle) LIMIT 1000",
    "SELECT format('%s: it is ready and stands in no queue', r.run_id) FROM waypost.runs r WHERE r.state / 1000 = 2 \
     AND NOT EXISTS (SELECT 1 FROM waypost.ready q WHERE q.rid = r.rid AND q.seq = r.seq AND q.tenant = r.tenant AND q.queue = r.queue AND q.priority = r.priority) \
     AND NOT EXISTS (SELECT 1 FROM waypost.blocked a WHERE a.rid = r.rid AND a.seq = r.seq AND a.tenant = r.tenant AND a.queue = r.queue AND a.priority = r.priority) LIMIT 1000",
    "WITH looked AS (SELECT u.rid, min(w.due_at) AS due_at FROM waypost.watch w CROSS JOIN unnest(w.rids) u(rid) GROUP BY u.rid) \
     SELECT format('%s: nobody looks after its lease', r.run_id) FROM waypost.runs r LEFT JOIN looked l ON l.rid = r.rid AND l.due_at <= r.stale_after \
     WHERE r.state / 1000 = 3 AND l.rid IS NULL LIMIT 1000",
    "SELECT format('%s: it has a slot of %s and is not held', coalesce(r.run_id, 'run number ' || h.rid), h.name) FROM waypost.holders h \
     LEFT JOIN waypost.runs r ON r.rid = h.rid WHERE r.state / 1000 IS DISTINCT FROM 3 OR h.of_queue AND r.claimed_by IS NULL LIMIT 1000",
    "SELECT format('%s: it is held and has no slot of its key %s', r.run_id, r.concurrency_key) FROM waypost.runs r WHERE r.state / 1000 = 3 \
     AND r.concurrency_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM waypost.holders h WHERE NOT h.of_queue AND h.name = r.concurrency_key AND h.tenant = r.tenant \
     AND h.rid = r.rid) LIMIT 1000",
    // Who may make which move, as it was declared.
    "SELECT format('lifecycle %s (version %s): %s from %s to %s is not what its definition says', s.lifecycle, s.version, t.command, s.state, coalesce(d.state, 'nowhere')) \
     FROM waypost.lifecycle_transitions t LEFT JOIN waypost.lifecycle_states s ON s.code = t.src LEFT JOIN waypost.lifecycle_states d ON d.code = t.dst \
     WHERE NOT EXISTS (SELECT 1 FROM waypost.lifecycles l CROSS JOIN jsonb_array_elements(l.definition::jsonb -> 'transitions') x \
       WHERE l.name = s.lifecycle AND l.version = s.version AND x ->> 'command' = t.command AND x ->> 'from' = s.state AND x ->> 'to' = d.state \
       AND x -> 'by' = to_jsonb(t.actors) AND (jsonb_array_length(x -> 'guards') = 0) = (t.guards = 0)) LIMIT 1000",
    "SELECT format('lifecycle %s (version %s): %s to %s has other numbers than its states', m.lifecycle, m.version, m.src, m.dst) FROM waypost.lifecycle_moves m \
     LEFT JOIN waypost.lifecycle_states s ON s.lifecycle = m.lifecycle AND s.version = m.version AND s.state = m.src \
     LEFT JOIN waypost.lifecycle_states d ON d.lifecycle = m.lifecycle AND d.version = m.version AND d.state = m.dst \
     WHERE m.src_code IS DISTINCT FROM s.code OR m.dst_code IS DISTINCT FROM d.code LIMIT 1000",
    // An execution is what its run is. Who ran it and with which token is kept longer than the run keeps it.
    "SELECT format('%s: execution %s of %s has %s %s, the run says %s', r.run_id, x.plan_time, x.schedule, k.name, \
       coalesce(to_jsonb(x) ->> k.name, 'nothing'), coalesce(to_jsonb(f) ->> k.name, 'nothing')) \
     FROM waypost.executions x JOIN waypost.runs r ON r.run_id = x.run_id JOIN waypost.lifecycle_states s ON s.code = r.state AND s.lifecycle = 'cron' \
     CROSS JOIN LATERAL waypost.cron_follows(x, r, s.state) f \
     CROSS JOIN unnest('{execution_id,status,attempt,max_attempts,next_retry_at,runner_id,lease_token,stale_after,started_at,finished_at,duration_ms,rows_affected,result,error_code,error_msg}'::text[]) k(name) \
     WHERE to_jsonb(x) -> k.name IS DISTINCT FROM to_jsonb(f) -> k.name LIMIT 1000",
    "SELECT format('execution %s of %s %s', x.plan_time, x.schedule, CASE WHEN x.run_id IS NULL THEN 'is ' || x.status || ' without a run' \
       ELSE 'has run ' || x.run_id || ', which is not there' END) FROM waypost.executions x \
     WHERE x.run_id IS NULL AND x.status IS NOT NULL OR x.run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM waypost.runs r WHERE r.run_id = x.run_id) LIMIT 1000",
];

/// Each page sees one instant of its own: a look at all of them at one would keep the server from cleaning up.
pub async fn verify(session: &Session, progress: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<Verified> {
    let counted = ask(session, "SELECT count(*) FROM waypost.runs").await?;
    let total = counted.first().map_or(Ok(0), |row| Columns(row).get::<i64>(0))?.unsigned_abs();
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
    for sql in BESIDE {
        for row in &ask(session, sql).await? {
            verified.differences.push(Columns(row).get(0)?);
        }
    }
    let on = ask(session, TRIGGERS_ON).await?;
    let on = on.iter().map(|row| Columns(row).get(0)).collect::<Result<Vec<String>>>()?;
    verified.unguarded =
        guards_off(&on).iter().map(|name| format!("guard {name} is off or missing")).collect();
    let mut tx = PgTx::look(session).await?;
    let unsound = engine::unsound(&mut tx).await;
    verified.differences.extend(tx.end(unsound).await?);
    Ok(verified)
}

async fn ask(session: &Session, sql: &str) -> Result<Vec<Row>> {
    let tx = session.look().await?;
    // There is no telling how many runs there are.
    let rows = async {
        tx.run("SET LOCAL statement_timeout = 0", &[]).await?;
        tx.query(sql, &[]).await
    };
    let rows = rows.await;
    tx.end(rows).await
}

/// The last of a page, and how many of it could not be read; nothing at the end.
async fn page(tx: &Tx, after: i64, verified: &mut Verified) -> Result<Option<(i64, u64)>> {
    let sql = "SELECT r.rid FROM waypost.runs r WHERE r.rid > $1 ORDER BY r.rid LIMIT $2";
    let rows = tx.query(sql, args![after, PAGE]).await?;
    let rids = rows.iter().map(|row| Columns(row).get(0)).collect::<Result<Vec<i64>>>()?;
    let Some(last) = rids.last().copied() else { return Ok(None) };
    let mut unread = 0;
    let (parts, larger) = by_size(tx, rids).await?;
    for rids in parts {
        unread += part(tx, rids, verified).await?;
    }
    for rid in larger {
        unread += u64::from(!large(tx, rid, verified).await?);
    }
    Ok(Some((last, unread)))
}

/// Runs that are replayed together, and large ones, each of which is replayed by itself.
async fn by_size(tx: &Tx, rids: Vec<i64>) -> Result<(Vec<Vec<i64>>, Vec<i64>)> {
    let sql = "SELECT i.rid, count(*) FROM waypost.items i WHERE i.rid = ANY ($1) GROUP BY i.rid";
    let mut sizes: HashMap<i64, i64> = HashMap::new();
    for row in &tx.query(sql, args![rids]).await? {
        sizes.insert(Columns(row).get(0)?, Columns(row).get(1)?);
    }
    let (large, small): (Vec<i64>, Vec<i64>) =
        rids.into_iter().partition(|rid| sizes.get(rid).is_some_and(|size| *size > ITEMS));
    let (mut parts, mut size) = (vec![Vec::new()], 0);
    for rid in small {
        let own = sizes.get(&rid).copied().unwrap_or_default();
        if size + own > ITEMS {
            parts.push(Vec::new());
            size = 0;
        }
        size += own;
        parts.last_mut().into_iter().for_each(|part| part.push(rid));
    }
    Ok((parts, large))
}

/// One with many items, page by page; whether it could be read.
async fn large(tx: &Tx, rid: i64, verified: &mut Verified) -> Result<bool> {
    let Some((stored, unread)) = row::with_unread(tx, &[rid]).await?.pop() else { return Ok(false) };
    let row = &stored.row;
    verified.differences.extend(unread.iter().map(|line| format!("{}: {line}", row.id())));
    let known = tx.session.known();
    let mut replay = Replay::new(&row.lifecycle, row.id());
    let mut after_seq: i32 = 0;
    loop {
        let sql = format!("{LOG} WHERE e.rid = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
        let page = tx.query(&sql, args![rid, after_seq, EVENTS]).await?;
        for event in &page {
            verified.events += 1;
            after_seq = Columns(event).get(1)?;
            replay.add(&written(&known, event)?);
        }
        if (page.len() as i64) < EVENTS {
            break;
        }
    }
    let (mut kind, mut key) = (String::new(), String::new());
    loop {
        let condition = "WHERE i.rid = $1 AND (i.kind, i.key) > ($2, $3) ORDER BY i.kind, i.key LIMIT $4";
        let page = row::items(tx, condition, args![rid, kind, key, ITEMS], |_| Some(&*row.lifecycle)).await?;
        let Some(last) = page.last() else { break };
        (kind, key) = (last.row.kind.clone(), last.row.key.clone());
        let items: Vec<Item> = page.into_iter().map(|found| found.item).collect();
        replay.compare(&items);
    }
    count(&stored, verified);
    verified.differences.extend(replay.differences(row));
    Ok(true)
}

fn count(stored: &Stored, verified: &mut Verified) {
    verified.runs += 1;
    verified.housekeeping += u64::from(stored.row.queue == HOUSEKEEPING);
}

/// How many of them could not be read.
async fn part(tx: &Tx, rids: Vec<i64>, verified: &mut Verified) -> Result<u64> {
    let mut runs = row::with_unread(tx, &rids).await?;
    runs.sort_by_key(|(stored, _)| stored.rid);
    let lifecycles: HashMap<i64, &Lifecycle> =
        runs.iter().map(|(it, _)| (it.rid, &*it.row.lifecycle)).collect();
    let condition = "WHERE i.rid = ANY ($1) ORDER BY i.rid, i.kind, i.key";
    let items = row::items(tx, condition, args![rids], |rid| lifecycles.get(&rid).copied()).await?;
    let sql = format!("{LOG} WHERE e.rid = ANY ($1) ORDER BY e.rid, e.seq");
    let events = tx.query(&sql, args![rids]).await?;
    let mut items_by_run: HashMap<i64, Vec<Item>> = HashMap::new();
    for StoredItem { rid, item, .. } in items {
        items_by_run.entry(rid).or_default().push(item);
    }
    let mut by_run: HashMap<i64, Vec<&Row>> = HashMap::new();
    for row in &events {
        by_run.entry(Columns(row).get(0)?).or_default().push(row);
    }
    let known = tx.session.known();
    for (stored, unread) in &runs {
        let differs = unread.iter().map(|line| format!("{}: {line}", stored.row.id()));
        verified.differences.extend(differs);
        let events = by_run.remove(&stored.rid).unwrap_or_default();
        let items = items_by_run.remove(&stored.rid).unwrap_or_default();
        one(&known, stored, &events, &items, verified)?;
    }
    runs.iter().for_each(|(stored, _)| count(stored, verified));
    Ok((rids.len() - runs.len()) as u64)
}

fn one(
    known: &LifecycleCodes,
    stored: &Stored,
    events: &[&Row],
    items: &[Item],
    verified: &mut Verified,
) -> Result<()> {
    let row = &stored.row;
    let mut replay = Replay::new(&row.lifecycle, row.id());
    for event in events {
        verified.events += 1;
        replay.add(&written(known, event)?);
    }
    replay.compare(items);
    verified.differences.extend(replay.differences(row));
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
