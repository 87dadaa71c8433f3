//! Concurrency keys and limits of queues. Who holds a slot stands in `holders`, counted under an advisory lock of the
//! name. A ready run whose key is at its limit is set aside when a claim meets it: so a hundred thousand of them cost a
//! claim nothing. When one of the key leaves, the next best is let in again.

use std::collections::{BTreeMap, BTreeSet};

use super::fault::Result;
use super::session::Tx;
use super::sql::{Columns, args};

/// The slots of runs that are held from now on and whose row says that they are counted.
pub const ENTER: &str = "INSERT INTO waypost.holders(of_queue, name, rid) \
  SELECT false, r.concurrency_key, r.rid FROM waypost.runs r WHERE r.rid = ANY ($1) AND r.concurrency_key IS NOT NULL \
  UNION ALL SELECT true, r.queue, r.rid FROM waypost.runs r JOIN waypost.queues q ON q.name = r.queue AND q.at_most IS NOT NULL \
    WHERE r.rid = ANY ($1) ON CONFLICT DO NOTHING";

/// How many more of a queue may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Paused,
    Any,
    Left(i64),
}

/// In one order, before any run is locked.
pub async fn lock_keys(tx: &Tx, keys: BTreeSet<&str>) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<&str> = keys.into_iter().collect();
    let sql = "SELECT pg_advisory_xact_lock(waypost.slot(false, name)) FROM unnest($1) WITH ORDINALITY AS u(name, place) ORDER BY place";
    tx.run(sql, args![keys]).await.map(drop)
}

/// Those of the keys that nobody else counts at the moment. A claim does not wait: it may have locked others already.
pub async fn try_lock_keys(tx: &Tx, keys: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    if keys.is_empty() {
        return Ok(BTreeSet::new());
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let sql =
        "SELECT name FROM unnest($1) AS u(name) WHERE pg_try_advisory_xact_lock(waypost.slot(false, name))";
    tx.query(sql, args![keys]).await?.iter().map(|row| Columns(row).get(0)).collect()
}

/// How many more runs with each of these keys may be held.
pub async fn free_slots(tx: &Tx, keys: &BTreeSet<String>) -> Result<BTreeMap<String, i64>> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let sql = "SELECT u.name, coalesce((SELECT k.at_most FROM waypost.key_limits k WHERE k.name = u.name), 1) \
               - (SELECT count(*) FROM waypost.holders h WHERE NOT h.of_queue AND h.name = u.name) FROM unnest($1) AS u(name)";
    let rows = tx.query(sql, args![keys]).await?;
    rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?))).collect()
}

/// What claims of these queues find. Those with a limit are counted alone, until the end of the transaction. The table is
/// locked first: who sets a limit waits for claims that did not see it.
pub async fn rooms(tx: &Tx, queues: &[&str]) -> Result<Vec<Room>> {
    tx.run("LOCK TABLE waypost.runs IN ROW EXCLUSIVE MODE", &[]).await?;
    let sql = "SELECT q.name, q.at_most, q.paused_at IS NOT NULL FROM waypost.queues q WHERE q.name = ANY ($1) \
               AND (q.at_most IS NOT NULL OR q.paused_at IS NOT NULL)";
    let names: Vec<&str> = queues.to_vec();
    let mut set: BTreeMap<String, Room> = BTreeMap::new();
    for row in &tx.query(sql, args![names]).await? {
        let columns = Columns(row);
        let (at_most, paused): (Option<i32>, bool) = (columns.get(1)?, columns.get(2)?);
        let room = if paused {
            Room::Paused
        } else {
            at_most.map_or(Room::Any, |at_most| Room::Left(i64::from(at_most)))
        };
        set.insert(columns.get(0)?, room);
    }
    for (name, room) in &mut set {
        if let Room::Left(left) = room {
            tx.run("SELECT pg_advisory_xact_lock(waypost.slot(true, $1))", args![name.as_str()]).await?;
            let sql = "SELECT count(*) FROM waypost.holders h WHERE h.of_queue AND h.name = $1";
            let held: i64 = Columns(&tx.one(sql, args![name.as_str()]).await?).get(0)?;
            *left = (*left - held).max(0);
        }
    }
    Ok(queues.iter().map(|name| set.get(*name).copied().unwrap_or(Room::Any)).collect())
}

/// Sets aside rows of `ready`, by their places: their keys are at their limits.
pub async fn set_aside(tx: &Tx, places: &[String]) -> Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let sql = "WITH met AS (SELECT q.ctid AS place, q.*, r.concurrency_key AS key FROM waypost.ready q JOIN waypost.runs r ON r.rid = q.rid \
                 WHERE q.ctid = ANY ($1::tid[]) AND r.concurrency_key IS NOT NULL), \
               gone AS (DELETE FROM waypost.ready WHERE ctid = ANY (ARRAY(SELECT place FROM met))) \
               INSERT INTO waypost.aside(available_at, rid, seq, priority, state, queue, key) \
               SELECT available_at, rid, seq, priority, state, queue, key FROM met";
    tx.run(sql, args![places.to_vec()]).await.map(drop)
}

/// Lets in as many as there are slots, of each queue and state: whichever of them workers ask for finds its best. Those
/// that come too late are set aside again. Needs the key's lock.
pub async fn let_in(tx: &Tx, key: &str) -> Result<()> {
    let came: bool = Columns(&tx.one("SELECT waypost.give_back($1)", args![key]).await?).get(0)?;
    tx.has_written(came);
    Ok(())
}

/// The sweeper's look: no key waits while it has a free slot, whatever happened.
pub async fn let_in_all(tx: &Tx) -> Result<()> {
    let sql = "WITH RECURSIVE k AS (SELECT min(key) AS key FROM waypost.aside UNION ALL \
               SELECT (SELECT min(a.key) FROM waypost.aside a WHERE a.key > k.key) FROM k WHERE k.key IS NOT NULL) \
               SELECT key FROM k WHERE key IS NOT NULL";
    for row in &tx.query(sql, &[]).await? {
        let key: &str = Columns(row).get(0)?;
        lock_keys(tx, BTreeSet::from([key])).await?;
        let_in(tx, key).await?;
    }
    Ok(())
}

pub async fn bump_lanes(tx: &Tx, lanes: &BTreeSet<(&str, i16)>) -> Result<()> {
    if lanes.is_empty() {
        return Ok(());
    }
    let (queues, priorities): (Vec<&str>, Vec<i16>) = lanes.iter().copied().unzip();
    let sql = "UPDATE waypost.lanes l SET revision = l.revision + 1 FROM unnest($1, $2) AS u(queue, priority) \
               WHERE l.queue = u.queue AND l.priority = u.priority";
    tx.run(sql, args![queues, priorities]).await.map(drop)
}
