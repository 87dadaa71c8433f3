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
    query(tx, sql, values![lifecycle]).await?.iter().map(rule).collect()
}

/// What a hand wrote that cannot be meant is as if nothing were said: runs are kept for as long as their lifecycle says.
fn rule(row: &Cells) -> Result<Retention> {
    let span = |at| -> Option<Span> {
        let kept = row.get::<Option<i64>>(at).ok()??;
        Some(Span::from_ms(kept)).filter(|kept| Retention::is_sound(*kept))
    };
    Ok(Retention { lifecycle: row.get(0)?, success: span(1), failure: span(2) })
}

/// A line for each that says what cannot be meant.
pub(super) async fn unsound<T: Sql>(tx: &mut T) -> Result<Vec<String>> {
    let sql = "SELECT lifecycle, success_ms, failure_ms FROM waypost.retention ORDER BY lifecycle";
    let is_ignored = |row: &Cells, at| {
        let kept = row.get::<Option<i64>>(at);
        kept.map_or(true, |kept| kept.is_some_and(|kept| !Retention::is_sound(Span::from_ms(kept))))
    };
    let told = |row: &Cells| {
        let is_wrong = is_ignored(row, 1) || is_ignored(row, 2);
        is_wrong
            .then(|| format!("retention of {}: it is not between a millisecond and 100 years", row.name(0)))
    };
    Ok(query(tx, sql, values![]).await?.iter().filter_map(told).collect())
}
