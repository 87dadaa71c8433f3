//! Where the runs are: the embedded store by default, another database by its URL.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use waypost_store::Store;
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;

use crate::output::{BAD_INPUT, ERROR, Failed, Result};

#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Where the runs are: sqlite:///path/to/file.db or postgres://user@host/database. Default: .waypost/waypost.db
    /// in this folder.
    #[arg(long, env = "WAYPOST_DATABASE_URL", global = true, hide_env_values = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// A Waypost server to ask instead of a database.
    #[arg(long, env = "WAYPOST_URL", global = true, value_name = "URL", hide = true)]
    pub url: Option<String>,
    /// The server's token.
    #[arg(long, env = "WAYPOST_TOKEN", global = true, hide_env_values = true, hide = true)]
    pub token: Option<String>,
}

/// A database by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    /// Its URL, which may hold a password: never shown.
    Postgres(String),
}

impl Place {
    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        if let Some(url) = &self.url {
            let message =
                format!("cannot reach {url}: this version talks to databases only; unset WAYPOST_URL");
            return Err(Failed::new(ERROR, message));
        }
        Ok(match self.database()? {
            Database::Sqlite(file) => Arc::new(SqliteStore::open(&file)?),
            Database::Postgres(url) => Arc::new(PostgresStore::open(&url).await?),
        })
    }

    pub fn database(&self) -> Result<Database> {
        let secret = std::env::var_os("WAYPOST_DATABASE_URL_FILE").filter(|_| self.database_url.is_none());
        let read = match secret {
            Some(file) => Some(std::fs::read_to_string(&file).map_err(|error| {
                Failed::new(BAD_INPUT, format!("WAYPOST_DATABASE_URL_FILE: {}: {error}", file.display()))
            })?),
            None => self.database_url.clone(),
        };
        let Some(url) = read.as_deref().map(str::trim) else {
            return Ok(Database::Sqlite(PathBuf::from(".waypost/waypost.db")));
        };
        if url.starts_with("postgres://") || url.starts_with("postgresql://") || url.starts_with("host=") {
            return Ok(Database::Postgres(url.to_owned()));
        }
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
        match path {
            Some(path) if !path.is_empty() => Ok(Database::Sqlite(PathBuf::from(path))),
            _ => {
                // A database's URL may hold a password: only its scheme is repeated.
                let scheme = url.split(':').next().unwrap_or_default();
                let message = format!(
                    "database-url: {scheme}: is not supported; allowed: sqlite:///path/to/file.db, postgres://user@host/database"
                );
                Err(Failed::new(BAD_INPUT, message))
            }
        }
    }
}
