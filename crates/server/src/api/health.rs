//! For those who watch the server, and for those who read what it offers. No role is needed, and nothing of any run is told.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::json;

use super::shapes::HEALTH;
use super::{Content, GET, Route, RouteResponse, ok, plain};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::metrics;

const OPEN: Route = Route { required_role: RequiredRole::Nothing, ..GET };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/livez",
        name: "isAlive",
        description: "The process answers.",
        responses: &[ok(&HEALTH)],
        run: |_, _| Box::pin(async { Ok(answer::json(200, &json!({ "status": "ok", "detail": null }))) }),
        ..OPEN
    },
    Route {
        path: "/readyz",
        name: "isReady",
        description: "The database answers, and the server is not about to end.",
        responses: &[
            ok(&HEALTH),
            RouteResponse { status: 503, description: "not now", body: Content::Json(&HEALTH) },
        ],
        ..plain!(OPEN, ready)
    },
    Route {
        path: "/metrics",
        name: "getMetrics",
        description: "OpenMetrics: the server's own figures, and those of the tenant's queues and runs; of all tenants' if none is named. \
                Needs a token where tokens are needed.",
        required_role: RequiredRole::Read,
        responses: &[RouteResponse {
            status: 200,
            description: "the page",
            body: Content::Text(OPENMETRICS),
        }],
        run: |call, _| {
            Box::pin(async move {
                let page = metrics::page(&call.app, call.seen_tenant()).await?;
                Ok(answer::text(200, OPENMETRICS, page))
            })
        },
        ..OPEN
    },
    Route {
        path: "/openapi.json",
        name: "getOpenapi",
        description: "This API, as OpenAPI 3.1.",
        responses: &[RouteResponse { status: 200, description: "the document", body: Content::AnyJson }],
        run: |_, _| Box::pin(async { Ok(answer::shared(200, "application/json", DOCUMENT.clone())) }),
        ..OPEN
    },
    Route {
        path: "/reference",
        name: "getReference",
        description: "This API, as a page for people.",
        responses: &[RouteResponse { status: 200, description: "the page", body: Content::Text(HTML) }],
        run: |call, _| Box::pin(crate::console::reference(call)),
        ..OPEN
    },
];

// Anybody may ask for it: it is made once, and all answers share it.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| crate::openapi::document().to_string().into());

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

async fn ready(call: Call) -> Result {
    let (status, word, detail) = if call.app.is_stopping() {
        (503, "stopping", None)
    } else {
        match call.store().now().await {
            Ok(_) => (200, "ok", None),
            Err(error) => (503, "unavailable", Some(error.to_string())),
        }
    };
    Ok(answer::json(status, &json!({ "status": word, "detail": detail })))
}
