//! Tokens and what people did.

use std::sync::Arc;

use tokio_postgres::Row;

use super::PostgresStore;
use super::fault::Result;
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp, time};
use crate::access::{Audit, AuditRow, NewAudit, NewToken, TokenRow, Tokens, no_token, page};
use crate::deeds::Deeds;
use crate::intake::check_name;
use crate::verbs::Reply;

const TOKEN: &str = "SELECT id, digest, name, role, tenant, created_at, created_by, revoked_at, revoked_by FROM waypost.tokens";

impl Tokens for PostgresStore {
    fn add_token(&self, token: NewToken) -> Reply<'_, TokenRow> {
        let token = Arc::new(token);
        self.session.verb(move |session| {
            let token = token.clone();
            async move { add(&session, &token).await }
        })
    }

    fn token(&self, id: String) -> Reply<'_, Option<TokenRow>> {
        let id = Arc::new(id);
        self.session.verb(move |session| {
            let id = id.clone();
            async move {
                let tx = session.look().await?;
                let found = find(&tx, &id).await;
                tx.end(found).await
            }
        })
    }

    fn tokens(&self) -> Reply<'_, Vec<TokenRow>> {
        self.session.verb(|session| async move {
            let tx = session.look().await?;
            let rows = tx.query(&format!("{TOKEN} ORDER BY created_at, id"), &[]).await;
            tx.end(rows).await?.iter().map(token).collect()
        })
    }

    fn revoke_token(&self, id: String, by: String) -> Reply<'_, TokenRow> {
        let asked = Arc::new((id, by));
        self.session.verb(move |session| {
            let asked = asked.clone();
            async move { revoke(&session, &asked.0, &asked.1).await }
        })
    }
}

async fn add(session: &Session, new: &NewToken) -> Result<TokenRow> {
    new.check()?;
    let tx = session.begin().await?;
    let row = new.clone().row(tx.now);
    let sql = "INSERT INTO waypost.tokens(id, digest, name, role, tenant, created_at, created_by) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let at = stamp(row.created_at);
    let added =
        tx.run(sql, args![row.id, row.digest, row.name, row.role, row.tenant, at, row.created_by]).await;
    tx.end(added).await?;
    Ok(row)
}

async fn find(tx: &Tx, id: &str) -> Result<Option<TokenRow>> {
    let rows = tx.query(&format!("{TOKEN} WHERE id = $1"), args![id]).await?;
    rows.first().map(token).transpose()
}

async fn revoke(session: &Session, id: &str, by: &str) -> Result<TokenRow> {
    check_name("by", by)?;
    let tx = session.begin().await?;
    let revoked = async {
        let sql =
            "UPDATE waypost.tokens SET revoked_at = $2, revoked_by = $3 WHERE id = $1 AND revoked_at IS NULL";
        tx.run(sql, args![id, stamp(tx.now), by]).await?;
        find(&tx, id).await
    };
    let revoked = revoked.await;
    Ok(tx.end(revoked).await?.ok_or_else(|| no_token(id))?)
}

fn token(row: &Row) -> Result<TokenRow> {
    let columns = Columns(row);
    Ok(TokenRow {
        id: columns.get(0)?,
        digest: columns.get(1)?,
        name: columns.get(2)?,
        role: columns.get(3)?,
        tenant: columns.get(4)?,
        created_at: time(columns.get(5)?),
        created_by: columns.get(6)?,
        revoked_at: columns.time(7)?,
        revoked_by: columns.get(8)?,
    })
}

impl Deeds for PostgresStore {}

impl Audit for PostgresStore {
    fn audit(&self, entry: NewAudit) -> Reply<'_, u64> {
        let entry = Arc::new(entry);
        self.session.verb(move |session| {
            let entry = entry.clone();
            async move { write(&session, &entry).await }
        })
    }

    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>> {
        let tenant = Arc::new(tenant);
        self.session.verb(move |session| {
            let tenant = tenant.clone();
            async move {
                let tx = session.look().await?;
                let sql = "SELECT number, at, tenant, who, action, subject, reason FROM waypost.audit \
                           WHERE number > $1 AND ($2 IS NULL OR tenant = $2) ORDER BY number LIMIT $3";
                let after = i64::try_from(after).unwrap_or(i64::MAX);
                let rows = tx.query(sql, args![after, tenant.as_deref(), page(limit) as i64]).await;
                tx.end(rows).await?.iter().map(entry).collect()
            }
        })
    }
}

async fn write(session: &Session, entry: &NewAudit) -> Result<u64> {
    entry.check()?;
    let tx = session.begin().await?;
    let sql = "INSERT INTO waypost.audit(at, tenant, who, action, subject, reason) VALUES ($1, $2, $3, $4, $5, $6) RETURNING number";
    let at = stamp(tx.now);
    let written =
        tx.one(sql, args![at, entry.tenant, entry.by, entry.action, entry.subject, entry.reason]).await;
    let number: i64 = Columns(&tx.end(written).await?).get(0)?;
    Ok(number.unsigned_abs())
}

fn entry(row: &Row) -> Result<AuditRow> {
    let columns = Columns(row);
    Ok(AuditRow {
        number: columns.get::<i64>(0)?.unsigned_abs(),
        at: time(columns.get(1)?),
        tenant: columns.get(2)?,
        by: columns.get(3)?,
        action: columns.get(4)?,
        subject: columns.get(5)?,
        reason: columns.get(6)?,
    })
}
