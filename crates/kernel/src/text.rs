//! Limits. What comes in (ids, keys, names, metadata) is refused with the limit and the place named; what
//! handlers put out is cleaned and cut instead, because a finish must not be lost over what it carries.

mod clean;
pub mod terminal;

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

pub use clean::{CUT_MARKER, Cleaned, clean_chars, clean_json, clean_line};

pub const MAX_KEY_BYTES: usize = 255;
/// Idempotency keys that begin so are the engine's own: nobody else can have taken one before it.
pub const ENGINE_KEYS: &str = "waypost:";
pub const MAX_NAME_BYTES: usize = 255;
/// Input and metadata of a run.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
pub const MAX_EVENT_BYTES: usize = 64 * 1024;
pub const MAX_LINE_BYTES: usize = 16 * 1024;
pub const MAX_OUTPUT_BYTES_PER_RUN: usize = 16 * 1024 * 1024;
pub const MAX_RESULT_BYTES: usize = 16 * 1024;
pub const MAX_ERROR_CHARS: usize = 4_000;
pub const MAX_REASON_CHARS: usize = 1_024;
/// Arrays and objects within each other.
pub const MAX_JSON_DEPTH: usize = 64;
/// Rows of one page.
pub const MAX_PAGE: usize = 500;

/// A pointer in a message is cut here: keys may be long.
const MAX_POINTER_CHARS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    pub field: String,
    pub message: String,
}

impl TextError {
    fn new(field: &str, message: impl Into<String>) -> TextError {
        TextError { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for TextError {}

/// Refuses text that is too long, or that has a NUL, which PostgreSQL cannot store.
pub fn refuse_text(field: &str, text: &str, max_bytes: usize) -> Result<(), TextError> {
    refuse_length(field, text.len(), max_bytes)?;
    match text.find('\0') {
        Some(position) => Err(TextError::new(field, format!("has a NUL character at byte {position}"))),
        None => Ok(()),
    }
}

/// Refuses what runs cannot ask for as a playbook or a handler: `NAME@HASH` asks for a version, and lists show names on lines.
pub fn refuse_playbook_name(field: &str, name: &str) -> Result<(), TextError> {
    let wrong = if name.trim().is_empty() {
        "is empty"
    } else if name.contains('@') {
        "has an `@`, which stands between a name and the hash of a version"
    } else if name.contains(char::is_control) || terminal::plain(name) != name {
        "has characters that a terminal obeys"
    } else {
        return refuse_text(field, name, MAX_NAME_BYTES);
    };
    let allowed = format!("allowed: 1 to {MAX_NAME_BYTES} bytes without `@` and control characters");
    Err(TextError::new(field, format!("{wrong}; {allowed}")))
}

/// Refuses JSON that is nested too deeply, has a NUL in a key or string, or is too long when written out.
pub fn refuse_json(field: &str, value: &Value, max_bytes: usize) -> Result<(), TextError> {
    // First, because writing a value out takes a stack as deep as the value.
    check(value, 0).map_err(|problem| TextError::new(field, problem.to_string()))?;
    refuse_length(field, Written::of(value, 0).bytes, max_bytes)
}

/// The same of an object whose members are at hand, without a copy of them.
pub fn refuse_members(field: &str, members: &Map<String, Value>, max_bytes: usize) -> Result<(), TextError> {
    check_members(members, 0).map_err(|problem| TextError::new(field, problem.to_string()))?;
    let mut written = Length(0);
    // Neither a value of JSON nor this writer fails.
    let _ = serde_json::to_writer(&mut written, members);
    refuse_length(field, written.0, max_bytes)
}

struct Length(usize);

impl std::io::Write for Length {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(piece.len());
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads JSON from outside and refuses what `refuse_json` does.
pub fn parse_json(field: &str, bytes: &[u8], max_bytes: usize) -> Result<Value, TextError> {
    refuse_length(field, bytes.len(), max_bytes)?;
    let text = std::str::from_utf8(bytes).map_err(|error| {
        TextError::new(field, format!("is not UTF-8: invalid byte at {}", error.valid_up_to()))
    })?;
    let value = serde_json::from_str(text).map_err(|error| TextError::new(field, explain(&error)))?;
    // Again as it will be stored: 1e15 is written out as 1000000000000000.0.
    refuse_json(field, &value, max_bytes)?;
    Ok(value)
}

fn refuse_length(field: &str, bytes: usize, max_bytes: usize) -> Result<(), TextError> {
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(TextError::new(field, format!("is {bytes} bytes long; at most {max_bytes} are allowed")))
}

/// Why bytes are not JSON, in words.
pub fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.contains("surrogate") || text.contains("end of hex escape") {
        return format!("has half of a surrogate pair (\\ud800 to \\udfff alone): {text}");
    }
    if text.contains("recursion limit") {
        return too_deep();
    }
    format!("is not valid JSON: {text}")
}

/// What is wrong, and where: the path is collected from the inside out, so it costs nothing when all is well.
struct Problem {
    message: String,
    path_inside_out: Vec<String>,
}

impl Problem {
    fn new(message: String) -> Problem {
        Problem { message, path_inside_out: Vec::new() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pointer = String::new();
        for step in self.path_inside_out.iter().rev() {
            pointer.push('/');
            pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        let pointer = clean_chars(&pointer, MAX_POINTER_CHARS).text;
        write!(f, "{} at {pointer:?}", self.message)
    }
}

fn check(value: &Value, depth: usize) -> Result<(), Problem> {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_JSON_DEPTH => Err(Problem::new(too_deep())),
        Value::String(text) if text.contains('\0') => Err(Problem::new("has a NUL character".into())),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(index, item)| check_within(item, depth, &index))
        }
        Value::Object(members) => check_members(members, depth),
        _ => Ok(()),
    }
}

fn check_members(members: &Map<String, Value>, depth: usize) -> Result<(), Problem> {
    if members.keys().any(|key| key.contains('\0')) {
        return Err(Problem::new("has a NUL character in a key of the object".into()));
    }
    members.iter().try_for_each(|(key, member)| check_within(member, depth, key))
}

fn check_within(value: &Value, depth: usize, step: &dyn fmt::Display) -> Result<(), Problem> {
    check(value, depth + 1).map_err(|mut problem| {
        problem.path_inside_out.push(step.to_string());
        problem
    })
}

fn too_deep() -> String {
    format!("is nested deeper than {MAX_JSON_DEPTH} levels")
}

/// How long a value is when written out, and the beginning of it, without the whole text in memory.
#[derive(Default)]
struct Written {
    bytes: usize,
    head: String,
    keep_bytes: usize,
}

impl Written {
    fn of(value: &Value, keep_bytes: usize) -> Written {
        let mut written = Written { keep_bytes, ..Written::default() };
        // Neither a value of JSON nor this writer fails.
        let _ = write!(written, "{value}");
        written
    }
}

impl fmt::Write for Written {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.bytes = self.bytes.saturating_add(piece.len());
        let room = self.keep_bytes.saturating_sub(self.head.len());
        let kept = &piece[..piece.floor_char_boundary(room)];
        self.head.push_str(kept);
        if kept.len() < piece.len() {
            // A later piece must not fill the gap that a wide character left.
            self.keep_bytes = self.head.len();
        }
        Ok(())
    }
}

/// A word of a command line, as a shell takes it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    // proves X10
    #[test]
    fn members_are_refused_as_the_object_that_they_make() {
        let deep = serde_json::from_str::<Value>(&nested(MAX_JSON_DEPTH)).expect("it is JSON");
        for value in [
            json!({}),
            json!({ "a": "é\n", "b": [1.5, null] }),
            json!({ "a": { "b": "\0" } }),
            json!({ "a\0": 1 }),
            json!({ "a": deep }),
        ] {
            let members = value.as_object().expect("it is an object");
            for max_bytes in [1, 2, 40, 1_000] {
                let of_members = refuse_members("metadata", members, max_bytes);
                assert_eq!(of_members, refuse_json("metadata", &value, max_bytes), "{value}");
            }
        }
    }

    // proves X10
    #[test]
    fn text_is_refused_with_field_limit_and_length() {
        assert_eq!(refuse_text("key", "", 0), Ok(()));
        assert_eq!(refuse_text("key", "naïve\n\u{feff}", MAX_KEY_BYTES), Ok(()));
        for (text, message) in [
            ("é".repeat(128), "key: is 256 bytes long; at most 255 are allowed"),
            ("ab\0c".into(), "key: has a NUL character at byte 2"),
        ] {
            let error = refuse_text("key", &text, MAX_KEY_BYTES).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    // proves X10
    #[test]
    fn json_is_refused_with_the_place() {
        for (value, message) in [
            (json!({"a": [1, {"b/c~": "x\0"}]}), r#"input: has a NUL character at "/a/1/b~1c~0""#),
            (json!("\0"), r#"input: has a NUL character at """#),
            (json!({"a": {"k\0": 1}}), r#"input: has a NUL character in a key of the object at "/a""#),
            (json!(["x".repeat(100)]), "input: is 104 bytes long; at most 100 are allowed"),
        ] {
            let error = refuse_json("input", &value, 100).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
        let far = json!({"k".repeat(9_000): "\0"});
        let error = refuse_json("input", &far, 100).expect_err("a NUL");
        assert!(error.message.len() < 300, "messages are bounded too");
    }

    // proves X10
    #[test]
    fn raw_json_is_read_or_refused_clearly() {
        assert_eq!(parse_json("input", br#"{"a": "\ud83d\ude00"}"#, 100), Ok(json!({"a": "😀"})));
        assert!(parse_json("input", nested(MAX_JSON_DEPTH).as_bytes(), 1_000).is_ok());
        for (bytes, named) in [
            (&b"\"\xff\""[..], "is not UTF-8: invalid byte at 1"),
            (br#""\ud800""#, "half of a surrogate pair"),
            (br#""\udc00""#, "half of a surrogate pair"),
            (br#""\ud800x""#, "half of a surrogate pair"),
            (br#""\ud800\u0041""#, "half of a surrogate pair"),
            (br#"["a\u0000"]"#, r#"has a NUL character at "/0""#),
            (br#""\u12""#, "is not valid JSON"),
            (br#""\uzzzz""#, "is not valid JSON"),
            (b"{\"a\":", "is not valid JSON: EOF"),
            (b"", "is not valid JSON: EOF"),
            (b"{} {}", "is not valid JSON: trailing"),
            (b"1e999", "is not valid JSON: number out of range"),
            (&[b' '; 101], "is 101 bytes long; at most 100"),
            (b"[1e15,1e15,1e15,1e15,1e15,1e15]", "is 115 bytes long; at most 100"),
        ] {
            let error = parse_json("input", bytes, 100).expect_err(named);
            assert!(error.message.contains(named), "{error}");
        }
        for depth in [65, 128, 129, 5_000] {
            let error = parse_json("input", nested(depth).as_bytes(), 99_999).expect_err("too deep");
            assert!(error.message.contains("nested deeper than 64 levels"), "{depth}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes: Vec<u8>, text in "[\\[\\]{}\":,\\\\u0d8a1 ]{0,40}") {
            let _ = parse_json("input", &bytes, 100);
            let _ = parse_json("input", text.as_bytes(), 100);
        }
    }
}
