//! What has failed and waits for people, by class.

use rusqlite::{Row, params};
use serde_json::json;

use crate::seam::run::parse_time;
use crate::seam::stats::is_reverted;
use crate::seam::targets::{DeadLetter, DeadLetterClass, DeadLetterFilter, retried_states};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::stats::codes_of;

/// The index has no others than those that failed; of one run, all are found by their state.
pub fn dead_letters(tx: &Tx<'_>, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterClass>> {
    let (kinds, states) = retried_states(&tx.catalog());
    let of_run = match &filter.run_id {
        Some(_) => "i.run_id = ?4 AND i.status IN (SELECT value FROM json_each(?5)) AND",
        None => "?4 IS NULL AND ?5 IS NOT NULL AND",
    };
    // Beside the least value stand those of its row: of several with the oldest time the first of the first run.
    let sql = format!(
        "SELECT i.error_code, count(*) AS n, i.finished_at, i.run_id, i.key, i.error_msg, \
           min(format('%s %020d %010d', i.finished_at, n.rid, i.place)), total(n.state IN (SELECT value FROM json_each(?6))) FROM items i CROSS JOIN run_born b ON b.run_id = i.run_id CROSS JOIN run_now n ON n.rid = b.rid \
         WHERE {of_run} i.kind IN (SELECT value FROM json_each(?1)) AND i.error_code IS NOT NULL AND i.finished_at IS NOT NULL AND i.discarded = 0 \
         AND b.tenant = ?2 AND (?3 IS NULL OR i.error_code = ?3) GROUP BY i.error_code ORDER BY n DESC, i.error_code"
    );
    let values = params![
        json!(kinds).to_string(),
        filter.tenant,
        filter.code,
        filter.run_id,
        json!(states).to_string(),
        codes_of(tx, is_reverted)?
    ];
    Ok(tx.list(&sql, values, class)?)
}

fn class(row: &Row<'_>) -> rusqlite::Result<DeadLetterClass> {
    Ok(DeadLetterClass {
        code: row.get(0)?,
        count: row.get(1)?,
        rolled_back: row.get::<_, f64>(7)? as u64,
        oldest_at: row.get::<_, Option<String>>(2)?.as_deref().and_then(parse_time),
        sample: DeadLetter {
            run_id: row.get(3)?,
            key: row.get(4)?,
            message: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
        },
    })
}
