//! What claims with a key took: asked again, they give the same.

use rusqlite::{OptionalExtension, params};
use serde_json::json;
use waypost_kernel::Time;

use crate::engine::Stored;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::row;

pub fn recall_claim(tx: &Tx<'_>, worker: &str, key: &str) -> Result<Vec<(Stored, u64)>> {
    let sql = "SELECT taken FROM claims WHERE worker = ?1 AND key = ?2";
    let taken: Option<String> =
        tx.prepare(sql)?.query_row(params![worker, key], |row| row.get(0)).optional()?;
    let taken: Vec<(i64, u64)> =
        taken.and_then(|text: String| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut found = Vec::new();
    for (rid, fence) in taken {
        found.extend(row::by_rid(tx, rid)?.map(|stored| (stored, fence)));
    }
    Ok(found)
}

pub fn keep_claim(tx: &Tx<'_>, worker: &str, key: &str, taken: &[(i64, u64)], until: Time) -> Result<()> {
    let sql = "INSERT INTO claims(worker, key, taken, until) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (worker, key) \
               DO UPDATE SET taken = excluded.taken, until = excluded.until";
    tx.execute(sql, params![worker, key, json!(taken).to_string(), until.ms()])?;
    Ok(())
}

/// Claims that nobody asks for again.
pub fn forget_claims(tx: &Tx<'_>) -> Result<()> {
    tx.execute("DELETE FROM claims WHERE until < ?1", params![tx.now.ms()])?;
    Ok(())
}
