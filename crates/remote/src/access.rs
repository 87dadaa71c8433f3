//! Tokens and the audit log of the server. A token's secret is made by the server, so it comes another way.

use serde_json::{Value, json};
use waypost_store::{
    Audit, AuditRow, NewAudit, NewToken, Reply, Result, StoreError, TokenRow, Tokens, parse_time,
};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    /// Makes a token there; gives the whole of it, once.
    pub async fn create_token(
        &self,
        name: &str,
        role: &str,
        tenant: Option<&str>,
        by: &str,
    ) -> Result<String> {
        let body = json!({ "name": name, "role": role, "tenant": tenant, "by": by });
        let answer = Ask::post("/v1/tokens", body).send(self).await?;
        let token = answer["token"].as_str().map(str::to_owned);
        token.ok_or_else(|| StoreError::Unusable(format!("{} sent no token", self.base)))
    }
}

impl Tokens for RemoteStore {
    fn add_token(&self, _: NewToken) -> Reply<'_, TokenRow> {
        Box::pin(async { Err(StoreError::Unusable("a server makes its tokens itself".into())) })
    }

    fn token(&self, id: String) -> Reply<'_, Option<TokenRow>> {
        Box::pin(async move { Ok(self.tokens().await?.into_iter().find(|row| row.id == id)) })
    }

    fn tokens(&self) -> Reply<'_, Vec<TokenRow>> {
        Box::pin(async move {
            let answer = Ask::get("/v1/tokens").send(self).await?;
            Ok(answer["tokens"].as_array().into_iter().flatten().filter_map(token_from).collect())
        })
    }

    fn revoke_token(&self, id: String, by: String) -> Reply<'_, TokenRow> {
        Box::pin(async move {
            let ask = Ask::post(format!("/v1/tokens/{}/revoke", part(&id)), json!({ "by": by }));
            let unread = || StoreError::Unusable(format!("{} sent a token without its parts", self.base));
            token_from(&ask.send(self).await?).ok_or_else(unread)
        })
    }
}

pub fn token_from(object: &Value) -> Option<TokenRow> {
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
        revoked_at: time("revoked_at"),
        revoked_by: text("revoked_by"),
    })
}

impl Audit for RemoteStore {
    fn audit(&self, _: NewAudit) -> Reply<'_, u64> {
        Box::pin(async { Err(StoreError::Unusable("a server keeps its audit log itself".into())) })
    }

    fn audits(&self, tenant: Option<String>, after: u64, limit: usize) -> Reply<'_, Vec<AuditRow>> {
        Box::pin(async move {
            let path = format!("/v1/audit?after={after}&limit={}", limit.clamp(1, 500));
            let answer = Ask::get(path).of(tenant.as_deref().unwrap_or("default")).send(self).await?;
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
        })
    }
}
