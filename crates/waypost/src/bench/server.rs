//! Databases of the benchmark's own on a given server, dropped when it is done.

use std::sync::Mutex;

use tokio_postgres::Client;
use waypost_store::postgres::with_database;

use super::raw::connect;
use crate::output::{BAD_INPUT, ERROR, Failed, Result};

#[derive(Debug)]
pub struct Server {
    url: String,
    admin: Client,
    made: Mutex<Vec<String>>,
}

impl Server {
    pub async fn open(url: Option<&str>) -> Result<Server> {
        let url = url.filter(|url| url.starts_with("postgres") || url.starts_with("host="));
        let Some(url) = url else {
            let message = "bench --store postgres needs a server that may make databases: --database-url postgres://user@host/postgres";
            return Err(Failed::new(BAD_INPUT, message.to_owned()));
        };
        let admin = connect(url).await?;
        Ok(Server { url: url.to_owned(), admin, made: Mutex::new(Vec::new()) })
    }

    /// The address of a database, made with the first call.
    pub async fn database(&self, name: &str) -> Result<String> {
        let name = format!("waypost_bench_{}_{name}", std::process::id());
        let known = |made: &Mutex<Vec<String>>| made.lock().is_ok_and(|made| made.contains(&name));
        if !known(&self.made) {
            self.admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
            if let Ok(mut made) = self.made.lock() {
                made.push(name.clone());
            }
        }
        Ok(with_database(&self.url, &name))
    }

    pub async fn drop_all(&self) -> Result<()> {
        let made = self.made.lock().map(|mut made| std::mem::take(&mut *made)).unwrap_or_default();
        for name in made {
            self.admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        }
        Ok(())
    }

    /// Bytes of the write-ahead log so far.
    pub async fn wal_bytes(&self) -> Result<f64> {
        let row = self.admin.query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8", &[]).await?;
        row.try_get(0).map_err(|error| Failed::new(ERROR, error.to_string()))
    }

    /// Dead rows in the engine's tables of one of the databases.
    pub async fn dead_rows(&self, name: &str) -> Result<i64> {
        let client = connect(&self.database(name).await?).await?;
        let row = client
            .query_one("SELECT coalesce(sum(n_dead_tup), 0)::int8 FROM pg_stat_user_tables WHERE schemaname = 'waypost'", &[])
            .await?;
        row.try_get(0).map_err(|error| Failed::new(ERROR, error.to_string()))
    }
}
