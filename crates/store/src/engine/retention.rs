//! What an installation says about how long runs are kept.

use waypost_kernel::Span;

use super::tx::Tx;
use crate::seam::error::Result;
use crate::seam::retention::Retention;
use crate::statement::{Arg, Cells, Sql, query, values};

/// In place of all that was said before. The same once more writes nothing.
pub(crate) async fn put_retention<T: Tx + Sql>(tx: &mut T, rules: &[Retention]) -> Result<()> {
    let mut rules = rules.to_vec();
    rules.sort_by(|one, other| one.lifecycle.cmp(&other.lifecycle));
    for rule in &rules {
        rule.check()?;
    }
    if retention(tx, &None).await? == rules {
        return Ok(());
    }
    query(tx, "DELETE FROM waypost.retention", values![]).await?;
    let sql = "INSERT INTO waypost.retention(lifecycle, success_ms, failure_ms) VALUES ($1, $2, $3)";
    for rule in &rules {
        let ms = |kept: Option<Span>| Arg::Int(kept.map(Span::ms));
        query(tx, sql, values![&rule.lifecycle, ms(rule.success), ms(rule.failure)]).await?;
    }
    Ok(())
}

/// Of one lifecycle, or of all, by name.
pub(crate) async fn retention<T: Sql>(tx: &mut T, lifecycle: &Option<String>) -> Result<Vec<Retention>> {
    let sql = "SELECT lifecycle, success_ms, failure_ms FROM waypost.retention WHERE $1 IS NULL OR lifecycle = $1 ORDER BY lifecycle";
    let span = |row: &Cells, at| -> Result<Option<Span>> {
        let ms = row.get::<Option<u64>>(at)?;
        Ok(ms.map(|ms| Span::from_ms(ms as i64)))
    };
    let rule = |row: &Cells| {
        Ok(Retention { lifecycle: row.get(0)?, success: span(row, 1)?, failure: span(row, 2)? })
    };
    query(tx, sql, values![lifecycle]).await?.iter().map(rule).collect()
}
