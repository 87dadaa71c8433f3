//! What a decision on a proposal brings along, in the transaction of the decision: it is the only one for its revision of its target, its
//! entry in the inbox follows it, and an approved one is applied if its playbook can do that.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use waypost_kernel::{Actor, Outcome, Phase};

use super::command::{Carried, carry_out};
use super::tx::Tx;
use crate::json::codec::hex;
use crate::seam::error::{Result, StoreError};
use crate::seam::proposals::{APPLY, APPROVE, INBOX_ID, PROCESS, PROPOSAL, REJECT, Revision};
use crate::seam::run::RunRow;
use crate::seam::verbs::CommandWrite;
use crate::statement::{Sql, query, values};

/// A remembered row is read again so often, and one that others change meanwhile.
const LOOKS: usize = 3;

/// Carries out a command, with what it brings along.
pub(super) async fn decide<T: Tx + Sql>(tx: &mut T, write: &CommandWrite) -> Result<Carried> {
    let decided = match carry_out(tx, write).await {
        Err(refused @ StoreError::Refused(_)) if write.name == APPROVE => {
            return approved_before(tx, write).await?.map(Carried::repeat).ok_or(refused);
        }
        carried_out => carried_out?,
    };
    let row = &decided.row;
    if &*row.lifecycle.name != PROPOSAL {
        return Ok(decided);
    }
    if is_approved(row) {
        be_the_only_one(tx, row).await?;
    }
    follow(tx, row, write).await?;
    if write.name != APPROVE || row.playbook.is_none() {
        return Ok(decided);
    }
    // Whoever approves has said what they saw already.
    let apply = CommandWrite { name: APPLY.to_owned(), if_seq: None, ..write.clone() };
    let applied = carry_out(tx, &apply).await?;
    Ok(Carried { is_repeat: decided.is_repeat && applied.is_repeat, ..applied })
}

/// It is applied, or about to be, or nothing had to be done for that.
fn is_approved(row: &RunRow) -> bool {
    row.outcome() == Some(Outcome::Succeeded) || row.phase() == Phase::Held
}

/// Of the proposals for one revision of one target, one is approved. Whoever wants to be it locks the revision's row, so that of two
/// at the same instant the second finds the first.
async fn be_the_only_one<T: Tx + Sql>(tx: &mut T, row: &RunRow) -> Result<()> {
    let Some(revision) = Revision::of(&row.metadata) else { return Ok(()) };
    let digest = digest(&revision);
    let own = || values![&row.tenant, &digest, row.id()];
    query(
        tx,
        "DELETE FROM waypost.approvals WHERE run_id = $1 AND revision <> $2",
        values![row.id(), &digest],
    )
    .await?;
    for _ in 0..LOOKS {
        let sql = "INSERT INTO waypost.approvals(tenant, revision, run_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        query(tx, sql, own()).await?;
        let sql =
            "SELECT run_id FROM waypost.approvals WHERE tenant = $1 AND revision = $2 @lock(FOR UPDATE)";
        let found = query(tx, sql, values![&row.tenant, &digest]).await?;
        // Pruned in between.
        let Some(holder) = found.first() else { continue };
        let holder: String = holder.get(0)?;
        if holder == row.id() {
            return Ok(());
        }
        // One that failed, and one that is gone, has left it to others.
        if stored(tx, &holder).await?.is_some_and(|other| is_approved(&other)) {
            let Revision { target, base } = revision;
            let words = format!(
                "{holder} was approved before, and was made for the same revision {base} of {target}"
            );
            return Err(StoreError::Outdated(words));
        }
        query(tx, "UPDATE waypost.approvals SET run_id = $3 WHERE tenant = $1 AND revision = $2", own())
            .await?;
        return Ok(());
    }
    Err(StoreError::Unavailable(format!("what {} is about changed each time; try again", row.id())))
}

/// Names of any length have one of one length.
fn digest(revision: &Revision) -> String {
    let text: Value = json!([revision.target, revision.base]);
    hex(&Sha256::digest(text.to_string()))
}

/// A run as it stands in its table, and not as it is remembered.
pub(super) async fn stored<T: Tx>(tx: &mut T, run_id: &str) -> Result<Option<Arc<RunRow>>> {
    for _ in 0..LOOKS {
        let Some(stored) = tx.runs(&[run_id]).await?.pop() else { return Ok(None) };
        if !stored.recalled {
            return Ok(Some(stored.row));
        }
    }
    Ok(None)
}

/// The approval and its application are one request: sent again it is answered as the first time.
async fn approved_before<T: Tx>(tx: &mut T, write: &CommandWrite) -> Result<Option<Arc<RunRow>>> {
    let is_applied = |row: &Arc<RunRow>| {
        &*row.lifecycle.name == PROPOSAL && &*row.run.last_command == APPLY && row.tenant == write.tenant
    };
    Ok(stored(tx, &write.run_id).await?.filter(is_applied))
}

/// An entry that was dealt with otherwise, or has expired, stays as it is.
async fn follow<T: Tx>(tx: &mut T, row: &RunRow, write: &CommandWrite) -> Result<()> {
    let name = match write.name.as_str() {
        APPROVE => PROCESS,
        REJECT => REJECT,
        _ => return Ok(()),
    };
    let Some(entry) = row.metadata.get(INBOX_ID).and_then(|id| id.as_str()) else { return Ok(()) };
    let write = CommandWrite {
        tenant: row.tenant.clone(),
        run_id: entry.to_owned(),
        name: name.to_owned(),
        actor: Some(Actor::Engine),
        by: write.by.clone(),
        reason: write.reason.clone(),
        ..CommandWrite::default()
    };
    match carry_out(tx, &write).await {
        Err(StoreError::Refused(_) | StoreError::NotFound { .. }) => Ok(()),
        carried_out => carried_out.map(drop),
    }
}
