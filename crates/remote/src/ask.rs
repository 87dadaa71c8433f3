//! One request and its answer.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;
use waypost_kernel::tenant::DEFAULT;
use waypost_store::wire::error_from;
use waypost_store::{Result, StoreError};

use super::RemoteStore;

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub struct Ask {
    method: Method,
    path: String,
    body: Option<Value>,
    tenant: Option<String>,
    if_seq: Option<u64>,
    within: Option<Duration>,
}

/// A part of a path or a value of a query.
pub fn part(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// The path of a run's verb. An id that nobody could have made is not sent: `..` would be another path.
pub fn of_run(run_id: &str, verb: &str) -> Result<String> {
    match waypost_kernel::id::check_id(run_id) {
        Ok(()) => Ok(format!("/v1/runs/{}{verb}", part(run_id))),
        Err(_) => Err(StoreError::no_run(run_id)),
    }
}

impl Ask {
    pub fn get(path: impl Into<String>) -> Ask {
        Ask { method: Method::GET, path: path.into(), body: None, tenant: None, if_seq: None, within: None }
    }

    pub fn post(path: impl Into<String>, body: Value) -> Ask {
        Ask { method: Method::POST, body: Some(body), ..Ask::get(path) }
    }

    pub fn put(path: impl Into<String>, body: Value) -> Ask {
        Ask { method: Method::PUT, ..Ask::post(path, body) }
    }

    pub fn delete(path: impl Into<String>) -> Ask {
        Ask { method: Method::DELETE, ..Ask::get(path) }
    }

    /// A token has its tenant; only without one may it be named.
    pub fn of(mut self, tenant: &str) -> Ask {
        self.tenant = (tenant != DEFAULT).then(|| tenant.to_owned());
        self
    }

    /// For what has several tenants' where none is named.
    pub fn only_of(mut self, tenant: Option<String>) -> Ask {
        self.tenant = tenant;
        self
    }

    /// A tenant that was asked for by its name, or all that the token sees.
    pub fn of_only(mut self, tenant: Option<&str>) -> Ask {
        self.tenant = tenant.map(str::to_owned);
        self
    }

    pub fn if_seq(mut self, seq: Option<u64>) -> Ask {
        self.if_seq = seq;
        self
    }

    pub fn within(mut self, time: Duration) -> Ask {
        self.within = Some(time);
        self
    }

    pub async fn send(self, store: &RemoteStore) -> Result<Value> {
        let base = &store.base;
        let url = format!("{base}{}", self.path);
        let mut request = store.client.request(self.method, url).header("waypost-detail", "engine");
        if let Some(token) = &store.token {
            request = request.bearer_auth(token);
        }
        let is_named = |tenant: &&str| *tenant != DEFAULT || store.token.is_none();
        let tenant = self.tenant.as_deref().filter(is_named).or(store.tenant.as_deref());
        if let Some(tenant) = tenant {
            request = request.header("waypost-tenant", part(tenant));
        }
        if let Some(seq) = self.if_seq {
            request = request.header("if-match", format!("\"{seq}\""));
        }
        if let Some(within) = self.within {
            request = request.timeout(within);
        }
        if let Some(body) = self.body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let away = |error: reqwest::Error| StoreError::Unavailable(away(base, &error));
        let response = request.send().await.map_err(away)?;
        let status = response.status().as_u16();
        let text = whole(response, base, away).await?;
        if status < 300 {
            return Ok(serde_json::from_slice(&text).unwrap_or_default());
        }
        let problem: Value = serde_json::from_slice(&text).unwrap_or_default();
        Err(error_from(&problem).unwrap_or_else(|| other(base, &self.path, status, &problem)))
    }
}

/// What a server of ours never exceeds.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The whole answer, unless it has no end.
async fn whole(
    mut response: reqwest::Response,
    base: &str,
    away: impl Fn(reqwest::Error) -> StoreError,
) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(&away)? {
        if text.len() + chunk.len() > MOST_BYTES {
            let message = format!("{base} sent more than {} MiB for one answer", MOST_BYTES / 1024 / 1024);
            return Err(StoreError::Unusable(message));
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

fn away(base: &str, error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.is_connect() {
        true => format!("cannot reach the server {base}: {cause}"),
        false => format!("the server {base} did not answer: {cause}"),
    }
}

/// What no store would have said.
fn other(base: &str, path: &str, status: u16, problem: &Value) -> StoreError {
    let detail = problem["detail"].as_str().unwrap_or("no Waypost server answers there");
    match status {
        408 | 429 | 500..=599 => StoreError::Unavailable(format!("{base}: {detail}")),
        400 | 413 | 415 | 422 | 431 => StoreError::invalid("request", detail),
        _ => StoreError::Unusable(format!("{base} answered {status} to {path}: {detail}")),
    }
}
