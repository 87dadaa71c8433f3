//! One run of a rule at a time: two would change the same targets by turns. It is decided within the command's own transaction, so that of two
//! that are asked for at the same moment one is refused.

use waypost_kernel::event::Change;
use waypost_kernel::{Code, Phase, Refusal};

use super::edit::Stored;
use super::operations::OPERATION;
use super::tx::Tx;
use crate::seam::error::Result;
use crate::seam::run::RunRow;
use crate::seam::targets::kind_of_targets;
use crate::seam::verbs::CommandWrite;

/// Refuses a command that would have targets of a rule changed while another run of it, or an operation that changes targets of one, is
/// queued or under way, unless that is meant.
pub(super) async fn check_alone<T: Tx>(
    tx: &mut T,
    stored: &Stored,
    change: &Change,
    write: &CommandWrite,
) -> Result<()> {
    let row = &stored.row;
    let rule = row.playbook.as_deref().and_then(|pin| pin.split('@').next());
    let Some(rule) = rule.filter(|_| !write.force && changes_targets(row, change, &write.name)) else {
        return Ok(());
    };
    let ids = tx.live_of_rule(&row.tenant, &row.lifecycle.name, rule).await?;
    let ids: Vec<&str> = ids.iter().map(String::as_str).filter(|id| *id != row.id()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let others = tx.runs(&ids).await?;
    let is_other = |other: &&Stored| other.row.parent_run_id.as_deref() != Some(row.id());
    let Some(other) = others.iter().find(is_other) else { return Ok(()) };
    let what = if *other.row.lifecycle.name == *OPERATION { OPERATION } else { "run" };
    Err(Refusal {
        code: Code::InvalidTransition,
        message: format!(
            "{rule} has a {what} that is {} already, {}: wait for it or cancel it; with force this one is queued behind it",
            other.row.status(),
            other.row.id()
        ),
        current: row.status().into(),
        requested: write.name.clone(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    }
    .into())
}

/// Whether it lets a draft loose, takes a settled run up again, or begins an operation that moves its run. A reconciliation only reads.
fn changes_targets(row: &RunRow, change: &Change, command: &str) -> bool {
    let lifecycle = &row.lifecycle;
    let begins = match (row.phase(), lifecycle.phase(change.after.state)) {
        (Phase::Draft, to) => to == Phase::Ready,
        (Phase::Settled, to) => to == Phase::Held,
        _ => false,
    };
    let moves = lifecycle.transitions.iter().any(|edge| *edge.command == *command);
    let is_operation = !row.run.operating && change.after.operating && moves;
    kind_of_targets(lifecycle).is_some() && (begins || is_operation)
}
