//! From a request to its route's function, and whatever becomes of it to an answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::RequestExt;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{CACHE_CONTROL, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::Instant;
use waypost_schema::Node;

use crate::answer::Result;
use crate::api::{self, Method, Route};
use crate::app::App;
use crate::call::{Asked, Call, check_headers, read_body, read_query, read_raw};
use crate::guard;
use crate::problem::{INTERNAL_ERROR, INVALID_QUERY, METHOD_NOT_ALLOWED, NOT_FOUND, Problem};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in api::routes() {
        let app = app.clone();
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
            Method::Delete => MethodFilter::DELETE,
        };
        let handler = move |request: Request| answer(app.clone(), route, request);
        router = router.route(route.path, on(filter, handler));
    }
    router.fallback(fallback).method_not_allowed_fallback(fallback)
}

async fn answer(app: Arc<App>, route: &'static Route, request: Request) -> Response<Body> {
    let begun = Instant::now();
    let request_id = request_id(request.headers());
    let instance = request.uri().path().to_owned();
    let in_flight = app.metrics.begin();
    let asked = AssertUnwindSafe(ask(app.clone(), route, request)).catch_unwind();
    let mut response = match asked.await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => {
            if problem.status >= 500 {
                tracing::warn!(request_id, route = route.path, code = problem.code, "{}", problem.detail);
            }
            problem.response(&request_id, &instance)
        }
        // What it said is in the log; a client has no use for it.
        Err(_) => {
            tracing::error!(request_id, route = route.path, "a handler panicked");
            Problem::new(&INTERNAL_ERROR, "the server has a defect; its log has more under this request id")
                .response(&request_id, &instance)
        }
    };
    drop(in_flight);
    app.metrics.answered(route, response.status().as_u16(), begun.elapsed());
    finish(response.headers_mut(), &request_id);
    response
}

async fn ask(app: Arc<App>, route: &'static Route, mut request: Request) -> Result {
    guard::check_site(&app, request.headers())?;
    let caller = guard::identify(&app, request.headers()).await;
    let caller = match route.required_role {
        guard::RequiredRole::Nothing => caller.unwrap_or_else(|_| guard::Caller::nobody()),
        required => {
            let caller = caller?;
            guard::check_role(&caller, required)?;
            caller
        }
    };
    let path = read_path(&mut request).await?;
    let (query, asked) = read_query(route, request.uri().query())?;
    check_headers(route, request.headers())?;
    let (parts, body) = request.into_parts();
    let asked = match route.is_raw {
        true => {
            let raw = read_raw(route, &parts.headers, body).await?;
            Asked { query: asked, body: Node::default(), raw }
        }
        false => {
            let body = read_body(route, &parts.headers, body).await?;
            Asked { query: asked, body, raw: Bytes::new() }
        }
    };
    (route.run)(Call { app, caller, path, query, headers: parts.headers }, asked).await
}

async fn read_path(request: &mut Request) -> Result<Vec<(String, String)>> {
    let wrong = |message: &str| Problem::field(&INVALID_QUERY, "path", message);
    let params = request.extract_parts::<RawPathParams>().await.map_err(|_| wrong("is not UTF-8"))?;
    let params: Vec<(String, String)> =
        params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    match params.iter().any(|(_, value)| value.contains('\0') || value.len() > 512) {
        true => Err(wrong("has a NUL, or a part longer than 512 bytes")),
        false => Ok(params),
    }
}

/// No route: what is there instead.
async fn fallback(request: Request) -> Response<Body> {
    let request_id = request_id(request.headers());
    let path = request.uri().path().to_owned();
    let allowed = api::methods_of(&path);
    let problem = if allowed.is_empty() {
        Problem::new(&NOT_FOUND, "there is no such path; /openapi.json lists those that are")
    } else {
        let allow = allowed.join(", ");
        let detail = format!("this path takes {allow}");
        Problem { allow: Some(allow), ..Problem::new(&METHOD_NOT_ALLOWED, detail) }
    };
    let mut response = problem.response(&request_id, &path);
    finish(response.headers_mut(), &request_id);
    response
}

fn request_id(headers: &HeaderMap) -> String {
    let fits = |text: &&str| {
        (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(fits);
    given.map_or_else(|| uuid::Uuid::now_v7().simple().to_string(), str::to_owned)
}

fn finish(headers: &mut HeaderMap, request_id: &str) {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
