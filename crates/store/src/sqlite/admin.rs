//! Looking things up, queues and limits.

use std::sync::Arc;

use rusqlite::{Row, params};
use waypost_kernel::{Time, text};

use super::fault::Result;
use super::primitives::slots;
use super::row;
use super::session::Tx;
use crate::error::StoreError;
use crate::intake;
use crate::run::{ItemRow, RunRow, iso, parse_time};
use crate::verbs::{Filter, LimitOf, Page, Pause, QueueRow};

/// By id, or by the beginning of one if only one begins so.
pub fn run(tx: &Tx<'_>, tenant: &str, id: &str) -> Result<Arc<RunRow>> {
    let not_found = || StoreError::no_run(id).into();
    if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Err(not_found());
    }
    let end = format!("{id}\u{7f}");
    let mut found = row::select(
        tx,
        "run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.tenant = ?1 AND b.run_id >= ?2 AND b.run_id < ?3 ORDER BY b.run_id LIMIT 3",
        params![tenant, id, end],
    )?;
    match found.len() {
        0 => Err(not_found()),
        1 => Ok(found.remove(0).row),
        _ if found[0].row.id() == id => Ok(found.remove(0).row),
        _ => {
            let some: Vec<&str> = found.iter().map(|stored| stored.row.id()).collect();
            let message = format!("{id:?} is the beginning of several: {}, …", some.join(", "));
            Err(StoreError::invalid("run_id", message).into())
        }
    }
}

pub fn items(tx: &Tx<'_>, run_id: &str, kind: Option<&str>) -> Result<Vec<ItemRow>> {
    let stored = row::by_id(tx, run_id)?;
    let condition = "WHERE run_id = ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY kind, place, key";
    let found = row::items(tx, &stored, condition, params![run_id, kind])?;
    Ok(found.into_iter().map(|found| found.row).collect())
}

/// Newest first.
pub fn runs(tx: &Tx<'_>, filter: &Filter) -> Result<Page> {
    let limit = filter.limit.clamp(1, text::MAX_PAGE);
    let before: i64 = match &filter.cursor {
        None => i64::MAX,
        Some(cursor) => {
            cursor.parse().map_err(|_| StoreError::invalid("cursor", "not a cursor of this list"))?
        }
    };
    let found = row::select(
        tx,
        "run_now n CROSS JOIN run_born b ON b.rid = n.rid CROSS JOIN state_codes s ON s.code = n.state \
         WHERE n.rid < ?1 AND b.tenant = ?2 AND (?3 IS NULL OR s.lifecycle = ?3) AND (?4 IS NULL OR s.state = ?4) \
         AND (?5 IS NULL OR n.queue = ?5) AND (?8 IS NULL OR n.queue <> ?8) AND (?6 IS NULL OR instr(b.run_id, ?6) OR instr(coalesce(b.correlation_id, ''), ?6) \
         OR instr(coalesce(n.metadata, b.metadata, '{}'), ?6)) ORDER BY n.rid DESC LIMIT ?7",
        params![
            before,
            filter.tenant,
            filter.lifecycle,
            filter.status,
            filter.queue,
            filter.text,
            limit as i64 + 1,
            filter.hidden()
        ],
    )?;
    let next = found.get(limit).map(|_| found[limit - 1].rid.to_string());
    Ok(Page {
        runs: found.into_iter().take(limit).map(|stored| Arc::unwrap_or_clone(stored.row)).collect(),
        next,
    })
}

pub fn queues(tx: &Tx<'_>) -> Result<Vec<QueueRow>> {
    let mut found = tx.list(
        "SELECT name, sum(ready), sum(later), sum(held), min(oldest) FROM ( \
           SELECT queue AS name, due_at <= ?1 AS ready, due_at > ?1 AS later, 0 AS held, iif(due_at <= ?1, due_at, NULL) AS oldest \
             FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 \
           UNION ALL SELECT queue, due_at <= ?1, due_at > ?1, 0, iif(due_at <= ?1, due_at, NULL) \
             FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND state & 7 = 1 AND concurrency_key IS NOT NULL AND blocked = 1 \
           UNION ALL SELECT queue, 0, 0, 1, NULL FROM run_now INDEXED BY run_held WHERE state & 7 = 2 \
           UNION ALL SELECT name, 0, 0, 0, NULL FROM queues) GROUP BY name ORDER BY name",
        [tx.now.ms()],
        |row| {
            Ok(QueueRow {
                name: row.get(0)?,
                ready: row.get(1)?,
                scheduled: row.get(2)?,
                held: row.get(3)?,
                oldest_ready_at: row.get::<_, Option<i64>>(4)?.map(Time::from_ms),
                ..QueueRow::default()
            })
        },
    )?;
    for queue in &mut found {
        settings(tx, queue)?;
    }
    Ok(found)
}

fn settings(tx: &Tx<'_>, queue: &mut QueueRow) -> Result<()> {
    let sql = "SELECT at_most, paused_by, pause_reason, paused_at FROM queues WHERE name = ?1";
    let read = |row: &Row<'_>| {
        let pause = Pause {
            by: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
            reason: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            at: row.get::<_, Option<String>>(3)?.and_then(|text| parse_time(&text)),
        };
        Ok((row.get(0)?, Some(pause).filter(|pause| pause.at.is_some())))
    };
    if let Some((at_most, paused)) = tx.find(sql, [&queue.name], read)? {
        queue.at_most = at_most;
        queue.paused = paused;
    }
    Ok(())
}

pub fn pause_queue(tx: &Tx<'_>, queue: &str, pause: Option<&Pause>) -> Result<QueueRow> {
    intake::check_name("queue", queue)?;
    if let Some(pause) = pause {
        intake::check_name("by", &pause.by)?;
        intake::check_reason(Some(&pause.reason))?;
    }
    tx.execute(
        "INSERT INTO queues(name, paused_by, pause_reason, paused_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name) \
         DO UPDATE SET paused_by = excluded.paused_by, pause_reason = excluded.pause_reason, paused_at = excluded.paused_at",
        params![
            queue,
            pause.map(|pause| &pause.by),
            pause.map(|pause| &pause.reason),
            pause.map(|_| iso(tx.now))
        ],
    )?;
    let found = queues(tx)?.into_iter().find(|row| row.name == queue);
    Ok(found.unwrap_or_default())
}

pub fn limit(tx: &Tx<'_>, what: LimitOf, name: &str, at_most: Option<u32>) -> Result<()> {
    intake::check_name("name", name)?;
    let sql = match (what, at_most) {
        (LimitOf::Queue, _) => {
            "INSERT INTO queues(name, at_most) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET at_most = excluded.at_most"
        }
        (LimitOf::Key, Some(_)) => {
            "INSERT INTO key_limits(name, at_most) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET at_most = excluded.at_most"
        }
        (LimitOf::Key, None) => "DELETE FROM key_limits WHERE name = ?1 AND ?2 IS NULL",
    };
    tx.execute(sql, params![name, at_most])?;
    if what == LimitOf::Key {
        slots::let_in(tx, name)?;
    }
    Ok(())
}

pub fn at_most_pages(tx: &Tx<'_>, pages: u32) -> Result<()> {
    Ok(tx.conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?)
}

pub fn advance_clock(tx: &Tx<'_>, by: waypost_kernel::Span) -> Result<()> {
    if by < waypost_kernel::Span::ZERO {
        return Err(StoreError::invalid("by", "the clock goes ahead only").into());
    }
    tx.execute(
        "INSERT INTO meta VALUES ('clock_ahead_ms', ?1) ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + excluded.value",
        [by.ms().to_string()],
    )?;
    Ok(())
}
