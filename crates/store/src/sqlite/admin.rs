//! Looking things up, queues and limits.

use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Row, params};
use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::waiting::waits_for_people;
use waypost_kernel::{Lifecycle, Time};

use crate::engine::turns::{named, short};
use crate::engine::{AdminTx, Stored};
use crate::rules::room::Room;
use crate::seam::error::StoreError;
use crate::seam::names::{LEAST_PART, NEWEST, may_begin_an_id, only_one};
use crate::seam::run::{ItemRow, RunRow, iso, parse_time};
use crate::seam::verbs::{DEFAULT_TENANT, Filter, ItemFilter, ItemPage, Needs, Page, Pause, QueueRow};
use crate::sqlite::link::fault::{Fault, Result};
use crate::sqlite::link::session::Tx;
use crate::sqlite::primitives::{Primitives, slots};
use crate::sqlite::row;

/// By id, or by a part of one that only one has.
pub fn run(tx: &Tx<'_>, tenant: &str, id: &str) -> Result<RunRow> {
    if !may_begin_an_id(id) {
        return Err(StoreError::no_run(id).into());
    }
    let end = format!("{id}\u{7f}");
    let found = row::select(
        tx,
        "run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.tenant = ?1 AND b.run_id >= ?2 AND b.run_id < ?3 ORDER BY b.run_id LIMIT 3",
        params![tenant, id, end],
    )?;
    let found = if found.is_empty() && id.len() >= LEAST_PART { by_part(tx, tenant, id)? } else { found };
    Ok(only_one(id, found)?)
}

/// By the end of an id, or by what stands after its first separator.
fn by_part(tx: &Tx<'_>, tenant: &str, part: &str) -> Result<Vec<Stored>> {
    row::select(
        tx,
        "run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.tenant = ?1 AND b.rid > (SELECT max(rid) FROM run_born) - ?3 \
         AND (substr(b.run_id, -length(?2)) = ?2 OR instr(b.run_id, '-' || ?2) > 0 AND instr(b.run_id, '-' || ?2) = instr(b.run_id, '-') \
         OR instr(b.run_id, '_' || ?2) > 0 AND instr(b.run_id, '_' || ?2) = instr(b.run_id, '_')) ORDER BY b.run_id LIMIT 3",
        params![tenant, part, NEWEST],
    )
}

pub fn items(tx: &Tx<'_>, run_id: &str, kind: &Option<String>) -> Result<Vec<ItemRow>> {
    let stored = row::by_id(tx, run_id)?;
    let condition = "WHERE run_id = ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY kind, place, key";
    let kind = kind.as_deref().map(|kind| stored.row.lifecycle.item_name(kind));
    let found = row::items(tx, &stored, condition, params![run_id, kind])?;
    Ok(found.into_iter().map(|found| found.row).collect())
}

pub fn item_page(tx: &Tx<'_>, filter: &ItemFilter) -> Result<ItemPage> {
    let stored = row::by_id(tx, &filter.run_id)?;
    let (kind, key) = filter.after()?.unzip();
    let condition = "WHERE run_id = ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR status = ?3) AND (?4 IS NULL OR (kind, place, key) > \
                     (SELECT kind, place, key FROM items WHERE run_id = ?1 AND kind = ?4 AND key = ?5)) ORDER BY kind, place, key LIMIT ?6";
    let limit = filter.page_size() as i64 + 1;
    let asked = filter.kind.as_deref().map(|kind| stored.row.lifecycle.item_name(kind));
    let values = params![filter.run_id, asked, filter.status, kind, key, limit];
    let mut room = Room::of_a_page();
    let found = row::items_within(tx, &stored, condition, values, &mut room)?;
    Ok(filter.page(found.into_iter().map(|found| found.row).collect(), room.is_full))
}

/// Newest first.
pub fn runs(tx: &Tx<'_>, filter: &Filter) -> Result<Page> {
    let before = filter.before()?;
    // Of one that names nothing there are no runs, and the second of two names is the first if there is one alone.
    let named = filter.lifecycles();
    let lifecycle = named.as_ref().map(|names| names.first().map_or("", |name| name));
    let or_lifecycle = named.as_ref().map(|names| names.last().map_or("", |name| name));
    let stale_at = (filter.needs == Some(Needs::Worker)).then(|| tx.now.ms());
    let people = match filter.needs {
        Some(Needs::Person) => Some(states_of_people(tx)?),
        _ => None,
    };
    let (found, is_cut) = row::select_page(
        tx,
        filter.include,
        "run_now n CROSS JOIN run_born b ON b.rid = n.rid CROSS JOIN state_codes s ON s.code = n.state \
         WHERE n.rid < ?1 AND b.tenant = ?2 AND (?3 IS NULL OR s.lifecycle IN (?3, ?9)) AND (?4 IS NULL OR s.state = ?4) \
         AND (?5 IS NULL OR n.queue = ?5) AND (?10 IS NULL OR n.state & 7 = 2 AND n.due_at < iif(n.claimed_by IS NULL, ?12, ?10)) \
         AND (?11 IS NULL OR n.state IN (SELECT value FROM json_each(?11))) AND (?8 IS NULL OR n.queue <> ?8) AND (?6 IS NULL OR instr(b.run_id, ?6) OR instr(coalesce(b.correlation_id, ''), ?6) \
         OR instr(coalesce(n.metadata, b.metadata, '{}'), ?6)) ORDER BY n.rid DESC LIMIT ?7",
        params![
            before,
            filter.tenant,
            lifecycle,
            filter.status,
            filter.queue,
            filter.text,
            filter.page_size() as i64 + 1,
            filter.hidden(),
            or_lifecycle,
            stale_at,
            people,
            (tx.now - VACANT_FOR_LOST).ms()
        ],
    )?;
    Ok(filter.page(found, is_cut))
}

/// The codes of states in which a run waits for people, as a text of JSON.
fn states_of_people(tx: &Tx<'_>) -> Result<String> {
    let codes = tx.list("SELECT code FROM state_codes", [], |row| row.get::<_, i64>(0))?;
    let mut waiting = Vec::new();
    for code in codes {
        if let Some((lifecycle, state)) = tx.named(code)?.of
            && waits_for_people(&lifecycle, state)
        {
            waiting.push(code);
        }
    }
    Ok(serde_json::json!(waiting).to_string())
}

/// As `run_now` has them; [`short`] tells why.
pub fn queues(tx: &Tx<'_>, tenant: &Option<String>) -> Result<Vec<QueueRow>> {
    let mut found = tx.list(
        "SELECT tenant, name, sum(ready), sum(later), sum(held), min(oldest), sum(orphaned) FROM ( \
           SELECT tenant, queue AS name, due_at <= ?1 AS ready, due_at > ?1 AS later, 0 AS held, iif(due_at <= ?1, due_at, NULL) AS oldest, 0 AS orphaned \
             FROM run_now INDEXED BY run_ready WHERE state & 7 = 1 AND blocked = 0 \
           UNION ALL SELECT tenant, queue, due_at <= ?1, due_at > ?1, 0, iif(due_at <= ?1, due_at, NULL), 0 \
             FROM run_now INDEXED BY run_keyed WHERE finished_at IS NULL AND state & 7 = 1 AND concurrency_key IS NOT NULL AND blocked = 1 \
           UNION ALL SELECT tenant, queue, claimed_by IS NULL AND due_at <= ?1, claimed_by IS NULL AND due_at > ?1, claimed_by IS NOT NULL, \
               iif(claimed_by IS NULL AND due_at <= ?1, due_at, NULL), due_at < iif(claimed_by IS NULL, ?4, ?1) \
             FROM run_now INDEXED BY run_held WHERE state & 7 = 2 \
           UNION ALL SELECT iif(tenant = ?3, '', tenant), name, 0, 0, 0, NULL, 0 FROM queues) \
         WHERE ?2 IS NULL OR tenant = ?2 GROUP BY name, tenant",
        params![tx.now.ms(), tenant.as_deref().map(short), DEFAULT_TENANT, (tx.now - VACANT_FOR_LOST).ms()],
        |row| {
            Ok(QueueRow {
                tenant: named(row.get_ref(0)?.as_str()?).to_owned(),
                name: row.get(1)?,
                ready: row.get(2)?,
                scheduled: row.get(3)?,
                held: row.get(4)?,
                oldest_ready_at: row.get::<_, Option<i64>>(5)?.map(Time::from_ms),
                orphaned: row.get(6)?,
                ..QueueRow::default()
            })
        },
    )?;
    found.sort_by(|one, other| (&one.name, &one.tenant).cmp(&(&other.name, &other.tenant)));
    for queue in &mut found {
        settings(tx, queue)?;
    }
    Ok(found)
}

fn settings(tx: &Tx<'_>, queue: &mut QueueRow) -> Result<()> {
    let sql =
        "SELECT at_most, paused_by, pause_reason, paused_at FROM queues WHERE tenant = ?1 AND name = ?2";
    let read = |row: &Row<'_>| {
        let pause = Pause {
            by: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
            reason: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            at: row.get::<_, Option<String>>(3)?.and_then(|text| parse_time(&text)),
        };
        Ok((row.get(0)?, Some(pause).filter(|pause| pause.at.is_some())))
    };
    if let Some((at_most, paused)) = tx.find(sql, [&queue.tenant, &queue.name], read)? {
        queue.at_most = at_most;
        queue.paused = paused;
    }
    Ok(())
}

impl AdminTx for Primitives<'_, '_> {
    async fn pause_queue(
        &mut self,
        tenant: &str,
        queue: &str,
        pause: Option<&Pause>,
    ) -> crate::seam::error::Result<()> {
        let sql = "INSERT INTO queues(tenant, name, paused_by, pause_reason, paused_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant, name) \
            DO UPDATE SET paused_by = excluded.paused_by, pause_reason = excluded.pause_reason, paused_at = excluded.paused_at";
        let (by, reason) = (pause.map(|pause| &pause.by), pause.map(|pause| &pause.reason));
        let at = pause.map(|_| iso(self.0.now));
        Ok(self.0.execute(sql, params![tenant, queue, by, reason, at]).map(drop).map_err(Fault::from)?)
    }

    async fn limit_queue(
        &mut self,
        tenant: &str,
        queue: &str,
        at_most: Option<u32>,
    ) -> crate::seam::error::Result<()> {
        let sql = "INSERT INTO queues(tenant, name, at_most) VALUES (?1, ?2, ?3) ON CONFLICT (tenant, name) DO UPDATE SET at_most = excluded.at_most";
        Ok(self.0.execute(sql, params![tenant, queue, at_most]).map(drop).map_err(Fault::from)?)
    }

    async fn limit_key(
        &mut self,
        tenant: &str,
        key: &str,
        at_most: Option<u32>,
    ) -> crate::seam::error::Result<()> {
        let sql = match at_most {
            Some(_) => {
                "INSERT INTO key_limits(tenant, name, at_most) VALUES (?1, ?2, ?3) ON CONFLICT (tenant, name) \
                 DO UPDATE SET at_most = excluded.at_most"
            }
            None => "DELETE FROM key_limits WHERE tenant = ?1 AND name = ?2 AND ?3 IS NULL",
        };
        self.0.execute(sql, params![tenant, key, at_most]).map_err(Fault::from)?;
        Ok(slots::let_in(self.0, tenant, key)?)
    }

    async fn add_lifecycle(
        &mut self,
        tenant: &str,
        source: &str,
    ) -> crate::seam::error::Result<Arc<Lifecycle>> {
        Ok(self.0.add_lifecycle(tenant, source)?)
    }
}

/// The first column of a query.
pub fn ask_scopes(tx: &Tx<'_>, sql: &str) -> Result<Vec<String>> {
    let wrong = |error: rusqlite::Error| StoreError::invalid("sql", error.to_string());
    let mut statement = tx.conn.prepare(sql).map_err(wrong)?;
    let text = |row: &Row<'_>| {
        Ok(match row.get::<_, Value>(0)? {
            Value::Integer(number) => Some(number.to_string()),
            Value::Text(text) => Some(text),
            _ => None,
        })
    };
    let rows = statement.query_map([], text).map_err(wrong)?;
    let found = rows.collect::<rusqlite::Result<Vec<_>>>().map_err(wrong)?;
    Ok(found.into_iter().flatten().collect())
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
