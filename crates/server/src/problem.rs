//! What a request is refused with: RFC 9457, and a stable code that callers branch on.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response};
use serde_json::{Map, Value, json};
use waypost_schema::Problem as FieldError;
use waypost_store::StoreError;

/// A reason to refuse, one line each in the reference.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    pub code: &'static str,
    pub status: u16,
    pub description: &'static str,
}

macro_rules! reasons {
    ($($name:ident $code:literal $status:literal $about:literal;)+) => {
        $(pub const $name: Reason = Reason { code: $code, status: $status, description: $about };)+
        /// Those of the API itself; the kernel's refusals are beside them.
        pub const ALL: &[&Reason] = &[$(&$name),+];
    };
}

reasons! {
    INVALID_JSON "INVALID_JSON" 400 "the body is not JSON, is nested deeper than 128, names a member twice, or has an integer beyond 64 bits";
    INVALID_QUERY "INVALID_QUERY" 400 "a query parameter or header is wrong";
    UNAUTHENTICATED "UNAUTHENTICATED" 401 "no token, or none that is known here";
    FORBIDDEN "FORBIDDEN" 403 "the token's role may not do this";
    CROSS_ORIGIN "CROSS_ORIGIN" 403 "the request comes from a page of another site, or names a host that is not this one";
    NOT_FOUND "NOT_FOUND" 404 "there is no such thing, or it is another tenant's";
    AGENT_NOT_FOUND "AGENT_NOT_FOUND" 404 "there is no agent of this slug";
    METHOD_NOT_ALLOWED "METHOD_NOT_ALLOWED" 405 "the path exists, but not for this method";
    TIMED_OUT "TIMED_OUT" 408 "the body did not arrive in time";
    OWN_SCHEDULE "OWN_SCHEDULE" 409 "the schedule is the engine's or one of a server's own file: only that changes it";
    AGENT_NOT_ACTIVE "AGENT_NOT_ACTIVE" 409 "the agent is paused, archived, or in error until it is reset";
    CONCURRENT_MODIFICATION "CONCURRENT_MODIFICATION" 409 "the proposal was made for another revision of its target than there is now, or a change of that revision was approved before";
    AGENT_CANCELLED "CANCELLED" 409 "the run that was waited for was cancelled";
    CHANGED_MEANWHILE "CHANGED_MEANWHILE" 409 "other runs fit than the request says: look again";
    PRECONDITION_FAILED "PRECONDITION_FAILED" 412 "the run is not, or not any more, what the ETag that If-Match names says";
    TOO_LARGE "TOO_LARGE" 413 "the body is larger than this route takes";
    UNSUPPORTED_MEDIA_TYPE "UNSUPPORTED_MEDIA_TYPE" 415 "bodies are application/json, not encoded further";
    INVALID_INPUT "INVALID_INPUT" 422 "a field of the request is wrong";
    IDEMPOTENCY_KEY_REUSED "IDEMPOTENCY_KEY_REUSED" 422 "the idempotency key was used with another body";
    RATE_LIMITED "RATE_LIMITED" 429 "more requests than the token may make; Retry-After says when";
    TOKEN_BUSY "TOKEN_BUSY" 429 "the token has as many requests, waiting requests or streams open as one may; Retry-After says when to ask again";
    HEADERS_TOO_LARGE "HEADERS_TOO_LARGE" 431 "more or longer headers than are taken";
    INTERNAL_ERROR "INTERNAL_ERROR" 500 "a defect of the server; it is in its log under the request id";
    MODEL_UNAVAILABLE "NLM_UNAVAILABLE" 502 "the run that was waited for failed because its language model did not answer";
    UPSTREAM_UNAVAILABLE "UPSTREAM_UNAVAILABLE" 502 "the object store, or what executes agents' runs, cannot be reached";
    UNAVAILABLE "DATABASE_UNAVAILABLE" 503 "the database cannot be used now; the same request may work later";
    UNUSABLE "DATABASE_UNUSABLE" 503 "the database cannot be used by this server";
    BUSY "BUSY" 503 "more connections, streams or memory than the server has";
    STOPPING "STOPPING" 503 "the server is shutting down: ask another, or again";
    AGENT_TIMEOUT "AGENT_TIMEOUT" 504 "the run that was waited for took too long";
}

/// What a caller of a front end's route calls its request by; else it is the request's id.
pub const CORRELATION_ID: &str = "correlationId";

#[derive(Clone, Debug)]
pub struct Problem {
    pub code: &'static str,
    pub status: u16,
    pub detail: String,
    /// Members beside the standard ones.
    pub more: Map<String, Value>,
    pub retry_after_s: Option<u64>,
    pub allow: Option<String>,
}

impl Problem {
    pub fn new(reason: &Reason, detail: impl Into<String>) -> Problem {
        Problem {
            code: reason.code,
            status: reason.status,
            detail: detail.into(),
            more: Map::new(),
            retry_after_s: (reason.status == 503).then_some(1),
            allow: None,
        }
    }

    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Problem {
        self.more.insert(member.to_owned(), value.into());
        self
    }

    pub fn field(reason: &Reason, field: &str, message: &str) -> Problem {
        Problem::new(reason, format!("{field}: {message}"))
            .with("errors", json!([{ "pointer": pointer(field), "detail": message }]))
    }

    /// The same of fields that stand further inside.
    #[must_use]
    pub fn within(mut self, place: &str) -> Problem {
        for error in self.more.get_mut("errors").and_then(Value::as_array_mut).into_iter().flatten() {
            let inside = error["pointer"].as_str().unwrap_or_default().to_owned();
            error["pointer"] = format!("{}{inside}", pointer(place)).into();
        }
        self.more.remove("field");
        self.detail = format!("{place}: {}", self.detail);
        self
    }

    /// Fields of the body, of the query or of the headers.
    pub fn fields(reason: &Reason, wrongs: &[FieldError]) -> Problem {
        let detail = wrongs.first().map(|wrong| format!("{}: {}", wrong.field, wrong.message));
        let errors: Vec<Value> = wrongs
            .iter()
            .map(|wrong| json!({ "pointer": pointer(&wrong.field), "detail": wrong.message }))
            .collect();
        Problem::new(reason, detail.unwrap_or_default()).with("errors", errors)
    }

    /// As it is sent, and as an entry of a list that answers each by itself.
    pub fn object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("type".into(), "about:blank".into());
        object.insert("title".into(), title(self.status).into());
        object.insert("status".into(), self.status.into());
        object.insert("detail".into(), self.detail.clone().into());
        object.insert("code".into(), self.code.into());
        object.extend(self.more.clone());
        object
    }

    pub fn response(&self, request_id: &str, instance: &str) -> Response<Body> {
        let mut object = self.object();
        object.insert("instance".into(), instance.into());
        object.insert("request_id".into(), request_id.into());
        self.sent(&Value::Object(object), "application/problem+json")
    }

    /// In the envelope of seed 001: `{"error":{"code","message","details"},"correlationId"}`.
    pub fn enveloped(&self, request_id: &str) -> Response<Body> {
        let mut details = self.more.clone();
        let correlation_id = details.remove(CORRELATION_ID).unwrap_or_else(|| request_id.into());
        let error = json!({ "code": self.code, "message": self.detail, "details": details });
        self.sent(&json!({ "error": error, "correlationId": correlation_id }), "application/json")
    }

    fn sent(&self, object: &Value, kind: &'static str) -> Response<Body> {
        let mut response = Response::new(Body::from(object.to_string()));
        *response.status_mut() = axum::http::StatusCode::from_u16(self.status).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"waypost\""));
        }
        if let Some(allow) = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

/// `runs/3/queue` and `items.key` as JSON pointers.
fn pointer(field: &str) -> String {
    format!("/{}", field.replace('.', "/"))
}

fn title(status: u16) -> &'static str {
    let status = axum::http::StatusCode::from_u16(status).unwrap_or_default();
    status.canonical_reason().unwrap_or("Error")
}

/// What the API would answer instead, for those who tell it elsewhere.
pub fn object_of(error: StoreError) -> Map<String, Value> {
    Problem::from(error).object()
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let detail = error.to_string();
        match error {
            StoreError::Refused(refusal) => {
                let is_input = refusal.code == waypost_kernel::Code::InvalidInput;
                let mut problem = Problem {
                    code: refusal.code.name(),
                    status: if is_input { 422 } else { 409 },
                    ..Problem::new(&INVALID_INPUT, refusal.message.clone())
                };
                let allowed: Vec<&str> = refusal.allowed.iter().map(|name| &**name).collect();
                problem = problem
                    .with("current", &*refusal.current)
                    .with("requested", refusal.requested.as_str())
                    .with("allowed", allowed)
                    .with("retryable", refusal.code.is_retryable());
                if let Some(guard) = refusal.guard {
                    problem = problem.with("guard", guard.name());
                }
                if let Some(field) = refusal.field {
                    let errors = json!([{ "pointer": pointer(field), "detail": refusal.message }]);
                    problem = problem.with("errors", errors).with("field", field);
                }
                problem
            }
            StoreError::NotFound { what, id } => {
                Problem::new(&NOT_FOUND, detail).with("what", what).with("id", id)
            }
            StoreError::Invalid { field, message } => {
                Problem::field(&INVALID_INPUT, &field, &message).with("field", field)
            }
            StoreError::KeyReused { key, run_id } => Problem::new(&IDEMPOTENCY_KEY_REUSED, detail)
                .with("run_id", run_id)
                .with("idempotency_key", key),
            StoreError::Denied(message) => Problem::new(&FORBIDDEN, message),
            StoreError::Changed { run_id, seq } => {
                Problem::new(&PRECONDITION_FAILED, detail).with("run_id", run_id).with("seq", seq)
            }
            StoreError::Outdated(message) => Problem::new(&CONCURRENT_MODIFICATION, message),
            StoreError::Unavailable(message) => Problem::new(&UNAVAILABLE, message),
            StoreError::Unusable(message) => Problem::new(&UNUSABLE, message),
        }
    }
}
