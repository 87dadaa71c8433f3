//! Looking things up.

use waypost_kernel::Span;
use waypost_kernel::decide::VACANT_FOR_LOST;

use crate::columns::{IN_ORDER, of_each_role};
use crate::engine::Stored;
use crate::postgres::link::fault::{Fault, Result};
use crate::postgres::link::session::{Session, Tx};
use crate::postgres::row;
use crate::postgres::sql::{Columns, args, stamp};
use crate::postgres::tables::rows;
use crate::seam::error::StoreError;
use crate::seam::names::{LEAST_PART, NEWEST, is_found, may_begin_an_id, only_one};
use crate::seam::run::{ItemRow, RunRow};
use crate::seam::verbs::{ItemFilter, ItemPage, MOST_HOLDERS_NAMED, PAGE_BYTES, Pause, QueueRow};

/// By id, or by a part of one that only one has.
pub async fn run(tx: &Tx, tenant: &str, id: &str) -> Result<RunRow> {
    if !may_begin_an_id(id) {
        return Err(StoreError::no_run(id).into());
    }
    let end = format!("{id}\u{7f}");
    let condition = "FROM waypost.runs r WHERE r.tenant = $1 AND r.run_id >= $2 AND r.run_id < $3 \
         ORDER BY r.run_id <> $2, r.queue = 'waypost.housekeeping', r.run_id LIMIT 3";
    let found = row::select(tx, condition, args![tenant, id, end]).await?;
    let found = match is_found(id, &found) || id.len() < LEAST_PART {
        true => found,
        false => [found, by_part(tx, tenant, id).await?].concat(),
    };
    Ok(only_one(id, found)?)
}

/// By the end of an id, or by what stands after its first separator.
async fn by_part(tx: &Tx, tenant: &str, part: &str) -> Result<Vec<Stored>> {
    let condition = "FROM waypost.runs r WHERE r.tenant = $1 AND r.rid > (SELECT max(rid) FROM waypost.runs) - $3::bigint \
         AND (right(r.run_id, length($2)) = $2 OR strpos(r.run_id, '-' || $2) > 0 AND strpos(r.run_id, '-' || $2) = strpos(r.run_id, '-') \
         OR strpos(r.run_id, '_' || $2) > 0 AND strpos(r.run_id, '_' || $2) = strpos(r.run_id, '_')) \
         ORDER BY r.queue = 'waypost.housekeeping', r.run_id LIMIT 3";
    row::select(tx, condition, args![tenant, part, NEWEST]).await
}

pub async fn queues(tx: &Tx, tenant: &Option<String>) -> Result<Vec<QueueRow>> {
    // What the database cannot hold is nobody's tenant.
    if tenant.as_ref().is_some_and(|tenant| tenant.contains('\0')) {
        return Ok(Vec::new());
    }
    let rows = tx
        .query(
            "WITH waiting AS (SELECT q.tenant, q.queue, q.available_at FROM waypost.ready q JOIN waypost.runs r ON r.rid = q.rid AND r.seq = q.seq \
               UNION ALL SELECT a.tenant, a.queue, a.available_at FROM waypost.blocked a JOIN waypost.runs r ON r.rid = a.rid AND r.seq = a.seq), \
             held AS (SELECT DISTINCT r.rid, r.run_id, r.tenant, r.queue, r.claimed_by, r.stale_after FROM waypost.watch w CROSS JOIN unnest(w.rids) AS u(rid) JOIN waypost.runs r ON r.rid = u.rid \
               WHERE r.state / 1000 = 3), \
             counted AS (SELECT tenant, queue, count(*) FILTER (WHERE available_at <= $1) AS due, count(*) FILTER (WHERE available_at > $1) AS later, \
                 min(available_at) FILTER (WHERE available_at <= $1) AS oldest, 0 AS held, 0 AS orphaned, NULL::text[] AS held_by FROM waiting GROUP BY tenant, queue \
               UNION ALL SELECT tenant, queue, count(*) FILTER (WHERE claimed_by IS NULL AND stale_after <= $1), \
                 count(*) FILTER (WHERE claimed_by IS NULL AND stale_after > $1), min(stale_after) FILTER (WHERE claimed_by IS NULL AND stale_after <= $1), \
                 count(claimed_by), count(*) FILTER (WHERE stale_after < CASE WHEN claimed_by IS NULL THEN $3 ELSE $1 END), \
                 (array_agg(run_id::text ORDER BY rid) FILTER (WHERE claimed_by IS NOT NULL))[:$4] FROM held GROUP BY tenant, queue \
               UNION ALL SELECT tenant, name, 0, 0, NULL, 0, 0, NULL FROM waypost.queues) \
             SELECT c.queue, sum(c.due)::bigint, sum(c.later)::bigint, sum(c.held)::bigint, min(c.oldest), q.at_most, q.paused_by, q.pause_reason, q.paused_at, c.tenant, sum(c.orphaned)::bigint, max(c.held_by) \
             FROM counted c LEFT JOIN waypost.queues q ON q.name = c.queue AND q.tenant = c.tenant WHERE $2 IS NULL OR c.tenant = $2 \
             GROUP BY c.tenant, c.queue, q.at_most, q.paused_by, q.pause_reason, q.paused_at ORDER BY c.queue COLLATE \"C\", c.tenant COLLATE \"C\"",
            args![stamp(tx.now), tenant.as_deref(), stamp(tx.now - VACANT_FOR_LOST), MOST_HOLDERS_NAMED as i32],
        )
        .await?;
    let read = |row| {
        let columns = Columns(row);
        let count = |at| Ok::<u64, Fault>(columns.get::<i64>(at)?.unsigned_abs());
        let pause = Pause {
            by: columns.get::<Option<String>>(6)?.unwrap_or_default(),
            reason: columns.get::<Option<String>>(7)?.unwrap_or_default(),
            at: columns.time(8)?,
        };
        Ok(QueueRow {
            tenant: columns.get(9)?,
            name: columns.get(0)?,
            ready: count(1)?,
            scheduled: count(2)?,
            held: count(3)?,
            orphaned: count(10)?,
            oldest_ready_at: columns.time(4)?,
            at_most: columns.get::<Option<i32>>(5)?.map(i32::unsigned_abs),
            paused: Some(pause).filter(|pause| pause.at.is_some()),
            held_by: columns.get::<Option<Vec<String>>>(11)?.unwrap_or_default(),
        })
    };
    rows.iter().map(read).collect()
}

/// A run's items, in the order in which they were added.
pub async fn items(tx: &Tx, run_id: &str, kind: &Option<String>) -> Result<Vec<ItemRow>> {
    let stored = row::by_id(tx, run_id).await?;
    let condition = "WHERE i.rid = $1 AND ($2 IS NULL OR i.kind = $2) ORDER BY i.kind COLLATE \"C\", i.place, i.key COLLATE \"C\"";
    // What the database cannot hold is no kind of anybody's.
    let kind = kind.as_deref().map(|kind| if kind.contains('\0') { "" } else { kind });
    let kind = kind.map(|kind| stored.row.lifecycle.item_name(kind));
    let of = |_| Some(&*stored.row.lifecycle);
    let found = row::items(tx, condition, args![stored.rid, kind], of).await?;
    Ok(found.into_iter().map(|found| found.row).collect())
}

/// What a page of items may have, by a guess at what their values are once unpacked.
const GUESSED_BYTES: usize = PAGE_BYTES;

/// The same page by page.
pub async fn item_page(tx: &Tx, filter: &ItemFilter) -> Result<ItemPage> {
    let stored = row::by_id(tx, &filter.run_id).await?;
    let (kind, key) = filter.after()?.unzip();
    let asks = [&filter.kind, &filter.key, &filter.status, &filter.code, &kind, &key];
    if asks.into_iter().flatten().any(|asked| asked.contains('\0')) {
        return Ok(ItemPage::default());
    }
    const ORDER: &str = "kind COLLATE \"C\", place, key COLLATE \"C\"";
    let size = |name: &str| {
        let times = format!("CASE WHEN pg_column_compression(i.{name}) IS NULL THEN 2 ELSE 256 END");
        format!("least(1048576, coalesce(pg_column_size(i.{name}), 0)::bigint * {times})")
    };
    // Those that wait for nothing stand in the index in the order of the list.
    let condition = if filter.key.is_some() && filter.kind.is_some() {
        format!(
            "i.kind = $2 AND i.key = $8 AND ($3 IS NULL OR i.status = $3) AND ($7 IS NULL OR i.error_code = $7) AND $4 IS NULL AND $5 IS NULL ORDER BY {ORDER}"
        )
    } else if filter.is_in_order(&stored.row.lifecycle) {
        let after = "coalesce((SELECT l.place FROM waypost.items l WHERE l.rid = $1 AND l.kind = $4 AND l.key = $5), -1)";
        let first = format!(
            "rid = $1 AND kind = $2 AND status = $3 AND not_before IS NULL AND ($7 IS NULL OR error_code = $7) AND $8 IS NULL AND place > {after}"
        );
        let first = of_each_role("waypost.items", &first, IN_ORDER, "$6");
        format!("i.kind = $2 AND i.key IN ({first}) ORDER BY i.place")
    } else {
        format!(
            "($2 IS NULL OR i.kind = $2) AND ($3 IS NULL OR i.status = $3) AND ($7 IS NULL OR i.error_code = $7) AND ($8 IS NULL OR i.key = $8) \
             AND ($4 IS NULL OR (i.kind COLLATE \"C\", i.place, i.key COLLATE \"C\") > (SELECT l.kind COLLATE \"C\", l.place, l.key COLLATE \"C\" FROM waypost.items l \
               WHERE l.rid = $1 AND l.kind = $4 AND l.key = $5)) ORDER BY {ORDER}"
        )
    };
    let sql = format!(
        "SELECT {}, i.count FROM (SELECT x.*, count(*) OVER () AS count, sum(x.bytes) OVER (ORDER BY {ORDER}) - x.bytes AS before FROM \
         (SELECT i.*, 1024 + {} + {} AS bytes FROM waypost.items i WHERE i.rid = $1 AND {condition} LIMIT $6) x) i WHERE i.before < {GUESSED_BYTES} ORDER BY {ORDER}",
        *rows::ITEM_SELECTED,
        size("output"),
        size("details"),
    );
    let limit = filter.page_size() as i64 + 1;
    let asked = filter.kind.as_deref().map(|kind| stored.row.lifecycle.item_name(kind));
    let found = tx
        .query(&sql, args![stored.rid, asked, filter.status, kind, key, limit, filter.code, filter.key])
        .await?;
    let count = found.first().map_or(Ok(0), |row| Columns(row).get::<i64>(row.len() - 1))?;
    let items = found.iter().map(|row| Ok(rows::item(row, &stored.row.lifecycle)?.row));
    Ok(filter.page(items.collect::<Result<Vec<_>>>()?, count > found.len() as i64))
}

/// The first column of a query.
pub async fn ask_scopes(tx: &Tx, sql: &str) -> Result<Vec<String>> {
    let asked = format!("SELECT asked.id::text FROM ({}\n) AS asked(id)", sql.trim().trim_end_matches(';'));
    let rows = tx.client()?.query(&asked, &[]).await.map_err(|error| {
        let words = error.as_db_error().map_or_else(|| error.to_string(), |told| told.message().to_owned());
        StoreError::invalid("sql", words)
    })?;
    let ids = rows.iter().map(|row| Columns(row).get::<Option<String>>(0)).collect::<Result<Vec<_>>>()?;
    Ok(ids.into_iter().flatten().collect())
}

pub async fn advance_clock(session: &Session, by: Span) -> Result<()> {
    if by < Span::ZERO {
        return Err(StoreError::invalid("by", "the clock goes ahead only").into());
    }
    let tx = session.begin().await?;
    let advanced = async {
        // The one row there is at most, whoever else is at it.
        tx.run("LOCK TABLE waypost.clock IN SHARE ROW EXCLUSIVE MODE", &[]).await?;
        let sql = "WITH moved AS (UPDATE waypost.clock SET ahead = ahead + $1::bigint * interval '1 microsecond' RETURNING 1) \
                   INSERT INTO waypost.clock(ahead) SELECT $1::bigint * interval '1 microsecond' WHERE NOT EXISTS (SELECT 1 FROM moved)";
        tx.run(sql, args![by.micros()]).await
    };
    let advanced = advanced.await;
    tx.has_written(false);
    tx.end(advanced).await?;
    let tx = session.look().await?;
    tx.end(Ok(())).await
}
