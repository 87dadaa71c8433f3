//! Retention: settled runs leave when their time is over, with their items and events, and are counted.

use crate::postgres::link::fault::{Fault, Result};
use crate::postgres::link::session::{Session, Tx};
use crate::postgres::sql::{Columns, args};
use crate::seam::verbs::Pruned;

pub async fn prune(session: &Session, limit: usize) -> Result<Pruned> {
    let tx = session.begin().await?;
    let pruned = prune_in(&tx, limit).await;
    tx.end(pruned).await
}

async fn prune_in(tx: &Tx, limit: usize) -> Result<Pruned> {
    let limit = limit.min(i32::MAX as usize - 1) as i32;
    let row = tx.one("SELECT runs, events, more FROM waypost.prune_runs($1)", args![limit]).await?;
    let columns = Columns(&row);
    let count = |at| Ok::<u64, Fault>(columns.get::<i64>(at)?.unsigned_abs());
    tx.has_written(false);
    Ok(Pruned { runs: count(0)?, events: count(1)?, more: columns.get(2)? })
}
