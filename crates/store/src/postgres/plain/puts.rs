//! Writes of items that leave their runs where they are, in one statement: what each holder wrote last is remembered,
//! and decided on. The write counts only if that is still the run's seq.

use std::collections::HashMap;

use serde_json::Value;
use waypost_kernel::Time;
use waypost_kernel::event::{Event, Moved};
use waypost_kernel::lifecycle::{Lifecycle, Phase};
use waypost_kernel::run::Text;

use super::super::fault::Result;
use super::super::items::BornItem;
use super::super::puts::{self, Items};
use super::super::row::{Stored, StoredItem, stale_after};
use super::super::save::{Extra, Pending, item_count, text};
use super::super::session::Session;
use super::super::sql::{Columns, args, stamp, uuid};
use crate::codec;
use crate::error::StoreError;
use crate::run::ItemRow;
use crate::verbs::ItemsWrite;

/// A held run after its last write, with those of its items that are under way, or ended its course as far as that was
/// looked for. Of the others nothing is known.
#[derive(Clone, Debug)]
pub struct Holding {
    stored: Stored,
    items: Items,
}

impl Holding {
    /// After a write that was decided on `pending`, when items were as in `before`, and answered with `rows`.
    pub fn after(pending: &Pending, before: &Items, rows: &[ItemRow]) -> Holding {
        let Stored { rid, counted, .. } = pending.before;
        let kinds = &pending.row.lifecycle.items;
        let mut items: Items = before
            .iter()
            .filter(|((of, _, _), _)| *of == rid)
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect();
        let moved = pending.events.iter().flat_map(|(event, _)| &event.effect.moved);
        let mut moved: HashMap<(u8, &str), &Moved> =
            moved.map(|it| ((it.item.kind, &*it.item.key), it)).collect();
        for row in rows {
            let Some(kind) = kinds.iter().position(|kind| *kind.name == *row.kind) else { continue };
            let name = (rid, row.kind.clone(), row.key.clone());
            let last = moved.remove(&(kind as u8, row.key.as_str())).map(|it| &it.item);
            let Some(item) = last.or_else(|| items.get(&name).map(|it| &it.item)).cloned() else { continue };
            items.insert(name, StoredItem { rid, item, row: row.clone() });
        }
        items.retain(|_, it| {
            let kind = &kinds[usize::from(it.item.kind)];
            kind.phase(it.item.state) != Phase::Settled || it.item.ends_course(kind)
        });
        Holding { stored: Stored { rid, counted, row: pending.row.clone() }, items }
    }

    pub fn id(&self) -> &Text {
        &self.stored.row.run.id
    }
}

/// One of the writes, decided on.
struct Written {
    place: usize,
    pending: Pending,
    rows: Vec<ItemRow>,
    items: Items,
}

/// Answers what it could write. What is left was not written, and goes the general way.
pub async fn put(
    session: &Session,
    writes: &[ItemsWrite],
    places: &[usize],
    answers: &mut [Option<Result<Vec<ItemRow>, StoreError>>],
) -> Result<()> {
    let plain = &session.0.plain;
    let Some(now) = plain.now() else { return Ok(()) };
    let mut written = Vec::new();
    for place in places {
        let write = &writes[*place];
        let Some(holding) = plain.let_go(&write.held.run_id) else { continue };
        let mut pending = Pending::new(holding.stored);
        let Ok(moves) = puts::decide_on(write, now, &holding.items, &pending) else { continue };
        let rows = moves.add_to(&mut pending);
        if pending.events.is_empty() || !is_plain(&pending) {
            continue;
        }
        written.push(Written { place: *place, pending, rows, items: holding.items });
    }
    if written.is_empty() || !insert(session, writes, &written, now).await.unwrap_or(false) {
        return Ok(());
    }
    plain.hold(written.iter().map(|it| Holding::after(&it.pending, &it.items, &it.rows)));
    for it in written {
        answers[it.place] = Some(Ok(it.rows));
    }
    Ok(())
}

/// The run stays as it is but for its seq, its lease's end and what its items count; each item moves once at most, and waits for nothing.
fn is_plain(pending: &Pending) -> bool {
    let mut same = pending.row.run.clone();
    same.seq = pending.before.row.run.seq;
    same.tallies = pending.before.row.run.tallies.clone();
    if let Some((lease, was)) = same.lease.as_mut().zip(pending.before.row.run.lease.as_ref()) {
        lease.until = was.until;
    }
    let mut moved: HashMap<(&str, &str), usize> = HashMap::new();
    for (event, extra) in &pending.events {
        let Extra { metadata, details, key } = extra;
        let only_moves = event.effect.shifts.is_empty() && event.note.is_none();
        if !only_moves || !metadata.is_empty() || !details.is_empty() || key.is_some() {
            return false;
        }
        for it in &event.effect.moved {
            if it.item.not_before.is_some() {
                return false;
            }
            let kind = &pending.row.lifecycle.items[usize::from(it.item.kind)];
            *moved.entry((&kind.name, &it.item.key)).or_default() += usize::from(it.from.is_some());
        }
    }
    let moves = |kind: &str, key: &str| moved.get(&(kind, key)) == Some(&1);
    same == pending.before.row.run
        && pending.row.phase() == Phase::Held
        && moved.values().all(|count| *count <= 1)
        && pending.results.iter().all(|it| moves(&it.kind, &it.key))
}

/// An item that moves, with what it brought forth.
struct Move<'a> {
    rid: i64,
    seq: i32,
    of: &'a Lifecycle,
    moved: &'a Moved,
    output: Option<String>,
    /// As they were and as they are now.
    details: Option<(String, String)>,
}

fn moves(it: &Written) -> impl Iterator<Item = Move<'_>> {
    let events = it.pending.events.iter().flat_map(|(event, _)| {
        let moved = event.effect.moved.iter().filter(|moved| moved.from.is_some());
        moved.map(|moved| (event.seq as i32, moved))
    });
    events.map(|(seq, moved)| {
        let of = &it.pending.row.lifecycle.items[usize::from(moved.item.kind)];
        let named = |kind: &str, key: &str| *kind == *of.name && *key == *moved.item.key;
        let result = it.pending.results.iter().find(|result| named(&result.kind, &result.key));
        let was = it.items.values().find(|was| named(&was.row.kind, &was.row.key));
        Move {
            rid: it.pending.before.rid,
            seq,
            of,
            moved,
            output: result.and_then(|result| result.output.as_ref()).map(Value::to_string),
            details: result.map(|result| {
                (was.map_or_else(|| "{}".to_owned(), |was| text(&was.row.details)), text(&result.details))
            }),
        }
    })
}

/// With its run and its kind.
fn born(it: &Written) -> impl Iterator<Item = (i64, &Lifecycle, &BornItem)> {
    let kinds = &it.pending.row.lifecycle.items;
    let of = |born: &BornItem| &*kinds[usize::from(born.item.kind)];
    it.pending.born.iter().map(move |born| (it.pending.before.rid, of(born), born))
}

/// Says whether it was all written; else nothing was.
async fn insert(session: &Session, writes: &[ItemsWrite], written: &[Written], now: Time) -> Result<bool> {
    let known = session.known();
    let born: Vec<_> = written.iter().flat_map(born).collect();
    let moves: Vec<Move<'_>> = written.iter().flat_map(moves).collect();
    let events: Vec<(&Pending, &Event)> = written
        .iter()
        .flat_map(|it| it.pending.events.iter().map(|(event, _)| (&it.pending, event)))
        .collect();
    let code = |(of, event): &(&Pending, &Event)| known.code(&of.row.lifecycle, event.to);
    let codes = events.iter().map(code).collect::<Result<Vec<_>>>()?;
    macro_rules! each {
        ($list:expr, $($value:tt)+) => { $list.iter().map($($value)+).collect::<Vec<_>>() };
    }
    let (rows, client) = session
        .statement(
            "SELECT waypost.put_items($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, \
               $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42)",
            args![
                stamp(now),
                each!(written, |it| it.pending.before.rid),
                each!(written, |it| it.pending.before.row.run.seq as i32),
                each!(written, |it| uuid(writes[it.place].held.token)),
                each!(written, |it| it.pending.row.run.seq as i32),
                each!(written, |it| item_count(&it.pending.row)),
                each!(written, |it| stale_after(&it.pending.row.run).map(stamp)),
                each!(born, |(rid, _, _)| *rid),
                each!(born, |(_, kind, _)| &*kind.name),
                each!(born, |(_, _, it)| it.new.key.as_str()),
                each!(born, |(_, kind, _)| kind.version as i32),
                each!(born, |(_, _, it)| it.place as i32),
                each!(born, |(_, _, it)| it.new.name.as_str()),
                each!(born, |(_, kind, it)| &*kind.state(it.item.state).name),
                each!(born, |(_, _, it)| it.item.max_retries as i32),
                each!(born, |(_, _, it)| it.item.reruns),
                each!(born, |(_, _, it)| it.item.role.name()),
                each!(born, |(_, kind, it)| it.item.stays(kind)),
                each!(born, |(_, _, it)| it.seq as i32),
                each!(born, |(_, _, it)| i16::from(it.item.progress)),
                each!(moves, |it| it.rid),
                each!(moves, |it| &*it.of.name),
                each!(moves, |it| &*it.moved.item.key),
                each!(moves, |it| it.seq),
                each!(moves, |it| &*it.of.state(it.moved.item.state).name),
                each!(moves, |it| it.moved.item.attempts as i32),
                each!(moves, |it| it.moved.item.try_no as i32),
                each!(moves, |it| i16::from(it.moved.item.progress)),
                each!(moves, |it| it.moved.stays),
                each!(moves, |it| it.moved.item.failure.as_ref().map(|failure| &*failure.code)),
                each!(moves, |it| it.moved.item.failure.as_ref().map(|failure| &*failure.message)),
                each!(moves, |it| it.moved.item.started_at.map(stamp)),
                each!(moves, |it| it.moved.item.finished_at.map(stamp)),
                each!(moves, |it| it.output.as_deref()),
                each!(moves, |it| it.details.as_ref().map(|(was, _)| was.as_str())),
                each!(moves, |it| it.details.as_ref().map(|(_, is)| is.as_str())),
                each!(events, |(of, _)| of.before.rid),
                each!(events, |(_, event)| event.seq as i32),
                each!(events, |(_, event)| &*event.command),
                each!(events, |(_, event)| &*event.by),
                codes,
                each!(events, |(of, event)| codec::effect_json(event, &of.row.lifecycle).map(|it| it.to_string())),
            ],
        )
        .await?;
    session.0.bell.ring(false, &client).await;
    let row = rows.first();
    row.map_or(Ok(false), |row| Columns(row).get(0))
}
