//! A request as the simulators look at it.

use bytes::Bytes;
use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    /// Without the query, decoded.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Request {
    pub fn new(head: &Parts, body: Bytes) -> Request {
        let headers = head.headers.iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        Request {
            method: head.method.as_str().to_owned(),
            path: decoded(head.uri.path()),
            query: head.uri.query().map(pairs).unwrap_or_default(),
            headers: headers.collect(),
            body,
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// With or without the quotes of a structured field.
    pub fn idempotency_key(&self) -> Option<&str> {
        let key = self.header("idempotency-key")?.trim();
        let bare = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
        Some(bare).filter(|key| !key.is_empty())
    }

    /// `Authorization: Bearer …`, or the header of that name.
    pub fn token(&self, name: &str) -> Option<&str> {
        let bearer = self.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        self.header(name).or(bearer)
    }

    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("the body is not JSON: {error}"))
    }

    /// What decides about faults: the caller's key, or what is asked for.
    pub fn key(&self) -> String {
        match self.idempotency_key() {
            Some(key) => key.to_owned(),
            None => {
                let query: Vec<String> =
                    self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let mark = if query.is_empty() { "" } else { "?" };
                let body = String::from_utf8_lossy(&self.body);
                let key = format!("{} {}{mark}{} {body}", self.method, self.path, query.join("&"));
                key.trim_end().to_owned()
            }
        }
    }

    /// Of the query. What is not a number is the client's mistake.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some((_, text)) = self.query.iter().find(|(it, _)| it == name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name}={text}: {name} is a whole number"))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// A misspelt name would silently show everything.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) if known.is_empty() => Err(format!("{name}: nothing is asked by a query here")),
            Some((name, _)) => Err(format!("{name} is unknown here: {}", known.join(", "))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
impl Request {
    /// As a client would send it; no body for null.
    pub fn made(method: &str, target: &str, key: Option<&str>, body: &Value) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Request {
            method: method.to_owned(),
            path: decoded(path),
            query: pairs(query),
            headers: key.map(|key| ("idempotency-key".to_owned(), key.to_owned())).into_iter().collect(),
            body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
        }
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
    };
    query.split('&').filter(|it| !it.is_empty()).map(pair).collect()
}
