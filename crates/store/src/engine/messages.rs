//! Messages from outside. The write is the first one's alone: whoever comes at the same time with the same content waits for it
//! and learns its id. What is done with a message after that is done by the id, which makes it idempotent: a process that
//! ends in between leaves a message that is taken up when it is sent again.

use super::tx::Tx;
use crate::rules::intake::check_name;
use crate::seam::error::{Result, StoreError};
use crate::seam::messages::{Message, REMEMBERED, Received};
use crate::statement::{Sql, query, values};

pub(crate) async fn receive<T: Tx + Sql>(tx: &mut T, message: &Message) -> Result<Received> {
    let Message { source, id, digest } = message;
    for (field, text) in [("source", source), ("id", id), ("digest", digest)] {
        check_name(field, text)?;
    }
    let now = tx.now();
    query(tx, "DELETE FROM waypost.messages WHERE at < $1", values![now - REMEMBERED]).await?;
    let sql = "INSERT INTO waypost.messages(source, digest, id, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING id";
    let is_new = !query(tx, sql, values![source, digest, id, now]).await?.is_empty();
    let sql = "SELECT id, digest FROM waypost.messages WHERE source = $1 AND (digest = $2 OR id = $3)";
    let mut first = None;
    for row in query(tx, sql, values![source, digest, id]).await? {
        let (known, content): (String, String) = (row.get(0)?, row.get(1)?);
        if content == *digest {
            first = Some(known);
        } else if known == *id {
            return Err(StoreError::invalid("id", format!("{id} came with another content before")));
        }
    }
    let gone = || StoreError::Unavailable("the message was taken back by whoever sent it first".into());
    Ok(Received { id: first.ok_or_else(gone)?, is_new })
}
