//! What runs may move along.

use serde_json::{Value, json};
use waypost_kernel::Lifecycle;
use waypost_kernel::render::json::json as rendered;
use waypost_kernel::render::toml::toml;
use waypost_kernel::tenant::may_mean;
use waypost_store::StoreError;

use super::requests::{LifecycleQuery, LifecyclesQuery, NewLifecycleBody};
use super::shapes::{LIFECYCLE, LIFECYCLES};
use super::{BODY_BYTES, Content, GET, POST, Route, RouteResponse, asks, ok, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::NOT_FOUND;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/lifecycles",
        name: "listLifecycles",
        description: "Every version of every lifecycle that the caller's tenant may use: the installation's and its own.",
        responses: &[ok(&LIFECYCLES)],
        ..asks!(GET, list, LifecyclesQuery)
    },
    Route {
        path: "/v1/lifecycles/{name}",
        name: "getLifecycle",
        description: "The latest version of one: of the tenant's own if it has one by this name, or else of the installation's.",
        responses: &[ok(&LIFECYCLE)],
        refuses: &[&NOT_FOUND],
        ..asks!(GET, show, LifecycleQuery)
    },
    Route {
        path: "/v1/lifecycles",
        name: "addLifecycle",
        description: "Adds a lifecycle, or a version of one. The same again changes nothing. It is the tenant's own, called `TENANT/NAME`; \
                without a tenant, or of the tenant `default`, it is the installation's and everybody's.",
        required_role: RequiredRole::Admin,
        body_bytes: BODY_BYTES,
        responses: &[RouteResponse {
            status: 201,
            description: "runs may use it",
            body: Content::Json(&LIFECYCLE),
        }],
        ..takes!(POST, add, NewLifecycleBody)
    },
];

fn object(lifecycle: &Lifecycle, with_source: bool) -> Value {
    let mut object = rendered(lifecycle);
    object["source"] = if with_source { toml(lifecycle).into() } else { Value::Null };
    object
}

async fn list(call: Call, query: LifecyclesQuery) -> Result {
    let catalog = call.lifecycles().await?;
    let is_asked = |stored: &str| match (&query.name, call.tenant()) {
        (None, _) => true,
        (Some(name), None) => name == stored,
        (Some(name), Some(tenant)) => may_mean(&tenant, name, stored),
    };
    let asked = catalog.iter().filter(|it| is_asked(&it.name));
    let objects: Vec<Value> = asked.map(|lifecycle| object(lifecycle, query.source)).collect();
    Ok(answer::json(200, &json!({ "lifecycles": objects })))
}

async fn show(call: Call, query: LifecycleQuery) -> Result {
    let (catalog, name) = (call.lifecycles().await?, call.path("name"));
    let found = catalog.latest(&name);
    let lifecycle = found.ok_or(StoreError::NotFound { what: "lifecycle", id: name })?;
    Ok(answer::json(200, &object(lifecycle, query.source)))
}

async fn add(call: Call, body: NewLifecycleBody) -> Result {
    let lifecycle = call.store().add_lifecycle(body.source, call.who(None, None)).await?;
    Ok(answer::json(201, &object(&lifecycle, false)))
}
