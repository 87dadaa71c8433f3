//! What readers of the log keep and ask for beside it: how far they have gone, and that drafts are taken on.

use waypost_kernel::Actor;

use super::command::carry_out;
use super::tx::Tx;
use crate::rules::intake::check_name;
use crate::seam::error::{Result, StoreError};
use crate::seam::projection::LeftRun;
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

/// A run that is left behind is a cursor of its own: it stands where its reader left it.
fn name_of_left(name: &str, run_id: &str) -> String {
    format!("{name} left {run_id}")
}

pub(crate) async fn leave_behind<T: Tx + Sql>(
    tx: &mut T,
    name: &str,
    run_id: &str,
    position: &u64,
) -> Result<()> {
    put_cursor(tx, &name_of_left(name, run_id), position).await
}

/// Somebody else may have left it again meanwhile, further on.
pub(crate) async fn catch_up_with<T: Tx + Sql>(
    tx: &mut T,
    name: &str,
    run_id: &str,
    position: &u64,
) -> Result<()> {
    let sql = "DELETE FROM waypost.cursors WHERE name = $1 AND position <= $2";
    query(tx, sql, values![name_of_left(name, run_id), *position]).await.map(drop)
}

pub(crate) async fn left_behind<T: Tx + Sql>(tx: &mut T, name: &str) -> Result<Vec<LeftRun>> {
    let beginning = name_of_left(name, "");
    let length = beginning.chars().count() as u64;
    let sql =
        "SELECT name FROM waypost.cursors WHERE substr(name, 1, CAST($2 AS integer)) = $1 ORDER BY name";
    let rows = query(tx, sql, values![beginning.as_str(), length]).await?;
    let mut left = Vec::new();
    for row in rows {
        let name: String = row.get(0)?;
        // Of another reader, whose name begins like that.
        let Some(run_id) = name.strip_prefix(&beginning).filter(|id| !id.contains(' ')) else { continue };
        let tenant = tx.runs(&[run_id]).await?.pop().map(|stored| stored.row.tenant.clone());
        left.push(LeftRun { tenant: tenant.unwrap_or_default(), run_id: run_id.to_owned() });
    }
    Ok(left)
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
