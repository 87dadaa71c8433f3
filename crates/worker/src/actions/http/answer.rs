//! What an answer means, in the words of every handler. Pure but for the clock that a Retry-After date needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use waypost_kernel::Time;
use waypost_kernel::retry_after::{Bounds, retry_after};
use waypost_kernel::text::clean_chars;

use super::Reply;
use crate::actions::Mask;
use crate::outcome::{Outcome, without_bom};

/// What a message quotes of a refusal.
const MAX_QUOTED_CHARS: usize = 300;

pub(super) struct Told {
    pub status: u16,
    pub content_type: Option<String>,
    pub retry_after: Option<String>,
    pub link: Option<String>,
    pub body: Heard,
}

pub(super) struct Heard {
    pub bytes: Vec<u8>,
    /// False: there was more than an answer may have.
    pub is_whole: bool,
}

impl Told {
    pub fn reply(&self, whereto: &str, mask: &Mask) -> Reply {
        let outcome = match self.status {
            200..=299 => self.outcome(mask).map(|outcome| outcome.masked(mask).cleaned()),
            _ => Ok(self.refusal(whereto, mask).cleaned()),
        };
        let code = if matches!(self.status, 200..=299) { None } else { self.code() };
        Reply { status: Some(self.status), code, outcome, is_known: true }
    }

    /// What a refusal calls itself, where it is JSON that does: never a part of its words.
    fn code(&self) -> Option<String> {
        const PLACES: [&str; 5] =
            ["/code", "/error/code", "/errors/0/code", "/errors/0/extensions/code", "/error"];
        let said: Value = serde_json::from_slice(without_bom(&self.body.bytes)).ok()?;
        let code = PLACES.iter().find_map(|place| said.pointer(place)?.as_str())?;
        let is_code = !code.is_empty()
            && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        (is_code && code.len() <= 64).then(|| code.to_owned())
    }

    /// As `reply`, and nothing is cut.
    pub fn whole(&self, whereto: &str, mask: &Mask) -> Result<Outcome, String> {
        match self.status {
            200..=299 => self.outcome(mask).map(|outcome| outcome.masked(mask)),
            _ => Ok(self.refusal(whereto, mask).cleaned()),
        }
    }

    /// An object with an `outcome` is an Outcome; any other JSON or text is what the step was to fetch.
    fn outcome(&self, mask: &Mask) -> Result<Outcome, String> {
        let Heard { bytes, is_whole } = &self.body;
        if !is_whole {
            return Err(format!("the answer is larger than {} bytes", bytes.len()));
        }
        let bytes = without_bom(bytes);
        if bytes.trim_ascii().is_empty() {
            return Ok(Outcome::done());
        }
        let value = match self.kind() {
            Kind::Text => text(bytes),
            Kind::Json => json(bytes)?,
            // Half an Outcome must not be taken for a text that a step was to fetch.
            Kind::Unsaid if bytes.trim_ascii_start().starts_with(b"{") => json(bytes)?,
            Kind::Unsaid => json(bytes).unwrap_or_else(|_| text(bytes)),
        };
        if value.get("outcome").is_some() {
            return Outcome::from_masked_json(value, mask).map(|outcome| match outcome.word {
                Some(_) => outcome,
                None => Outcome { word: Outcome::done().word, ..outcome },
            });
        }
        Ok(Outcome { output: value, ..Outcome::done() })
    }

    fn kind(&self) -> Kind {
        let kind = self.content_type.as_deref().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "" => Kind::Unsaid,
            "application/json" => Kind::Json,
            other if other.ends_with("+json") => Kind::Json,
            _ => Kind::Text,
        }
    }

    fn refusal(&self, whereto: &str, mask: &Mask) -> Outcome {
        let status = self.status;
        let (code, may_be_repeated) = class(status);
        let said = String::from_utf8_lossy(&self.body.bytes);
        let said = clean_chars(mask.hide(said.trim()).as_ref(), MAX_QUOTED_CHARS).text;
        let why = if said.is_empty() { String::new() } else { format!(": {}", said.replace('\n', " ")) };
        let message = format!("{} answered {status}{why}", mask.hide(whereto));
        if !may_be_repeated {
            return Outcome { permanent: true, ..Outcome::fail(code, &message) };
        }
        let wait = self.retry_after.as_deref().filter(|_| matches!(status, 429 | 503));
        let wait = wait.and_then(|header| retry_after(header, now(), Bounds::default()));
        let wait = wait.and_then(|wait| u64::try_from(wait.ms()).ok()).map(Duration::from_millis);
        Outcome { code: Some(code.to_owned()), retry_after: wait, ..Outcome::retry(&message) }
    }
}

/// What an answer says that it is.
enum Kind {
    Json,
    Text,
    Unsaid,
}

fn json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("the answer is not JSON: {error}"))
}

/// As it came, but for the end of its last line.
fn text(bytes: &[u8]) -> Value {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

/// The class of an error, and whether another try may fare better.
pub(super) fn class(status: u16) -> (&'static str, bool) {
    match status {
        429 => ("RATE_LIMIT", true),
        408 => ("TIMEOUT", true),
        500..=599 => ("SERVER_ERROR", true),
        401 | 403 => ("AUTHORIZATION", false),
        404 | 410 => ("NOT_FOUND", false),
        400..=499 => ("VALIDATION", false),
        300..=399 => ("REDIRECT", false),
        _ => ("UNKNOWN", false),
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Word;
    use serde_json::json;

    fn reply_to(status: u16, content_type: Option<&str>, body: &[u8]) -> Reply {
        let told = Told {
            status,
            content_type: content_type.map(str::to_owned),
            retry_after: Some("7".to_owned()),
            link: None,
            body: Heard { bytes: body.to_vec(), is_whole: true },
        };
        told.reply("GET https://shop.example/x", &Mask::new(["s3cret"]))
    }

    #[test]
    fn a_good_answer_is_an_outcome_or_what_was_asked_for() {
        let gives = |output: Value| Outcome { output, ..Outcome::done() };
        let json = Some("application/json; charset=utf-8");
        for (content_type, body, expected) in [
            (json, &b""[..], Outcome::done()),
            (json, b"  \n", Outcome::done()),
            (json, br#"{"outcome":"skip","reason":"no"}"#, Outcome::skip("no")),
            (json, br#"{"outcome":"done","output":[1]}"#, Outcome { output: json!([1]), ..Outcome::done() }),
            (json, br#"{"outcome":null,"output":1}"#, Outcome { output: json!(1), ..Outcome::done() }),
            (json, br#"{"Members":[1]}"#, Outcome { output: json!({"Members": [1]}), ..Outcome::done() }),
            (None, b"[1]", Outcome { output: json!([1]), ..Outcome::done() }),
            (Some("application/hal+json"), b"null", Outcome::done()),
            (
                Some("text/plain"),
                b"OK s3cret\xff",
                Outcome { output: json!("OK ***\u{fffd}"), ..Outcome::done() },
            ),
            (Some("text/plain"), b"a\nb\r\n\nc\r\n", gives(json!("a\nb\r\n\nc"))),
            (Some("text/csv"), b"\xef\xbb\xbfa,b\n", gives(json!("a,b"))),
            (Some("text/plain"), br#"{"outcome":"fail"}"#, gives(json!("{\"outcome\":\"fail\"}"))),
            (None, b"OK", gives(json!("OK"))),
            (None, b"[INFO] two lines\n[INFO] of log\n", gives(json!("[INFO] two lines\n[INFO] of log"))),
            (None, b"\xef\xbb\xbf[1]", gives(json!([1]))),
            (json, b"\xef\xbb\xbf{\"outcome\":\"skip\",\"reason\":\"no\"}", Outcome::skip("no")),
            (json, b"\xef\xbb\xbf", Outcome::done()),
        ] {
            assert_eq!(
                reply_to(200, content_type, body).outcome,
                Ok(expected),
                "{}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn an_answer_in_doubt_is_an_error() {
        for body in [
            &b"{"[..],
            b"OK",
            b"\"\xff\"",
            br#"{"outcome":"won"}"#,
            br#"{"outcome":7}"#,
            br#"{"outcome":"pause","blockers":[1]}"#,
        ] {
            let reply = reply_to(200, Some("application/json"), body);
            assert!(reply.outcome.is_err(), "{}: {reply:?}", String::from_utf8_lossy(body));
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        for body in [deep.as_str(), "{", " {\"outcome\":\"pause\",\"blo"] {
            assert!(reply_to(200, None, body.as_bytes()).outcome.is_err(), "{body}");
        }
    }

    #[test]
    fn a_text_may_be_as_long_as_any_output() {
        let long = "line\n".repeat(40_000);
        let outcome = reply_to(200, Some("text/plain"), long.as_bytes()).outcome.expect("an outcome");
        assert_eq!(outcome.output, json!(long.trim_end()));
        let longer = reply_to(200, None, "line\n".repeat(60_000).as_bytes()).outcome.expect("an outcome");
        assert_eq!((&longer.output["cut"], longer.word), (&json!(true), Some(Word::Done)));
    }

    #[test]
    fn refusals_have_a_class_and_say_whether_to_come_back() {
        for (status, code, word, wait_s) in [
            (429, "RATE_LIMIT", Word::Retry, Some(7)),
            (503, "SERVER_ERROR", Word::Retry, Some(7)),
            (500, "SERVER_ERROR", Word::Retry, None),
            (502, "SERVER_ERROR", Word::Retry, None),
            (408, "TIMEOUT", Word::Retry, None),
            (400, "VALIDATION", Word::Fail, None),
            (422, "VALIDATION", Word::Fail, None),
            (401, "AUTHORIZATION", Word::Fail, None),
            (403, "AUTHORIZATION", Word::Fail, None),
            (404, "NOT_FOUND", Word::Fail, None),
            (302, "REDIRECT", Word::Fail, None),
            (999, "UNKNOWN", Word::Fail, None),
        ] {
            let outcome = reply_to(status, None, b"why: s3cret").outcome.expect("an outcome");
            assert_eq!((outcome.code.as_deref(), outcome.word), (Some(code), Some(word)), "{status}");
            assert_eq!(outcome.retry_after.map(|wait| wait.as_secs()), wait_s, "{status}");
            assert_eq!(outcome.permanent, word == Word::Fail, "{status}");
            let message = format!("GET https://shop.example/x answered {status}: why: ***");
            assert_eq!(outcome.message.as_deref(), Some(message.as_str()));
        }
    }
}
