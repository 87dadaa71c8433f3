//! What readers of the log keep and ask for beside it: how far they have gone, and that drafts are taken on.

use waypost_kernel::Actor;

use super::command::carry_out;
use super::tx::Tx;
use crate::rules::intake::check_name;
use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::CommandWrite;
use crate::statement::{Sql, query, values};

pub(crate) async fn cursor<T: Tx + Sql>(tx: &mut T, name: &str) -> Result<Option<u64>> {
    let rows = query(tx, "SELECT position FROM waypost.cursors WHERE name = $1", values![name]).await?;
    rows.first().map(|row| row.get(0)).transpose()
}

/// Two readers of one name have both seen all up to the higher of their positions.
pub(crate) async fn put_cursor<T: Tx + Sql>(tx: &mut T, name: &str, position: &u64) -> Result<()> {
    check_name("name", name)?;
    let sql = "INSERT INTO waypost.cursors(name, position) VALUES ($1, $2) ON CONFLICT (name) \
               DO UPDATE SET position = excluded.position WHERE cursors.position < excluded.position";
    query(tx, sql, values![name, *position]).await.map(drop)
}

/// By the engine itself, so that the audit log, which is about people, has no entry of it.
pub(crate) async fn acknowledge<T: Tx>(tx: &mut T, tenant: &str, run_id: &str, by: &str) -> Result<()> {
    let found = tx.runs(&[run_id]).await?.pop();
    let Some(stored) = found.filter(|stored| stored.row.tenant == tenant) else {
        return Err(StoreError::no_run(run_id));
    };
    let row = stored.row;
    let Some(command) = row.lifecycle.acknowledgement(row.run.state) else { return Ok(()) };
    let write = CommandWrite {
        tenant: tenant.to_owned(),
        run_id: run_id.to_owned(),
        name: command.to_owned(),
        actor: Some(Actor::Engine),
        by: by.to_owned(),
        ..CommandWrite::default()
    };
    match carry_out(tx, &write).await {
        // Somebody else was faster: it is no draft any more.
        Err(StoreError::Refused(_)) => Ok(()),
        carried_out => carried_out.map(drop),
    }
}
