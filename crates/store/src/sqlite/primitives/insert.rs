//! A new run's two rows: what stays, which is also its first event, and what moves. Its items come after them: what guards them
//! looks at the run that theirs repeats.

use std::sync::{Arc, LazyLock};

use rusqlite::params;
use waypost_kernel::Lifecycle;

use super::slots;
use crate::columns::members_text;
use crate::engine::turns::short;
use crate::engine::{Inserted, NewItemRow, NewRow, Stored};
use crate::json::codec;
use crate::seam::run::{RunRow, iso};
use crate::sqlite::layout::{BORN, FileColumn, NOW};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;

const INSERT_BORN: u32 = (1 << 31) + 1;
const INSERT_NOW: u32 = (1 << 31) + 2;

pub fn insert(tx: &Tx<'_>, new_row: NewRow) -> Result<Inserted> {
    if is_key_taken(tx, &new_row.row)? {
        return Ok(Inserted::KeyTaken(Box::new(new_row)));
    }
    let code = tx.code(&new_row.row.lifecycle, new_row.event.to)?;
    let rid = now(tx, code, &new_row.row)?;
    stays(tx, rid, code, &new_row)?;
    for born in &new_row.items {
        item(tx, &new_row.row.run.id, &new_row.row.lifecycle, born)?;
    }
    let stored =
        Stored { rid, row: Arc::new(new_row.row), last: None, bytes: new_row.texts.bytes(), recalled: false };
    tx.cache.rows.borrow_mut().put(stored.clone());
    Ok(Inserted::Made(stored))
}

fn is_key_taken(tx: &Tx<'_>, row: &RunRow) -> Result<bool> {
    let Some(key) = &row.idempotency_key else { return Ok(false) };
    let sql = "SELECT 1 FROM run_born WHERE tenant = ?1 AND idempotency_key = ?2";
    Ok(tx.prepare(sql)?.exists(params![row.tenant, key])?)
}

pub fn item(tx: &Tx<'_>, run_id: &str, lifecycle: &Lifecycle, born: &NewItemRow) -> Result<()> {
    let NewItemRow { place, new, item, seq, copy_of } = born;
    let kind = &lifecycle.items[usize::from(item.kind)];
    tx.execute(
        INSERT_ITEM,
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
            members_text(&new.details),
            seq,
            item.progress,
            item.not_before.map(iso),
            item.attempts,
            item.try_no,
            item.started_at.map(iso),
            item.finished_at.map(iso),
            item.failure.as_ref().map(|failure| &*failure.code),
            item.failure.as_ref().map(|failure| &*failure.message),
            copy_of.as_ref().map(|old| old.row.id()),
            item.throttled,
            item.waited_ms,
            item.in_doubt,
        ],
    )?;
    Ok(())
}

/// What a copy's original gave goes from row to row: it is not written anew.
const INSERT_ITEM: &str = "INSERT INTO items(run_id, kind, key, version, place, name, status, max_retries, reruns, role, stays, details, seq, \
     progress, not_before, attempts, try_no, started_at, finished_at, error_code, error_msg, output, throttled, waited_ms, in_doubt) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
     CASE WHEN ?22 IS NOT NULL THEN (SELECT output FROM items WHERE run_id = ?22 AND kind = ?2 AND key = ?3) END, ?23, ?24, ?25)";

static BORN_SQL: LazyLock<String> = LazyLock::new(|| {
    let own = "rid, position, state, command, actor, who, fingerprint, effect, metadata, details";
    statement("run_born", own, &BORN)
});
static NOW_SQL: LazyLock<String> =
    LazyLock::new(|| statement("run_now", "state, blocked, items, tenant", &NOW));

fn statement(table: &str, own: &str, columns: &[&FileColumn]) -> String {
    let names: Vec<&str> = own.split(", ").chain(columns.iter().map(|column| column.name)).collect();
    let placeholders: Vec<String> = (1..=names.len()).map(|at| format!("?{at}")).collect();
    format!("INSERT OR FAIL INTO {table}({}) VALUES ({})", names.join(", "), placeholders.join(", "))
}

fn stays(tx: &Tx<'_>, rid: i64, code: i64, new_row: &NewRow) -> Result<()> {
    let NewRow { row, texts, event, .. } = new_row;
    let position = tx.positions(1)?;
    tx.kept_statement(
        INSERT_BORN,
        || BORN_SQL.as_str().into(),
        |bind| {
            bind.put(rid)?;
            bind.put(position)?;
            bind.put(code)?;
            bind.put(&*event.command)?;
            bind.put(event.actor.name())?;
            bind.put(&*event.by)?;
            bind.put(&texts.fingerprint)?;
            bind.put(codec::effect_json(event, &row.lifecycle).map(|effect| effect.to_string()))?;
            bind.put(&texts.metadata)?;
            bind.put(&texts.details)?;
            for column in BORN.iter() {
                match column.name {
                    // These were written out when they came in.
                    "input" => bind.put(&texts.input)?,
                    "carried" => bind.put(&texts.carried)?,
                    _ => column.put(bind, row)?,
                }
            }
            bind.execute()
        },
    )?;
    Ok(())
}

/// Gives the run's place.
fn now(tx: &Tx<'_>, code: i64, row: &RunRow) -> Result<i64> {
    let blocked = slots::starts_aside(tx, row)?;
    tx.kept_statement(
        INSERT_NOW,
        || NOW_SQL.as_str().into(),
        |bind| {
            bind.put(code)?;
            bind.put(blocked)?;
            bind.put(row.item_count() as i64)?;
            bind.put(short(&row.tenant))?;
            NOW.iter().try_for_each(|column| column.put(bind, row))?;
            bind.execute()
        },
    )?;
    Ok(tx.conn.last_insert_rowid())
}
