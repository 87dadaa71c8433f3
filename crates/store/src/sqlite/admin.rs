//! Commands by name, looking things up, queues and limits.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use waypost_kernel::{Actor, Ask, Request, Time, text};

use super::children;
use super::items;
use super::limits;
use super::open::database;
use super::row;
use super::save::{self, Extra, prepare};
use super::session::Tx;
use crate::children::{AT_ONCE, is_cancel};
use crate::chosen::chosen;
use crate::error::{Result, StoreError};
use crate::intake;
use crate::resolutions::Decisions;
use crate::run::{RunRow, iso, parse_time};
use crate::verbs::{CommandWrite, Filter, LimitOf, Page, Pause, QueueRow};

pub fn command(tx: &Tx<'_>, write: &CommandWrite) -> Result<Arc<RunRow>> {
    let mut stored = row::by_id(tx, &write.run_id)?;
    if stored.row.tenant != write.tenant {
        return Err(StoreError::no_run(&write.run_id));
    }
    write.check_seq(&stored.row.run)?;
    intake::check_name("by", &write.by)?;
    intake::check_reason(write.reason.as_deref())?;
    let find = |kind: &str, key: &str| items::item(tx, &stored, kind, key);
    let choose = |keys: &Vec<String>| chosen(&stored.row.lifecycle, &stored.row.run, &write.name, keys, find);
    let chosen = write.items.as_ref().map(choose).transpose()?;
    let decisions = Decisions::of(&stored.row, write, tx.now)?;
    let with = write.with(chosen.as_deref(), decisions.is_complete);
    let actor = write.actor.unwrap_or(Actor::Operator);
    let request = Request { who: tx.who(actor, &write.by), ask: Ask::Command { name: &write.name, with } };
    let change = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)?;
    if !change.is_repeat(&stored.row.run) {
        let details = decisions.patch(&stored.row, &change);
        let cancels = is_cancel(&change.events);
        save::save(tx, &mut stored, change, &Extra { details, ..Extra::default() })?;
        if cancels {
            children::ask(tx, AT_ONCE)?;
        }
    }
    Ok(stored.row)
}

/// By id, or by the beginning of one if only one begins so.
pub fn run(tx: &Tx<'_>, tenant: &str, id: &str) -> Result<Arc<RunRow>> {
    let not_found = || StoreError::no_run(id);
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
            Err(StoreError::invalid(
                "run_id",
                format!("{id:?} is the beginning of several: {}, …", some.join(", ")),
            ))
        }
    }
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
    let mut statement = prepare(
        tx,
        "SELECT name, sum(ready), sum(later), sum(held), min(oldest) FROM ( \
           SELECT queue AS name, due_at <= ?1 AS ready, due_at > ?1 AS later, 0 AS held, iif(due_at <= ?1, due_at, NULL) AS oldest \
             FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 \
           UNION ALL SELECT queue, due_at <= ?1, due_at > ?1, 0, iif(due_at <= ?1, due_at, NULL) \
             FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND state & 7 = 1 AND concurrency_key IS NOT NULL AND blocked = 1 \
           UNION ALL SELECT queue, 0, 0, 1, NULL FROM run_now INDEXED BY run_held WHERE state & 7 = 2 \
           UNION ALL SELECT name, 0, 0, 0, NULL FROM queues) GROUP BY name ORDER BY name",
    )?;
    let mut rows = statement.query(params![tx.now.ms()]).map_err(|error| database(&error))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| database(&error))? {
        let read = || -> rusqlite::Result<QueueRow> {
            Ok(QueueRow {
                name: row.get(0)?,
                ready: row.get(1)?,
                scheduled: row.get(2)?,
                held: row.get(3)?,
                oldest_ready_at: row.get::<_, Option<i64>>(4)?.map(Time::from_ms),
                ..QueueRow::default()
            })
        };
        found.push(read().map_err(|error| database(&error))?);
    }
    for queue in &mut found {
        settings(tx, queue)?;
    }
    Ok(found)
}

fn settings(tx: &Tx<'_>, queue: &mut QueueRow) -> Result<()> {
    let found =
        prepare(tx, "SELECT at_most, paused_by, pause_reason, paused_at FROM queues WHERE name = ?1")?
            .query_row(params![queue.name], |row| {
                let pause = Pause {
                    by: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
                    reason: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                    at: row.get::<_, Option<String>>(3)?.and_then(|text| parse_time(&text)),
                };
                Ok((row.get(0)?, Some(pause).filter(|pause| pause.at.is_some())))
            })
            .optional()
            .map_err(|error| database(&error))?;
    if let Some((at_most, paused)) = found {
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
    prepare(
        tx,
        "INSERT INTO queues(name, paused_by, pause_reason, paused_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name) \
         DO UPDATE SET paused_by = excluded.paused_by, pause_reason = excluded.pause_reason, paused_at = excluded.paused_at",
    )?
    .execute(params![
        queue,
        pause.map(|pause| &pause.by),
        pause.map(|pause| &pause.reason),
        pause.map(|_| iso(tx.now))
    ])
    .map_err(|error| database(&error))?;
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
    prepare(tx, sql)?.execute(params![name, at_most]).map_err(|error| database(&error))?;
    if what == LimitOf::Key {
        limits::let_in(tx, name)?;
    }
    Ok(())
}

pub fn at_most_pages(tx: &Tx<'_>, pages: u32) -> Result<()> {
    let set = tx.conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
    set.map_err(|error| database(&error))
}

pub fn advance_clock(tx: &Tx<'_>, by: waypost_kernel::Span) -> Result<()> {
    if by < waypost_kernel::Span::ZERO {
        return Err(StoreError::invalid("by", "the clock goes ahead only"));
    }
    prepare(
        tx,
        "INSERT INTO meta VALUES ('clock_ahead_ms', ?1) ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + excluded.value",
    )?
    .execute(params![by.ms().to_string()])
    .map(drop)
    .map_err(|error| database(&error))
}
