//! Tokens and what people did.

use waypost_kernel::text::{MAX_NAME_BYTES, MAX_PAGE};
use waypost_store::{AuditRow, NewToken, ROLES, Reply, Result, StoreError, TokenChange, TokenRow, Who};

use super::MemoryStore;
use super::rules::intake::{check_name, check_reason, check_tenant, check_text};
use super::state::State;

impl MemoryStore {
    pub(crate) fn tokens(&self, id: Option<String>) -> Reply<'_, Vec<TokenRow>> {
        self.verb(move |state| {
            let is_asked_for = |token: &&TokenRow| id.as_ref().is_none_or(|id| *id == token.id);
            Ok(state.tokens.iter().filter(is_asked_for).cloned().collect())
        })
    }

    pub(crate) fn change_token(&self, change: TokenChange, who: Who) -> Reply<'_, TokenRow> {
        self.verb(move |state| match change {
            TokenChange::Issue(token) => state.issue_token(token, who),
            TokenChange::Revoke(id) => state.revoke_token(id, who),
        })
    }

    pub(crate) fn token_used(&self, id: String) -> Reply<'_, ()> {
        self.verb(move |state| {
            let now = state.now;
            let found = state.tokens.iter_mut().find(|token| token.id == id);
            let is_news = |at: waypost_kernel::Time| (now - at).ms() >= 60_000;
            if let Some(token) = found.filter(|token| token.last_used_at.is_none_or(is_news)) {
                token.last_used_at = Some(now);
            }
            Ok(())
        })
    }

    pub(crate) fn audits(
        &self,
        tenant: Option<String>,
        after: u64,
        limit: usize,
    ) -> Reply<'_, Vec<AuditRow>> {
        self.verb(move |state| {
            let is_asked_for = |it: &&AuditRow| {
                it.number > after && tenant.as_ref().is_none_or(|tenant| *tenant == it.tenant)
            };
            Ok(state.audits.iter().filter(is_asked_for).take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }

    pub(crate) fn latest_audits(
        &self,
        tenant: Option<String>,
        before: Option<u64>,
        limit: usize,
    ) -> Reply<'_, Vec<AuditRow>> {
        self.verb(move |state| {
            let is_asked_for = |it: &&AuditRow| {
                before.is_none_or(|before| it.number < before)
                    && tenant.as_ref().is_none_or(|tenant| *tenant == it.tenant)
            };
            let found = state.audits.iter().rev().filter(is_asked_for);
            Ok(found.take(limit.min(MAX_PAGE)).cloned().collect())
        })
    }
}

impl State {
    fn issue_token(&mut self, token: NewToken, who: Who) -> Result<TokenRow> {
        check_token(&token)?;
        check_audit(&who, "token.create", &token.id)?;
        let row = TokenRow {
            id: token.id,
            digest: token.digest,
            name: token.name,
            role: token.role,
            tenant: token.tenant,
            created_at: self.now,
            created_by: token.by,
            expires_at: token.lasts.map(|lasts| self.now + lasts),
            last_used_at: None,
            revoked_at: None,
            revoked_by: None,
        };
        self.tokens.push(row.clone());
        self.audit(who, "token.create", &row.id);
        Ok(row)
    }

    fn revoke_token(&mut self, id: String, who: Who) -> Result<TokenRow> {
        check_name("by", &who.by)?;
        let now = self.now;
        let found = self.tokens.iter_mut().find(|token| token.id == id);
        let token = found.ok_or(StoreError::NotFound { what: "token", id })?;
        check_audit(&who, "token.revoke", &token.id)?;
        if token.revoked_at.is_none() {
            (token.revoked_at, token.revoked_by) = (Some(now), Some(who.by.clone()));
        }
        let row = token.clone();
        self.audit(who, "token.revoke", &row.id);
        Ok(row)
    }

    /// What was checked before.
    pub fn audit(&mut self, who: Who, action: &str, subject: &str) {
        self.writes += 1;
        let number = self.audits.len() as u64 + 1;
        let Who { tenant, by, reason } = who;
        let reason = reason.filter(|reason| !reason.is_empty());
        let (action, subject) = (action.to_owned(), subject.to_owned());
        self.audits.push(AuditRow { number, at: self.now, tenant, by, action, subject, reason });
    }
}

fn check_token(token: &NewToken) -> Result<()> {
    check_name("id", &token.id)?;
    check_name("digest", &token.digest)?;
    check_name("name", &token.name)?;
    check_tenant(&token.tenant)?;
    check_name("by", &token.by)?;
    let ten_years_ms = 3_660 * 86_400_000;
    if token.lasts.is_some_and(|lasts| !(1..=ten_years_ms).contains(&lasts.ms())) {
        return Err(StoreError::invalid(
            "expires",
            "a token lasts longer than nothing, and at most ten years",
        ));
    }
    if !ROLES.contains(&token.role.as_str()) {
        let message = format!("{:?} is no role; allowed: {}", token.role, ROLES.join(", "));
        return Err(StoreError::invalid("role", message));
    }
    Ok(())
}

pub(super) fn check_audit(who: &Who, action: &str, subject: &str) -> Result<()> {
    check_tenant(&who.tenant)?;
    check_name("by", &who.by)?;
    check_name("action", action)?;
    check_text("subject", subject, MAX_NAME_BYTES)?;
    check_reason(who.reason.as_deref())
}
