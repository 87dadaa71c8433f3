//! What becomes of a request: an answer, now or later, or none.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Now, hash};

#[derive(Debug)]
pub enum Reply {
    Answer(Answer),
    /// The connection is closed without a word.
    Cut,
    Held {
        for_ms: u64,
        then: Box<Reply>,
    },
}

impl Reply {
    pub fn held(self, for_ms: u64) -> Reply {
        if for_ms == 0 { self } else { Reply::Held { for_ms, then: Box::new(self) } }
    }

    /// One that is expected to come at once.
    #[cfg(test)]
    #[track_caller]
    pub fn answered(self) -> Answer {
        match self {
            Reply::Answer(answer) => answer,
            other => panic!("no answer: {other:?}"),
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        Reply::Answer(answer)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Answer {
    pub fn ok(body: &Value) -> Answer {
        Answer::of(200, body)
    }

    pub fn of(status: u16, body: &Value) -> Answer {
        let body = body.to_string();
        Answer { status, content_type: "application/json", headers: Vec::new(), body }
    }

    pub fn refusal(status: u16, code: &str, message: &str) -> Answer {
        Answer::of(status, &json!({ "error": { "code": code, "message": message } }))
    }

    pub fn bad_request(message: &str) -> Answer {
        Answer::refusal(400, "BAD_REQUEST", message)
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    pub fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        if let Ok(status) = hyper::StatusCode::from_u16(self.status) {
            *response.status_mut() = status;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// In which form a refused client is told when to come again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetryAfter {
    #[default]
    Seconds,
    /// As an HTTP date.
    Date,
    None,
    /// One of the three, by the request's key.
    Mixed,
}

impl RetryAfter {
    pub const ALL: [(&'static str, RetryAfter); 4] = [
        ("seconds", RetryAfter::Seconds),
        ("date", RetryAfter::Date),
        ("none", RetryAfter::None),
        ("mixed", RetryAfter::Mixed),
    ];

    pub fn put(self, answer: Answer, wait_s: f64, now: Now, seed: u64, key: &str) -> Answer {
        let seconds = wait_s.ceil().clamp(1.0, 3_600.0) as u64;
        match self {
            RetryAfter::Seconds => answer.with("retry-after", seconds.to_string()),
            RetryAfter::None => answer,
            RetryAfter::Date => {
                // Dates have whole seconds: rounded up, or a client that obeys comes too early.
                let at_s = now.unix_ms.div_ceil(1000) + seconds;
                let at = Timestamp::from_second(at_s as i64).unwrap_or(Timestamp::MAX);
                match DateTimePrinter::new().timestamp_to_rfc9110_string(&at) {
                    Ok(date) => answer.with("retry-after", date),
                    Err(_) => answer,
                }
            }
            RetryAfter::Mixed => {
                let form = Self::ALL[(hash(seed, "retry_after", key) % 3) as usize].1;
                form.put(answer, wait_s, now, seed, key)
            }
        }
    }
}
