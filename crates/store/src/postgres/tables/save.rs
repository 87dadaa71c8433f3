//! Writing what was decided, in one statement.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tokio_postgres::types::Type;
use waypost_kernel::event::Event;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Lifecycle;
use waypost_kernel::{Phase, Run, Time};

use super::PgTx;
use super::arrays::Parameters;
use super::functions::moving;
use super::memory::Remembered;
use super::queue::gate;
use crate::columns::{Cell, Kind};
use crate::engine::{Edit, Extra, NewItemRow, Saved, StoredItem};
use crate::json::codec;
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Fault;
use crate::postgres::sql::{Columns, stamp};
use crate::rules::children::is_cancel;
use crate::seam::error::Result;
use crate::seam::run::RunRow;

/// The events of a statement are counted with 16 bits.
const MOST_EVENTS: usize = 60_000;

pub async fn save(tx: &mut PgTx, edits: Vec<Edit>) -> Result<Vec<Saved>> {
    let mut saved = Vec::with_capacity(edits.len());
    let mut rest = edits;
    while !rest.is_empty() {
        let mut events = 0;
        let fits = rest.iter().take_while(|edit| {
            events += edit.events.len();
            events <= MOST_EVENTS
        });
        let fits = fits.count().max(1);
        let later = rest.split_off(fits);
        saved.extend(save_some(tx, rest).await?);
        rest = later;
    }
    Ok(saved)
}

async fn save_some(tx: &mut PgTx, edits: Vec<Edit>) -> Result<Vec<Saved>> {
    let known = tx.known();
    // All writers lock runs in this order; the log has the order in which it was decided.
    let mut order: Vec<usize> = (0..edits.len()).collect();
    order.sort_by_key(|at| edits[*at].stored.rid);
    let offsets = offsets(&edits);
    let written = {
        let parameters = parameters(tx, &known, &edits, &order, &offsets)?;
        let sql = format!("SELECT * FROM waypost.save({})", parameters.placeholders());
        let row = tx.write(&sql, &parameters.args(), 3).await?;
        let columns = Columns(&row);
        let read =
            (|| Ok((columns.time(0)?, columns.get::<Option<Vec<i32>>>(1)?, columns.get::<Option<i64>>(2)?)))(
            );
        tx.read(read)?
    };
    let (at, won, base) = written;
    tx.session.0.memory.see_clock(at.unwrap_or_default());
    let (Some(won), Some(base)) = (won, base) else {
        // The clock was off: all is decided again.
        tx.now = at.unwrap_or(tx.now);
        return Ok(vec![Saved::Lost; edits.len()]);
    };
    tx.orphans.clear();
    let mut saved = vec![Saved::Lost; edits.len()];
    for place in won {
        let at = order[place as usize - 1];
        saved[at] = Saved::Won(base + i64::from(offsets[at]));
    }
    remember(tx, edits, &saved);
    Ok(saved)
}

/// Where each edit's first event stands in the log, counted from the statement's number.
fn offsets(edits: &[Edit]) -> Vec<i32> {
    let mut next = 1;
    edits
        .iter()
        .map(|edit| {
            let own = next;
            next += edit.events.len() as i32;
            own
        })
        .collect()
}

fn parameters<'a>(
    tx: &PgTx,
    known: &LifecycleCodes,
    edits: &'a [Edit],
    order: &[usize],
    offsets: &[i32],
) -> Result<Parameters<'a>> {
    let code = |row: &RunRow, state| known.code(&row.lifecycle, state).map_err(Fault::into_error);
    let ordered = || order.iter().map(|at| &edits[*at]);
    let mut all = Parameters::default();
    all.add(stamp(tx.now), Type::TIMESTAMPTZ);
    all.add(tx.is_open(), Type::BOOL);
    let taken = ordered().filter(|edit| edit.is_taken()).map(Edit::row);
    let missing = taken.filter(|row| !tx.has_entered(&row.tenant, &row.queue));
    let mut gates: Vec<String> = missing.map(|row| gate(&row.tenant, &row.queue)).collect();
    gates.sort_unstable();
    gates.dedup();
    all.add(gates, Type::TEXT_ARRAY);
    let mut keys: Vec<(&'a str, &'a str)> = ordered().filter_map(Edit::slot_key).collect();
    keys.sort_unstable();
    keys.dedup();
    let (tenants, keys): (Vec<&'a str>, Vec<&'a str>) = keys.into_iter().unzip();
    all.add(tenants, Type::TEXT_ARRAY);
    all.add(keys, Type::TEXT_ARRAY);
    all.add(ordered().filter_map(|edit| edit.entry.as_deref()).collect::<Vec<&str>>(), Type::TEXT_ARRAY);
    all.add(tx.orphans.clone(), Type::TEXT_ARRAY);
    let ready = ordered().filter(|edit| edit.row().phase() == Phase::Ready && !edit.events.is_empty());
    all.lanes(tx.now, ready.map(Edit::row));
    all.add(ordered().map(|edit| edit.stored.rid).collect::<Vec<i64>>(), Type::INT8_ARRAY);
    all.add(ordered().map(|edit| edit.before().seq as i32).collect::<Vec<i32>>(), Type::INT4_ARRAY);
    let stale = |edit: &Edit| edit.before().lease.as_ref().map(|lease| stamp(lease.until));
    all.add(ordered().map(stale).collect::<Vec<_>>(), Type::TIMESTAMPTZ_ARRAY);
    all.add(
        ordered().map(|edit| edit.phase_before() == Phase::Held).collect::<Vec<bool>>(),
        Type::BOOL_ARRAY,
    );
    all.add(
        ordered().map(|edit| reminds(edit.before(), edit.run())).collect::<Vec<bool>>(),
        Type::BOOL_ARRAY,
    );
    all.add(
        ordered().map(|edit| is_cancel(edit.events.iter().map(|(event, _)| event))).collect::<Vec<bool>>(),
        Type::BOOL_ARRAY,
    );
    // The last event's place: earlier ones stand before it.
    let last = |at: &usize| offsets[*at] + (edits[*at].events.len() as i32 - 1).max(0);
    all.add(order.iter().map(last).collect::<Vec<i32>>(), Type::INT4_ARRAY);
    let states = ordered().map(|edit| code(edit.row(), edit.run().state)).collect::<Result<Vec<i16>>>()?;
    all.folded(states, Type::INT2_ARRAY);
    for column in moving() {
        all.column(column.kind, order.iter().map(|at| (column.get)(edits[*at].row())));
    }
    all.column(Kind::Int4, ordered().map(|edit| Cell::Number(edit.row().item_count() as i64)));
    let patch = |members: &Map<String, Value>| {
        (!members.is_empty()).then(|| Value::Object(members.clone()).to_string())
    };
    all.add(ordered().map(|edit| patch(&edit.metadata)).collect::<Vec<_>>(), Type::TEXT_ARRAY);
    all.add(ordered().map(|edit| patch(&edit.details)).collect::<Vec<_>>(), Type::TEXT_ARRAY);
    event_columns(&mut all, known, &ordered().collect::<Vec<_>>())?;
    all.add(more(known, edits, order, offsets)?.map(|more| more.to_string()), Type::TEXT);
    Ok(all)
}

/// The last event of each edit, with the one before it where that says nothing by itself.
fn event_columns<'a>(all: &mut Parameters<'a>, known: &LifecycleCodes, edits: &[&'a Edit]) -> Result<()> {
    let code = |row: &RunRow, state| known.code(&row.lifecycle, state).map_err(Fault::into_error);
    let mut src = Vec::with_capacity(edits.len());
    let mut via = Vec::with_capacity(edits.len());
    for edit in edits {
        let first = folded_before(edit).or_else(|| edit.events.last().map(|(event, _)| event));
        src.push(first.and_then(|event| event.from).map(|from| code(edit.row(), from)).transpose()?);
        via.push(folded_before(edit).map(|event| code(edit.row(), event.to)).transpose()?);
    }
    all.folded(src, Type::INT2_ARRAY);
    all.folded(via, Type::INT2_ARRAY);
    let last = |edit: &&'a Edit| -> Option<&'a (Event, Extra)> { edit.events.last() };
    let event = |get: fn(&'a Event) -> Option<&'a str>| {
        edits
            .iter()
            .map(move |edit| last(edit).and_then(|(event, _)| get(event)).map(Cow::Borrowed))
            .collect::<Vec<_>>()
    };
    let via_command =
        edits.iter().map(|edit| folded_before(edit).map(|event| Cow::Borrowed(&*event.command)));
    all.texts(via_command);
    all.folded(event(|event| Some(&event.command)), Type::TEXT_ARRAY);
    all.folded(event(|event| Some(event.actor.name())), Type::TEXT_ARRAY);
    all.folded(event(|event| Some(&event.by)), Type::TEXT_ARRAY);
    all.folded(event(|event| event.note.as_ref().map(|note| note.level.name())), Type::TEXT_ARRAY);
    all.folded(event(|event| event.note.as_ref().map(|note| &*note.message)), Type::TEXT_ARRAY);
    all.texts(edits.iter().map(|edit| last(edit).and_then(|(event, _)| payload(event)).map(Cow::Owned)));
    all.texts(
        edits.iter().map(|edit| last(edit).and_then(|it| effect(&edit.row().lifecycle, it)).map(Cow::Owned)),
    );
    all.texts(
        edits.iter().map(|edit| last(edit).and_then(|(_, extra)| extra.key.as_deref()).map(Cow::Borrowed)),
    );
    Ok(())
}

/// Of exactly two events, the first, if it can be kept in the row of the second.
fn folded_before(edit: &Edit) -> Option<&Event> {
    let [(begin, extra), (end, _)] = &edit.events[..] else { return None };
    let is_silent = begin.note.is_none()
        && begin.from.is_some()
        && end.from == Some(begin.to)
        && begin.actor == end.actor
        && begin.by == end.by
        && extra.key.is_none()
        && extra.metadata.is_empty()
        && extra.details.is_empty()
        && codec::effect_json(begin, &edit.row().lifecycle).is_none();
    is_silent.then_some(begin)
}

fn payload(event: &Event) -> Option<String> {
    let payload = event.note.as_ref().map(|note| &note.payload)?;
    (!codec::is_blank(payload)).then(|| payload.to_string())
}

fn effect(lifecycle: &Lifecycle, (event, extra): &(Event, Extra)) -> Option<String> {
    codec::effect_with(event, lifecycle, extra).map(|effect| effect.to_string())
}

/// What only few writes have: items, and events that are not the last of their change.
fn more(known: &LifecycleCodes, edits: &[Edit], order: &[usize], offsets: &[i32]) -> Result<Option<Value>> {
    let mut events = Vec::new();
    let (mut born, mut items, mut shifts) = (Vec::new(), Vec::new(), Vec::new());
    for (place, at) in order.iter().enumerate() {
        let edit = &edits[*at];
        let (rid, lifecycle) = (edit.stored.rid, &edit.row().lifecycle);
        if edit.events.len() > 1 && folded_before(edit).is_none() {
            let all_but_last = &edit.events[..edit.events.len() - 1];
            for (nth, it) in all_but_last.iter().enumerate() {
                events.push(event_object(known, edit, it, (place + 1, offsets[*at] + nth as i32))?);
            }
        }
        for it in &edit.new_items {
            born.push(new_item_object("rid", rid, lifecycle, it));
        }
        for it in &edit.items {
            let mut object = item_object(lifecycle, &it.item);
            let own = [
                ("rid", json!(rid)),
                ("seq", json!(it.seq)),
                ("stays", json!(it.seq.map(|_| it.stays))),
                ("output", json!(it.output)),
                ("details", json!((!it.patch.is_empty()).then_some(&it.patch))),
            ];
            object.extend(own.map(|(name, value)| (name.to_owned(), value)));
            items.push(Value::Object(object));
        }
        for (event, _) in &edit.events {
            for shift in &event.effect.shifts {
                let kind = &lifecycle.items[usize::from(shift.kind)];
                shifts.push(json!({
                    "rid": rid,
                    "kind": &*kind.name,
                    "src": &*kind.state(shift.from).name,
                    "dst": &*kind.state(shift.to).name,
                    "seq": event.seq,
                    "count": shift.count,
                    "chosen": shift.chosen.as_ref().map(|keys| keys.iter().map(|key| &**key).collect::<Vec<&str>>()),
                    "failure": shift.failure.as_ref().map(|it| json!({ "code": &*it.code, "message": &*it.message })),
                }));
            }
        }
    }
    let lists = [("events", events), ("born", born), ("items", items), ("shifts", shifts)];
    let mut more: Map<String, Value> = lists
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| (name.to_owned(), Value::Array(list)))
        .collect();
    if more.is_empty() {
        return Ok(None);
    }
    let tally = |edit: &Edit| Some((edit.stored.rid.to_string(), edit.row().tally()?));
    let tallies: Map<String, Value> =
        edits.iter().filter_map(tally).map(|(rid, tally)| (rid, tally.into())).collect();
    if !tallies.is_empty() {
        more.insert("tallies".to_owned(), Value::Object(tallies));
    }
    Ok(Some(Value::Object(more)))
}

fn event_object(
    known: &LifecycleCodes,
    edit: &Edit,
    it: &(Event, Extra),
    (place, offset): (usize, i32),
) -> Result<Value> {
    let (event, extra) = it;
    let lifecycle = &edit.row().lifecycle;
    let code = |state| known.code(lifecycle, state).map_err(Fault::into_error);
    Ok(json!({
        "place": place,
        "offset": offset,
        "rid": edit.stored.rid,
        "seq": event.seq,
        "src": event.from.map(code).transpose()?,
        "dst": code(event.to)?,
        "command": &*event.command,
        "actor": event.actor.name(),
        "who": &*event.by,
        "level": event.note.as_ref().map(|note| note.level.name()),
        "message": event.note.as_ref().map(|note| &*note.message),
        "payload": payload(event),
        "effect": effect(lifecycle, it),
        "key": extra.key,
    }))
}

/// A new item; `owner` names its run.
pub fn new_item_object(owner: &str, run: i64, lifecycle: &Lifecycle, born: &NewItemRow) -> Value {
    let NewItemRow { place, new, item, seq, copy_of } = born;
    let kind = &lifecycle.items[usize::from(item.kind)];
    json!({
        owner: run,
        "kind": &*kind.name,
        "key": new.key,
        "version": kind.version,
        "place": place,
        "name": new.name,
        "status": &*kind.state(item.state).name,
        "max_retries": item.max_retries,
        "reruns": item.reruns,
        "role": item.role.name(),
        "stays": item.stays(kind),
        "details": new.details,
        "seq": seq,
        "progress": item.progress,
        "not_before": item.not_before.map(Time::micros),
        "copy_of": copy_of.as_ref().map(|old| old.rid),
    })
}

fn item_object(lifecycle: &Lifecycle, item: &Item) -> Map<String, Value> {
    let kind = &lifecycle.items[usize::from(item.kind)];
    let object = json!({
        "kind": &*kind.name,
        "key": &*item.key,
        "status": &*kind.state(item.state).name,
        "attempts": item.attempts,
        "try_no": item.try_no,
        "throttled": item.throttled,
        "waited_ms": item.waited_ms,
        "in_doubt": item.in_doubt,
        "progress": item.progress,
        "not_before": item.not_before.map(Time::micros),
        "discarded": item.discarded,
        "error_code": item.failure.as_ref().map(|failure| &*failure.code),
        "error_msg": item.failure.as_ref().map(|failure| &*failure.message),
        "started_at": item.started_at.map(Time::micros),
        "finished_at": item.finished_at.map(Time::micros),
    });
    if let Value::Object(object) = object { object } else { Map::new() }
}

/// A new lease, or one that now ends sooner, gets a reminder; a heartbeat does not: the old one is looked at when it is
/// due, and set again.
fn reminds(before: &Run, after: &Run) -> bool {
    let Some(lease) = &after.lease else { return false };
    let is_same = |known: &waypost_kernel::Lease| known.token == lease.token && known.until <= lease.until;
    !before.lease.as_ref().is_some_and(is_same)
}

/// Keeps what is held, for its holder's next write.
fn remember(tx: &mut PgTx, edits: Vec<Edit>, saved: &[Saved]) {
    let mut kept = Vec::new();
    for (edit, saved) in edits.into_iter().zip(saved) {
        let was = tx.recalled.remove(&edit.stored.rid);
        if *saved == Saved::Lost || tx.open.is_some() && !edit.is_taken() {
            continue;
        }
        kept.push(Remembered { items: items_after(&edit, was.unwrap_or_default()), stored: edit.stored });
    }
    tx.session.0.memory.put(kept.into_iter());
}

/// The items that are under way, or ended the run's course, as far as they are known.
fn items_after(edit: &Edit, was: Vec<StoredItem>) -> Vec<StoredItem> {
    let lifecycle = &edit.row().lifecycle;
    let shifts = edit.events.iter().any(|(event, _)| !event.effect.shifts.is_empty());
    if shifts || edit.items.is_empty() && edit.new_items.is_empty() {
        return if shifts { Vec::new() } else { was };
    }
    let mut items: HashMap<(u8, String), StoredItem> =
        was.into_iter().map(|it| ((it.item.kind, it.row.key.clone()), it)).collect();
    for row in &edit.item_rows {
        let Some(kind) = lifecycle.items.iter().position(|kind| *kind.name == *row.row.kind) else {
            continue;
        };
        items.insert((kind as u8, row.row.key.clone()), row.clone());
    }
    let under_way = |it: &StoredItem| {
        let kind = &lifecycle.items[usize::from(it.item.kind)];
        // Of many that wait to be tried again each is read when its time comes.
        match kind.phase(it.item.state) {
            Phase::Held => true,
            Phase::Settled => it.item.ends_course(kind),
            Phase::Draft | Phase::Ready | Phase::Parked => kind.stops_run,
        }
    };
    items.into_values().filter(under_way).collect()
}
