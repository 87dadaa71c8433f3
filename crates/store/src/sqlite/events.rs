//! Writing events: one row for each, or for two that a worker made at once.

use serde_json::Value;
use waypost_kernel::Lifecycle;
use waypost_kernel::event::Event;

use super::row::Stored;
use super::save::{Extra, refused};
use super::session::Tx;
use crate::codec;
use crate::error::Result;

const EVENT: u32 = 1 << 31;

/// The events of one change and where they will stand.
pub struct Planned<'e> {
    events: &'e [Event],
    folded: bool,
    first: i64,
}

/// Finds room for the events of a change before they are written, because its row names the last one's place.
pub fn plan<'e>(tx: &Tx<'_>, lifecycle: &Lifecycle, events: &'e [Event]) -> Result<Planned<'e>> {
    let folded = matches!(events, [begin, end] if folds(begin, end, lifecycle));
    Ok(Planned { events, folded, first: tx.positions(events.len() as i64)? })
}

impl Planned<'_> {
    /// The position of the last one.
    pub fn last(&self) -> Option<i64> {
        (!self.events.is_empty()).then(|| self.first + self.events.len() as i64 - 1)
    }
}

/// Writes the events of one change; what was merged and the key belong to the last.
pub fn insert(
    tx: &Tx<'_>,
    stored: &Stored,
    prev: Option<i64>,
    planned: &Planned<'_>,
    extra: &Extra,
) -> Result<()> {
    if let ([begin, end], true) = (planned.events, planned.folded) {
        let place = Place { position: planned.first + 1, prev, begin: Some(begin) };
        return one(tx, stored, end, &place, Some(extra));
    }
    let mut prev = prev;
    for (at, event) in planned.events.iter().enumerate() {
        let extra = Some(extra).filter(|_| at + 1 == planned.events.len());
        let place = Place { position: planned.first + at as i64, prev, begin: None };
        one(tx, stored, event, &place, extra)?;
        prev = Some(place.position);
    }
    Ok(())
}

struct Place<'e> {
    position: i64,
    prev: Option<i64>,
    /// The event before, if it is kept in the same row.
    begin: Option<&'e Event>,
}

/// A beginning that says nothing by itself is kept in the row of the end.
fn folds(begin: &Event, end: &Event, lifecycle: &Lifecycle) -> bool {
    begin.note.is_none()
        && begin.from.is_some()
        && end.from == Some(begin.to)
        && begin.actor == end.actor
        && begin.by == end.by
        && begin.at == end.at
        && codec::effect_json(begin, lifecycle).is_none()
}

fn one(tx: &Tx<'_>, stored: &Stored, event: &Event, place: &Place<'_>, extra: Option<&Extra>) -> Result<()> {
    let lifecycle = &stored.row.lifecycle;
    let begin = place.begin;
    let note = event.note.as_ref();
    let mut effect = codec::effect_json(event, lifecycle);
    if let Some(extra) = extra {
        codec::add_patch(&mut effect, "metadata", &extra.metadata);
        codec::add_patch(&mut effect, "details", &extra.details);
    }
    let payload = note.map(|note| &note.payload).filter(|payload| !codec::is_blank(payload));
    let first = begin.unwrap_or(event);
    let src = tx.code(lifecycle, first.from.unwrap_or(first.to))?;
    let dst = tx.code(lifecycle, event.to)?;
    let via = begin.map(|begin| tx.code(lifecycle, begin.to)).transpose()?;
    let written = tx.kept_statement(
        EVENT,
        || {
            "INSERT OR FAIL INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, via, via_command, level, \
             message, payload, effect, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
                .into()
        },
        |bind| {
            bind.put(place.position)?;
            bind.put(stored.rid)?;
            bind.put(event.seq)?;
            bind.put(place.prev)?;
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
            bind.put(extra.and_then(|extra| extra.key.as_deref()))?;
            bind.execute()
        },
    );
    written.map(drop).map_err(|error| refused(&error))
}
