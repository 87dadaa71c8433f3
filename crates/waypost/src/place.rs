//! Where the runs are: the embedded store by default, another database by its URL.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use waypost_store::Store;
use waypost_store::sqlite::SqliteStore;

use crate::output::{BAD_INPUT, ERROR, Failed, Result};

#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Where the runs are: sqlite:///path/to/file.db. Default: .waypost/waypost.db in this folder.
    #[arg(long, env = "WAYPOST_DATABASE_URL", global = true, hide_env_values = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// A Waypost server to ask instead of a database.
    #[arg(long, env = "WAYPOST_URL", global = true, value_name = "URL", hide = true)]
    pub url: Option<String>,
    /// The server's token.
    #[arg(long, env = "WAYPOST_TOKEN", global = true, hide_env_values = true, hide = true)]
    pub token: Option<String>,
}

impl Place {
    pub fn open(&self) -> Result<Arc<dyn Store>> {
        if let Some(url) = &self.url {
            let message =
                format!("cannot reach {url}: this version talks to databases only; unset WAYPOST_URL");
            return Err(Failed::new(ERROR, message));
        }
        let file = self.file()?;
        let store = SqliteStore::open(&file)?;
        Ok(Arc::new(store))
    }

    pub fn file(&self) -> Result<PathBuf> {
        let Some(url) = &self.database_url else { return Ok(PathBuf::from(".waypost/waypost.db")) };
        let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"));
        match path {
            Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
            _ => {
                // A database's URL may hold a password: only its scheme is repeated.
                let scheme = url.split(':').next().unwrap_or_default();
                let message = format!(
                    "database-url: {scheme}: is not supported here; allowed: sqlite:///path/to/file.db"
                );
                Err(Failed::new(BAD_INPUT, message))
            }
        }
    }
}
