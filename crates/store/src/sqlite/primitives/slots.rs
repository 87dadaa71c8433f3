//! Concurrency keys. A ready run whose key is at its limit is set aside (`blocked`), at birth or when a claim meets it:
//! so a hundred thousand of them cost a claim nothing. When one of the key leaves, the next best is let in again.

use rusqlite::{Row, params};
use waypost_kernel::Phase;

use crate::engine::Counted;
use crate::engine::turns::{named, short};
use crate::seam::run::RunRow;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;

/// One claim's share of setting aside; a hundred thousand at once would keep heartbeats waiting.
const MAX_SET_ASIDE: usize = 5_000;

/// How many more runs with this key may be taken.
pub fn free_slots(tx: &Tx<'_>, tenant: &str, key: &str, counted: Counted) -> Result<i64> {
    let limit = "SELECT at_most FROM key_limits WHERE tenant = ?1 AND name = ?2";
    let limit: Option<i64> = tx.find(limit, [tenant, key], |row| row.get(0))?;
    let limit = limit.unwrap_or(1);
    let (sql, at_most) = match counted {
        Counted::Held => ("SELECT count(*)", limit),
        Counted::Worked => ("SELECT count(claimed_by)", limit.max(1)),
    };
    let sql = format!(
        "{sql} FROM run_now INDEXED BY run_keyed \
         WHERE state & 7 = 2 AND blocked IN (0, 1) AND concurrency_key = ?1 AND tenant = ?2 AND finished_at IS NULL"
    );
    let held: i64 = tx.prepare(&sql)?.query_row([key, short(tenant)], |row| row.get(0))?;
    Ok(at_most - held)
}

/// Whether a new run would only be set aside by the next claim.
pub fn starts_aside(tx: &Tx<'_>, row: &RunRow) -> Result<bool> {
    let due = row.run.available_at.is_some_and(|at| at <= tx.now);
    match row.concurrency_key.as_deref().filter(|_| due && row.phase() == Phase::Ready) {
        Some(key) => Ok(free_slots(tx, &row.tenant, key, Counted::Held)? <= 0),
        None => Ok(false),
    }
}

/// Sets aside what waits for a key that is at its limit, at most a batch of it. Gives how many.
pub fn set_aside(tx: &Tx<'_>, tenant: &str, key: &str) -> Result<usize> {
    let sql = "UPDATE run_now SET blocked = 1 WHERE rid IN (SELECT rid FROM run_now INDEXED BY run_keyed \
               WHERE finished_at IS NULL AND state & 7 = 1 AND blocked = 0 AND concurrency_key = ?1 AND tenant = ?2 AND due_at <= ?3 LIMIT ?4)";
    Ok(tx.execute(sql, params![key, short(tenant), tx.now.ms(), MAX_SET_ASIDE as i64])?)
}

/// Lets in as many as there are slots, of each queue and state (so of each lifecycle): whichever of them workers ask for
/// finds its best. Those that come too late are set aside again.
pub fn let_in(tx: &Tx<'_>, tenant: &str, key: &str) -> Result<()> {
    let next = "SELECT queue, state FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND state & 7 = 1 AND blocked = 1 \
                AND concurrency_key = ?1 AND tenant = ?2 AND (queue, state) > (?3, ?4) ORDER BY queue, state LIMIT 1";
    let let_in = "UPDATE run_now SET blocked = 0 WHERE rid IN (SELECT rid FROM run_now INDEXED BY run_keyed \
                  WHERE finished_at IS NULL AND state & 7 = 1 AND blocked = 1 AND concurrency_key = ?1 AND tenant = ?2 AND queue = ?3 \
                  AND state = ?4 ORDER BY priority DESC, due_at, rid LIMIT ?5)";
    let free = free_slots(tx, tenant, key, Counted::Held)?;
    if free <= 0 {
        return Ok(());
    }
    let tenant = short(tenant);
    let mut last: (String, i64) = (String::new(), 0);
    let after = |last: &(String, i64)| {
        tx.find(next, params![key, tenant, last.0, last.1], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    while let Some(group) = after(&last)? {
        last = group;
        tx.execute(let_in, params![key, tenant, last.0, last.1, free])?;
    }
    Ok(())
}

/// The sweeper's look: no key waits while it has a free slot, whatever happened.
pub fn let_in_all(tx: &Tx<'_>) -> Result<()> {
    const BLOCKED: &str = "SELECT concurrency_key, tenant FROM run_now INDEXED BY run_keyed \
                           WHERE finished_at IS NULL AND state & 7 = 1 AND blocked = 1 AND concurrency_key";
    let next_tenant = format!("{BLOCKED} = ?1 AND tenant > ?2 ORDER BY tenant LIMIT 1");
    let next_key = format!("{BLOCKED} > ?1 ORDER BY concurrency_key, tenant LIMIT 1");
    let mut last: (String, String) = Default::default();
    loop {
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut found: Option<(String, String)> = tx.find(&next_tenant, params![last.0, last.1], read)?;
        if found.is_none() {
            found = tx.find(&next_key, params![last.0], read)?;
        }
        let Some((key, tenant)) = found else { return Ok(()) };
        let_in(tx, named(&tenant), &key)?;
        last = (key, tenant);
    }
}
