//! The parts of a run: added and moved under its lease, all or none, as one event.

use std::collections::HashMap;

use serde_json::Value;
use waypost_kernel::event::{Event, Moved, Shift};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Phase};
use waypost_kernel::run::Text;

use super::fault::{Fault, Result};
use super::row::{self, Stored, StoredItem};
use super::save::{self, Extra, Pending, text};
use super::session::{Session, Tx};
use super::sql::{args, stamp};
use crate::error::StoreError;
use crate::intake;
use crate::item_writes::{Wanted, decide, wanted};
use crate::run::ItemRow;
use crate::verbs::{ItemsWrite, NewItem};

/// An item that its run's change adds.
#[derive(Debug)]
pub struct BornItem {
    pub place: usize,
    pub new: NewItem,
    pub item: Item,
    pub seq: u64,
}

/// What events do to a run's items, in their order.
pub async fn write(
    tx: &Tx,
    rid: i64,
    lifecycle: &Lifecycle,
    born: &[BornItem],
    events: &[(Event, Extra)],
) -> Result<()> {
    insert(tx, rid, lifecycle, born).await?;
    for (event, _) in events {
        for shift in &event.effect.shifts {
            shift_items(tx, rid, lifecycle, shift, event).await?;
        }
        // New ones were put in above, by whoever knows their names and details.
        let moved: Vec<&Moved> = event.effect.moved.iter().filter(|moved| moved.from.is_some()).collect();
        move_items(tx, rid, lifecycle, &moved, event.seq).await?;
    }
    Ok(())
}

pub async fn insert(tx: &Tx, rid: i64, lifecycle: &Lifecycle, born: &[BornItem]) -> Result<()> {
    if born.is_empty() {
        return Ok(());
    }
    macro_rules! column {
        ($($value:tt)+) => { born.iter().map($($value)+).collect::<Vec<_>>() };
    }
    let kind = |it: &BornItem| &lifecycle.items[usize::from(it.item.kind)];
    tx.run(
        "INSERT INTO waypost.items(rid, kind, key, version, place, name, status, max_retries, reruns, stays, details, seq, progress, not_before) \
         SELECT $1, kind, key, version, place, name, status, max_retries, reruns, stays, details::jsonb, seq, progress, not_before \
         FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
           AS u(kind, key, version, place, name, status, max_retries, reruns, stays, details, seq, progress, not_before)",
        args![
            rid,
            column!(|it| &*kind(it).name),
            column!(|it| it.new.key.as_str()),
            column!(|it| kind(it).version as i32),
            column!(|it| it.place as i32),
            column!(|it| it.new.name.as_str()),
            column!(|it| &*kind(it).state(it.item.state).name),
            column!(|it| it.item.max_retries as i32),
            column!(|it| it.item.reruns),
            column!(|it| it.item.stays(kind(it))),
            column!(|it| text(&it.new.details)),
            column!(|it| it.seq as i32),
            column!(|it| i16::from(it.item.progress)),
            column!(|it| it.item.not_before.map(stamp)),
        ],
    )
    .await
    .map(drop)
}

async fn shift_items(tx: &Tx, rid: i64, lifecycle: &Lifecycle, shift: &Shift, event: &Event) -> Result<()> {
    let kind = &lifecycle.items[usize::from(shift.kind)];
    let (from, to) = (kind.state(shift.from), kind.state(shift.to));
    let chosen: Option<Vec<&str>> = shift.chosen.as_ref().map(|keys| keys.iter().map(|key| &**key).collect());
    let revives = from.phase == Phase::Settled && to.phase != Phase::Settled;
    let done = to.outcome == Some(waypost_kernel::Outcome::Succeeded);
    let moved = tx
        .run(
            "UPDATE waypost.items SET status = $4, seq = $5, not_before = NULL, \
               finished_at = CASE WHEN $6 THEN $7 WHEN $8 THEN NULL ELSE finished_at END, \
               started_at = CASE WHEN $13 THEN coalesce(started_at, $7) ELSE started_at END, \
               attempts = CASE WHEN $8 THEN 0 ELSE attempts END, progress = CASE WHEN $12 THEN 100 WHEN $8 THEN 0 ELSE progress END, \
               error_code = CASE WHEN $12 THEN NULL WHEN $9 IS NOT NULL THEN $9 WHEN $8 THEN NULL ELSE error_code END, \
               error_msg = CASE WHEN $12 THEN NULL WHEN $9 IS NOT NULL THEN $10 WHEN $8 THEN NULL ELSE error_msg END \
             WHERE rid = $1 AND kind = $2 AND status = $3 AND NOT stays AND ($11::text[] IS NULL OR key = ANY ($11))",
            args![
                rid,
                &*kind.name,
                &*from.name,
                &*to.name,
                event.seq as i32,
                to.phase == Phase::Settled,
                stamp(event.at),
                revives,
                shift.failure.as_ref().map(|failure| &*failure.code),
                shift.failure.as_ref().map(|failure| &*failure.message),
                chosen,
                done,
                to.phase == Phase::Held,
            ],
        )
        .await?;
    if moved != u64::from(shift.count) {
        let message = format!("{moved} of {} chosen {} are {}", shift.count, kind.name, from.name);
        return Err(StoreError::invalid("items", message).into());
    }
    Ok(())
}

async fn move_items(tx: &Tx, rid: i64, lifecycle: &Lifecycle, moved: &[&Moved], seq: u64) -> Result<()> {
    if moved.is_empty() {
        return Ok(());
    }
    macro_rules! column {
        ($($value:tt)+) => { moved.iter().map($($value)+).collect::<Vec<_>>() };
    }
    let kind = |it: &Moved| &lifecycle.items[usize::from(it.item.kind)];
    tx.run(
        "UPDATE waypost.items i SET status = u.status, attempts = u.attempts, try_no = u.try_no, progress = u.progress, not_before = u.not_before, \
           discarded = u.discarded, stays = u.stays, error_code = u.error_code, error_msg = u.error_msg, started_at = u.started_at, \
           finished_at = u.finished_at, seq = $2 \
         FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) AS u(kind, key, status, attempts, try_no, progress, \
           not_before, discarded, stays, error_code, error_msg, started_at, finished_at) \
         WHERE i.rid = $1 AND i.kind = u.kind AND i.key = u.key",
        args![
            rid,
            seq as i32,
            column!(|it| &*kind(it).name),
            column!(|it| &*it.item.key),
            column!(|it| &*kind(it).state(it.item.state).name),
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

pub async fn put(session: &Session, write: &ItemsWrite) -> Result<Vec<ItemRow>> {
    let tx = session.begin().await?;
    let rows = put_in(&tx, write).await;
    tx.end(rows).await
}

async fn put_in(tx: &Tx, write: &ItemsWrite) -> Result<Vec<ItemRow>> {
    let stored = row::by_id(tx, &write.held.run_id).await?;
    let lifecycle = stored.row.lifecycle.clone();
    let keys: Vec<(&str, &str)> = write.items.iter().map(|it| (it.kind.as_str(), it.key.as_str())).collect();
    let known = named(tx, &stored, &keys).await?;
    let find = |at: u8, key: &str| {
        let kind = lifecycle.items[usize::from(at)].name.to_string();
        Ok(known.get(&(kind, key.to_owned())).map(|found| found.item.clone()))
    };
    let wanted = wanted(&lifecycle, &write.items, tx.now, find)?;
    let change = decide(&stored.row, write, &wanted, tx.now)?;
    let moved: Vec<(u8, Text)> = change
        .events
        .iter()
        .flat_map(|event| &event.effect.moved)
        .map(|moved| (moved.item.kind, moved.item.key.clone()))
        .collect();
    // They are born with the event that adds them; the one that moves them on, if any, is a later one.
    let adds = |event: &&Event| event.effect.moved.iter().any(|moved| moved.from.is_none());
    let seq = change.events.iter().find(adds).map_or(change.after.seq, |event| event.seq);
    let mut pending = Pending::new(stored);
    pending.born = born(&pending.before, &wanted, seq);
    pending.add(change, Extra::default());
    let (stored, _) = save::save_one(tx, pending).await?;
    for it in &wanted {
        let settled = lifecycle.items[usize::from(it.kind)].phase(it.item.state) == Phase::Settled;
        // The same again, of an item that is done, is a replay and changes nothing.
        if moved.contains(&(it.kind, it.item.key.clone())) || !settled {
            keep_results(tx, &stored, it).await?;
        }
    }
    let mut now = named(tx, &stored, &keys).await?;
    Ok(wanted
        .iter()
        .filter_map(|it| now.remove(&(it.write.kind.clone(), it.write.key.clone())))
        .map(|it| it.row)
        .collect())
}

fn born(stored: &Stored, wanted: &[Wanted<'_>], seq: u64) -> Vec<BornItem> {
    let first = save::item_count(&stored.row) as usize;
    let new = wanted.iter().filter(|it| it.is_new);
    let one = |(at, it): (usize, &Wanted<'_>)| {
        let name = it.write.name.as_deref().unwrap_or(&it.write.key);
        let new = NewItem {
            kind: it.write.kind.clone(),
            key: it.write.key.clone(),
            name: intake::cleaned_name(name),
            status: None,
            max_retries: it.item.max_retries,
            reruns: it.item.reruns,
            details: serde_json::Map::new(),
        };
        BornItem { place: first + at, new, item: it.item.clone(), seq }
    };
    new.enumerate().map(one).collect()
}

/// What an item brought forth is a handler's output: cleaned and cut, never refused.
async fn keep_results(tx: &Tx, stored: &Stored, it: &Wanted<'_>) -> Result<()> {
    if it.write.output.is_none() && it.write.details.is_empty() {
        return Ok(());
    }
    let found = named(tx, stored, &[(&it.write.kind, &it.write.key)]).await?.into_values().next();
    let Some(found) = found else { return Ok::<(), Fault>(()) };
    let mut details = found.row.details;
    intake::merge(&mut details, &it.write.details);
    let output: Option<Value> = it.write.output.clone().map(intake::cleaned_output);
    tx.run(
        "UPDATE waypost.items SET output = coalesce($4::text::jsonb, output), details = $5::text::jsonb WHERE rid = $1 AND kind = $2 AND key = $3",
        args![stored.rid, it.write.kind.as_str(), it.write.key.as_str(), output.map(|output| output.to_string()), text(&details)],
    )
    .await
    .map(drop)
}
