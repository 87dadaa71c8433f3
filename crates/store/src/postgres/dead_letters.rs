//! What has failed and waits for people, by class.

use tokio_postgres::Row;

use crate::postgres::link::fault::Result;
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Columns, args};
use crate::seam::stats::is_reverted;
use crate::seam::targets::{DeadLetter, DeadLetterClass, DeadLetterFilter, retried_states};

/// The index has no others than those that failed; of one run, all are found by their state.
pub async fn dead_letters(tx: &Tx, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterClass>> {
    let known = tx.known_now().await?;
    let (kinds, states) = retried_states(&known.catalog);
    let reverted = known.codes(is_reverted);
    let of_run = match &filter.run_id {
        Some(_) => "r.run_id = $4 AND i.status = ANY ($5) AND",
        None => "$4::text IS NULL AND $5::text[] IS NOT NULL AND",
    };
    let sql = format!(
        "WITH failed AS MATERIALIZED (SELECT i.error_code, i.finished_at, r.run_id, i.key, i.error_msg, r.state = ANY ($6) AS undone, i.rid, i.place FROM waypost.items i JOIN waypost.runs r ON r.rid = i.rid \
           WHERE {of_run} i.kind = ANY ($1) AND i.error_code IS NOT NULL AND i.finished_at IS NOT NULL AND NOT i.discarded AND r.tenant = $2 \
           AND ($3 IS NULL OR i.error_code = $3)), \
         classes AS (SELECT f.error_code, count(*) AS n, count(*) FILTER (WHERE f.undone) AS undone, min(f.finished_at) AS oldest FROM failed f GROUP BY f.error_code) \
         SELECT x.* FROM (SELECT DISTINCT ON (c.error_code) c.error_code, c.n, c.oldest, f.run_id, f.key, f.error_msg, c.undone FROM classes c \
             JOIN failed f ON f.error_code = c.error_code AND f.finished_at = c.oldest ORDER BY c.error_code, f.rid, f.place) x \
           ORDER BY x.n DESC, x.error_code COLLATE \"C\""
    );
    let asked = [&filter.run_id, &filter.code];
    if asked.into_iter().flatten().any(|asked| asked.contains('\0')) {
        return Ok(Vec::new());
    }
    let tenant = filter.tenant.as_str();
    let found = tx.query(&sql, args![kinds, tenant, filter.code, filter.run_id, states, reverted]).await?;
    found.iter().map(class).collect()
}

fn class(row: &Row) -> Result<DeadLetterClass> {
    let columns = Columns(row);
    Ok(DeadLetterClass {
        code: columns.get(0)?,
        count: columns.get::<i64>(1)?.unsigned_abs(),
        rolled_back: columns.get::<i64>(6)?.unsigned_abs(),
        oldest_at: columns.time(2)?,
        sample: DeadLetter {
            run_id: columns.get(3)?,
            key: columns.get(4)?,
            message: columns.get::<Option<String>>(5)?.unwrap_or_default(),
        },
    })
}
