//! For those who watch the server, and for those who read what it offers. No role is needed, and nothing of any run is told.

use serde_json::json;

use super::shapes::HEALTH;
use super::{Content, GET, Gives, Route, ok, plain};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::Needs;
use crate::metrics;

const OPEN: Route = Route { needs: Needs::Nothing, ..GET };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/livez",
        name: "isAlive",
        about: "The process answers.",
        gives: &[ok(&HEALTH)],
        run: |_, _| Box::pin(async { Ok(answer::json(200, &json!({ "status": "ok", "detail": null }))) }),
        ..OPEN
    },
    Route {
        path: "/readyz",
        name: "isReady",
        about: "The database answers, and the server is not about to end.",
        gives: &[ok(&HEALTH), Gives { status: 503, about: "not now", body: Content::Json(&HEALTH) }],
        ..plain!(OPEN, ready)
    },
    Route {
        path: "/metrics",
        name: "getMetrics",
        about: "OpenMetrics. Needs a token where tokens are needed.",
        needs: Needs::Read,
        gives: &[Gives { status: 200, about: "the page", body: Content::Text(OPENMETRICS) }],
        run: |call, _| {
            Box::pin(async move { Ok(answer::text(200, OPENMETRICS, metrics::page(&call.app).await?)) })
        },
        ..OPEN
    },
    Route {
        path: "/openapi.json",
        name: "getOpenapi",
        about: "This API, as OpenAPI 3.1.",
        gives: &[Gives { status: 200, about: "the document", body: Content::AnyJson }],
        run: |_, _| Box::pin(async { Ok(answer::json(200, &crate::openapi::document())) }),
        ..OPEN
    },
    Route {
        path: "/reference",
        name: "getReference",
        about: "This API, as a page for people.",
        gives: &[Gives { status: 200, about: "the page", body: Content::Text(HTML) }],
        run: |_, _| {
            Box::pin(async {
                let page = answer::text(200, HTML, crate::reference::html());
                Ok(answer::with(page, "content-security-policy", crate::reference::POLICY))
            })
        },
        ..OPEN
    },
];

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
