//! What can go wrong between a verb and its database.

use std::fmt;

use waypost_kernel::{Code, Refusal};

use crate::seam::run::RunRow;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq)]
pub enum StoreError {
    /// The kernel said no: a stable code, the current state and what is allowed instead.
    Refused(Box<Refusal>),
    NotFound {
        what: &'static str,
        id: String,
    },
    /// A field of the request is wrong.
    Invalid {
        field: String,
        message: String,
    },
    /// The idempotency key was used with another body; `run_id` is the run that has it.
    KeyReused {
        key: String,
        run_id: String,
    },
    /// A server does not let this caller do this.
    Denied(String),
    /// The run is not at the event that was named: `seq` is the number of its last event now.
    Changed {
        run_id: String,
        seq: u64,
    },
    /// A proposal was made for another revision of its target than there is now.
    Outdated(String),
    /// The database cannot be used now: busy, full, read-only, gone. Nothing was written; the same may work later.
    Unavailable(String),
    /// The database cannot be used by this binary: not a database, or of a newer version.
    Unusable(String),
}

impl StoreError {
    pub fn invalid(field: &str, message: impl Into<String>) -> StoreError {
        StoreError::Invalid { field: field.to_owned(), message: message.into() }
    }

    pub fn no_run(id: &str) -> StoreError {
        StoreError::NotFound { what: "run", id: id.to_owned() }
    }

    /// The lifecycle would let it begin, but a pause or a limit makes it wait.
    pub(crate) fn not_yet(row: &RunRow, requested: &str, reason: &str) -> StoreError {
        let refusal = Refusal {
            code: Code::NotDue,
            message: reason.to_owned(),
            current: row.lifecycle.state(row.run.state).name.clone(),
            requested: requested.to_owned(),
            allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
            guard: None,
            field: None,
        };
        refusal.into()
    }

    /// The stable code that callers branch on.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Refused(refusal) => refusal.code.name(),
            StoreError::NotFound { .. } => "NOT_FOUND",
            StoreError::Invalid { .. } => "INVALID_INPUT",
            StoreError::KeyReused { .. } => "IDEMPOTENCY_KEY_REUSED",
            StoreError::Denied(_) => "FORBIDDEN",
            StoreError::Changed { .. } => "PRECONDITION_FAILED",
            StoreError::Outdated(_) => "CONCURRENT_MODIFICATION",
            StoreError::Unavailable(_) => "DATABASE_UNAVAILABLE",
            StoreError::Unusable(_) => "DATABASE_UNUSABLE",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Refused(refusal) => write!(f, "{refusal}"),
            StoreError::NotFound { what, id } => write!(f, "there is no {what} {id:?}"),
            StoreError::Invalid { field, message } => write!(f, "{field}: {message}"),
            StoreError::KeyReused { key, run_id } => write!(
                f,
                "idempotency key {key:?} was used for {run_id} with another body: use a new key, or send the same body"
            ),
            StoreError::Denied(message) => write!(f, "not allowed: {message}"),
            StoreError::Changed { run_id, seq } => {
                write!(
                    f,
                    "{run_id} is at event {seq}, and not at the one that was named: look at it again, then decide"
                )
            }
            StoreError::Outdated(message) => f.write_str(message),
            StoreError::Unavailable(message) => write!(f, "the database is not available: {message}"),
            StoreError::Unusable(message) => write!(f, "the database cannot be used: {message}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> StoreError {
        StoreError::Refused(Box::new(refusal))
    }
}
