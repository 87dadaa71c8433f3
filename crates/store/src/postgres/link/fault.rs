//! What goes wrong between here and the server, in words that say what to do, and whether to try again.

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use waypost_kernel::Refusal;

use super::tls;
use crate::seam::error::StoreError;
use crate::tokens::random;

/// Why a transaction did not come to its end.
#[derive(Debug)]
pub enum Fault {
    /// The error is the caller's answer.
    Told(StoreError),
    /// Others were in the way (a deadlock, a lost race). Nothing was written.
    Again(StoreError),
    /// The connection broke, or leads to a server that does not write. Nothing was written.
    Broken(StoreError),
}

pub type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub fn into_error(self) -> StoreError {
        match self {
            Fault::Told(error) | Fault::Again(error) | Fault::Broken(error) => error,
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Told(error)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault::Told(refusal.into())
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        let told = StoreError::Unavailable(in_words(&error));
        if error.is_closed() {
            return Fault::Broken(told);
        }
        match error.code() {
            // The server has no connection left for us: other tasks of this process have some, and will give one back.
            Some(code) if is_in_the_way(code) || *code == SqlState::TOO_MANY_CONNECTIONS => {
                Fault::Again(told)
            }
            Some(code) if is_broken(code) => Fault::Broken(told),
            Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME => {
                Fault::Told(StoreError::Unusable("its schema is not Waypost's: run `waypost migrate`".into()))
            }
            Some(code) if is_unstorable(code) => Fault::Told(unstorable(&error)),
            Some(_) => Fault::Told(told),
            // No answer of the server's: the connection itself failed.
            None => Fault::Broken(told),
        }
    }
}

impl From<deadpool_postgres::PoolError> for Fault {
    fn from(error: deadpool_postgres::PoolError) -> Fault {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            deadpool_postgres::PoolError::Timeout(_) => Fault::Told(StoreError::Unavailable(
                "all of this process's connections have been busy, or the server has not answered, for 10 s; try again"
                    .into(),
            )),
            other => Fault::Told(StoreError::Unavailable(other.to_string())),
        }
    }
}

fn is_in_the_way(code: &SqlState) -> bool {
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::LOCK_NOT_AVAILABLE]
        .contains(code)
}

/// The server shuts down, starts up, or has become a replica.
fn is_broken(code: &SqlState) -> bool {
    let codes = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::CONNECTION_FAILURE,
        SqlState::CONNECTION_EXCEPTION,
        SqlState::CONNECTION_DOES_NOT_EXIST,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    codes.contains(code)
}

/// The server can neither store nor search for what was sent, now or later: a NUL, or a name that is too long for an index.
fn is_unstorable(code: &SqlState) -> bool {
    let codes = [
        SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        SqlState::UNTRANSLATABLE_CHARACTER,
        SqlState::PROGRAM_LIMIT_EXCEEDED,
    ];
    codes.contains(code)
}

fn unstorable(error: &tokio_postgres::Error) -> StoreError {
    let said = error.as_db_error().map_or("it is no text", |said| said.message());
    StoreError::invalid("text", format!("the database cannot hold it: {said}"))
}

fn in_words(error: &tokio_postgres::Error) -> String {
    let Some(said) = error.as_db_error() else {
        if let Some(words) = tls::in_words(error) {
            return words;
        }
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        return format!("no connection to the server ({cause}); check its address and that it runs");
    };
    let words = match said.code() {
        code if is_in_the_way(code) => "others were in the way each time; try again",
        &SqlState::TOO_MANY_CONNECTIONS => {
            "the server gives out no more connections; raise max_connections or the role's CONNECTION LIMIT, or use fewer processes"
        }
        &SqlState::INSUFFICIENT_PRIVILEGE => {
            "permission denied; connect as the owner of schema waypost, or GRANT that role to this user: waypost_client, \
             waypost_worker and waypost_admin are for callers of schema ops"
        }
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "the server refused this user; check user name and password"
        }
        &SqlState::INVALID_CATALOG_NAME => "there is no such database; create it or name another one",
        &SqlState::DISK_FULL => "the server's disk is full; free some space and try again",
        &SqlState::OUT_OF_MEMORY => "the server is out of memory; try again",
        &SqlState::QUERY_CANCELED => {
            "it took longer than 30 s and was stopped; look for what holds the server up"
        }
        &SqlState::READ_ONLY_SQL_TRANSACTION => {
            "the server only reads (a standby?); name the one that writes"
        }
        code if is_broken(code) => "the server goes down or has just come up; try again",
        code if code.code().starts_with("WP") || *code == SqlState::CHECK_VIOLATION => {
            return format!("the database's guard refused the write: {}", said.message());
        }
        _ => return said.message().to_owned(),
    };
    format!("{words} ({})", said.message())
}

pub fn damaged(what: &str) -> Fault {
    Fault::Told(StoreError::Unusable(format!("a row cannot be read: {what}")))
}

/// How often a verb is tried again, and how long it waits before.
#[derive(Debug)]
pub struct Patience {
    began: Instant,
    tries: u32,
    broken: bool,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { began: Instant::now(), tries: 0, broken: false }
    }
}

impl Patience {
    const TRIES: u32 = 12;
    /// Whoever stood in the way for so long will go on: who asked is told so.
    const TIME: Duration = Duration::from_secs(10);

    /// Returns when the same may be tried again, or says why not.
    pub async fn with(&mut self, fault: Fault) -> Result<(), StoreError> {
        self.tries += 1;
        match fault {
            Fault::Told(error) => return Err(error),
            Fault::Broken(error) if self.broken => return Err(error),
            Fault::Broken(_) => self.broken = true,
            Fault::Again(error) if self.tries > Patience::TRIES || self.began.elapsed() > Patience::TIME => {
                return Err(error);
            }
            Fault::Again(_) => {}
        }
        let most = 1u64 << self.tries.min(7);
        tokio::time::sleep(Duration::from_millis(random() as u64 % most)).await;
        Ok(())
    }
}
