//! Writing a run: what it is born with once, and then only the columns that a move changes. A claim touches nine of
//! them, a finish six, a heartbeat one; what is not named costs no index and no parameter.

use rusqlite::params;
use waypost_kernel::{Phase, Run, Time};

use crate::codec;
use crate::engine::Edit;
use crate::run::RunRow;
use crate::sqlite::fault::Result;
use crate::sqlite::row::{CLEANUP_FAILED, FORCED, OPERATING, REQUIRES_CLEANUP, RESOLVED, text};
use crate::sqlite::session::Tx;
use crate::sqlite::statements::Bind;

/// A column of `run_now`: whether a change of the run touches it, and what is written.
struct Column {
    name: &'static str,
    differs: fn(&Run, &Run) -> bool,
    put: fn(&mut Bind<'_, '_>, &RunRow) -> rusqlite::Result<()>,
}

/// A column whose value is made from the run alone.
macro_rules! column {
    ($name:literal, $value:expr) => {
        Column {
            name: $name,
            differs: |before, after| $value(before) != $value(after),
            put: |bind, row| bind.put($value(&row.run)),
        }
    };
}

const COLUMNS: &[Column] = &[
    column!("seq", |run: &Run| run.seq),
    column!("due_at", |run: &Run| due_at(run).map(Time::ms)),
    column!("attempt", |run: &Run| run.attempt),
    column!("take_overs", |run: &Run| run.take_overs),
    column!("fence", |run: &Run| run.fence),
    column!("token", token),
    column!("claimed_by", claimed_by),
    column!("lease_ms", lease_ms),
    column!("last_command", last_command),
    column!("started_at", |run: &Run| run.started_at.map(Time::ms)),
    column!("finished_at", |run: &Run| run.finished_at.map(Time::ms)),
    column!("expires_at", |run: &Run| run.expires_at.map(Time::ms)),
    column!("flags", flags),
    Column {
        name: "intent",
        differs: |before, after| before.intent != after.intent,
        put: |bind, row| {
            let intent = row.run.intent.as_ref();
            bind.put(intent.map(|intent| codec::intent_json(intent, &row.lifecycle).to_string()))
        },
    },
    column!("reason", reason),
    column!("error_code", error_code),
    column!("error_msg", error_msg),
];

/// The first of them: events were written.
const SEQ: u32 = 1;
/// The columns that a run's own change does not tell of.
const STATE: u32 = 1 << 27;
const LET_IN: u32 = 1 << 28;
const METADATA: u32 = 1 << 29;
const DETAILS: u32 = 1 << 30;
const ITEMS: u32 = 1 << 25;
/// The first change of a run uses the room that was kept for it.
const FIRST: u32 = 1 << 26;

/// From when a worker may take it; while it is held, the lease's end.
pub fn due_at(run: &Run) -> Option<Time> {
    run.lease.as_ref().map_or(run.available_at, |lease| Some(lease.until))
}

pub fn token(run: &Run) -> Option<[u8; 16]> {
    run.lease.as_ref().map(|lease| lease.token).or(run.ended_by).map(|token| token.0.to_be_bytes())
}

pub fn claimed_by(run: &Run) -> Option<&str> {
    run.lease.as_ref().and_then(|lease| lease.worker.as_deref())
}

pub fn lease_ms(run: &Run) -> Option<i64> {
    run.lease.as_ref().map(|lease| lease.length.ms())
}

fn last_command(run: &Run) -> &str {
    &run.last_command
}

fn reason(run: &Run) -> Option<&str> {
    run.reason.as_deref()
}

fn error_code(run: &Run) -> Option<&str> {
    run.failure.as_ref().map(|failure| &*failure.code)
}

fn error_msg(run: &Run) -> Option<&str> {
    run.failure.as_ref().map(|failure| &*failure.message)
}

fn flags(run: &Run) -> i64 {
    [
        (run.requires_cleanup, REQUIRES_CLEANUP),
        (run.cleanup_failed, CLEANUP_FAILED),
        (run.operating, OPERATING),
        (run.resolved, RESOLVED),
        (run.forced, FORCED),
    ]
    .into_iter()
    .fold(0, |flags, (is, flag)| if is { flags | flag } else { flags })
}

/// Writes what changed, if anything did and the row still has the `seq` that was decided on. Gives how many rows that were.
pub fn update(tx: &Tx<'_>, edit: &Edit) -> Result<usize> {
    let (rid, row, before) = (edit.stored.rid, edit.row(), edit.before());
    let set = changes(edit);
    if set == 0 {
        return Ok(1);
    }
    let mut code = 0;
    let mut is_guarded = false;
    if set & STATE != 0 {
        let src = tx.code(&row.lifecycle, before.state)?;
        code = tx.code(&row.lifecycle, row.run.state)?;
        is_guarded = tx.is_guarded(src, code, rise(before, &row.run));
        if is_guarded {
            ask_permit(tx, rid, before, row, (src, code))?;
        }
    }
    let written = tx.kept_statement(
        set,
        || statement(set),
        |bind| {
            bind.put(rid)?;
            bind.put(before.seq)?;
            if set & STATE != 0 {
                bind.put(code)?;
            }
            for column in named(set) {
                (column.put)(bind, row)?;
            }
            if set & SEQ != 0 {
                bind.put(edit.stored.last)?;
            }
            if set & ITEMS != 0 {
                bind.put(row.item_count() as i64)?;
            }
            if set & METADATA != 0 {
                bind.put(text(&row.metadata))?;
            }
            if set & DETAILS != 0 {
                bind.put(text(&row.details))?;
            }
            bind.execute()
        },
    );
    if is_guarded {
        tx.execute("DELETE FROM run_permits WHERE rid = ?1", [rid])?;
    }
    Ok(written?)
}

fn rise(before: &Run, after: &Run) -> i64 {
    after.seq as i64 - before.seq as i64
}

/// The file judges a guarded move by itself, before it is made.
fn ask_permit(tx: &Tx<'_>, rid: i64, before: &Run, row: &RunRow, (src, dst): (i64, i64)) -> Result<()> {
    let run = &row.run;
    let sql = "INSERT OR FAIL INTO run_permits(rid, src, dst, seq, rise, reason, flags, attempt) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    tx.execute(
        sql,
        params![rid, src, dst, run.seq, rise(before, run), reason(run), flags(run), run.attempt],
    )?;
    Ok(())
}

fn changes(edit: &Edit) -> u32 {
    let (before, row) = (edit.before(), edit.row());
    let moved = before.state != row.run.state;
    let differ = COLUMNS.iter().enumerate().filter(|(_, column)| (column.differs)(before, &row.run));
    // What becomes ready may be tried; a claim sets it aside again if its key is full. What is taken may have been set
    // aside a moment ago, with the others of its key.
    let comes_in = row.phase() == Phase::Ready || row.concurrency_key.is_some() && edit.is_taken();
    let apart = [
        (moved, STATE),
        (moved && comes_in, LET_IN),
        (before.seq == 1, FIRST),
        (!edit.born.is_empty(), ITEMS),
        (!edit.metadata.is_empty(), METADATA),
        (!edit.details.is_empty(), DETAILS),
    ];
    let apart = apart.into_iter().filter(|(is, _)| *is).fold(0, |set, (_, bit)| set | bit);
    differ.fold(apart, |set, (at, _)| set | 1 << at)
}

fn named(set: u32) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, column)| column)
}

fn statement(set: u32) -> String {
    let mut names = Vec::new();
    names.extend((set & STATE != 0).then_some("state"));
    names.extend(named(set).map(|column| column.name));
    names.extend((set & SEQ != 0).then_some("last"));
    names.extend((set & ITEMS != 0).then_some("items"));
    names.extend((set & METADATA != 0).then_some("metadata"));
    names.extend((set & DETAILS != 0).then_some("details"));
    let mut sets: Vec<String> =
        names.iter().enumerate().map(|(at, name)| format!("{name} = ?{}", at + 3)).collect();
    sets.extend((set & LET_IN != 0).then(|| "blocked = 0".to_owned()));
    sets.extend((set & FIRST != 0).then(|| "room = NULL".to_owned()));
    format!("UPDATE OR FAIL run_now SET {} WHERE rid = ?1 AND seq = ?2", sets.join(", "))
}
