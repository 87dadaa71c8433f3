//! Answers that go well.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use crate::problem::Problem;

pub type Answer = Response<Body>;
pub type Result<T = Answer> = std::result::Result<T, Problem>;

pub fn json(status: u16, value: &Value) -> Answer {
    text(status, "application/json", value.to_string())
}

pub fn text(status: u16, kind: &'static str, text: String) -> Answer {
    let mut answer = empty(status);
    *answer.body_mut() = Body::from(text);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// The same of what other answers have too.
pub fn shared(status: u16, kind: &'static str, text: bytes::Bytes) -> Answer {
    let mut answer = empty(status);
    *answer.body_mut() = Body::from(text);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub fn empty(status: u16) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    answer
}

/// What cannot be a header is left out: none of these is worth failing for.
pub fn with(mut answer: Answer, name: &'static str, value: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().append(HeaderName::from_static(name), value);
    }
    answer
}
