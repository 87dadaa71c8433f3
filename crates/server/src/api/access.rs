//! Tokens, and what people did.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::{AuditRow, EVERY_TENANT, NewToken, Secret, TokenChange, TokenRow};

use super::requests::{AuditQuery, NewTokenBody, RevokingBody};
use super::shapes::{AUDITS, TOKEN_MADE, TOKEN_ROW, TOKENS};
use super::{Content, GET, POST, Route, RouteResponse, asks, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{FORBIDDEN, NOT_FOUND, Problem};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/tokens",
        name: "createToken",
        description: "Makes a token. Its secret is in this answer and nowhere else.",
        required_role: RequiredRole::Admin,
        responses: &[RouteResponse {
            status: 201,
            description: "the token, once",
            body: Content::Json(&TOKEN_MADE),
        }],
        ..takes!(POST, create, NewTokenBody)
    },
    Route {
        path: "/v1/tokens",
        name: "listTokens",
        description: "Tokens, without their secrets; those that were revoked too.",
        required_role: RequiredRole::Admin,
        responses: &[ok(&TOKENS)],
        ..plain!(GET, list)
    },
    Route {
        path: "/v1/tokens/{token_id}/revoke",
        name: "revokeToken",
        description: "Revokes a token for good: within 2 seconds no server takes it any more.",
        required_role: RequiredRole::Admin,
        responses: &[ok(&TOKEN_ROW)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, revoke, RevokingBody)
    },
    Route {
        path: "/v1/audit",
        name: "listAudit",
        description: "What people did: who, when, why; the oldest first, or the newest with `latest`. It is kept for good.",
        required_role: RequiredRole::Admin,
        responses: &[ok(&AUDITS)],
        ..asks!(GET, audits, AuditQuery)
    },
];

async fn create(call: Call, body: NewTokenBody) -> Result {
    let own = if call.caller.is_everybodys { EVERY_TENANT } else { &call.caller.tenant };
    let tenant = body.tenant.unwrap_or_else(|| call.caller.tenant.clone());
    if own != EVERY_TENANT && tenant != own {
        return Err(Problem::new(
            &FORBIDDEN,
            format!("tenant: a token of {own:?} makes tokens of {own:?} only"),
        ));
    }
    let (secret, who) = (Secret::fresh(), call.who(body.by, None));
    let new = NewToken {
        id: secret.id.clone(),
        digest: secret.digest(),
        name: body.name,
        role: body.role,
        tenant,
        lasts: body.expires_in_ms.map(Span::from_ms),
        by: who.by.clone(),
    };
    let row = call.store().change_token(TokenChange::Issue(new), who).await?;
    Ok(answer::json(201, &json!({ "token": secret.reveal(), "row": row.object() })))
}

/// Those of the caller's tenant, unless it is everybody's.
async fn visible(call: &Call) -> Result<Vec<TokenRow>> {
    let mut rows = call.store().tokens(None).await?;
    rows.retain(|row| call.caller.is_everybodys || row.tenant == call.caller.tenant);
    Ok(rows)
}

async fn list(call: Call) -> Result {
    let objects: Vec<Value> = visible(&call).await?.iter().map(TokenRow::object).collect();
    Ok(answer::json(200, &json!({ "tokens": objects })))
}

async fn revoke(call: Call, body: RevokingBody) -> Result {
    let id = call.path("token_id");
    if !visible(&call).await?.iter().any(|row| row.id == id) {
        return Err(waypost_store::StoreError::NotFound { what: "token", id }.into());
    }
    let row = call.store().change_token(TokenChange::Revoke(id), call.who(body.by, body.reason)).await?;
    call.app.tokens.forget(&row.id);
    Ok(answer::json(200, &row.object()))
}

async fn audits(call: Call, query: AuditQuery) -> Result {
    let tenant = Some(call.caller.tenant.clone()).filter(|_| !call.caller.is_everybodys);
    let rows = match query.latest {
        true => call.store().latest_audits(tenant, query.before, query.limit.0).await?,
        false => call.store().audits(tenant, query.after.unwrap_or_default(), query.limit.0).await?,
    };
    let objects: Vec<Value> = rows.iter().map(AuditRow::object).collect();
    Ok(answer::json(200, &json!({ "audit": objects })))
}
