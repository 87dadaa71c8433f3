//! Reading events: a run's own, or all of them in the order of their commits. The first of a run is what it was born
//! with; a row that holds two is taken apart.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, params};
use serde_json::{Map, Value, json};
use waypost_kernel::request::{Level, Note};
use waypost_kernel::{Lifecycle, Time};

use crate::columns::parse;
use crate::engine::Stored;
use crate::rules::messages::{
    BRIEF_BYTES, first_payload, items_message, left_out, standard_message, standard_payload,
};
use crate::rules::replay::Written;
use crate::rules::room::Room;
use crate::seam::projection::{MovedRun, Projected, Step};
use crate::seam::run::EventRow;
use crate::sqlite::layout::AnyText;
use crate::sqlite::lifecycle_codes::Named;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::row;

/// An event as it was written, and whose it is.
struct Found {
    position: u64,
    prev: Option<i64>,
    run_id: Arc<str>,
    tenant: Arc<str>,
    lifecycle: Option<Arc<Lifecycle>>,
    written: Written,
    level: Option<String>,
    message: Option<String>,
    payload: Option<Value>,
    left_out_bytes: Option<u64>,
}

/// Which of the events' effects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    All,
    Small,
}

const FIRST: &str = "SELECT position, run_id, at, command, state, actor, who, effect, metadata, details, tenant FROM run_born";

/// The length of an effect that is not read costs no look at its pages.
fn later_select(effects: Effects) -> String {
    let (effect, left_out) = match effects {
        Effects::All => ("e.effect".to_owned(), "NULL"),
        Effects::Small => {
            let effect = format!("iif(octet_length(e.effect) > {BRIEF_BYTES}, NULL, e.effect)");
            (effect, "octet_length(e.effect)")
        }
    };
    format!(
        "SELECT e.position, b.run_id, e.at, e.command, e.dst, e.actor, e.who, {effect}, e.seq, e.src, e.via, \
         e.via_command, e.level, e.message, e.payload, e.prev, b.tenant, {left_out} FROM run_events e CROSS JOIN run_born b ON b.rid = e.rid"
    )
}

pub fn events(
    tx: &Tx<'_>,
    run_id: &str,
    after_seq: u64,
    limit: usize,
    effects: Effects,
) -> Result<Vec<EventRow>> {
    let mut room = Room::of_a_page();
    let stored = row::by_id(tx, run_id)?;
    let mut found = of_run(tx, &stored, (after_seq, limit), effects, &mut room)?;
    found.truncate(limit);
    Ok(found.into_iter().map(event_row).collect())
}

pub fn feed(tx: &Tx<'_>, after_position: u64, limit: usize) -> Result<Vec<EventRow>> {
    // Nobody was given a position beyond what the database can hold.
    let Ok(after) = i64::try_from(after_position) else { return Ok(Vec::new()) };
    let births = "WHERE rid > ?1 ORDER BY rid LIMIT ?2";
    let mut room = Room::of_a_page();
    let mut found = first(tx, births, params![born_until(tx, after_position)?, limit as i64], &mut room)?;
    let mut end = end_of(&found, &room);
    let mut room = Room::of_a_page();
    let others = "WHERE e.position > ?1 ORDER BY e.position LIMIT ?2";
    let others = later(tx, Effects::All, others, params![after, limit as i64], &mut room)?;
    end = end.min(end_of(&others, &room));
    found.extend(others);
    found.retain(|event| event.position > after_position && event.position <= end);
    found.sort_by_key(|event| event.position);
    found.truncate(limit);
    Ok(found.into_iter().map(event_row).collect())
}

const BIRTHS: &str = "SELECT position, state, rid, at FROM run_born WHERE rid > ?1 ORDER BY rid LIMIT ?2";
const MOVES: &str =
    "SELECT position, dst, rid, at FROM run_events WHERE position > ?1 ORDER BY position LIMIT ?2";

/// What of the log is about runs of projected lifecycles. Nothing is read of an event but whose it is.
pub fn projected(tx: &Tx<'_>, after: &u64, limit: &usize) -> Result<Projected> {
    let Ok(from) = i64::try_from(*after) else {
        return Ok(Projected { position: *after, ..Projected::default() });
    };
    let steps = |sql: &str, from: i64| {
        let step = |row: &Row<'_>| {
            let (position, state, rid) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Step::<i64> { position, state, rid, at: Time::from_ms(row.get(3)?) })
        };
        tx.list(sql, params![from, *limit as i64], step)
    };
    let (births, moves) = (steps(BIRTHS, born_until(tx, *after)?)?, steps(MOVES, from)?);
    // Up to where both lists have all that there is.
    let end = [&births, &moves].into_iter().filter(|found| found.len() >= *limit);
    let end = end.filter_map(|found| found.last()).map(|last| last.position).min().unwrap_or(u64::MAX);
    let mut found: Vec<_> = births
        .into_iter()
        .chain(moves)
        .filter(|step| step.position > *after && step.position <= end)
        .collect();
    found.sort_by_key(|step| step.position);
    found.truncate(*limit);
    let mut projected = Projected {
        position: found.last().map_or(*after, |last| last.position),
        more: found.len() >= *limit,
        runs: Vec::new(),
    };
    let mut seen = HashSet::new();
    let mut whose = tx.prepare("SELECT run_id, tenant FROM run_born WHERE rid = ?1")?;
    for step in found {
        let state = tx.named(step.state)?;
        let is_projected = state.of.as_ref().is_some_and(|(lifecycle, _)| lifecycle.projected);
        if is_projected && seen.insert(step.rid) {
            let (run_id, tenant) = whose.query_row([step.rid], |row| Ok((row.get(0)?, row.get(1)?)))?;
            projected.runs.push(MovedRun { run_id, tenant, at: step.at });
        }
    }
    Ok(projected)
}

/// Up to where what was found is all that there is.
fn end_of(found: &[Found], room: &Room) -> u64 {
    found.last().filter(|_| room.is_full).map_or(u64::MAX, |last| last.position)
}

/// Commits are one after the other: whatever comes, comes later.
pub fn last_position(tx: &Tx<'_>) -> Result<u64> {
    let sql = "SELECT max(coalesce((SELECT position FROM run_events ORDER BY position DESC LIMIT 1), 0), \
               coalesce((SELECT position FROM run_born ORDER BY rid DESC LIMIT 1), 0))";
    Ok(tx.prepare(sql)?.query_row([], |row| row.get(0))?)
}

/// The last run whose birth stands no later than this. Positions rise with rid, so it is looked for by halves: an
/// index of them would cost every enqueue.
fn born_until(tx: &Tx<'_>, position: u64) -> Result<i64> {
    let mut statement =
        tx.prepare("SELECT rid, position FROM run_born WHERE rid <= ?1 ORDER BY rid DESC LIMIT 1")?;
    let mut at = |rid: i64| -> Result<Option<(i64, u64)>> {
        let found = statement.query_row([rid], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(found.optional()?)
    };
    let Some((mut over, last)) = at(i64::MAX)? else { return Ok(0) };
    if last <= position {
        return Ok(over);
    }
    // Born later than `under`, not later than `over`.
    let mut under = 0;
    while over - under > 1 {
        let middle = under + (over - under) / 2;
        match at(middle)? {
            Some((_, found)) if found > position => over = middle,
            _ => under = middle,
        }
    }
    Ok(under)
}

/// All events of a run, as they were written.
pub fn of(tx: &Tx<'_>, stored: &Stored) -> Result<Vec<Written>> {
    page(tx, stored, 0, usize::MAX)
}

/// So many of them after this one, and of the first ones a few more.
pub fn page(tx: &Tx<'_>, stored: &Stored, after_seq: u64, limit: usize) -> Result<Vec<Written>> {
    let found = of_run(tx, stored, (after_seq, limit), Effects::All, &mut Room::unbounded())?;
    Ok(found.into_iter().map(|event| event.written).collect())
}

/// Events that no index lists: a run's log up to here is read from its last event back.
const UNLISTED: u64 = 8;

/// Where all events of a run stand.
pub fn positions(tx: &Tx<'_>, stored: &Stored) -> Result<Vec<u64>> {
    let found = of_run(tx, stored, (0, usize::MAX), Effects::All, &mut Room::unbounded())?;
    Ok(found.into_iter().map(|event| event.position).collect())
}

fn of_run(
    tx: &Tx<'_>,
    stored: &Stored,
    (after_seq, limit): (u64, usize),
    effects: Effects,
    room: &mut Room,
) -> Result<Vec<Found>> {
    let rid = stored.rid;
    let mut found = match after_seq {
        0 => first(tx, "WHERE rid = ?1", params![rid], room)?,
        _ => Vec::new(),
    };
    if after_seq < UNLISTED {
        let listed = "SELECT prev FROM run_events WHERE rid = ?1 AND seq > 8 ORDER BY seq LIMIT 1";
        let listed = tx.prepare(listed)?.query_row([rid], |row| row.get(0)).optional();
        let last = listed?.unwrap_or(stored.last);
        let mut back = Vec::new();
        walk_back(tx, effects, last, |event| {
            let more = event.written.seq > after_seq;
            back.push(event);
            more
        })?;
        found.extend(back.into_iter().rev());
    }
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // Of two bounds SQLite begins at the one that it meets first; the other is what the index is of.
    let condition = "WHERE e.rid = ?1 AND e.seq > ?2 AND e.seq > 8 ORDER BY e.seq LIMIT ?3";
    let after = i64::try_from(after_seq).unwrap_or(i64::MAX);
    found.extend(later(tx, effects, condition, params![rid, after, limit], room)?);
    found.retain(|event| event.written.seq > after_seq);
    Ok(found)
}

/// From an event of a run to the ones before it, as long as `each` says.
fn walk_back(
    tx: &Tx<'_>,
    effects: Effects,
    from: Option<i64>,
    mut each: impl FnMut(Found) -> bool,
) -> Result<()> {
    let mut next = from;
    while let Some(position) = next {
        let row = later(tx, effects, "WHERE e.position = ?1", params![position], &mut Room::unbounded())?;
        next = row.last().and_then(|event| event.prev);
        for event in row.into_iter().rev() {
            if !each(event) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Going back from the run's last event: the earliest note after `since` with the same words, which a repeated one is answered with.
pub fn same_note(tx: &Tx<'_>, last: Option<i64>, since: Time, note: &Note) -> Result<Option<(i64, u64)>> {
    let mut same = None;
    let payload = Some(&note.payload).filter(|payload| !crate::json::codec::is_blank(payload));
    walk_back(tx, Effects::Small, last, |event| {
        let is = event.level.as_deref() == Some(note.level.name())
            && event.message.as_deref() == Some(&*note.message)
            && event.payload.as_ref() == payload;
        if event.written.at > since && is {
            same = Some((event.position as i64, event.written.seq));
        }
        event.written.at > since
    })?;
    Ok(same)
}

fn first(tx: &Tx<'_>, condition: &str, values: impl rusqlite::Params, room: &mut Room) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let texts = [7, 8, 9];
    rows(tx, &format!("{FIRST} {condition}"), values, (room, &texts), |row, state| {
        let (metadata, details): (Option<AnyText>, Option<AnyText>) = (row.get(8)?, row.get(9)?);
        let mut event = event(row, state, None, 1)?;
        event.tenant = row.get(10)?;
        let metadata = metadata.map(|text| parse(&text.0));
        event.payload = Some(first_payload(event.written.effect.as_ref(), metadata.clone()));
        let mut effect = match event.written.effect.take() {
            Some(Value::Object(effect)) => effect,
            _ => Map::new(),
        };
        effect.extend(metadata.map(|metadata| ("metadata".into(), metadata)));
        effect.extend(details.map(|details| ("details".into(), parse(&details.0))));
        event.written.effect =
            Some(Value::Object(effect)).filter(|effect| !crate::json::codec::is_blank(effect));
        found.push(event);
        Ok(())
    })?;
    Ok(found)
}

fn later(
    tx: &Tx<'_>,
    effects: Effects,
    condition: &str,
    values: impl rusqlite::Params,
    room: &mut Room,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut unread = Vec::new();
    let texts = [7, 13, 14];
    let sql = format!("{} {condition}", later_select(effects));
    rows(tx, &sql, values, (room, &texts), |row, state| {
        let mut event = event(row, state, Some(String::new()), row.get(8)?)?;
        event.prev = row.get(15)?;
        event.tenant = row.get(16)?;
        let bytes: Option<u64> = row.get(17)?;
        event.left_out_bytes = bytes.filter(|_| event.written.effect.is_none());
        event.level = row.get(12)?;
        event.message = row.get::<_, Option<AnyText>>(13)?.map(|text| text.0);
        event.payload = row.get::<_, Option<AnyText>>(14)?.map(|text| parse(&text.0));
        unread.push((row.get::<_, i64>(9)?, row.get::<_, Option<i64>>(10)?, row.get(11)?, event));
        Ok(())
    })?;
    for (src, via, command, mut event) in unread {
        let src = tx.named(src)?.name.to_string();
        match via {
            None => event.written.from = Some(src),
            Some(via) => {
                let via = tx.named(via)?.name.to_string();
                found.push(begun(&event, src, via.clone(), command));
                event.written.from = Some(via);
            }
        }
        found.push(event);
    }
    Ok(found)
}

/// The first of two events that are one row.
fn begun(end: &Found, from: String, to: String, command: Option<String>) -> Found {
    let written = Written {
        seq: end.written.seq - 1,
        command: command.unwrap_or_default(),
        from: Some(from),
        to,
        effect: None,
        ..end.written.clone()
    };
    Found {
        position: end.position - 1,
        prev: end.prev,
        run_id: end.run_id.clone(),
        tenant: end.tenant.clone(),
        lifecycle: end.lifecycle.clone(),
        written,
        level: None,
        message: None,
        payload: None,
        left_out_bytes: None,
    }
}

fn rows(
    tx: &Tx<'_>,
    sql: &str,
    values: impl rusqlite::Params,
    (room, texts): (&mut Room, &[usize]),
    mut each: impl FnMut(&Row<'_>, &Named) -> rusqlite::Result<()>,
) -> Result<()> {
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query(values)?;
    while let Some(row) = rows.next()? {
        let texts = texts.iter().map(|at| row.get_ref(*at));
        if !room.has_for(texts.filter_map(|value| value.ok()?.as_bytes().ok())) {
            break;
        }
        let state = tx.named(row.get(4)?)?;
        each(row, &state)?;
    }
    Ok(())
}

fn event(row: &Row<'_>, state: &Named, from: Option<String>, seq: u64) -> rusqlite::Result<Found> {
    Ok(Found {
        position: row.get(0)?,
        prev: None,
        run_id: row.get(1)?,
        tenant: Arc::default(),
        lifecycle: state.of.as_ref().map(|(lifecycle, _)| lifecycle.clone()),
        written: Written {
            seq,
            at: Time::from_ms(row.get(2)?),
            command: row.get(3)?,
            from,
            to: state.name.to_string(),
            actor: row.get(5)?,
            by: row.get::<_, AnyText>(6)?.0,
            effect: row.get::<_, Option<AnyText>>(7)?.map(|text| parse(&text.0)),
        },
        level: None,
        message: None,
        payload: None,
        left_out_bytes: None,
    })
}

/// As callers see it, with the standard words where it came without.
fn event_row(found: Found) -> EventRow {
    let Written { seq, at, command, from, to, actor, by, effect } = found.written;
    let name = found.lifecycle.as_ref().map(|lifecycle| lifecycle.name.to_string());
    let standard = found.lifecycle.as_ref().and_then(|lifecycle| {
        let state = |name: &str| lifecycle.state_named(name).map(|id| lifecycle.state(id));
        Some(standard_message(&command, from.as_deref().and_then(state), state(&to)?, &by))
    });
    let (standard_level, standard_message) = standard.unwrap_or((Level::Info, String::new()));
    let did = effect.as_ref().filter(|_| from.is_some() && found.message.is_none());
    let standard_payload = || {
        if let Some(bytes) = found.left_out_bytes {
            return left_out(bytes);
        }
        let standard = found.lifecycle.as_ref().map(|it| standard_payload(it, &found.run_id, did));
        standard.unwrap_or_else(|| json!({}))
    };
    let payload = found.payload.unwrap_or_else(standard_payload);
    EventRow {
        position: found.position,
        run_id: found.run_id.to_string(),
        tenant: found.tenant.to_string(),
        lifecycle: name.unwrap_or_default(),
        seq,
        at,
        command,
        from,
        to,
        actor,
        by,
        level: found.level.unwrap_or_else(|| standard_level.name().to_owned()),
        message: found.message.or_else(|| items_message(&payload)).unwrap_or(standard_message),
        payload,
    }
}
