//! From a request to its route's function, and whatever becomes of it to an answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONNECTION, EXPECT, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::routing::{MethodFilter, on};
use axum::{RequestPartsExt, Router};
use futures_util::FutureExt;
use http_body::Body as HttpBody;
use tokio::time::Instant;

use crate::answer::Result;
use crate::api::{self, Method, Route};
use crate::app::App;
use crate::call::{Asked, Call, Turn, check_headers, drain, read_body, read_query};
use crate::console;
use crate::guard;
use crate::problem::{BUSY, INTERNAL_ERROR, INVALID_QUERY, METHOD_NOT_ALLOWED, NOT_FOUND, Problem};
use crate::room::bytes::Bytes;
use crate::room::kept::keeping;
use crate::room::seats::Seat;
use crate::room::shares::{Share, Use};

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
    let (app, same) = (app.clone(), app.clone());
    let nowhere = move |request: Request| fallback(app.clone(), request);
    let otherwise = move |request: Request| fallback(same.clone(), request);
    router.fallback(nowhere).method_not_allowed_fallback(otherwise)
}

async fn answer(app: Arc<App>, route: &'static Route, request: Request) -> Response<Body> {
    let begun = Instant::now();
    let request_id = request_id(request.headers());
    let instance = request.uri().path().to_owned();
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    // Who waits for our word before it sends its body has sent nothing.
    let waits = request.headers().contains_key(EXPECT);
    let in_flight = app.metrics.begin();
    let (mut parts, mut body) = request.into_parts();
    if route.is_page {
        console::session::adopt(&mut parts.headers);
    }
    let page = route.is_page.then(|| parts.clone());
    let asked = AssertUnwindSafe(ask(app.clone(), route, parts, &mut body, seat.clone())).catch_unwind();
    let asked = asked.await;
    if !waits && !matches!(asked, Ok(Ok(_))) {
        drain(&mut body).await;
    }
    let (mut response, kept) = match asked {
        Ok(Ok((response, kept))) => (response, Some(kept)),
        Ok(Err(problem)) => {
            // That there is no room is everyday, and may be told a thousand times a second.
            if problem.status >= 500 && problem.code != BUSY.code {
                tracing::warn!(request_id, route = route.path, code = problem.code, "{}", problem.detail);
            }
            (refused(&app, route, &problem, &request_id, page.as_ref(), &instance), None)
        }
        // What it said is in the log; a client has no use for it.
        Err(_) => {
            tracing::error!(request_id, route = route.path, "a handler panicked");
            let message = "the server has a defect; its log has more under this request id";
            let problem = Problem::new(&INTERNAL_ERROR, message);
            (refused(&app, route, &problem, &request_id, page.as_ref(), &instance), None)
        }
    };
    drop(in_flight);
    app.metrics.answered(route, response.status().as_u16(), begun.elapsed());
    finish(response.headers_mut(), &request_id);
    if seat.is_some_and(|seat| seat.is_kept) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.map(|body| keeping(body, kept))
}

fn refused(
    app: &App,
    route: &Route,
    problem: &Problem,
    request_id: &str,
    page: Option<&Parts>,
    instance: &str,
) -> Response<Body> {
    match page {
        Some(parts) => console::refused(app, problem, request_id, parts),
        None if route.is_front => problem.enveloped(request_id),
        None => problem.response(request_id, instance),
    }
}

/// What an answer takes of the server until its client has all of it.
type Taken = (Option<Share>, Bytes);

async fn ask(
    app: Arc<App>,
    route: &'static Route,
    mut parts: Parts,
    body: &mut Body,
    seat: Option<Arc<Seat>>,
) -> Result<(Response<Body>, Taken)> {
    guard::check_site(&app, &parts)?;
    let caller = guard::identify(&app, &parts.headers).await;
    let caller = match route.required_role {
        guard::RequiredRole::Nothing => caller.unwrap_or_else(|_| guard::Caller::nobody()),
        required => {
            let caller = caller?;
            guard::check_role(&caller, required)?;
            caller
        }
    };
    let token = caller.token_id().map(str::to_owned);
    let is_on_kept_seat = seat.as_ref().is_some_and(|seat| seat.is_kept);
    match (&token, &seat) {
        (Some(_), Some(seat)) => seat.has_shown_a_token(),
        _ if is_on_kept_seat && !api::is_health(route) => {
            let message =
                "all other seats are taken; what is left is for health checks and requests with a token";
            return Err(Problem::new(&BUSY, message));
        }
        _ => {}
    }
    let share = token.as_ref().map(|token| app.shares.take(token, Use::Request)).transpose()?;
    let path = read_path(&mut parts).await?;
    let (query, asked) = read_query(route, parts.uri.query())?;
    check_headers(route, &parts.headers)?;
    let read = read_body(&app, &caller, route, &parts.headers, body).await?;
    let mut answered = app.answers.open_for(token.as_deref(), seat);
    let asked = Asked { query: asked, body: read.body, raw: read.raw };
    let call = Call { app, caller, path, query, headers: parts.headers, is_on_kept_seat };
    let mut response = (route.run)(call, asked).await?;
    drop(read.held);
    let bytes = response.body().size_hint().exact().unwrap_or_default() as usize;
    match route.method {
        Method::Get => answered.hold_soon(bytes).await?,
        // It is done: who asked has to hear of it.
        Method::Post | Method::Put | Method::Delete => answered.hold_anyway(bytes),
    }
    response.extensions_mut().remove::<Turn>();
    Ok((response, (share, answered)))
}

async fn read_path(parts: &mut Parts) -> Result<Vec<(String, String)>> {
    let wrong = |message: &str| Problem::field(&INVALID_QUERY, "path", message);
    let params = parts.extract::<RawPathParams>().await.map_err(|_| wrong("is not UTF-8"))?;
    let params: Vec<(String, String)> =
        params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    match params.iter().any(|(_, value)| value.contains('\0') || value.len() > 512) {
        true => Err(wrong("has a NUL, or a part longer than 512 bytes")),
        false => Ok(params),
    }
}

/// No route: what is there instead.
async fn fallback(app: Arc<App>, request: Request) -> Response<Body> {
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
    let mut response = match api::is_front(&path) {
        true => problem.enveloped(&request_id),
        false if asks_for_a_page(&request) => {
            console::refused(&app, &problem, &request_id, &request.into_parts().0)
        }
        false => problem.response(&request_id, &path),
    };
    finish(response.headers_mut(), &request_id);
    response
}

/// Somebody with a browser, who typed an address.
fn asks_for_a_page(request: &Request) -> bool {
    let accepted = request.headers().get(ACCEPT).and_then(|kinds| kinds.to_str().ok());
    request.method() == axum::http::Method::GET
        && !request.uri().path().starts_with("/v1/")
        && accepted.is_some_and(|kinds| kinds.contains("text/html"))
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
