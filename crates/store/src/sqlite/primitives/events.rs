//! Writing events: one row for each, or for two that a worker made at once.

use serde_json::Value;
use waypost_kernel::Lifecycle;
use waypost_kernel::event::Event;

use crate::engine::{Extra, Stored};
use crate::json::codec;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;

const EVENT: u32 = 1 << 31;

/// Writes the events of a run from a position on; `prev` is where its last one before them stands.
pub fn insert(
    tx: &Tx<'_>,
    stored: &Stored,
    prev: Option<i64>,
    first: i64,
    events: &[(Event, Extra)],
) -> Result<()> {
    let mut prev = prev;
    let mut at = 0;
    while let Some((begin, _)) = events.get(at) {
        let is_pair = events.get(at + 1).is_some_and(|end| folds(&events[at], end, &stored.row.lifecycle));
        at += usize::from(is_pair);
        let row = Row { position: first + at as i64, prev, begin: is_pair.then_some(begin) };
        one(tx, stored, &events[at], &row)?;
        prev = Some(row.position);
        at += 1;
    }
    Ok(())
}

struct Row<'e> {
    position: i64,
    prev: Option<i64>,
    /// The event before, if it is kept in the same row.
    begin: Option<&'e Event>,
}

/// A beginning that says nothing by itself is kept in the row of the end.
fn folds((begin, extra): &(Event, Extra), (end, _): &(Event, Extra), lifecycle: &Lifecycle) -> bool {
    begin.note.is_none()
        && extra.is_empty()
        && begin.from.is_some()
        && end.from == Some(begin.to)
        && begin.actor == end.actor
        && begin.by == end.by
        && begin.at == end.at
        && codec::effect_json(begin, lifecycle).is_none()
}

fn one(tx: &Tx<'_>, stored: &Stored, (event, extra): &(Event, Extra), row: &Row<'_>) -> Result<()> {
    let lifecycle = &stored.row.lifecycle;
    let begin = row.begin;
    let note = event.note.as_ref();
    let effect = codec::effect_with(event, lifecycle, extra);
    let payload = note.map(|note| &note.payload).filter(|payload| !codec::is_blank(payload));
    let first = begin.unwrap_or(event);
    let src = tx.code(lifecycle, first.from.unwrap_or(first.to))?;
    let dst = tx.code(lifecycle, event.to)?;
    let via = begin.map(|begin| tx.code(lifecycle, begin.to)).transpose()?;
    tx.kept_statement(
        EVENT,
        || {
            "INSERT OR FAIL INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, via, via_command, level, \
             message, payload, effect, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
                .into()
        },
        |bind| {
            bind.put(row.position)?;
            bind.put(stored.rid)?;
            bind.put(event.seq)?;
            bind.put(row.prev)?;
            bind.put(event.at.ms())?;
            bind.put(&*event.command)?;
            bind.put(src)?;
            bind.put(dst)?;
            bind.put(event.actor.name())?;
            bind.put(&*event.by)?;
            bind.put(via)?;
            bind.put(begin.map(|begin| &*begin.command))?;
            bind.put(note.map(|note| note.level.name()))?;
            bind.put(note.map(|note| &*note.message))?;
            bind.put(payload.map(Value::to_string))?;
            bind.put(effect.map(|effect| effect.to_string()))?;
            bind.put(extra.key.as_deref())?;
            bind.execute()
        },
    )?;
    Ok(())
}
