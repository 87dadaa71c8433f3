//! Databases for benchmarks on a given server: made with the first use of their name, dropped together.

use std::sync::{Mutex, PoisonError};

use tokio_postgres::Client;

use super::address::Address;
use super::fault::{Fault, Result};
use super::open::{self, with_database};
use crate::postgres::sql::Columns;
use crate::seam::error::StoreError;

#[derive(Debug)]
pub struct Scratch {
    url: String,
    admin: Client,
    made: Mutex<Vec<String>>,
}

/// An open transaction: rows that die after it began cannot be vacuumed until it is dropped.
#[derive(Debug)]
pub struct OpenSnapshot {
    _client: Client,
}

impl Scratch {
    pub async fn open(url: &str) -> Result<Scratch, StoreError> {
        let (admin, _hears) = open::connect(&Address::read(url)?).await.map_err(Fault::into_error)?;
        Ok(Scratch { url: url.to_owned(), admin, made: Mutex::default() })
    }

    /// The address of a database.
    pub async fn database(&self, name: &str) -> Result<String, StoreError> {
        let name = format!("waypost_bench_{}_{name}", std::process::id());
        let is_made = self.made().contains(&name);
        if !is_made {
            self.run(&format!("CREATE DATABASE {name}")).await?;
            self.made().push(name.clone());
        }
        Ok(with_database(&self.url, &name))
    }

    pub async fn drop_all(&self) -> Result<(), StoreError> {
        let made = std::mem::take(&mut *self.made());
        for name in made {
            self.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        }
        Ok(())
    }

    /// Bytes of the server's write-ahead log so far.
    pub async fn wal_bytes(&self) -> Result<f64, StoreError> {
        number(&self.admin, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8")
            .await
            .map_err(Fault::into_error)
    }

    /// Dead rows in the engine's tables of one of the databases.
    pub async fn dead_rows(&self, name: &str) -> Result<f64, StoreError> {
        let client = self.connect(name).await?;
        let sql = "SELECT coalesce(sum(n_dead_tup), 0)::float8 FROM pg_stat_user_tables WHERE schemaname = 'waypost'";
        number(&client, sql).await.map_err(Fault::into_error)
    }

    pub async fn hold_snapshot(&self, name: &str) -> Result<OpenSnapshot, StoreError> {
        let client = self.connect(name).await?;
        let look = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM waypost.runs";
        client.batch_execute(look).await.map_err(|error| Fault::from(error).into_error())?;
        Ok(OpenSnapshot { _client: client })
    }

    async fn connect(&self, name: &str) -> Result<Client, StoreError> {
        client(&self.database(name).await?).await
    }

    async fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.admin.batch_execute(sql).await.map_err(|error| Fault::from(error).into_error())
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn number(client: &Client, sql: &str) -> Result<f64> {
    Columns(&client.query_typed_one(sql, &[]).await?).get(0)
}

/// A connection of the driver itself, for measuring what a store is compared with.
pub async fn client(url: &str) -> Result<Client, StoreError> {
    Ok(open::connect(&Address::read(url)?).await.map_err(Fault::into_error)?.0)
}
