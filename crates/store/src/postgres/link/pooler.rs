//! Recognises a pooler between this process and the server, one that gives its sessions out transaction by transaction.

use tokio_postgres::{Client, SimpleQueryMessage};

use super::address::Address;
use super::fault::{Fault, Result};
use super::open;
use crate::postgres::sql::Columns;

const LOOKS: usize = 3;

/// Whether there is a pooler: two connections that are open at the same time are then not two sessions of the server.
pub async fn is_between(one: &Client, other: &Client) -> Result<bool> {
    let sessions = (session(one).await?, session(other).await?);
    for _ in 0..LOOKS {
        if sessions.0 == sessions.1 || (session(one).await?, session(other).await?) != sessions {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn session(client: &Client) -> Result<i32> {
    Columns(&client.query_typed_one("SELECT pg_backend_pid()", &[]).await?).get(0)
}

/// The pooler's name and version by its console, if it has one. PgBouncer is also known by how it
/// refuses those who may not use the console.
pub async fn name(address: &Address) -> String {
    let unknown = "a transaction pooler".to_owned();
    let mut console = address.clone();
    console.config.dbname("pgbouncer");
    match open::connect(&console).await.map_err(Fault::into_error) {
        Err(error) if error.to_string().contains("not allowed") => "PgBouncer".to_owned(),
        Err(_) => unknown,
        Ok((client, _hears)) => {
            let shown = client.simple_query("SHOW VERSION").await.unwrap_or_default();
            let row = shown.into_iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten().map(ToOwned::to_owned),
                _ => None,
            });
            row.unwrap_or(unknown)
        }
    }
}
