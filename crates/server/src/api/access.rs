//! Tokens, and what people did.

use serde_json::{Value, json};
use waypost_store::{AuditRow, EVERY_TENANT, NewToken, Secret, TokenRow, iso};

use super::shapes::{AUDITS, COUNT, LIMIT, NEW_TOKEN, REVOKING, TOKEN_MADE, TOKEN_ROW, TOKENS};
use super::{Content, GET, Gives, POST, Route, ok};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::Needs;
use crate::problem::{FORBIDDEN, NOT_FOUND, Problem};
use crate::shape::optional;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/tokens",
        name: "createToken",
        about: "Makes a token. Its secret is in this answer and nowhere else.",
        needs: Needs::Admin,
        body: Some(&NEW_TOKEN),
        gives: &[Gives { status: 201, about: "the token, once", body: Content::Json(&TOKEN_MADE) }],
        run: |call| Box::pin(create(call)),
        ..POST
    },
    Route {
        path: "/v1/tokens",
        name: "listTokens",
        about: "Tokens, without their secrets; those that were revoked too.",
        needs: Needs::Admin,
        gives: &[ok(&TOKENS)],
        run: |call| Box::pin(list(call)),
        ..GET
    },
    Route {
        path: "/v1/tokens/{token_id}/revoke",
        name: "revokeToken",
        about: "Revokes a token for good: within 2 seconds no server takes it any more.",
        needs: Needs::Admin,
        body: Some(&REVOKING),
        gives: &[ok(&TOKEN_ROW)],
        refuses: &[&NOT_FOUND],
        run: |call| Box::pin(revoke(call)),
        ..POST
    },
    Route {
        path: "/v1/audit",
        name: "listAudit",
        about: "What people did: who, when, why. It is kept for good.",
        needs: Needs::Admin,
        query: &[optional("after", COUNT, "Only those after this number."), LIMIT],
        gives: &[ok(&AUDITS)],
        run: |call| Box::pin(audits(call)),
        ..GET
    },
];

async fn create(call: Call) -> Result {
    let role = call.body.words("role");
    let own = if call.caller.is_everybodys { EVERY_TENANT } else { &call.caller.tenant };
    let tenant = call.body.text("tenant").unwrap_or_else(|| call.caller.tenant.clone());
    if own != EVERY_TENANT && tenant != own {
        return Err(Problem::new(
            &FORBIDDEN,
            format!("tenant: a token of {own:?} makes tokens of {own:?} only"),
        ));
    }
    let (secret, by) = (Secret::fresh(), call.caller.by(call.body.text("by")));
    let new = NewToken {
        id: secret.id.clone(),
        digest: secret.digest(),
        name: call.body.words("name"),
        role,
        tenant,
        by,
    };
    let row = call.store().issue_token(new, call.who()).await?;
    Ok(answer::json(201, &json!({ "token": secret.reveal(), "row": row.object() })))
}

/// Those of the caller's tenant, unless it is everybody's.
async fn visible(call: &Call) -> Result<Vec<TokenRow>> {
    let mut rows = call.store().tokens().await?;
    rows.retain(|row| call.caller.is_everybodys || row.tenant == call.caller.tenant);
    Ok(rows)
}

async fn list(call: Call) -> Result {
    let objects: Vec<Value> = visible(&call).await?.iter().map(TokenRow::object).collect();
    Ok(answer::json(200, &json!({ "tokens": objects })))
}

async fn revoke(call: Call) -> Result {
    let id = call.path("token_id");
    if !visible(&call).await?.iter().any(|row| row.id == id) {
        return Err(waypost_store::StoreError::NotFound { what: "token", id }.into());
    }
    let row = call.store().end_token(id, call.who()).await?;
    Ok(answer::json(200, &row.object()))
}

async fn audits(call: Call) -> Result {
    let tenant = Some(call.caller.tenant.clone()).filter(|_| !call.caller.is_everybodys);
    let after = call.query.integer("after").unwrap_or_default().unsigned_abs();
    let limit = call.query.integer("limit").unwrap_or(50) as usize;
    let rows = call.store().audits(tenant, after, limit).await?;
    let objects: Vec<Value> = rows.iter().map(audit).collect();
    Ok(answer::json(200, &json!({ "audit": objects })))
}

fn audit(row: &AuditRow) -> Value {
    json!({
        "number": row.number,
        "at": iso(row.at),
        "tenant": row.tenant,
        "by": row.by,
        "action": row.action,
        "subject": row.subject,
        "reason": row.reason,
    })
}
