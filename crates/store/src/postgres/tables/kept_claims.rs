//! What claims with a key took: asked again, they give the same.

use tokio_postgres::types::Type;
use waypost_kernel::Time;

use super::PgTx;
use super::arrays::Parameters;
use crate::engine::Stored;
use crate::postgres::sql::{args, stamp};
use crate::seam::error::Result;

pub async fn recall_claim(tx: &mut PgTx, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>> {
    let condition = "FROM waypost.claims c CROSS JOIN LATERAL unnest(c.rids, c.fences) WITH ORDINALITY AS u(rid, fence, place) JOIN waypost.runs r ON r.rid = u.rid \
                     AND r.fence = u.fence WHERE c.worker = $1 AND c.key = $2 ORDER BY u.place";
    let found = tx.select(condition, args![worker, key]).await?;
    let with_fence = |stored: Stored| {
        let fence = stored.row.run.fence;
        (stored, fence)
    };
    Ok(found.into_iter().map(with_fence).collect())
}

/// With the commit, in one round trip.
pub fn keep_claim(tx: &mut PgTx, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) {
    let (rids, fences): (Vec<i64>, Vec<i32>) = taken.iter().map(|(rid, fence)| (*rid, *fence as i32)).unzip();
    let sql = "INSERT INTO waypost.claims(worker, key, rids, fences, until) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (worker, key) \
               DO UPDATE SET rids = excluded.rids, fences = excluded.fences, until = excluded.until";
    let mut values = Parameters::default();
    values.add(worker.to_owned(), Type::TEXT);
    values.add(key.to_owned(), Type::TEXT);
    values.add(rids, Type::INT8_ARRAY);
    values.add(fences, Type::INT4_ARRAY);
    values.add(stamp(until), Type::TIMESTAMPTZ);
    tx.last = Some((sql, values));
}
