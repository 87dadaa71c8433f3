//! What a handler answers, whichever kind it is.

use std::time::Duration;

use serde_json::{Map, Value};
use waypost_kernel::text::{
    MAX_ERROR_CHARS, MAX_KEY_BYTES, MAX_REASON_CHARS, MAX_RESULT_BYTES, clean_chars, clean_json, clean_line,
};

/// A longer wait is a schedule's, not a handler's.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Done,
    /// There was nothing to do.
    Skip,
    /// A person must look first.
    Pause,
    /// Done, and nothing that would follow is needed.
    Finish,
    Retry,
    Fail,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Nothing: as the exit code says.
    pub word: Option<Word>,
    pub output: Value,
    pub reason: Option<String>,
    pub retry_after: Option<Duration>,
    pub code: Option<String>,
    pub message: Option<String>,
    /// Another try would fail as well.
    pub permanent: bool,
    pub details: Map<String, Value>,
}

impl Word {
    pub const ALL: [Word; 6] = [Word::Done, Word::Skip, Word::Pause, Word::Finish, Word::Retry, Word::Fail];

    pub fn name(self) -> &'static str {
        match self {
            Word::Done => "done",
            Word::Skip => "skip",
            Word::Pause => "pause",
            Word::Finish => "finish",
            Word::Retry => "retry",
            Word::Fail => "fail",
        }
    }
}

impl Outcome {
    pub fn done() -> Outcome {
        Outcome { word: Some(Word::Done), ..Outcome::default() }
    }

    pub fn skip(reason: &str) -> Outcome {
        Outcome { word: Some(Word::Skip), reason: Some(reason.to_owned()), ..Outcome::default() }
    }

    pub fn pause(reason: &str) -> Outcome {
        Outcome { word: Some(Word::Pause), reason: Some(reason.to_owned()), ..Outcome::default() }
    }

    pub fn retry(message: &str) -> Outcome {
        Outcome { word: Some(Word::Retry), message: Some(message.to_owned()), ..Outcome::default() }
    }

    pub fn fail(code: &str, message: &str) -> Outcome {
        Outcome {
            word: Some(Word::Fail),
            code: Some(code.to_owned()),
            message: Some(message.to_owned()),
            ..Outcome::default()
        }
    }

    /// Reads what a handler wrote. Fields of a wrong type are passed over: whoever did the work should not
    /// lose it over a number in quotes. Only what leaves the outcome itself in doubt is an error.
    pub fn parse(bytes: &[u8]) -> Result<Outcome, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
        let Value::Object(fields) = value else {
            return Err("not a JSON object".to_owned());
        };
        let word = match fields.get("outcome") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(value) => Some(word_of(value)?),
        };
        let text = |name: &str| match fields.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        Ok(Outcome {
            word,
            reason: text("reason"),
            retry_after: fields.get("retry_after_ms").and_then(wait_of),
            code: text("code"),
            message: text("message"),
            permanent: fields.get("permanent").is_some_and(|value| *value == true || *value == "true"),
            details: fields.get("details").and_then(Value::as_object).cloned().unwrap_or_default(),
            output: fields.get("output").cloned().unwrap_or_default(),
        }
        .cleaned())
    }

    /// A finish is never lost because of what it carries.
    pub(crate) fn cleaned(self) -> Outcome {
        let short = |text: String, max_chars: usize| clean_chars(&text, max_chars).text;
        let (details, _) = clean_json(Value::Object(self.details), MAX_RESULT_BYTES);
        Outcome {
            output: clean_json(self.output, MAX_RESULT_BYTES).0,
            reason: self.reason.map(|text| short(text, MAX_REASON_CHARS)),
            code: self.code.map(|text| clean_line(text.as_bytes(), MAX_KEY_BYTES).text),
            message: self.message.map(|text| short(text, MAX_ERROR_CHARS)),
            details: details.as_object().cloned().unwrap_or_default(),
            ..self
        }
    }
}

fn word_of(value: &Value) -> Result<Word, String> {
    let text = value.as_str().unwrap_or_default().trim().to_ascii_lowercase();
    Word::ALL.into_iter().find(|word| word.name() == text).ok_or_else(|| {
        let known = Word::ALL.map(Word::name).join(", ");
        format!("outcome is {}; known: {known}", clean_chars(&value.to_string(), 80).text)
    })
}

fn wait_of(value: &Value) -> Option<Duration> {
    let ms = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (ms >= 0.0).then(|| Duration::from_millis(ms as u64).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_handler_meant_is_read() {
        for (text, expected) in [
            (
                r#"{"outcome":"done","output":{"n":1}}"#,
                Outcome { output: json!({"n": 1}), ..Outcome::done() },
            ),
            (r#"{"outcome":" Done "}"#, Outcome::done()),
            (r#"{"outcome":"fail","code":"E","message":"m"}"#, Outcome::fail("E", "m")),
            (r#"{"outcome":"fail","code":7,"message":"m"}"#, Outcome::fail("7", "m")),
            (
                r#"{"outcome":"fail","permanent":"true","details":[]}"#,
                Outcome { word: Some(Word::Fail), permanent: true, ..Outcome::default() },
            ),
            (
                r#"{"outcome":"retry","retry_after_ms":"1500","message":null}"#,
                Outcome {
                    word: Some(Word::Retry),
                    retry_after: Some(Duration::from_millis(1_500)),
                    ..Outcome::default()
                },
            ),
            (
                r#"{"outcome":"retry","retry_after_ms":1e300}"#,
                Outcome { word: Some(Word::Retry), retry_after: Some(LONGEST_WAIT), ..Outcome::default() },
            ),
            (
                r#"{"outcome":"retry","retry_after_ms":-1,"surprise":[1]}"#,
                Outcome { word: Some(Word::Retry), ..Outcome::default() },
            ),
            ("{}", Outcome::default()),
            (r#"{"outcome":""}"#, Outcome::default()),
        ] {
            assert_eq!(Outcome::parse(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_outcome_in_doubt_is_an_error() {
        for (text, named) in [
            ("{", "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"outcome":"maybe"}"#, r#"outcome is "maybe"; known: done, skip"#),
            (r#"{"outcome":1}"#, "outcome is 1"),
        ] {
            let error = Outcome::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
        assert!(Outcome::parse(b"\"\xff\"").is_err());
    }

    // proves X10
    #[test]
    fn what_it_carries_is_cleaned_and_cut() {
        let long = "é".repeat(20_000);
        let text = json!({"outcome": "fail", "message": format!("a\0{long}"), "output": long}).to_string();
        let outcome = Outcome::parse(text.as_bytes()).expect("an outcome");
        let message = outcome.message.expect("a message");
        assert!(message.starts_with("a\u{fffd}é") && message.chars().count() <= MAX_ERROR_CHARS);
        assert_eq!(outcome.output["cut"], true);
    }
}
