//! Tokens and what people did.

use waypost_kernel::text::{MAX_NAME_BYTES, MAX_PAGE};
use waypost_store::{
    Audit, AuditRow, Deeds, NewAudit, NewToken, ROLES, Reply, Result, StoreError, TokenRow, Tokens,
};

use super::MemoryStore;
use super::rules::intake::{check_name, check_reason, check_text};

impl Tokens for MemoryStore {
    fn add_token(&self, token: NewToken) -> Reply<'_, TokenRow> {
        self.verb(move |state| {
            check_token(&token)?;
            state.writes += 1;
            let row = TokenRow {
                id: token.id,
                digest: token.digest,
                name: token.name,
                role: token.role,
                tenant: token.tenant,
                created_at: state.now,
                created_by: token.by,
                revoked_at: None,
                revoked_by: None,
            };
            state.tokens.push(row.clone());
            Ok(row)
        })
    }

    fn token(&self, id: String) -> Reply<'_, Option<TokenRow>> {
        self.verb(move |state| Ok(state.tokens.iter().find(|token| token.id == id).cloned()))
    }

    fn tokens(&self) -> Reply<'_, Vec<TokenRow>> {
        self.verb(|state| Ok(state.tokens.clone()))
    }

    fn revoke_token(&self, id: String, by: String) -> Reply<'_, TokenRow> {
        self.verb(move |state| {
            check_name("by", &by)?;
            state.writes += 1;
            let now = state.now;
            let found = state.tokens.iter_mut().find(|token| token.id == id);
            let token = found.ok_or(StoreError::NotFound { what: "token", id })?;
            if token.revoked_at.is_none() {
                (token.revoked_at, token.revoked_by) = (Some(now), Some(by));
            }
            Ok(token.clone())
        })
    }
}

impl Deeds for MemoryStore {}

impl Audit for MemoryStore {
    fn audit(&self, entry: NewAudit) -> Reply<'_, u64> {
        self.verb(move |state| {
            check_audit(&entry)?;
            state.writes += 1;
            let number = state.audits.len() as u64 + 1;
            let NewAudit { tenant, by, action, subject, reason } = entry;
            state.audits.push(AuditRow { number, at: state.now, tenant, by, action, subject, reason });
            Ok(number)
        })
    }

    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>> {
        self.verb(move |state| {
            let is_asked_for = |it: &&AuditRow| {
                it.number > after && tenant.as_ref().is_none_or(|tenant| *tenant == it.tenant)
            };
            Ok(state.audits.iter().filter(is_asked_for).take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }
}

fn check_token(token: &NewToken) -> Result<()> {
    check_name("id", &token.id)?;
    check_name("digest", &token.digest)?;
    check_name("name", &token.name)?;
    check_name("tenant", &token.tenant)?;
    check_name("by", &token.by)?;
    if !ROLES.contains(&token.role.as_str()) {
        let message = format!("{:?} is no role; allowed: {}", token.role, ROLES.join(", "));
        return Err(StoreError::invalid("role", message));
    }
    Ok(())
}

fn check_audit(entry: &NewAudit) -> Result<()> {
    check_name("tenant", &entry.tenant)?;
    check_name("by", &entry.by)?;
    check_name("action", &entry.action)?;
    check_text("subject", &entry.subject, MAX_NAME_BYTES)?;
    check_reason(entry.reason.as_deref())
}
