//! Looking things up, queues and limits.

use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Row, params};
use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::{Lifecycle, Time};

use crate::columns::{IN_ORDER, of_each_role};
use crate::engine::turns::{named, short};
use crate::engine::{AdminTx, Stored};
use crate::rules::room::Room;
use crate::seam::error::StoreError;
use crate::seam::names::{LEAST_PART, NEWEST, is_found, may_begin_an_id, only_one};
use crate::seam::run::{ItemRow, RunRow, iso, parse_time};
use crate::seam::verbs::{DEFAULT_TENANT, ItemFilter, ItemPage, MOST_HOLDERS_NAMED, Pause, QueueRow};
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
        "run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.tenant = ?1 AND b.run_id >= ?2 AND b.run_id < ?3 \
         ORDER BY b.run_id <> ?2, n.queue = 'waypost.housekeeping', b.run_id LIMIT 3",
        params![tenant, id, end],
    )?;
    let found = match is_found(id, &found) || id.len() < LEAST_PART {
        true => found,
        false => [found, by_part(tx, tenant, id)?].concat(),
    };
    Ok(only_one(id, found)?)
}

/// By the end of an id, or by what stands after its first separator.
fn by_part(tx: &Tx<'_>, tenant: &str, part: &str) -> Result<Vec<Stored>> {
    row::select(
        tx,
        "run_born b CROSS JOIN run_now n ON n.rid = b.rid WHERE b.tenant = ?1 AND b.rid > (SELECT max(rid) FROM run_born) - ?3 \
         AND (substr(b.run_id, -length(?2)) = ?2 OR instr(b.run_id, '-' || ?2) > 0 AND instr(b.run_id, '-' || ?2) = instr(b.run_id, '-') \
         OR instr(b.run_id, '_' || ?2) > 0 AND instr(b.run_id, '_' || ?2) = instr(b.run_id, '_')) \
         ORDER BY n.queue = 'waypost.housekeeping', b.run_id LIMIT 3",
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
    let limit = filter.page_size() as i64 + 1;
    let asked = filter.kind.as_deref().map(|kind| stored.row.lifecycle.item_name(kind));
    // Those that wait for nothing stand in the index in the order of the list.
    let condition = if filter.key.is_some() && asked.is_some() {
        "WHERE run_id = ?1 AND kind = ?2 AND key = ?8 AND (?3 IS NULL OR status = ?3) AND (?7 IS NULL OR error_code = ?7) \
         AND ?4 IS NULL AND ?5 IS NULL LIMIT ?6"
            .to_owned()
    } else if filter.is_in_order(&stored.row.lifecycle) {
        let after = "coalesce((SELECT place FROM items WHERE run_id = ?1 AND kind = ?4 AND key = ?5), -1)";
        let first = format!(
            "run_id = ?1 AND kind = ?2 AND status = ?3 AND not_before IS NULL AND (?7 IS NULL OR error_code = ?7) AND ?8 IS NULL AND place > {after}"
        );
        let first = of_each_role("items", &first, IN_ORDER, "?6");
        format!("WHERE run_id = ?1 AND kind = ?2 AND key IN ({first}) ORDER BY place LIMIT ?6")
    } else {
        // Said only where there is one: the index then begins there.
        let after = match kind {
            Some(_) => {
                "AND (kind, place, key) > (SELECT kind, place, key FROM items WHERE run_id = ?1 AND kind = ?4 AND key = ?5)"
            }
            None => "",
        };
        format!(
            "INDEXED BY items_place WHERE run_id = ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR status = ?3) \
             AND (?7 IS NULL OR error_code = ?7) AND (?8 IS NULL OR key = ?8) {after} \
             ORDER BY kind, place, key LIMIT ?6"
        )
    };
    let values = params![filter.run_id, asked, filter.status, kind, key, limit, filter.code, filter.key];
    let mut room = Room::of_a_page();
    let found = row::items_within(tx, &stored, &condition, values, &mut room)?;
    Ok(filter.page(found.into_iter().map(|found| found.row).collect(), room.is_full))
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
    for (tenant, name, run_id) in holders(tx, tenant)? {
        let is_it = |queue: &&mut QueueRow| queue.name == name && queue.tenant == tenant;
        found.iter_mut().filter(is_it).for_each(|queue| queue.held_by.push(run_id.clone()));
    }
    Ok(found)
}

/// The oldest runs that are held of each queue: tenant, queue and run id.
fn holders(tx: &Tx<'_>, tenant: &Option<String>) -> Result<Vec<(String, String, String)>> {
    let sql = "SELECT b.tenant, h.queue, b.run_id FROM ( \
        SELECT rid, queue, row_number() OVER (PARTITION BY queue, tenant ORDER BY rid) AS place FROM run_now INDEXED BY run_held \
          WHERE state & 7 = 2 AND claimed_by IS NOT NULL AND (?1 IS NULL OR tenant = ?1)) h \
      CROSS JOIN run_born b ON b.rid = h.rid WHERE h.place <= ?2 ORDER BY h.rid";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    Ok(tx.list(sql, params![tenant.as_deref().map(short), MOST_HOLDERS_NAMED as i64], read)?)
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
