//! A new run's two rows: what stays, which is also its first event, and what moves. Its items come first.

use std::sync::Arc;

use rusqlite::params;
use waypost_kernel::{Lifecycle, Time};

use super::moves;
use super::slots;
use crate::codec;
use crate::engine::{Birth, BornItem, Inserted, Stored};
use crate::run::{RunRow, iso};
use crate::sqlite::fault::Result;
use crate::sqlite::row::text;
use crate::sqlite::session::Tx;

const BORN: u32 = (1 << 31) + 1;
const NOW: u32 = (1 << 31) + 2;

pub fn insert(tx: &Tx<'_>, birth: Birth) -> Result<Inserted> {
    if is_key_taken(tx, &birth.row)? {
        return Ok(Inserted::KeyTaken(Box::new(birth)));
    }
    for born in &birth.items {
        item(tx, &birth.row.run.id, &birth.row.lifecycle, born)?;
    }
    let code = tx.code(&birth.row.lifecycle, birth.event.to)?;
    let rid = now(tx, code, &birth.row)?;
    stays(tx, rid, code, &birth)?;
    let stored =
        Stored { rid, row: Arc::new(birth.row), last: None, bytes: birth.texts.bytes(), recalled: false };
    tx.kept.rows.borrow_mut().put(stored.clone());
    Ok(Inserted::Made(stored))
}

fn is_key_taken(tx: &Tx<'_>, row: &RunRow) -> Result<bool> {
    let Some(key) = &row.idempotency_key else { return Ok(false) };
    let sql = "SELECT 1 FROM run_born WHERE tenant = ?1 AND idempotency_key = ?2";
    Ok(tx.prepare(sql)?.exists(params![row.tenant, key])?)
}

pub fn item(tx: &Tx<'_>, run_id: &str, lifecycle: &Lifecycle, born: &BornItem) -> Result<()> {
    let BornItem { place, new, item, seq } = born;
    let kind = &lifecycle.items[usize::from(item.kind)];
    tx.execute(
        "INSERT INTO items(run_id, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, \
         progress, not_before) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            run_id,
            &*kind.name,
            new.key,
            kind.version,
            *place as i64,
            new.name,
            &*kind.state(item.state).name,
            item.max_retries,
            item.reruns,
            item.role.name(),
            item.stays(kind),
            text(&new.details),
            seq,
            item.progress,
            item.not_before.map(iso),
        ],
    )?;
    Ok(())
}

fn stays(tx: &Tx<'_>, rid: i64, code: i64, birth: &Birth) -> Result<()> {
    let Birth { row, texts, event, .. } = birth;
    let run = &row.run;
    let position = tx.positions(1)?;
    tx.kept_statement(
        BORN,
        || {
            "INSERT OR FAIL INTO run_born(rid, position, run_id, tenant, state, at, command, actor, who, max_attempts, reentrant, \
             schedule_at, correlation_id, idempotency_key, fingerprint, parent_run_id, retry_of, playbook, carried, effect, \
             metadata, details, input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
             ?18, ?19, ?20, ?21, ?22, ?23)"
                .into()
        },
        |bind| {
            bind.put(rid)?;
            bind.put(position)?;
            bind.put(&*run.id)?;
            bind.put(&row.tenant)?;
            bind.put(code)?;
            bind.put(event.at.ms())?;
            bind.put(&*event.command)?;
            bind.put(event.actor.name())?;
            bind.put(&*event.by)?;
            bind.put(run.max_attempts)?;
            bind.put(run.reentrant)?;
            bind.put(row.schedule_at.map(Time::ms))?;
            bind.put(&row.correlation_id)?;
            bind.put(&row.idempotency_key)?;
            bind.put(&texts.fingerprint)?;
            bind.put(&row.parent_run_id)?;
            bind.put(&row.retry_of)?;
            bind.put(&row.playbook)?;
            bind.put(&texts.carried)?;
            bind.put(codec::effect_json(event, &row.lifecycle).map(|effect| effect.to_string()))?;
            bind.put(&texts.metadata)?;
            bind.put(&texts.details)?;
            bind.put(&texts.input)?;
            bind.execute()
        },
    )?;
    Ok(())
}

/// Gives the run's place.
fn now(tx: &Tx<'_>, code: i64, row: &RunRow) -> Result<i64> {
    let run = &row.run;
    let blocked = slots::starts_aside(tx, row)?;
    tx.kept_statement(
        NOW,
        || {
            "INSERT OR FAIL INTO run_now(state, seq, queue, priority, blocked, due_at, attempt, fence, token, claimed_by, \
             lease_ms, last_command, started_at, expires_at, concurrency_key, items) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
                .into()
        },
        |bind| {
            bind.put(code)?;
            bind.put(run.seq)?;
            bind.put(&row.queue)?;
            bind.put(row.priority)?;
            bind.put(blocked)?;
            bind.put(moves::due_at(run).map(Time::ms))?;
            bind.put(run.attempt)?;
            bind.put(run.fence)?;
            bind.put(moves::token(run))?;
            bind.put(moves::claimed_by(run))?;
            bind.put(moves::lease_ms(run))?;
            bind.put(&*run.last_command)?;
            bind.put(run.started_at.map(Time::ms))?;
            bind.put(run.expires_at.map(Time::ms))?;
            bind.put(&row.concurrency_key)?;
            bind.put(row.item_count() as i64)?;
            bind.execute()
        },
    )?;
    Ok(tx.conn.last_insert_rowid())
}
