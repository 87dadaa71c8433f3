//! Commands by name, looking things up, queues and limits.

use std::sync::Arc;

use waypost_kernel::{Span, text};

use super::fault::Result;
use super::row;
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp};
use crate::engine::Stored;
use crate::error::StoreError;
use crate::intake;
use crate::run::{ItemRow, RunRow};
use crate::verbs::{Filter, LimitOf, Page, Pause, QueueRow};

/// By id, or by the beginning of one if only one begins so.
pub async fn run(session: &Session, tenant: &str, id: &str) -> Result<RunRow> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if id.is_empty() || id.len() > 512 || !id.chars().all(fits) {
        return Err(StoreError::no_run(id).into());
    }
    let tx = session.look().await?;
    let end = format!("{id}\u{7f}");
    let condition = "FROM waypost.runs r WHERE r.tenant = $1 AND r.run_id >= $2 AND r.run_id < $3 ORDER BY r.run_id LIMIT 3";
    let found = row::select(&tx, condition, args![tenant, id, end]).await;
    let mut found = tx.end(found).await?;
    match found.len() {
        0 => Err(StoreError::no_run(id).into()),
        1 => Ok(Arc::unwrap_or_clone(found.remove(0).row)),
        _ if found[0].row.id() == id => Ok(Arc::unwrap_or_clone(found.remove(0).row)),
        _ => {
            let some: Vec<&str> = found.iter().map(|stored| stored.row.id()).collect();
            let message = format!("{id:?} is the beginning of several: {}, …", some.join(", "));
            Err(StoreError::invalid("run_id", message).into())
        }
    }
}

/// Newest first.
pub async fn runs(session: &Session, filter: &Filter) -> Result<Page> {
    let limit = filter.limit.clamp(1, text::MAX_PAGE);
    let before: i64 = match &filter.cursor {
        None => i64::MAX,
        Some(cursor) => {
            cursor.parse().map_err(|_| StoreError::invalid("cursor", "not a cursor of this list"))?
        }
    };
    let tx = session.look().await?;
    let found = find(&tx, filter, before, limit as i64 + 1).await;
    let found = tx.end(found).await?;
    let next = found.get(limit).map(|_| found[limit - 1].rid.to_string());
    Ok(Page {
        runs: found.into_iter().take(limit).map(|stored| Arc::unwrap_or_clone(stored.row)).collect(),
        next,
    })
}

async fn find(tx: &Tx, filter: &Filter, before: i64, limit: i64) -> Result<Vec<Stored>> {
    let asks = [&filter.lifecycle, &filter.status, &filter.queue, &filter.text];
    if asks.into_iter().flatten().any(|asked| asked.contains('\0')) || filter.tenant.contains('\0') {
        return Ok(Vec::new());
    }
    let is = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
    let known = tx.known_now().await?;
    let states = (filter.lifecycle.is_some() || filter.status.is_some()).then(|| {
        known.codes(|lifecycle, state| {
            is(&filter.lifecycle, &lifecycle.name) && is(&filter.status, &lifecycle.state(state).name)
        })
    });
    // Drafts, parked ones and what did not end well are few, and the log has an index of them.
    let unusual = |code: &i16| *code < 2_000 || (4_000..5_000).contains(code) || *code >= 6_000;
    let from = match &states {
        Some(states) if !states.is_empty() && states.iter().all(unusual) => {
            "FROM (SELECT DISTINCT e.rid FROM unnest($3) AS s(state) CROSS JOIN LATERAL (SELECT DISTINCT e.rid FROM waypost.events e \
               JOIN waypost.runs r ON r.rid = e.rid AND r.state = e.dst WHERE e.dst = s.state AND e.rid < $1 \
               AND (e.dst < 2000 OR e.dst BETWEEN 4000 AND 4999 OR e.dst >= 6000) AND r.tenant = $2 AND ($4 IS NULL OR r.queue = $4) AND ($7 IS NULL OR r.queue <> $7) \
               AND ($5 IS NULL OR strpos(r.run_id, $5) > 0 OR strpos(coalesce(r.correlation_id, ''), $5) > 0 OR strpos(r.metadata::text, $5) > 0) \
               ORDER BY e.rid DESC LIMIT $6) e) e JOIN waypost.runs r ON r.rid = e.rid"
        }
        _ => "FROM waypost.runs r",
    };
    let condition = format!(
        "{from} WHERE r.rid < $1 AND r.tenant = $2 AND ($3::smallint[] IS NULL OR r.state = ANY ($3)) AND ($4 IS NULL OR r.queue = $4) \
         AND ($7 IS NULL OR r.queue <> $7) AND ($5 IS NULL OR strpos(r.run_id, $5) > 0 OR strpos(coalesce(r.correlation_id, ''), $5) > 0 OR strpos(r.metadata::text, $5) > 0) \
         ORDER BY r.rid DESC LIMIT $6"
    );
    let hidden = filter.hidden();
    let values = args![before, filter.tenant, states, filter.queue, filter.text, limit, hidden];
    row::select(tx, &condition, values).await
}

pub async fn queues(session: &Session) -> Result<Vec<QueueRow>> {
    let tx = session.look().await?;
    let found = queues_in(&tx).await;
    tx.end(found).await
}

async fn queues_in(tx: &Tx) -> Result<Vec<QueueRow>> {
    let rows = tx
        .query(
            "WITH waiting AS (SELECT q.queue, q.available_at FROM waypost.ready q JOIN waypost.runs r ON r.rid = q.rid AND r.seq = q.seq \
               UNION ALL SELECT a.queue, a.available_at FROM waypost.aside a JOIN waypost.runs r ON r.rid = a.rid AND r.seq = a.seq), \
             held AS (SELECT DISTINCT r.rid, r.queue FROM waypost.watch w CROSS JOIN unnest(w.rids) AS u(rid) JOIN waypost.runs r ON r.rid = u.rid \
               WHERE r.state / 1000 = 3), \
             counted AS (SELECT queue, count(*) FILTER (WHERE available_at <= $1) AS due, count(*) FILTER (WHERE available_at > $1) AS later, \
                 min(available_at) FILTER (WHERE available_at <= $1) AS oldest, 0 AS held FROM waiting GROUP BY queue \
               UNION ALL SELECT queue, 0, 0, NULL, count(*) FROM held GROUP BY queue UNION ALL SELECT name, 0, 0, NULL, 0 FROM waypost.queues) \
             SELECT c.queue, sum(c.due)::bigint, sum(c.later)::bigint, sum(c.held)::bigint, min(c.oldest), q.at_most, q.paused_by, q.pause_reason, q.paused_at \
             FROM counted c LEFT JOIN waypost.queues q ON q.name = c.queue \
             GROUP BY c.queue, q.at_most, q.paused_by, q.pause_reason, q.paused_at ORDER BY c.queue COLLATE \"C\"",
            args![stamp(tx.now)],
        )
        .await?;
    let read = |row| {
        let columns = Columns(row);
        let count = |at| Ok::<u64, super::fault::Fault>(columns.get::<i64>(at)?.unsigned_abs());
        let pause = Pause {
            by: columns.get::<Option<String>>(6)?.unwrap_or_default(),
            reason: columns.get::<Option<String>>(7)?.unwrap_or_default(),
            at: columns.time(8)?,
        };
        Ok(QueueRow {
            name: columns.get(0)?,
            ready: count(1)?,
            scheduled: count(2)?,
            held: count(3)?,
            oldest_ready_at: columns.time(4)?,
            at_most: columns.get::<Option<i32>>(5)?.map(i32::unsigned_abs),
            paused: Some(pause).filter(|pause| pause.at.is_some()),
        })
    };
    rows.iter().map(read).collect()
}

pub async fn pause_queue(session: &Session, queue: &str, pause: Option<&Pause>) -> Result<QueueRow> {
    intake::check_name("queue", queue)?;
    if let Some(pause) = pause {
        intake::check_name("by", &pause.by)?;
        intake::check_reason(Some(&pause.reason))?;
    }
    let tx = session.begin().await?;
    let paused = async {
        tx.run(
            "SELECT waypost.put_pause($1, $2, $3)",
            args![queue, pause.map(|pause| pause.by.as_str()), pause.map(|pause| pause.reason.as_str())],
        )
        .await?;
        tx.has_written(pause.is_none());
        queues_in(&tx).await
    };
    let paused = paused.await;
    let found = tx.end(paused).await?.into_iter().find(|row| row.name == queue);
    Ok(found.unwrap_or_default())
}

pub async fn limit(session: &Session, what: LimitOf, name: &str, at_most: Option<u32>) -> Result<()> {
    intake::check_name("name", name)?;
    let at_most = at_most.map(|at_most| at_most.min(i32::MAX as u32) as i32);
    let tx = session.begin().await?;
    let limited = match what {
        LimitOf::Queue => tx.run("SELECT waypost.limit_queue($1, $2)", args![name, at_most]).await.map(drop),
        LimitOf::Key => limit_key(&tx, name, at_most).await,
    };
    tx.has_written(true);
    tx.end(limited).await
}

async fn limit_key(tx: &Tx, name: &str, at_most: Option<i32>) -> Result<()> {
    tx.run("SELECT waypost.lock_keys($1)", args![vec![name]]).await?;
    match at_most {
        Some(at_most) => {
            let set = "INSERT INTO waypost.key_limits(name, at_most) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET at_most = excluded.at_most";
            tx.run(set, args![name, at_most]).await?
        }
        None => tx.run("DELETE FROM waypost.key_limits WHERE name = $1", args![name]).await?,
    };
    tx.run("SELECT waypost.save_lanes(NULL, NULL, NULL, $1)", args![vec![name]]).await.map(drop)
}

/// A run's items, in the order in which they were added.
pub async fn items(session: &Session, run_id: &str, kind: Option<&str>) -> Result<Vec<ItemRow>> {
    let tx = session.look().await?;
    let found = async {
        let stored = row::by_id(&tx, run_id).await?;
        let condition = "WHERE i.rid = $1 AND ($2 IS NULL OR i.kind = $2) ORDER BY i.kind COLLATE \"C\", i.place, i.key COLLATE \"C\"";
        // What the database cannot hold is no kind of anybody's.
        let kind = kind.map(|kind| if kind.contains('\0') { "" } else { kind });
        row::items(&tx, condition, args![stored.rid, kind], |_| Some(&*stored.row.lifecycle)).await
    };
    let found = found.await;
    Ok(tx.end(found).await?.into_iter().map(|found| found.row).collect())
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
