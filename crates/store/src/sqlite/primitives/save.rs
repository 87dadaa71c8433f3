//! Writing what the kernel decided: the items first (the guards of the run count them), then the run by compare-and-set,
//! then its events, and what follows from them for others.

use rusqlite::params;
use serde_json::Value;
use waypost_kernel::event::Event;

use super::events;
use super::insert;
use super::moves;
use super::overdue;
use super::slots;
use crate::columns::members_text;
use crate::engine::{Edit, ItemChange, Saved};
use crate::json::codec;
use crate::rules::children::is_cancel;
use crate::seam::error::StoreError;
use crate::seam::run::iso;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;

/// Nobody else writes: a run that is not what was decided on was not read in this transaction.
pub fn save(tx: &Tx<'_>, mut edit: Edit) -> Result<Saved> {
    if edit.moves_items() {
        items(tx, &edit)?;
    }
    let count = edit.events.len() as i64;
    let first = tx.positions(count)?;
    let prev = edit.stored.last;
    if count > 0 {
        edit.stored.last = Some(first + count - 1);
    }
    if moves::update(tx, &edit)? != 1 {
        return Err(StoreError::Unavailable(format!("{} changed meanwhile", edit.row().id())).into());
    }
    events::insert(tx, &edit.stored, prev, first, &edit.events)?;
    if let Some((tenant, key)) = edit.slot_key().filter(|_| !edit.is_taken()) {
        slots::let_in(tx, tenant, key)?;
    }
    if is_cancel(edit.events.iter().map(|(event, _)| event)) {
        overdue::has_cancelled(tx, edit.row().id())?;
    }
    tx.cache.rows.borrow_mut().put(edit.stored);
    Ok(Saved::Won(first))
}

fn items(tx: &Tx<'_>, edit: &Edit) -> Result<()> {
    for born in &edit.new_items {
        insert::item(tx, edit.row().id(), &edit.row().lifecycle, born)?;
    }
    edit.items.iter().try_for_each(|changed| change(tx, edit, changed))?;
    for (event, _) in &edit.events {
        follow(tx, edit, event)?;
    }
    Ok(())
}

/// Items that move because their run did. What becomes of them is said in the trigger behind this view.
fn follow(tx: &Tx<'_>, edit: &Edit, event: &Event) -> Result<()> {
    let Some(shifts) = codec::shifts_json(event, &edit.row().lifecycle) else { return Ok(()) };
    let sql = "INSERT INTO item_shifts(run_id, seq, at, shifts) VALUES (?1, ?2, ?3, ?4)";
    let before = tx.conn.total_changes();
    tx.execute(sql, params![edit.row().id(), event.seq, iso(event.at), shifts.to_string()])?;
    let moved = tx.conn.total_changes() - before;
    let count: u32 = event.effect.shifts.iter().map(|shift| shift.count).sum();
    if moved != u64::from(count) {
        let message =
            format!("{moved} of the {count} that were to follow their run are where it counts them");
        return Err(StoreError::invalid("items", message).into());
    }
    Ok(())
}

fn change(tx: &Tx<'_>, edit: &Edit, changed: &ItemChange) -> Result<()> {
    let item = &changed.item;
    let kind = &edit.row().lifecycle.items[usize::from(item.kind)];
    let output = changed.output.as_ref().map(Value::to_string);
    let details = changed.details.as_ref().map(members_text);
    let Some(seq) = changed.seq else {
        let sql = "UPDATE items SET output = coalesce(?4, output), details = coalesce(?5, details) \
                   WHERE run_id = ?1 AND kind = ?2 AND key = ?3";
        tx.execute(sql, params![edit.row().id(), &*kind.name, &*item.key, output, details])?;
        return Ok(());
    };
    tx.execute(
        "UPDATE items SET status = ?4, attempts = ?5, try_no = ?6, progress = ?7, not_before = ?8, discarded = ?9, stays = ?10, \
         error_code = ?11, error_msg = ?12, started_at = ?13, finished_at = ?14, seq = ?15, output = coalesce(?16, output), \
         details = coalesce(?17, details), throttled = ?18, waited_ms = ?19, in_doubt = ?20 WHERE run_id = ?1 AND kind = ?2 AND key = ?3",
        params![
            edit.row().id(),
            &*kind.name,
            &*item.key,
            &*kind.state(item.state).name,
            item.attempts,
            item.try_no,
            item.progress,
            item.not_before.map(iso),
            item.discarded,
            changed.stays,
            item.failure.as_ref().map(|failure| &*failure.code),
            item.failure.as_ref().map(|failure| &*failure.message),
            item.started_at.map(iso),
            item.finished_at.map(iso),
            seq,
            output,
            details,
            item.throttled,
            item.waited_ms,
            item.in_doubt,
        ],
    )?;
    Ok(())
}
