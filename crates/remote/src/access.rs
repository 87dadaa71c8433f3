//! Tokens and the audit log of the server. A token's secret is made by the server, so it comes another way.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::{AuditRow, Result, StoreError, TokenChange, TokenRow, Who, parse_time};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    /// Makes a token there; gives its id and the whole of it, once.
    pub async fn create_token(
        &self,
        name: &str,
        role: &str,
        tenant: Option<&str>,
        lasts: Option<Span>,
        by: &str,
    ) -> Result<(String, String)> {
        let lasts = lasts.map(Span::ms);
        let body = json!({ "name": name, "role": role, "tenant": tenant, "expires_in_ms": lasts, "by": by });
        let answer = Ask::post("/v1/tokens", body).send(self).await?;
        let id = answer["row"]["id"].as_str().map(str::to_owned);
        let token = id.zip(answer["token"].as_str().map(str::to_owned));
        token.ok_or_else(|| StoreError::Unusable(format!("{} sent no token", self.base)))
    }
}

impl RemoteStore {
    pub(crate) async fn tokens(&self, id: Option<String>) -> Result<Vec<TokenRow>> {
        let answer = Ask::get("/v1/tokens").send(self).await?;
        let rows = answer["tokens"].as_array().into_iter().flatten().filter_map(token_from);
        Ok(rows.filter(|row| id.as_ref().is_none_or(|id| *id == row.id)).collect())
    }

    pub(crate) async fn change_token(&self, change: TokenChange, who: Who) -> Result<TokenRow> {
        let id = match change {
            TokenChange::Issue(_) => {
                return Err(StoreError::Unusable("a server makes its tokens itself".into()));
            }
            TokenChange::Revoke(id) => id,
        };
        let body = json!({ "by": who.by, "reason": who.reason });
        let answer = Ask::post(format!("/v1/tokens/{}/revoke", part(&id)), body).send(self).await?;
        token_from(&answer).ok_or_else(|| self.unread("a token"))
    }
}

fn token_from(object: &Value) -> Option<TokenRow> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    let time = |name: &str| parse_time(object[name].as_str()?);
    Some(TokenRow {
        id: text("id")?,
        digest: String::new(),
        name: text("name")?,
        role: text("role")?,
        tenant: text("tenant")?,
        created_at: time("created_at")?,
        created_by: text("created_by")?,
        expires_at: time("expires_at"),
        last_used_at: time("last_used_at"),
        revoked_at: time("revoked_at"),
        revoked_by: text("revoked_by"),
    })
}

impl RemoteStore {
    pub(crate) async fn audits(
        &self,
        tenant: Option<String>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<AuditRow>> {
        self.audit_page(tenant, &format!("after={after}&limit={}", limit.clamp(1, 500))).await
    }

    pub(crate) async fn latest_audits(
        &self,
        tenant: Option<String>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<AuditRow>> {
        let before = before.map(|before| format!("&before={before}")).unwrap_or_default();
        self.audit_page(tenant, &format!("latest=true&limit={}{before}", limit.clamp(1, 500))).await
    }

    async fn audit_page(&self, tenant: Option<String>, query: &str) -> Result<Vec<AuditRow>> {
        let answer = Ask::get(format!("/v1/audit?{query}")).of_only(tenant.as_deref()).send(self).await?;
        let row = |object: &Value| {
            let text = |name: &str| object[name].as_str().map(str::to_owned);
            Some(AuditRow {
                number: object["number"].as_u64()?,
                at: parse_time(object["at"].as_str()?)?,
                tenant: text("tenant")?,
                by: text("by")?,
                action: text("action")?,
                subject: text("subject")?,
                reason: text("reason"),
            })
        };
        Ok(answer["audit"].as_array().into_iter().flatten().filter_map(row).collect())
    }
}
