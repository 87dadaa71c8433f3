//! Writing a run: what it is born with once, and then only the columns that a move changes. A claim touches nine of
//! them, a finish six, a heartbeat one; what is not named costs no index and no parameter.

use rusqlite::params;
use waypost_kernel::{Phase, Run};

use crate::columns::members_text;
use crate::engine::Edit;
use crate::seam::run::RunRow;
use crate::sqlite::layout::{FileColumn, MOVING, flags};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;

/// The columns that a run's own change does not tell of.
const STATE: u32 = 1 << 27;
const LAST: u32 = 1 << 24;
const LET_IN: u32 = 1 << 28;
const METADATA: u32 = 1 << 29;
const DETAILS: u32 = 1 << 30;
const ITEMS: u32 = 1 << 25;
/// The first change of a run uses the room that was kept for it.
const FIRST: u32 = 1 << 26;

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
        || statement(set).into(),
        |bind| {
            bind.put(rid)?;
            bind.put(before.seq)?;
            if set & STATE != 0 {
                bind.put(code)?;
            }
            named(set).try_for_each(|place| place.put(bind, row))?;
            if set & LAST != 0 {
                bind.put(edit.stored.last)?;
            }
            if set & ITEMS != 0 {
                bind.put(row.item_count() as i64)?;
                bind.put(row.tally())?;
            }
            if set & METADATA != 0 {
                bind.put(members_text(&row.metadata))?;
            }
            if set & DETAILS != 0 {
                bind.put(members_text(&row.details))?;
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
        params![rid, src, dst, run.seq, rise(before, run), run.reason.as_deref(), flags(row), run.attempt],
    )?;
    Ok(())
}

fn changes(edit: &Edit) -> u32 {
    let (before, row) = (edit.before(), edit.row());
    let moved = before.state != row.run.state;
    let differ = MOVING.iter().enumerate().filter(|(_, place)| place.differs(before, &row.run));
    // What becomes ready may be tried; a claim sets it aside again if its key is full. What is taken may have been set
    // aside a moment ago, with the others of its key.
    let comes_in = row.phase() == Phase::Ready || row.concurrency_key.is_some() && edit.is_taken();
    let apart = [
        (moved, STATE),
        (moved && comes_in, LET_IN),
        (before.seq != row.run.seq, LAST),
        (before.seq == 1, FIRST),
        (!edit.new_items.is_empty() || edit.moves_items() && row.has_tally(), ITEMS),
        (!edit.metadata.is_empty(), METADATA),
        (!edit.details.is_empty(), DETAILS),
    ];
    let apart = apart.into_iter().filter(|(is, _)| *is).fold(0, |set, (_, bit)| set | bit);
    differ.fold(apart, |set, (at, _)| set | 1 << at)
}

fn named(set: u32) -> impl Iterator<Item = &'static FileColumn> {
    MOVING.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, place)| *place)
}

fn statement(set: u32) -> String {
    let mut names = Vec::new();
    names.extend((set & STATE != 0).then_some("state"));
    names.extend(named(set).map(|place| place.name));
    names.extend((set & LAST != 0).then_some("last"));
    names.extend((set & ITEMS != 0).then_some("items"));
    names.extend((set & ITEMS != 0).then_some("tally"));
    names.extend((set & METADATA != 0).then_some("metadata"));
    names.extend((set & DETAILS != 0).then_some("details"));
    let mut sets: Vec<String> =
        names.iter().enumerate().map(|(at, name)| format!("{name} = ?{}", at + 3)).collect();
    sets.extend((set & LET_IN != 0).then(|| "blocked = 0".to_owned()));
    sets.extend((set & FIRST != 0).then(|| "room = NULL".to_owned()));
    format!("UPDATE OR FAIL run_now SET {} WHERE rid = ?1 AND seq = ?2", sets.join(", "))
}
