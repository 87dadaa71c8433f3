//! A run of lifecycle `operation` works on its parent. When it settles, the parent is free again, in the same
//! transaction.

use std::pin::Pin;

use waypost_kernel::{Actor, Ask, Phase, Request};

use super::fault::Result;
use super::row;
use super::save::{self, Extra, Pending};
use super::session::Tx;
use super::sql::{Columns, args};
use crate::run::RunRow;
use crate::tokens::who;

const OPERATION: &str = "operation";

/// The rows are of runs that were not settled before.
pub async fn after_moves(tx: &Tx, moved: &[&RunRow]) -> Result<()> {
    for row in moved {
        let ended = row.phase() == Phase::Settled && &*row.lifecycle.name == OPERATION;
        if let Some(parent) = row.parent_run_id.as_deref().filter(|_| ended) {
            free(tx, parent).await?;
        }
    }
    Ok(())
}

/// The parent is locked first: of two operations that end at once, the second sees the first.
fn free<'a>(tx: &'a Tx, parent: &'a str) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
    Box::pin(async move {
        tx.run("SELECT 1 FROM waypost.runs WHERE run_id = $1 FOR UPDATE", args![parent]).await?;
        let operations = tx.session.known().codes(|lifecycle, _| &*lifecycle.name == OPERATION);
        let sql = "SELECT count(*) FROM waypost.runs WHERE parent_run_id = $1 AND state < 5000 AND state = ANY ($2)";
        let others: i64 = Columns(&tx.one(sql, args![parent, operations]).await?).get(0)?;
        let Some(stored) = row::by_ids(tx, &[parent]).await?.pop().filter(|_| others == 0) else {
            return Ok(());
        };
        let request = Request { who: who(Actor::Engine, "engine"), ask: Ask::OperationEnded };
        let change = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)?;
        if !change.is_repeat(&stored.row.run) {
            let mut pending = Pending::new(stored);
            pending.add(change, Extra::default());
            save::save_one(tx, pending).await?;
        }
        Ok(())
    })
}
