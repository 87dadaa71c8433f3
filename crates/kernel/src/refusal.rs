//! Why a request was refused: a stable code, where the run stands, and what may be asked instead.

use std::fmt;

use crate::guard::Guard;
use crate::run::Text;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    InvalidTransition,
    ActorNotAllowed,
    LeaseLost,
    LeaseHeld,
    NotDue,
    CancelRequested,
    PauseRequested,
    FailureRecorded,
    CleanupOwed,
    OutOfDate,
    InvalidInput,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// The state that the run is in.
    pub current: Text,
    pub requested: String,
    /// Client and operator commands whose guard holds.
    pub allowed: Vec<Text>,
    /// The guard that did not hold, if the table has such a move.
    pub guard: Option<Guard>,
    /// The field of the request that is wrong, if one is.
    pub field: Option<&'static str>,
}

impl Code {
    pub const ALL: [Code; 11] = [
        Code::InvalidTransition,
        Code::ActorNotAllowed,
        Code::LeaseLost,
        Code::LeaseHeld,
        Code::NotDue,
        Code::CancelRequested,
        Code::PauseRequested,
        Code::FailureRecorded,
        Code::CleanupOwed,
        Code::OutOfDate,
        Code::InvalidInput,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Code::InvalidTransition => "INVALID_TRANSITION",
            Code::ActorNotAllowed => "ACTOR_NOT_ALLOWED",
            Code::LeaseLost => "LEASE_LOST",
            Code::LeaseHeld => "LEASE_HELD",
            Code::NotDue => "NOT_DUE",
            Code::CancelRequested => "CANCEL_REQUESTED",
            Code::PauseRequested => "PAUSE_REQUESTED",
            Code::FailureRecorded => "FAILURE_RECORDED",
            Code::CleanupOwed => "CLEANUP_OWED",
            Code::OutOfDate => "OUT_OF_DATE",
            Code::InvalidInput => "INVALID_INPUT",
        }
    }

    /// One line for the reference.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::InvalidTransition => "the lifecycle has no such move from here, or its guard does not hold",
            Code::ActorNotAllowed => "the move exists, but not for whoever asked",
            Code::LeaseLost => "the lease token is not the run's (any more): stop working on it",
            Code::LeaseHeld => "another worker holds the run, or the engine has yet to end it",
            Code::NotDue => "not yet: its schedule, retry time or time to live lies ahead",
            Code::CancelRequested => {
                "a cancel was asked for first: nothing begins but cleanups, and the run finishes as cancelled"
            }
            Code::PauseRequested => "a pause was asked for: nothing begins but cleanups before it",
            Code::FailureRecorded => {
                "a failure was recorded first: nothing begins but cleanups, and the run ends as that"
            }
            Code::CleanupOwed => "the run requires cleanup and ends only after it",
            Code::OutOfDate => "what it would do was looked at too long ago: look again, or force it",
            Code::InvalidInput => "a field of the request is wrong",
        }
    }

    /// The same request may succeed later, with nothing changed in it.
    pub fn is_retryable(self) -> bool {
        matches!(self, Code::LeaseHeld | Code::NotDue)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)?;
        if !self.allowed.is_empty() {
            write!(f, " (allowed now: {})", self.allowed.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
