//! Tokens and what people did.

use super::MemoryStore;
use crate::access::{Audit, AuditRow, NewAudit, NewToken, TokenRow, Tokens, no_token, page};
use crate::deeds::Deeds;
use crate::verbs::Reply;

impl Tokens for MemoryStore {
    fn add_token(&self, token: NewToken) -> Reply<'_, TokenRow> {
        self.verb(move |state| {
            token.check()?;
            state.writes += 1;
            let row = token.row(state.now);
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
            state.writes += 1;
            let now = state.now;
            let token = state.tokens.iter_mut().find(|token| token.id == id).ok_or_else(|| no_token(&id))?;
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
            entry.check()?;
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
            Ok(state.audits.iter().filter(is_asked_for).take(page(limit)).cloned().collect())
        })
    }
}
