//! What verbs look up beside runs, and what the sweeper looks after.

use std::collections::HashMap;

use super::{PgTx, rows};
use crate::engine::{Asked, ItemsOf, NoteKey, Overdue, Stored, StoredItem, TimeKey};
use crate::json::codec;
use crate::postgres::link::fault::Result as Outcome;
use crate::postgres::sql::{Columns, args, stamp};
use crate::rules::item_writes::failed_states;
use crate::seam::error::Result;
use crate::seam::verbs::Repeat;

/// A verb's share of reminders that are looked at.
const REMINDERS: i64 = 64;
const REMINDER_PAGES: usize = 64;

/// Of a run that this process wrote last, what it remembers; else what is stored.
pub async fn items(tx: &mut PgTx, asks: &[ItemsOf<'_>]) -> Result<Vec<StoredItem>> {
    let mut found = Vec::new();
    let (mut rids, mut kinds, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let (mut failed_rids, mut failed_kinds, mut failed_states_of) = (Vec::new(), Vec::new(), Vec::new());
    for ask in asks {
        let (rid, lifecycle) = (ask.stored.rid, &ask.stored.row.lifecycle);
        if let Some(items) = tx.recalled.get(&rid).filter(|items| !items.is_empty()) {
            found.extend(items.iter().cloned());
            continue;
        }
        // What the database cannot hold is not there.
        let names = ask.names.iter().filter(|(kind, key)| !kind.contains('\0') && !key.contains('\0'));
        for (kind, key) in names {
            rids.push(rid);
            kinds.push(*kind);
            keys.push(*key);
        }
        for kind in ask.failed.iter().map(|at| &lifecycle.items[usize::from(*at)]) {
            for state in failed_states(kind) {
                failed_rids.push(rid);
                failed_kinds.push(&*kind.name);
                failed_states_of.push(state);
            }
        }
    }
    if rids.is_empty() && failed_rids.is_empty() {
        return Ok(found);
    }
    let sql = format!(
        "SELECT {columns} FROM unnest($1, $2, $3) AS u(rid, kind, key) CROSS JOIN LATERAL (SELECT i.* FROM waypost.items i \
           WHERE i.rid = u.rid AND i.kind = u.kind AND i.key = u.key OFFSET 0) i \
         UNION ALL SELECT {columns} FROM unnest($4, $5, $6) AS u(rid, kind, status) CROSS JOIN LATERAL (SELECT i.* FROM waypost.items i \
           WHERE i.rid = u.rid AND i.kind = u.kind AND i.status = u.status AND i.role = 'step' LIMIT 1) i",
        columns = *rows::ITEM_SELECTED
    );
    let read = tx.query(&sql, args![rids, kinds, keys, failed_rids, failed_kinds, failed_states_of]).await?;
    let of: HashMap<i64, &ItemsOf<'_>> = asks.iter().map(|ask| (ask.stored.rid, ask)).collect();
    for row in &read {
        let item = rows::item_rid(row).and_then(|rid| match of.get(&rid) {
            Some(ask) => rows::item(row, &ask.stored.row.lifecycle).map(Some),
            None => Ok(None),
        });
        found.extend(tx.read(item)?);
    }
    Ok(found)
}

pub async fn last_asked(tx: &mut PgTx, rid: i64) -> Result<Option<Asked>> {
    let sql = "SELECT e.command, e.who, coalesce(e.effect ->> 'reason', e.effect -> 'intent' ->> 'reason') FROM waypost.log e \
               WHERE e.rid = $1 AND e.actor IN ('client', 'operator') ORDER BY e.seq DESC LIMIT 1";
    let rows = tx.query(sql, args![rid]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let columns = Columns(row);
    let read = (|| -> Outcome<_> {
        Ok(Asked { command: columns.get(0)?, by: columns.get(1)?, reason: columns.get(2)? })
    })();
    tx.read(read).map(Some)
}

/// Events by their keys, or the same words within the window.
pub async fn noted(tx: &mut PgTx, asks: &[NoteKey<'_>]) -> Result<Vec<Option<(i64, u64)>>> {
    let key = |ask: &NoteKey<'_>| match ask.repeat {
        Repeat::Key(key) => Some(key.clone()),
        Repeat::Window | Repeat::Never => None,
    };
    let payload =
        |ask: &NoteKey<'_>| (!codec::is_blank(&ask.note.payload)).then(|| ask.note.payload.to_string());
    let sql = "SELECT u.place, e.position, e.seq FROM unnest($1, $2, $3, $4, $5, $6) AS u(place, rid, key, level, message, payload) \
               CROSS JOIN LATERAL (SELECT e.position, e.seq FROM waypost.events e WHERE e.rid = u.rid AND CASE WHEN u.key IS NOT NULL THEN e.key = u.key \
                 ELSE e.at > $7 AND e.level = u.level AND e.message = u.message AND e.payload IS NOT DISTINCT FROM u.payload::jsonb END \
                 ORDER BY e.seq LIMIT 1) e";
    let rows = tx
        .query(
            sql,
            args![
                (0..asks.len() as i32).collect::<Vec<_>>(),
                asks.iter().map(|ask| ask.rid).collect::<Vec<_>>(),
                asks.iter().map(key).collect::<Vec<_>>(),
                asks.iter().map(|ask| ask.note.level.name()).collect::<Vec<_>>(),
                asks.iter().map(|ask| &*ask.note.message).collect::<Vec<_>>(),
                asks.iter().map(payload).collect::<Vec<_>>(),
                stamp(asks.first().map_or(tx.now, |ask| ask.since)),
            ],
        )
        .await?;
    let mut found = vec![None; asks.len()];
    for row in &rows {
        let columns = Columns(row);
        let read = (|| -> Outcome<_> {
            Ok((
                columns.get::<i32>(0)? as usize,
                columns.get::<i64>(1)?,
                columns.get::<i32>(2)?.unsigned_abs(),
            ))
        })();
        let (place, position, seq) = tx.read(read)?;
        found[place] = Some((position, u64::from(seq)));
    }
    Ok(found)
}

pub async fn overdue(tx: &mut PgTx, what: Overdue<'_>, after: TimeKey, limit: usize) -> Result<Vec<Stored>> {
    let (now, at, rid) = (stamp(tx.now), stamp(after.0), after.1);
    match what {
        Overdue::Lives => {
            let condition = "FROM waypost.runs r WHERE r.expires_at IS NOT NULL AND r.expires_at <= $1 AND (r.expires_at, r.rid) > ($2, $3) \
                             ORDER BY r.expires_at, r.rid LIMIT $4";
            tx.select_page(condition, args![now, at, rid, limit as i64]).await
        }
        Overdue::Leases(claim) => {
            if after == crate::engine::BEGINNING {
                remind(tx, claim.is_none()).await?;
            }
            let condition = "FROM (SELECT DISTINCT w.rids[1] AS rid FROM waypost.watch w WHERE w.abandoned AND w.due_at <= $1) w JOIN waypost.runs r ON r.rid = w.rid \
                             WHERE ($2::text[] IS NULL OR r.queue = ANY ($2)) AND r.state / 1000 = 3 AND (r.claimed_by IS NULL AND r.stale_after <= $1 OR r.stale_after < $1) \
                             AND ($6 IS NULL OR r.tenant = $6) AND (r.stale_after, r.rid) > ($3, $4) ORDER BY r.stale_after, r.rid LIMIT $5";
            let queues = claim.map(|claim| claim.queues.iter().map(String::as_str).collect::<Vec<_>>());
            let tenant = claim.and_then(|claim| claim.tenant.as_deref());
            tx.select_page(condition, args![now, queues, at, rid, limit as i64, tenant]).await
        }
    }
}

/// Looks after reminders of leases that are due: runs that are not held any more are forgotten, renewed ones are reminded
/// of again, and what is left behind waits for a worker or the engine. `tidies`: so is what has a holder again.
async fn remind(tx: &mut PgTx, tidies: bool) -> Result<()> {
    if tidies {
        tx.query("SELECT waypost.tidy_reminders($1)", args![stamp(tx.now)]).await?;
    }
    for _ in 0..REMINDER_PAGES {
        let rows =
            tx.query("SELECT waypost.look_at_reminders($1, $2)", args![stamp(tx.now), REMINDERS]).await?;
        let found = rows.first().map_or(Ok(0), |row| Columns(row).get::<i64>(0));
        if tx.read(found)? < REMINDERS {
            break;
        }
    }
    Ok(())
}

/// A key at a time: who ends a run of one waits for no other.
pub async fn let_in_all(tx: &mut PgTx) -> Result<()> {
    let sql = "WITH RECURSIVE k AS ((SELECT a.key, a.tenant FROM waypost.blocked a ORDER BY a.key, a.tenant LIMIT 1) UNION ALL \
               SELECT n.key, n.tenant FROM k CROSS JOIN LATERAL (SELECT a.key, a.tenant FROM waypost.blocked a \
                 WHERE (a.key, a.tenant) > (k.key, k.tenant) ORDER BY a.key, a.tenant LIMIT 1) n) \
               SELECT tenant, key FROM k";
    let rows = tx.query(sql, &[]).await?;
    for row in &rows {
        let tenant = tx.read(Columns(row).get::<&str>(0))?;
        let key = tx.read(Columns(row).get::<&str>(1))?;
        tx.write("SELECT waypost.let_in_key($1, $2)", args![tenant, key], 0).await?;
    }
    Ok(())
}

pub async fn cancelled_parent(tx: &mut PgTx, except: &[String]) -> Result<Option<(String, bool)>> {
    let sql = "SELECT p.run_id, waypost.births_ended(p.run_id), p.entry FROM (SELECT p.run_id, p.ctid::text AS entry FROM waypost.cancelled_parents p \
               LEFT JOIN waypost.runs r ON r.run_id = p.run_id WHERE p.run_id <> ALL ($1) ORDER BY r.rid LIMIT 1 OFFSET 0) p";
    let rows = tx.query(sql, args![except.to_vec()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let columns = Columns(row);
    let read: Outcome<(String, bool, String)> =
        (|| Ok((columns.get(0)?, columns.get(1)?, columns.get(2)?)))();
    let (parent, is_all_there, entry) = tx.read(read)?;
    tx.parents.insert(parent.clone(), entry);
    Ok(Some((parent, is_all_there)))
}

pub async fn lock_children(tx: &mut PgTx, parent: &str, lifecycle: &str) -> Result<Vec<(String, u64)>> {
    tx.open().await?;
    tx.query("SELECT 1 FROM waypost.runs WHERE run_id = $1 FOR UPDATE", args![parent]).await?;
    let states = tx.known().codes(|of, _| *of.name == *lifecycle);
    let sql = "SELECT r.run_id, r.seq FROM waypost.runs r WHERE r.parent_run_id = $1 AND r.state < 5000 AND r.state = ANY ($2) ORDER BY r.rid FOR UPDATE";
    let rows = tx.query(sql, args![parent, states]).await?;
    let read: Outcome<Vec<(String, u64)>> = rows
        .iter()
        .map(|row| Ok((Columns(row).get(0)?, u64::from(Columns(row).get::<i32>(1)?.unsigned_abs()))))
        .collect();
    tx.read(read)
}

/// What others have committed is seen once the lock is there: that is a statement of its own.
pub async fn live_of_rule(tx: &mut PgTx, tenant: &str, lifecycle: &str, rule: &str) -> Result<Vec<String>> {
    tx.open().await?;
    tx.query("SELECT waypost.lock_rule($1, $2)", args![tenant, rule]).await?;
    let rows = tx.query("SELECT waypost.live_of_rule($1, $2, $3)", args![tenant, lifecycle, rule]).await?;
    let read: Outcome<Vec<String>> = rows.iter().map(|row| Columns(row).get(0)).collect();
    tx.read(read)
}
