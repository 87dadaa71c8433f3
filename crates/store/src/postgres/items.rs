//! The parts of a run: added and moved under its lease, all or none, as one event.

use std::collections::HashMap;

use serde_json::{Map, Value};
use waypost_kernel::event::{Event, Moved, Shift};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Lifecycle;

use super::fault::Result;
use super::row::{self, Stored, StoredItem};
use super::save::{Pending, text};
use super::session::{Session, Tx};
use super::sql::{args, stamp};
use crate::error::StoreError;
use crate::follow::Along;
use crate::run::ItemRow;
use crate::verbs::NewItem;

/// An item that its run's change adds.
#[derive(Debug)]
pub struct BornItem {
    pub place: usize,
    pub new: NewItem,
    pub item: Item,
    pub seq: u64,
}

/// What a write of items keeps beside what the kernel knows.
#[derive(Debug)]
pub struct ItemResult {
    pub kind: String,
    pub key: String,
    pub output: Option<Value>,
    pub details: Map<String, Value>,
}

/// What events do to the items of their runs: those of a run in their order, those of all runs together.
pub async fn write(tx: &Tx, pending: &[&Pending]) -> Result<()> {
    let born =
        pending.iter().flat_map(|it| it.born.iter().map(|born| (it.before.rid, &*it.row.lifecycle, born)));
    insert(tx, &born.collect::<Vec<_>>()).await?;
    let longest = pending.iter().map(|it| it.events.len()).max().unwrap_or(0);
    for turn in 0..longest {
        let mut moves = Vec::new();
        for it in pending {
            let Some((event, _)) = it.events.get(turn) else { continue };
            for shift in &event.effect.shifts {
                shift_items(tx, it.before.rid, &it.row.lifecycle, shift, event).await?;
            }
            // New ones were put in above, by whoever knows their names and details.
            let moved = event.effect.moved.iter().filter(|moved| moved.from.is_some());
            moves.extend(moved.map(|moved| (it.before.rid, &*it.row.lifecycle, moved, event.seq)));
        }
        move_items(tx, &moves).await?;
    }
    let results = pending.iter().flat_map(|it| it.results.iter().map(|result| (it.before.rid, result)));
    keep_results(tx, &results.collect::<Vec<_>>()).await
}

pub async fn insert(tx: &Tx, born: &[(i64, &Lifecycle, &BornItem)]) -> Result<()> {
    if born.is_empty() {
        return Ok(());
    }
    macro_rules! column {
        (|$it:ident| $value:expr) => {
            born.iter().map(|(_, _, $it)| $value).collect::<Vec<_>>()
        };
        ($kind:ident, $it:ident: $value:expr) => {
            born.iter()
                .map(|(_, lifecycle, $it)| {
                    let $kind = &lifecycle.items[usize::from($it.item.kind)];
                    $value
                })
                .collect::<Vec<_>>()
        };
    }
    tx.run(
        "INSERT INTO waypost.items(rid, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, progress, not_before) \
         SELECT rid, kind, key, version, place, name, status, max_retries, reruns, role, stays, details::jsonb, seq, progress, not_before \
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) \
           AS u(rid, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, progress, not_before)",
        args![
            born.iter().map(|(rid, _, _)| *rid).collect::<Vec<_>>(),
            column!(kind, it: &*kind.name),
            column!(|it| it.new.key.as_str()),
            column!(kind, it: kind.version as i32),
            column!(|it| it.place as i32),
            column!(|it| it.new.name.as_str()),
            column!(kind, it: &*kind.state(it.item.state).name),
            column!(|it| it.item.max_retries as i32),
            column!(|it| it.item.reruns),
            column!(|it| it.item.role.name()),
            column!(kind, it: it.item.stays(kind)),
            column!(|it| text(&it.new.details)),
            column!(|it| it.seq as i32),
            column!(|it| i16::from(it.item.progress)),
            column!(|it| it.item.not_before.map(stamp)),
        ],
    )
    .await
    .map(drop)
}

/// One that has this event's number already was moved by another shift of it, to where this one's items leave.
async fn shift_items(tx: &Tx, rid: i64, lifecycle: &Lifecycle, shift: &Shift, event: &Event) -> Result<()> {
    let kind = &lifecycle.items[usize::from(shift.kind)];
    let (from, to) = (kind.state(shift.from), kind.state(shift.to));
    let chosen: Option<Vec<&str>> = shift.chosen.as_ref().map(|keys| keys.iter().map(|key| &**key).collect());
    let along = Along::of(kind, shift);
    let moved = tx
        .run(
            "UPDATE waypost.items SET status = $4, seq = $5, not_before = NULL, \
               finished_at = CASE WHEN $6 THEN $7 WHEN $8 THEN NULL ELSE finished_at END, \
               started_at = CASE WHEN $13 THEN coalesce(started_at, $7) ELSE started_at END, \
               attempts = CASE WHEN $8 THEN 0 ELSE attempts END, progress = CASE WHEN $12 THEN 100 WHEN $8 THEN 0 ELSE progress END, \
               error_code = CASE WHEN $12 THEN NULL WHEN $9 IS NOT NULL THEN $9 WHEN $8 THEN NULL ELSE error_code END, \
               error_msg = CASE WHEN $12 THEN NULL WHEN $9 IS NOT NULL THEN $10 WHEN $8 THEN NULL ELSE error_msg END \
             WHERE rid = $1 AND kind = $2 AND status = $3 AND NOT stays AND seq <> $5 AND ($11::text[] IS NULL OR key = ANY ($11))",
            args![
                rid,
                &*kind.name,
                &*from.name,
                &*to.name,
                event.seq as i32,
                along.settles,
                stamp(event.at),
                along.revives,
                shift.failure.as_ref().map(|failure| &*failure.code),
                shift.failure.as_ref().map(|failure| &*failure.message),
                chosen,
                along.succeeds,
                along.begins,
            ],
        )
        .await?;
    if moved != u64::from(shift.count) {
        let message = format!("{moved} of {} chosen {} are {}", shift.count, kind.name, from.name);
        return Err(StoreError::invalid("items", message).into());
    }
    Ok(())
}

async fn move_items(tx: &Tx, moves: &[(i64, &Lifecycle, &Moved, u64)]) -> Result<()> {
    if moves.is_empty() {
        return Ok(());
    }
    macro_rules! column {
        (|$it:ident| $value:expr) => {
            moves.iter().map(|(_, _, $it, _)| $value).collect::<Vec<_>>()
        };
        ($kind:ident, $it:ident: $value:expr) => {
            moves
                .iter()
                .map(|(_, lifecycle, $it, _)| {
                    let $kind = &lifecycle.items[usize::from($it.item.kind)];
                    $value
                })
                .collect::<Vec<_>>()
        };
    }
    tx.run(
        "UPDATE waypost.items i SET status = u.status, attempts = u.attempts, try_no = u.try_no, progress = u.progress, not_before = u.not_before, \
           discarded = u.discarded, stays = u.stays, error_code = u.error_code, error_msg = u.error_msg, started_at = u.started_at, \
           finished_at = u.finished_at, seq = u.seq \
         FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) AS u(rid, seq, kind, key, status, attempts, \
           try_no, progress, not_before, discarded, stays, error_code, error_msg, started_at, finished_at) \
         WHERE i.rid = u.rid AND i.kind = u.kind AND i.key = u.key",
        args![
            moves.iter().map(|(rid, _, _, _)| *rid).collect::<Vec<_>>(),
            moves.iter().map(|(_, _, _, seq)| *seq as i32).collect::<Vec<_>>(),
            column!(kind, _it: &*kind.name),
            column!(|it| &*it.item.key),
            column!(kind, it: &*kind.state(it.item.state).name),
            column!(|it| it.item.attempts as i32),
            column!(|it| it.item.try_no as i32),
            column!(|it| i16::from(it.item.progress)),
            column!(|it| it.item.not_before.map(stamp)),
            column!(|it| it.item.discarded),
            column!(|it| it.stays),
            column!(|it| it.item.failure.as_ref().map(|failure| &*failure.code)),
            column!(|it| it.item.failure.as_ref().map(|failure| &*failure.message)),
            column!(|it| it.item.started_at.map(stamp)),
            column!(|it| it.item.finished_at.map(stamp)),
        ],
    )
    .await
    .map(drop)
}

async fn keep_results(tx: &Tx, results: &[(i64, &ItemResult)]) -> Result<()> {
    if results.is_empty() {
        return Ok(());
    }
    macro_rules! column {
        (|$it:ident| $value:expr) => {
            results.iter().map(|(_, $it)| $value).collect::<Vec<_>>()
        };
    }
    tx.run(
        "UPDATE waypost.items i SET output = coalesce(u.output::jsonb, i.output), details = u.details::jsonb \
         FROM unnest($1, $2, $3, $4, $5) AS u(rid, kind, key, output, details) WHERE i.rid = u.rid AND i.kind = u.kind AND i.key = u.key",
        args![
            results.iter().map(|(rid, _)| *rid).collect::<Vec<_>>(),
            column!(|it| it.kind.as_str()),
            column!(|it| it.key.as_str()),
            column!(|it| it.output.as_ref().map(Value::to_string)),
            column!(|it| text(&it.details)),
        ],
    )
    .await
    .map(drop)
}

pub async fn list(session: &Session, run_id: &str, kind: Option<&str>) -> Result<Vec<ItemRow>> {
    let tx = session.look().await?;
    let found = async {
        let stored = row::by_id(&tx, run_id).await?;
        let condition = "WHERE i.rid = $1 AND ($2 IS NULL OR i.kind = $2) ORDER BY i.kind COLLATE \"C\", i.place, i.key COLLATE \"C\"";
        row::items(&tx, condition, args![stored.rid, kind], |_| Some(&*stored.row.lifecycle)).await
    };
    let found = found.await;
    Ok(tx.end(found).await?.into_iter().map(|found| found.row).collect())
}

/// The named items of many runs: `(rid, kind, key)`.
pub async fn of_runs<'l>(
    tx: &Tx,
    named: &[(i64, &str, &str)],
    of: impl Fn(i64) -> Option<&'l Lifecycle>,
) -> Result<HashMap<(i64, String, String), StoredItem>> {
    // What the database cannot hold is not there.
    let askable = || named.iter().filter(|(_, kind, key)| !kind.contains('\0') && !key.contains('\0'));
    let rids: Vec<i64> = askable().map(|(rid, _, _)| *rid).collect();
    let kinds: Vec<&str> = askable().map(|(_, kind, _)| *kind).collect();
    let keys: Vec<&str> = askable().map(|(_, _, key)| *key).collect();
    let condition =
        "JOIN unnest($1, $2, $3) AS u(rid, kind, key) ON u.rid = i.rid AND u.kind = i.kind AND u.key = i.key";
    let found = row::items(tx, condition, args![rids, kinds, keys], of).await?;
    Ok(found.into_iter().map(|it| ((it.rid, it.row.kind.clone(), it.row.key.clone()), it)).collect())
}

/// Of runs, kinds and states of failure, one item each whose failure ends its run's course.
pub async fn failed_steps<'l>(
    tx: &Tx,
    states: &[(i64, &str, &str)],
    of: impl Fn(i64) -> Option<&'l Lifecycle>,
) -> Result<HashMap<(i64, String, String), StoredItem>> {
    if states.is_empty() {
        return Ok(HashMap::new());
    }
    let condition = "JOIN (SELECT f.rid, f.kind, f.key FROM unnest($1, $2, $3) AS u(rid, kind, status) CROSS JOIN LATERAL \
           (SELECT s.rid, s.kind, s.key FROM waypost.items s \
            WHERE s.rid = u.rid AND s.kind = u.kind AND s.status = u.status AND s.role = 'step' LIMIT 1) f) u \
         ON u.rid = i.rid AND u.kind = i.kind AND u.key = i.key";
    let rids: Vec<i64> = states.iter().map(|(rid, _, _)| *rid).collect();
    let kinds: Vec<&str> = states.iter().map(|(_, kind, _)| *kind).collect();
    let names: Vec<&str> = states.iter().map(|(_, _, name)| *name).collect();
    let found = row::items(tx, condition, args![rids, kinds, names], of).await?;
    Ok(found.into_iter().map(|it| ((it.rid, it.row.kind.clone(), it.row.key.clone()), it)).collect())
}

/// Items of a run by kind and key, as the kernel decides on them.
pub async fn named(
    tx: &Tx,
    stored: &Stored,
    keys: &[(&str, &str)],
) -> Result<HashMap<(String, String), StoredItem>> {
    // What the database cannot hold is not there.
    let askable = keys.iter().filter(|(kind, key)| !kind.contains('\0') && !key.contains('\0')).copied();
    let (kinds, keys): (Vec<&str>, Vec<&str>) = askable.unzip();
    let condition =
        "JOIN unnest($2, $3) AS u(kind, key) ON u.kind = i.kind AND u.key = i.key WHERE i.rid = $1";
    let found =
        row::items(tx, condition, args![stored.rid, kinds, keys], |_| Some(&*stored.row.lifecycle)).await?;
    Ok(found.into_iter().map(|it| ((it.row.kind.clone(), it.row.key.clone()), it)).collect())
}
