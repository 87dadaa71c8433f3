//! Tokens, and what people did. An action and its entry in the audit log are one transaction: what cannot be told of later
//! is not done.

use waypost_kernel::Time;

use super::tx::Tx;
use crate::rules::intake::check_name;
use crate::seam::access::{AuditRow, NewToken, ROLES, TokenRow, USE_NOTED_EVERY, Who, no_token, page};
use crate::seam::error::Result;
use crate::statement::{Cells, Sql, query, values};

const TOKEN: &str = "SELECT id, digest, name, role, tenant, created_at, created_by, expires_at, last_used_at, revoked_at, revoked_by FROM waypost.tokens";

fn token(row: &Cells) -> Result<TokenRow> {
    Ok(TokenRow {
        id: row.get(0)?,
        digest: row.get(1)?,
        name: row.get(2)?,
        role: row.get(3)?,
        tenant: row.get(4)?,
        created_at: row.get(5)?,
        created_by: row.get(6)?,
        expires_at: row.get(7)?,
        last_used_at: row.get(8)?,
        revoked_at: row.get(9)?,
        revoked_by: row.get(10)?,
    })
}

/// One by its public half, or all, oldest first.
pub(crate) async fn tokens<T: Sql>(tx: &mut T, id: &Option<String>) -> Result<Vec<TokenRow>> {
    let sql = format!("{TOKEN} WHERE $1 IS NULL OR id = $1 ORDER BY created_at, id");
    query(tx, &sql, values![id]).await?.iter().map(token).collect()
}

/// A line for each that nobody could have created. Lists show it as it is: people have to see who may ask for what.
pub(super) async fn unsound<T: Sql>(tx: &mut T) -> Result<Vec<String>> {
    let told = |cells: &Cells| {
        let wrong = match token(cells) {
            Ok(row) if ROLES.contains(&&*row.role) => return None,
            Ok(row) => format!("{:?} is no role", row.role),
            Err(error) => format!("its row cannot be used: {error}"),
        };
        Some(format!("token {}: {wrong}", cells.name(0)))
    };
    Ok(query(tx, &format!("{TOKEN} ORDER BY id"), values![]).await?.iter().filter_map(told).collect())
}

pub(crate) async fn issue_token<T: Tx + Sql>(tx: &mut T, new: &NewToken, who: &Who) -> Result<TokenRow> {
    new.check()?;
    let row = new.clone().row(tx.now());
    let sql = "INSERT INTO waypost.tokens(id, digest, name, role, tenant, created_at, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let TokenRow { id, digest, name, role, tenant, created_at, created_by, expires_at, .. } = &row;
    query(tx, sql, values![id, digest, name, role, tenant, *created_at, created_by, *expires_at]).await?;
    audit(tx, who, "token.create", id).await?;
    Ok(row)
}

pub(crate) async fn revoke_token<T: Tx + Sql>(tx: &mut T, id: &str, who: &Who) -> Result<TokenRow> {
    check_name("by", &who.by)?;
    let now = tx.now();
    let sql =
        "UPDATE waypost.tokens SET revoked_at = $2, revoked_by = $3 WHERE id = $1 AND revoked_at IS NULL";
    query(tx, sql, values![id, now, &who.by]).await?;
    let row = tokens(tx, &Some(id.to_owned())).await?.pop().ok_or_else(|| no_token(id))?;
    audit(tx, who, "token.revoke", &row.id).await?;
    Ok(row)
}

/// Somebody uses it. Written no more often than people look at it: a server asks once a minute, and of several servers one writes.
pub(crate) async fn token_used<T: Tx + Sql>(tx: &mut T, id: &str) -> Result<()> {
    let now = tx.now();
    let sql = "UPDATE waypost.tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at <= $3)";
    query(tx, sql, values![id, now, now - USE_NOTED_EVERY]).await.map(drop)
}

/// Writes who did what, in the transaction that does it.
pub(super) async fn audit<T: Tx + Sql>(tx: &mut T, who: &Who, action: &str, subject: &str) -> Result<()> {
    who.check(action, subject)?;
    let (now, reason) = (tx.now(), who.reason.as_deref().filter(|reason| !reason.is_empty()));
    let sql =
        "INSERT INTO waypost.audit(at, tenant, who, action, subject, reason) VALUES ($1, $2, $3, $4, $5, $6)";
    query(tx, sql, values![now, &who.tenant, &who.by, action, subject, reason]).await.map(drop)
}

pub(crate) async fn audits<T: Sql>(
    tx: &mut T,
    tenant: Option<&str>,
    after: u64,
    limit: usize,
) -> Result<Vec<AuditRow>> {
    let sql = "SELECT number, at, tenant, who, action, subject, reason FROM waypost.audit \
               WHERE number > $1 AND ($2 IS NULL OR tenant = $2) ORDER BY number LIMIT $3";
    query(tx, sql, values![after, tenant, page(limit)]).await?.iter().map(entry).collect()
}

pub(crate) async fn latest_audits<T: Sql>(
    tx: &mut T,
    tenant: &Option<String>,
    before: &Option<u64>,
    limit: &usize,
) -> Result<Vec<AuditRow>> {
    let sql = "SELECT number, at, tenant, who, action, subject, reason FROM waypost.audit \
               WHERE number < $1 AND ($2 IS NULL OR tenant = $2) ORDER BY number DESC LIMIT $3";
    let asked = values![before.unwrap_or(u64::MAX), tenant, page(*limit)];
    query(tx, sql, asked).await?.iter().map(entry).collect()
}

fn entry(row: &Cells) -> Result<AuditRow> {
    Ok(AuditRow {
        number: row.get(0)?,
        at: row.get::<Time>(1)?,
        tenant: row.get(2)?,
        by: row.get(3)?,
        action: row.get(4)?,
        subject: row.get(5)?,
        reason: row.get(6)?,
    })
}
