//! Asking the table of routes, as a client of the API would: the same roles, the same checks, the same words when it refuses.

use axum::http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::answer::{Answer, Result};
use crate::api::{self, Route};
use crate::call::{Asked, Call, read_object, read_query};
use crate::guard::{self, Role};
use crate::problem::{INTERNAL_ERROR, INVALID_INPUT, Problem};
use waypost_schema::{FromNode, Node};

/// A query as a route's own function takes it.
pub fn query<T: FromNode>(call: &Call, name: &str, query: &[(&str, &str)]) -> Result<T> {
    let route = named(name)?;
    guard::check_role(&call.caller, route.required_role)?;
    let (_, query) = read_query(route, Some(&written(query)))?;
    Asked { query, body: Node::default(), raw: Vec::new() }.query()
}

/// A query as an address has it; what is empty is left out.
pub fn written(query: &[(&str, &str)]) -> String {
    let pairs = query.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    pairs.join("&")
}

/// What a route that reads answers.
pub async fn ask(call: &Call, name: &str, path: &[(&str, &str)], query: &[(&str, &str)]) -> Result<Value> {
    value(answer(call, name, path, query, Map::new(), HeaderMap::new()).await?).await
}

/// What a route that changes something answers.
pub async fn tell(call: &Call, name: &str, path: &[(&str, &str)], body: Map<String, Value>) -> Result<Value> {
    value(answer(call, name, path, &[], body, HeaderMap::new()).await?).await
}

/// The same of a route that makes a run, and whether its key had made it before.
pub async fn make(
    call: &Call,
    name: &str,
    path: &[(&str, &str)],
    body: Map<String, Value>,
    key: Option<&str>,
) -> Result<Made> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        let wrong = |_| Problem::field(&INVALID_INPUT, "key", "is no text that a header can have");
        headers.insert("idempotency-key", HeaderValue::from_str(key).map_err(wrong)?);
    }
    let answer = answer(call, name, path, &[], body, headers).await?;
    let is_known = answer.headers().contains_key("idempotency-replayed");
    Ok(Made { run: value(answer).await?, is_known })
}

#[derive(Debug)]
pub struct Made {
    pub run: Value,
    /// The form was sent before.
    pub is_known: bool,
}

/// What a route that reads answers, and the tag of what it told.
pub async fn tagged(call: &Call, name: &str, path: &[(&str, &str)]) -> Result<(Value, String)> {
    let answer = answer(call, name, path, &[], Map::new(), HeaderMap::new()).await?;
    let tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default();
    let tag = tag.trim_matches('"').to_owned();
    Ok((value(answer).await?, tag))
}

/// The route's answer as it is, with the headers of who asks.
pub async fn passed(call: Call, name: &str, query: &[(&str, &str)]) -> Result {
    let headers = call.headers.clone();
    answer(&call, name, &[], query, Map::new(), headers).await
}

/// What stands in an address as it is: ids of runs, above all, which people read there.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Whether the caller may do what a route does: buttons of others are not shown.
pub fn may(call: &Call, name: &str) -> bool {
    role_may(call.caller.role, name)
}

pub fn role_may(role: Role, name: &str) -> bool {
    named(name).is_ok_and(|route| role.may(route.required_role))
}

fn defect(what: &str) -> Problem {
    Problem::new(&INTERNAL_ERROR, format!("the console asked the API for what it does not have: {what}"))
}

fn named(name: &str) -> Result<&'static Route> {
    api::routes().find(|route| !route.is_page && route.name == name).ok_or_else(|| defect(name))
}

async fn answer(
    call: &Call,
    name: &str,
    path: &[(&str, &str)],
    query: &[(&str, &str)],
    body: Map<String, Value>,
    headers: HeaderMap,
) -> Result<Answer> {
    let route = named(name)?;
    guard::check_role(&call.caller, route.required_role)?;
    let (asked, query) = read_query(route, Some(&written(query)))?;
    let body = match route.body {
        Some(shape) => read_object(shape, body)?,
        None => Node::default(),
    };
    let path = path.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let inner = Call {
        app: call.app.clone(),
        caller: call.caller.clone(),
        path,
        query: asked,
        headers,
        is_on_kept_seat: call.is_on_kept_seat,
    };
    (route.run)(inner, Asked { query, body, raw: Vec::new() }).await
}

/// An answer without a body is null. What it held of the server is given back before the next one is asked.
async fn value(answer: Answer) -> Result<Value> {
    let bytes = answer.into_body().collect().await.map_err(|_| defect("an answer broke off"))?.to_bytes();
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|_| defect("an answer that is no JSON"))
}
