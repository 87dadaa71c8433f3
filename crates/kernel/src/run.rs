//! A run's row: what a decision looks at and what it changes.

use std::fmt;
use std::sync::Arc;

use crate::lifecycle::StateId;
use crate::tally::Tallies;
use crate::time::{Span, Time};

pub type Text = Arc<str>;

/// The secret half of a lease. Random, never in events or logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u128);

/// The right to write a held run. *Vacant* (no worker) is what a release or a client's retry leaves behind:
/// any worker may take it over from its end on, and nobody knows its token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub token: Token,
    pub worker: Option<Text>,
    /// What a heartbeat extends it by.
    pub length: Span,
    /// Of a vacant one: from when it may be taken.
    pub until: Time,
}

/// What somebody wants of a run that another one holds. Kept until it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Intent {
    pub want: Want,
    pub by: Text,
    pub reason: Option<Text>,
    /// Of a failure that requires cleanup: where the run goes once that is done.
    pub to: Option<StateId>,
    pub failure: Option<Failure>,
    /// After the current host, not at once.
    pub graceful: bool,
}

impl Intent {
    /// What somebody said when they asked for it, or who asked.
    pub fn in_words(&self) -> String {
        match &self.reason {
            Some(reason) => reason.to_string(),
            None => format!("{} by {}", self.want.command(), self.by),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    Cancel,
    Pause,
    Fail,
}

/// A stable code and words for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    pub code: Text,
    pub message: Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub id: Text,
    pub state: StateId,
    /// The number of the run's last event.
    pub seq: u64,
    pub attempt: u32,
    pub max_attempts: u32,
    /// Expired leases that were taken over since the last claim or retry.
    pub take_overs: u32,
    /// Rises with every new holder, never falls.
    pub fence: u64,
    pub lease: Option<Lease>,
    /// The token that settled or parked the run: its finish, sent again, is answered as the first time.
    pub ended_by: Option<Token>,
    /// A digest of what that finish brought along: one that brings something else is not the same finish.
    pub ended_with: Option<Token>,
    /// The last command that led from state to state, so that a repeated one is known.
    pub last_command: Text,
    pub intent: Option<Intent>,
    pub requires_cleanup: bool,
    pub cleanup_failed: bool,
    /// A rollback or reconciliation of this run is under way.
    pub operating: bool,
    /// A stale execution may be taken up again (cron).
    pub reentrant: bool,
    /// Why it is where it is, as a person or worker said; while nobody holds it, what it waits for.
    pub reason: Option<Text>,
    pub resolved: bool,
    pub forced: bool,
    pub failure: Option<Failure>,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    /// From when a worker may take it: ready, or settled with a retry to come. Nothing means never.
    pub available_at: Option<Time>,
    /// When a draft or ready run's time to live ends, or a parked one no longer waits for a person.
    pub expires_at: Option<Time>,
    /// One per item kind of the lifecycle, in its order.
    pub tallies: Tallies,
}

impl Lease {
    pub fn is_vacant(&self) -> bool {
        self.worker.is_none()
    }

    /// Strictly after its end, as seed 002 has it: `stale_after < now`.
    pub fn is_expired(&self, now: Time) -> bool {
        self.until < now
    }
}

impl Want {
    /// The command that carries it out. A failure goes by whatever command leads to its state.
    pub fn command(self) -> &'static str {
        match self {
            Want::Cancel => "cancel",
            Want::Pause => "pause",
            Want::Fail => "fail",
        }
    }
}

impl Failure {
    pub fn new(code: &str, message: &str) -> Failure {
        Failure { code: code.into(), message: message.into() }
    }
}

/// Enough to tell two tokens apart in a log, not enough to use one.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(…{:04x})", self.0 & 0xffff)
    }
}
