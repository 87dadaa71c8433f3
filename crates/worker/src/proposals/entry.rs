//! An entry of the inbox that stands for a proposal.

use serde_json::{Value, json};
use waypost_kernel::{Code, Refusal};
use waypost_store::{INBOX, RunRow, StoreError};

/// In an entry's metadata: where it came from.
const SOURCE: &str = "source";
const AGENT: &str = "agent";

pub(super) fn source() -> (String, Value) {
    (SOURCE.to_owned(), json!(AGENT))
}

/// Whether an entry is decided with its proposal, and not by itself.
pub fn follows_proposal(row: &RunRow) -> bool {
    &*row.lifecycle.name == INBOX && row.metadata.get(SOURCE).is_some_and(|source| source == AGENT)
}

/// Refuses a decision on such an entry, unless that is meant: its proposal would stay open, and could be approved and applied though
/// somebody has rejected it.
pub(crate) fn check_entry(row: &RunRow, command: &str, is_meant: bool) -> waypost_store::Result<()> {
    let moves =
        |row: &RunRow| row.lifecycle.transitions_from(row.run.state).any(|it| &*it.command == command);
    if is_meant || !follows_proposal(row) || !moves(row) {
        return Ok(());
    }
    Err(StoreError::Refused(Box::new(Refusal {
        code: Code::InvalidTransition,
        message: "it is decided with its proposal: `waypost proposal list` has it; with force the entry moves alone".to_owned(),
        current: row.status().into(),
        requested: command.to_owned(),
        allowed: Vec::new(),
        guard: None,
        field: None,
    })))
}
