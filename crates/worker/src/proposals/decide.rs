//! What people decide of a proposal, whoever asks for them: the server, the command line.

use std::fmt;

use waypost_kernel::Code;
use waypost_store::{APPROVE, CommandWrite, PROPOSAL, REJECT, Revision, RunRow, Store, StoreError};

/// In one request.
pub const MOST_AT_ONCE: usize = 50;
/// More than any proposal has before it is decided, and some after.
const MOST_EVENTS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    Reject,
}

#[derive(Clone, Debug)]
pub struct Decision {
    pub tenant: String,
    pub id: String,
    pub verdict: Verdict,
    /// Why. Who rejects says so.
    pub note: Option<String>,
    /// What the thing that it is about is at now, as far as the decider knows.
    pub base_revision: Option<String>,
    /// Only if this is still the number of its last event.
    pub if_seq: Option<u64>,
    pub by: String,
}

/// Why a proposal stays as it is.
#[derive(Debug)]
pub enum NotDecided {
    Unknown(String),
    Store(StoreError),
}

impl From<StoreError> for NotDecided {
    fn from(error: StoreError) -> NotDecided {
        NotDecided::Store(error)
    }
}

impl fmt::Display for NotDecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDecided::Unknown(id) => write!(f, "there is no proposal {id:?}"),
            NotDecided::Store(error) => error.fmt(f),
        }
    }
}

impl Verdict {
    pub fn command(self) -> &'static str {
        match self {
            Verdict::Approve => APPROVE,
            Verdict::Reject => REJECT,
        }
    }
}

/// The same decision again is answered as the first time.
pub async fn decide(store: &dyn Store, decision: Decision) -> Result<RunRow, NotDecided> {
    let row = match store.run(decision.tenant.clone(), decision.id.clone()).await {
        Err(StoreError::NotFound { .. }) => return Err(NotDecided::Unknown(decision.id)),
        found => found?,
    };
    if &*row.lifecycle.name != PROPOSAL {
        return Err(NotDecided::Unknown(decision.id));
    }
    if decision.verdict == Verdict::Reject && decision.note.as_deref().is_none_or(|it| it.trim().is_empty()) {
        return Err(StoreError::invalid("note", "is missing: who rejects a proposal says why").into());
    }
    if decision.verdict == Verdict::Approve && row.run.seq == 1 {
        check_revision(&row, decision.base_revision.as_deref())?;
    }
    let write = CommandWrite {
        tenant: decision.tenant,
        run_id: row.id().to_owned(),
        name: decision.verdict.command().to_owned(),
        by: decision.by,
        reason: decision.note,
        if_seq: decision.if_seq,
        ..CommandWrite::default()
    };
    match store.command(write.clone()).await {
        // What follows an approval by itself is the last that was asked then.
        Err(StoreError::Refused(refusal))
            if refusal.code == Code::InvalidTransition && was_decided_so(store, &write).await? =>
        {
            Ok(store.run(write.tenant, write.run_id).await?)
        }
        commanded => Ok(commanded?),
    }
}

/// Whether the last decision was this one, by the same person in the same words.
async fn was_decided_so(store: &dyn Store, write: &CommandWrite) -> Result<bool, StoreError> {
    let events = store.events(write.run_id.clone(), 0, MOST_EVENTS).await?;
    let last = events.iter().rfind(|event| [APPROVE, REJECT].contains(&event.command.as_str()));
    Ok(last.is_some_and(|last| {
        last.command == write.name
            && last.by == write.by
            && last.payload["reason"].as_str() == write.reason.as_deref()
    }))
}

/// A proposal is about one revision of its target, of which the decider may know that there is another now. That it is the only one for
/// that revision is the store's to say.
fn check_revision(row: &RunRow, now: Option<&str>) -> Result<(), StoreError> {
    let Some((Revision { target, base }, now)) = Revision::of(&row.metadata).zip(now) else { return Ok(()) };
    if base == now {
        return Ok(());
    }
    Err(StoreError::Outdated(format!("it was made for revision {base} of {target}, which is at {now} now")))
}
