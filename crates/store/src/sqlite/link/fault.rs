//! What goes wrong inside. SQLite's errors become words that say what to do where they are passed on.

use rusqlite::ErrorCode;
use waypost_kernel::Refusal;

use crate::seam::error::StoreError;

pub type Result<T> = std::result::Result<T, Fault>;

#[derive(Debug)]
pub struct Fault(StoreError);

impl Fault {
    pub fn error(&self) -> &StoreError {
        &self.0
    }

    /// The same, with the file that it is about.
    pub fn at(self, path: &std::path::Path) -> Fault {
        let at = |message: String| format!("{}: {message}", path.display());
        Fault(match self.0 {
            StoreError::Unavailable(message) => StoreError::Unavailable(at(message)),
            StoreError::Unusable(message) => StoreError::Unusable(at(message)),
            other => other,
        })
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault(error)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault(refusal.into())
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        fault.0
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        let unavailable = |message: &str| StoreError::Unavailable(message.to_owned());
        Fault(match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                unavailable("another process has held it for 10 s; try again")
            }
            Some(ErrorCode::DiskFull) => unavailable("the disk is full; free some space and try again"),
            Some(ErrorCode::ReadOnly) => {
                unavailable("it is read-only; check the file's and folder's permissions")
            }
            Some(ErrorCode::CannotOpen) => {
                unavailable("it cannot be opened; check the path and its permissions")
            }
            Some(ErrorCode::PermissionDenied) => {
                unavailable("permission denied; check the file's permissions")
            }
            Some(ErrorCode::NotADatabase) => {
                StoreError::Unusable("it is not a database; move the file away or name another one".into())
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                StoreError::Unusable("it is damaged; restore a copy, or try sqlite3's .recover".into())
            }
            // The kernel allowed it: their definitions differ, or a row was changed by hand into something that no
            // lifecycle knows.
            Some(ErrorCode::ConstraintViolation) => {
                StoreError::Unavailable(format!("the database's guard refused the write: {error}"))
            }
            _ => StoreError::Unavailable(error.to_string()),
        })
    }
}
