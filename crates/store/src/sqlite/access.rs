//! Tokens and what people did.

use rusqlite::{Row, params};
use waypost_kernel::Time;

use super::SqliteStore;
use super::fault::Result;
use super::session::Tx;
use crate::access::{Audit, AuditRow, NewAudit, NewToken, TokenRow, Tokens, no_token, page};
use crate::deeds::Deeds;
use crate::intake::check_name;
use crate::verbs::Reply;

const TOKEN: &str =
    "SELECT id, digest, name, role, tenant, created_at, created_by, revoked_at, revoked_by FROM tokens";

impl Tokens for SqliteStore {
    fn add_token(&self, token: NewToken) -> Reply<'_, TokenRow> {
        self.session.write(move |tx| add(tx, token))
    }

    fn token(&self, id: String) -> Reply<'_, Option<TokenRow>> {
        self.session.read(move |tx| find(tx, &id))
    }

    fn tokens(&self) -> Reply<'_, Vec<TokenRow>> {
        self.session.read(|tx| Ok(tx.list(&format!("{TOKEN} ORDER BY created_at, id"), [], token)?))
    }

    fn revoke_token(&self, id: String, by: String) -> Reply<'_, TokenRow> {
        self.session.write(move |tx| {
            check_name("by", &by)?;
            let sql =
                "UPDATE tokens SET revoked_at = ?2, revoked_by = ?3 WHERE id = ?1 AND revoked_at IS NULL";
            tx.execute(sql, params![id, tx.now.ms(), by])?;
            find(tx, &id)?.ok_or_else(|| no_token(&id).into())
        })
    }
}

fn add(tx: &Tx<'_>, new: NewToken) -> Result<TokenRow> {
    new.check()?;
    let row = new.row(Time::from_ms(tx.now.ms()));
    let sql = "INSERT INTO tokens(id, digest, name, role, tenant, created_at, created_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values =
        params![row.id, row.digest, row.name, row.role, row.tenant, row.created_at.ms(), row.created_by];
    tx.execute(sql, values)?;
    Ok(row)
}

fn find(tx: &Tx<'_>, id: &str) -> Result<Option<TokenRow>> {
    Ok(tx.find(&format!("{TOKEN} WHERE id = ?1"), [id], token)?)
}

fn token(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        id: row.get(0)?,
        digest: row.get(1)?,
        name: row.get(2)?,
        role: row.get(3)?,
        tenant: row.get(4)?,
        created_at: Time::from_ms(row.get(5)?),
        created_by: row.get(6)?,
        revoked_at: row.get::<_, Option<i64>>(7)?.map(Time::from_ms),
        revoked_by: row.get(8)?,
    })
}

impl Deeds for SqliteStore {}

impl Audit for SqliteStore {
    fn audit(&self, entry: NewAudit) -> Reply<'_, u64> {
        self.session.write(move |tx| {
            entry.check()?;
            let sql =
                "INSERT INTO audit(at, tenant, who, action, subject, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let NewAudit { tenant, by, action, subject, reason } = entry;
            let values = params![tx.now.ms(), tenant, by, action, subject, reason];
            Ok(tx.prepare(sql)?.insert(values)?.unsigned_abs())
        })
    }

    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>> {
        self.session.read(move |tx| {
            let sql = "SELECT number, at, tenant, who, action, subject, reason FROM audit \
                       WHERE number > ?1 AND (?2 IS NULL OR tenant = ?2) ORDER BY number LIMIT ?3";
            Ok(tx.list(sql, params![after, tenant, page(limit) as i64], entry)?)
        })
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        number: row.get(0)?,
        at: Time::from_ms(row.get(1)?),
        tenant: row.get(2)?,
        by: row.get(3)?,
        action: row.get(4)?,
        subject: row.get(5)?,
        reason: row.get(6)?,
    })
}
