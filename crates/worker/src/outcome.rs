//! What a handler answers, whichever kind it is.

use std::time::Duration;

use serde_json::{Map, Value, json};
use waypost_kernel::text::{
    MAX_ERROR_CHARS, MAX_KEY_BYTES, MAX_REASON_CHARS, MAX_RESULT_BYTES, clean_chars, clean_json, clean_line,
};
use waypost_store::marked_artifact;

use crate::actions::Mask;

const MAX_BLOCKED: usize = 1_000;
const MAX_BLOCKER_BYTES: usize = 4 * 1024;
const MAX_BLOCKERS_BYTES: usize = 32 * 1024;
/// Proposals, and artifacts. What has more is refused, and not cut: people would decide on a part and take it for all.
const MAX_LISTED: usize = 1_000;
const TOO_MANY: &str = "TOO_MANY_RESULTS";

/// A step's output. What is longer belongs into the log or a file.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;

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
    /// Of a pause: what is in the way, by host or whatever else people decide about.
    pub blockers: Map<String, Value>,
    pub proposals: Vec<Value>,
    pub artifacts: Vec<Value>,
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

/// Fields that say what is to be done: no words of the handler's.
const CONTROLS: [&str; 3] = ["outcome", "retry_after_ms", "permanent"];

const MEMBERS: [&str; 11] = [
    "outcome",
    "output",
    "reason",
    "code",
    "message",
    "permanent",
    "retry_after_ms",
    "blockers",
    "proposals",
    "artifacts",
    "details",
];

impl Outcome {
    pub fn done() -> Outcome {
        Outcome { word: Some(Word::Done), ..Outcome::default() }
    }

    /// Done, with what the following may use.
    pub fn done_with(output: Value) -> Outcome {
        Outcome { output, ..Outcome::done() }
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

    /// Reads what a handler wrote: a number in quotes is a number, and null is nothing. What leaves in doubt what
    /// the handler meant is an error: blockers that cannot be read must not let a run go on.
    pub fn parse(bytes: &[u8]) -> Result<Outcome, String> {
        let value: Value =
            serde_json::from_slice(without_bom(bytes)).map_err(|error| format!("not JSON: {error}"))?;
        Outcome::from_json(value)
    }

    /// The same without the secrets that its handler was given. They are hidden before anything is cut: half a secret would not be
    /// known as one.
    pub(crate) fn parse_masked(bytes: &[u8], mask: &Mask) -> Result<Outcome, String> {
        let parsed = serde_json::from_slice(without_bom(bytes)).map_err(|error| format!("not JSON: {error}"));
        let read = parsed.and_then(|value| Outcome::from_masked_json(value, mask));
        read.map_err(|problem| mask.hide(&problem).into_owned())
    }

    pub(crate) fn from_masked_json(mut value: Value, mask: &Mask) -> Result<Outcome, String> {
        if let Value::Object(fields) = &mut value {
            for (_, said) in fields.iter_mut().filter(|(name, _)| !CONTROLS.contains(&name.as_str())) {
                *said = mask.hide_json(said.take());
            }
        }
        Outcome::from_json(value)
    }

    pub fn from_json(value: Value) -> Result<Outcome, String> {
        let Value::Object(mut fields) = value else {
            return Err("not a JSON object".to_owned());
        };
        fields.retain(|_, value| !value.is_null());
        check_members(&fields)?;
        let word = match fields.get("outcome") {
            None => None,
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(value) => Some(word_of(value)?),
        };
        Ok(Outcome {
            word,
            reason: text_of(&fields, "reason")?,
            retry_after: wait_of(&fields)?,
            code: text_of(&fields, "code")?,
            message: text_of(&fields, "message")?,
            permanent: truth_of(&fields, "permanent")?,
            blockers: object_of(&mut fields, "blockers")?,
            proposals: list_of(&mut fields, "proposals")?,
            artifacts: list_of(&mut fields, "artifacts")?,
            details: object_of(&mut fields, "details")?,
            output: fields.remove("output").unwrap_or_default(),
        }
        .cleaned())
    }

    /// A finish is never lost because of what it carries: what cannot be kept is cut with a mark, or fails what it is an answer of.
    pub(crate) fn cleaned(self) -> Outcome {
        if let Some(refused) = self.refused() {
            return refused;
        }
        let short = |text: String, max_chars: usize| clean_chars(&text, max_chars).text;
        let cleaned = |list: Vec<Value>| -> Vec<Value> {
            list.into_iter().map(|item| clean_json(item, MAX_RESULT_BYTES).0).collect()
        };
        Outcome {
            output: clean_json(self.output, MAX_OUTPUT_BYTES).0,
            reason: self.reason.map(|text| short(text, MAX_REASON_CHARS)),
            code: self.code.map(|text| clean_line(text.as_bytes(), MAX_KEY_BYTES).text),
            message: self.message.map(|text| short(text, MAX_ERROR_CHARS)),
            blockers: clean_blockers(self.blockers),
            proposals: cleaned(self.proposals),
            artifacts: cleaned(self.artifacts).into_iter().map(marked_artifact).collect(),
            details: clean_details(self.details),
            ..self
        }
    }

    /// The failure in place of an answer that lists more than is taken.
    fn refused(&self) -> Option<Outcome> {
        let lists = [("proposals", self.proposals.len()), ("artifacts", self.artifacts.len())];
        let (name, count) = lists.into_iter().find(|(_, count)| *count > MAX_LISTED)?;
        let message = format!("{name}: {count} are given; at most {MAX_LISTED} are taken of one step");
        let output = clean_json(self.output.clone(), MAX_OUTPUT_BYTES).0;
        Some(Outcome { output, permanent: true, ..Outcome::fail(TOO_MANY, &message) })
    }

    /// Without the secrets that its handler was given.
    pub(crate) fn masked(self, mask: &Mask) -> Outcome {
        if mask.is_empty() {
            return self;
        }
        let text = |text: Option<String>| text.map(|text| mask.hide(&text).into_owned());
        let object = |fields: Map<String, Value>| {
            mask.hide_json(Value::Object(fields)).as_object().cloned().unwrap_or_default()
        };
        let list = |items: Vec<Value>| items.into_iter().map(|item| mask.hide_json(item)).collect();
        Outcome {
            output: mask.hide_json(self.output),
            reason: text(self.reason),
            code: text(self.code),
            message: text(self.message),
            blockers: object(self.blockers),
            proposals: list(self.proposals),
            artifacts: list(self.artifacts),
            details: object(self.details),
            ..self
        }
    }
}

/// Editors and libraries of some systems put a byte order mark before what is UTF-8 in any case.
pub(crate) fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// However much there is to say about each, people must see whom they decide about.
fn clean_blockers(blockers: Map<String, Value>) -> Map<String, Value> {
    let mut left = MAX_BLOCKERS_BYTES;
    let mut kept = Map::new();
    for (host, about) in blockers.into_iter().take(MAX_BLOCKED) {
        let (about, _) = clean_json(about, MAX_BLOCKER_BYTES);
        let bytes = about.to_string().len();
        let about = if bytes <= left { about } else { json!({ "cut": true }) };
        left = left.saturating_sub(bytes);
        kept.insert(clean_line(host.as_bytes(), MAX_KEY_BYTES).text, about);
    }
    kept
}

/// Small members first: one that is too large is cut alone, and takes none of the others with it.
fn clean_details(details: Map<String, Value>) -> Map<String, Value> {
    let cleaned = |(name, value): (String, Value)| {
        let value = clean_json(value, MAX_RESULT_BYTES).0;
        (value.to_string().len() + name.len(), name, value)
    };
    let mut members: Vec<(usize, String, Value)> = details.into_iter().map(cleaned).collect();
    members.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let mut left = MAX_RESULT_BYTES;
    let fitted = members.into_iter().map(|(bytes, name, value)| {
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        (clean_line(name.as_bytes(), MAX_KEY_BYTES).text, if fits { value } else { json!({ "cut": true }) })
    });
    fitted.collect()
}

/// Members beside those that are known are of a later version, or of somebody else. With none that is known, something else was meant: a misspelt
/// `outcome`, or an output without its name.
fn check_members(fields: &Map<String, Value>) -> Result<(), String> {
    match fields.keys().next() {
        Some(other) if !fields.keys().any(|name| MEMBERS.contains(&name.as_str())) => Err(format!(
            "{:?} is no member of an Outcome, and no other is; known: {}",
            clean_line(other.as_bytes(), MAX_KEY_BYTES).text,
            MEMBERS.join(", ")
        )),
        _ => Ok(()),
    }
}

fn doubt<T>(name: &str, wanted: &str, found: &Value) -> Result<T, String> {
    Err(format!("{name} is not {wanted} but {}", clean_chars(&found.to_string(), 80).text))
}

fn text_of(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.trim().is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => doubt(name, "a text", other),
    }
}

fn truth_of(fields: &Map<String, Value>, name: &str) -> Result<bool, String> {
    match fields.get(name) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        Some(other) => doubt(name, "true or false", other),
    }
}

fn object_of(fields: &mut Map<String, Value>, name: &str) -> Result<Map<String, Value>, String> {
    match fields.remove(name) {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(other) => doubt(name, "an object", &other),
    }
}

fn list_of(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<Value>, String> {
    match fields.remove(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => doubt(name, "a list", &other),
    }
}

fn word_of(value: &Value) -> Result<Word, String> {
    let text = value.as_str().unwrap_or_default().trim().to_ascii_lowercase();
    Word::ALL.into_iter().find(|word| word.name() == text).ok_or_else(|| {
        let known = Word::ALL.map(Word::name).join(", ");
        format!("outcome is {}; known: {known}", clean_chars(&value.to_string(), 80).text)
    })
}

/// A negative wait is none: the backoff says how long.
fn wait_of(fields: &Map<String, Value>) -> Result<Option<Duration>, String> {
    let Some(value) = fields.get("retry_after_ms") else { return Ok(None) };
    match value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()) {
        Some(ms) => Ok((ms >= 0.0).then(|| Duration::from_millis(ms as u64).min(LONGEST_WAIT))),
        None => doubt("retry_after_ms", "a number", value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                r#"{"outcome":"fail","permanent":"true","details":null,"blockers":null}"#,
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
            ("\u{feff}{\"outcome\":\"done\"}", Outcome::done()),
        ] {
            assert_eq!(Outcome::parse(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_outcome_in_doubt_is_an_error() {
        for (text, named) in [
            ("{", "not JSON"),
            ("[]", "not a JSON object"),
            (
                r#"{"outcom":"fail"}"#,
                r#""outcom" is no member of an Outcome, and no other is; known: outcome, output"#,
            ),
            (r#"{"hosts":["h1"]}"#, r#""hosts" is no member"#),
            (r#"{"outcome":"maybe"}"#, r#"outcome is "maybe"; known: done, skip"#),
            (r#"{"outcome":1}"#, "outcome is 1"),
            (r#"{"outcome":["done"]}"#, "outcome is [\"done\"]"),
            (r#"{"outcome":"done","details":[]}"#, "details is not an object but []"),
            (r#"{"outcome":"pause","blockers":["h1"]}"#, "blockers is not an object"),
            (r#"{"outcome":"done","proposals":{}}"#, "proposals is not a list"),
            (r#"{"outcome":"done","artifacts":"a.zip"}"#, "artifacts is not a list"),
            (r#"{"outcome":"fail","permanent":"yes"}"#, "permanent is not true or false"),
            (r#"{"outcome":"fail","code":{}}"#, "code is not a text"),
            (r#"{"outcome":"retry","retry_after_ms":"soon"}"#, "retry_after_ms is not a number"),
        ] {
            let error = Outcome::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
        assert!(Outcome::parse(b"\"\xff\"").is_err());
    }

    // proves X10
    #[test]
    fn a_list_that_is_too_long_fails_with_words_and_is_not_cut() {
        for name in ["proposals", "artifacts"] {
            let listing = |count: usize| {
                let text =
                    json!({ "outcome": "done", "output": 7, name: vec![json!({}); count] }).to_string();
                Outcome::parse(text.as_bytes()).expect("an outcome")
            };
            let outcome = listing(1_000);
            assert_eq!(
                (outcome.word, outcome.proposals.len() + outcome.artifacts.len()),
                (Some(Word::Done), 1_000)
            );
            let outcome = listing(1_001);
            assert_eq!((outcome.word, outcome.code.as_deref()), (Some(Word::Fail), Some(TOO_MANY)));
            let told = format!("{name}: 1001 are given; at most 1000 are taken of one step");
            assert_eq!((outcome.message, outcome.output, outcome.permanent), (Some(told), json!(7), true));
        }
    }

    // proves X10
    #[test]
    fn what_it_carries_is_cleaned_and_cut() {
        let long = "é".repeat(200_000);
        let text = json!({"outcome": "fail", "message": format!("a\0{long}"), "output": long}).to_string();
        let outcome = Outcome::parse(text.as_bytes()).expect("an outcome");
        let message = outcome.message.expect("a message");
        assert!(message.starts_with("a\u{fffd}é") && message.chars().count() <= MAX_ERROR_CHARS);
        assert_eq!(outcome.output["cut"], true);
    }

    // proves X10
    #[test]
    fn of_details_only_what_is_too_large_is_cut() {
        let text = json!({"details": {"a": "x".repeat(20_000), "b": 1, "c": "y".repeat(10_000), "d": "z".repeat(9_000)}});
        let details = Outcome::from_json(text).expect("an outcome").details;
        assert_eq!((&details["a"], &details["b"]), (&json!({"cut": true}), &json!(1)));
        assert_eq!(
            (details["d"].as_str().map(str::len), &details["c"]),
            (Some(9_000), &json!({"cut": true}))
        );
        assert!(Value::Object(details).to_string().len() <= MAX_RESULT_BYTES);
    }

    // proves D11
    #[test]
    fn artifacts_of_an_unknown_type_are_kept_and_marked() {
        let given = json!({"artifacts": [{"type": "image", "url": "u"}, {"type": "bogus", "url": "v"}, "w"]});
        let marked = json!([
            {"type": "image", "url": "u"},
            {"type": "bogus", "url": "v", "unknown_type": true},
            {"value": "w", "unknown_type": true},
        ]);
        assert_eq!(Value::Array(Outcome::from_json(given).expect("an outcome").artifacts), marked);
    }
}
