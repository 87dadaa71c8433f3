//! Cleaning of what handlers put out. It never fails, and says whether it changed or cut anything.

use serde_json::{Value, json};

use super::terminal::sequence;
use super::{MAX_JSON_DEPTH, Written};

/// Ends what was cut, within the limit.
pub const CUT_MARKER: &str = "… [cut]";

/// serde_json reads no deeper than this; a deeper value was built by code.
const DEEPEST_READ: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    pub text: String,
    /// Characters were replaced by U+FFFD, or a terminal's control sequences left out.
    pub changed: bool,
    pub cut: bool,
}

/// One line of output: no control characters but tab and whole colours, and no line end.
pub fn clean_line(bytes: &[u8], max_bytes: usize) -> Cleaned {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A line of a gigabyte is not read to its end: the limit and one character more show whether it must be cut.
    let head = &line[..line.len().min(max_bytes.saturating_add(4))];
    let characters = head.utf8_chunks().flat_map(|chunk| {
        let invalid = (!chunk.invalid().is_empty()).then_some(None);
        chunk.valid().chars().map(Some).chain(invalid)
    });
    let keeps = |character| matches!(character, '\t' | '\x1b');
    if !head.contains(&b'\x1b') {
        return clean(characters, keeps, max_bytes, char::len_utf8, false);
    }
    let text: String = characters.map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    let kept = without_sequences(&text, true);
    // What is left out makes room for what was not read.
    let has_more = head.len() < line.len();
    let cleaned = clean(kept.chars().map(Some), keeps, max_bytes, char::len_utf8, has_more);
    Cleaned { changed: cleaned.changed || kept.as_bytes() != head, ..cleaned }
}

/// An error text: as a line, but it may have several, and no colours: it is quoted among other words.
pub fn clean_chars(text: &str, max_chars: usize) -> Cleaned {
    let keeps = |character| matches!(character, '\t' | '\n' | '\r');
    if !text.contains('\x1b') {
        return clean(text.chars().map(Some), keeps, max_chars, |_| 1, false);
    }
    let kept = without_sequences(text, false);
    let cleaned = clean(kept.chars().map(Some), keeps, max_chars, |_| 1, false);
    Cleaned { changed: true, ..cleaned }
}

/// Control sequences that move a terminal's cursor or clear it are left out, and an escape that begins anything else (a
/// title, a link) becomes U+FFFD: what it begins may never end, and a terminal would swallow all that follows.
fn without_sequences(text: &str, keeps_colours: bool) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let bytes = match sequence(rest) {
            Some(found) => {
                let is_kept = found.is_colour && keeps_colours;
                kept.push_str(if is_kept { &rest[..found.bytes] } else { "" });
                found.bytes
            }
            None => {
                kept.push(char::REPLACEMENT_CHARACTER);
                1
            }
        };
        rest = &rest[bytes..];
    }
    kept.push_str(rest);
    kept
}

/// `None` is a piece of invalid UTF-8. `size` is what a character counts against the limit. `has_more`: there is text after it.
fn clean(
    characters: impl Iterator<Item = Option<char>>,
    keeps: impl Fn(char) -> bool,
    limit: usize,
    size: impl Fn(char) -> usize,
    has_more: bool,
) -> Cleaned {
    let marker_size: usize = CUT_MARKER.chars().map(&size).sum();
    let mut cleaned = Cleaned { text: String::new(), changed: false, cut: has_more };
    let mut used = 0;
    let mut end_before_marker = 0;
    for character in characters {
        let kept = character.filter(|character| !character.is_control() || keeps(*character));
        let shown = kept.unwrap_or(char::REPLACEMENT_CHARACTER);
        if used + size(shown) > limit {
            cleaned.cut = true;
            break;
        }
        cleaned.changed |= kept.is_none();
        used += size(shown);
        cleaned.text.push(shown);
        if used + marker_size <= limit {
            end_before_marker = cleaned.text.len();
        }
    }
    if cleaned.cut && marker_size <= limit {
        cleaned.text.truncate(end_before_marker);
    }
    if cleaned.cut {
        let half = cleaned.text.rfind('\x1b').filter(|at| sequence(&cleaned.text[*at..]).is_none());
        cleaned.text.truncate(half.unwrap_or(cleaned.text.len()));
    }
    if cleaned.cut && marker_size <= limit {
        cleaned.text.push_str(CUT_MARKER);
    }
    cleaned
}

/// A result: NUL in keys and strings becomes U+FFFD. What is too long or too deep is replaced as a whole by
/// `{"cut": true, "bytes": …, "head": "…"}`, since half a document would be taken for the whole one.
pub fn clean_json(value: Value, max_bytes: usize) -> (Value, bool) {
    let mut cleaner = Cleaner::default();
    let value = cleaner.value(value, 0);
    let written = Written::of(&value, max_bytes);
    if written.bytes <= max_bytes && cleaner.deepest <= MAX_JSON_DEPTH {
        return (value, cleaner.changed);
    }
    (summary(&written, max_bytes), true)
}

#[derive(Default)]
struct Cleaner {
    changed: bool,
    deepest: usize,
}

impl Cleaner {
    fn text(&mut self, text: String) -> String {
        if !text.contains('\0') {
            return text;
        }
        self.changed = true;
        text.replace('\0', "\u{fffd}")
    }

    /// `depth` is how many arrays and objects the value is in.
    fn value(&mut self, value: Value, depth: usize) -> Value {
        if value.is_array() || value.is_object() {
            self.deepest = self.deepest.max(depth + 1);
        }
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(_) | Value::Object(_) if depth >= DEEPEST_READ => {
                take_apart(value);
                Value::Null
            }
            Value::Array(items) => items.into_iter().map(|item| self.value(item, depth + 1)).collect(),
            Value::Object(members) => {
                let clean = |(key, member)| (self.text(key), self.value(member, depth + 1));
                members.into_iter().map(clean).collect()
            }
            other => other,
        }
    }
}

/// Drops a value without a stack as deep as the value.
fn take_apart(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.into_iter().map(|(_, member)| member)),
            _ => {}
        }
    }
}

fn summary(written: &Written, max_bytes: usize) -> Value {
    let Written { bytes, head, .. } = written;
    let frame_bytes = json!({"cut": true, "bytes": bytes, "head": ""}).to_string().len();
    let Some(mut room) = max_bytes.checked_sub(frame_bytes) else {
        let least = json!({"cut": true});
        return if least.to_string().len() <= max_bytes { least } else { Value::Null };
    };
    let fitting = head.chars().take_while(|character| {
        let left = room.checked_sub(escaped_bytes(*character));
        room = left.unwrap_or(0);
        left.is_some()
    });
    json!({"cut": true, "bytes": bytes, "head": fitting.collect::<String>()})
}

/// What a character takes within a string of JSON.
fn escaped_bytes(character: char) -> usize {
    match character {
        '"' | '\\' => 2,
        '\0'..='\x1f' => 6,
        _ => character.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{refuse_json, refuse_text};
    use proptest::prelude::*;

    // proves X10
    #[test]
    fn lines_are_cleaned_and_cut() {
        for (bytes, max_bytes, text, changed, cut) in [
            (&b"ok"[..], 2, "ok", false, false),
            (b"", 0, "", false, false),
            (b"line\r\n", 99, "line", false, false),
            (b"\x1b[31mred\x1b[0m\tx", 99, "\x1b[31mred\x1b[0m\tx", false, false),
            (b"a\0b\x07c", 99, "a\u{fffd}b\u{fffd}c", true, false),
            (b"10%\r20%", 99, "10%\u{fffd}20%", true, false),
            (b"a\xff\xfeb", 99, "a\u{fffd}\u{fffd}b", true, false),
            (b"half \xe2\x82", 99, "half \u{fffd}", true, false),
            (b"a\x1b]0;title\x07 b", 99, "a\u{fffd}]0;title\u{fffd} b", true, false),
            (b"a\x1b[2K\x1b[1Gb\x1b", 99, "ab\u{fffd}", true, false),
            (b"\x1b[31mred\x1b[0m and more", 17, "\x1b[31mred… [cut]", false, true),
            (b"\x1b[38;5;200mred", 13, "… [cut]", false, true),
            (b"\x1b[2K0123456789", 8, "01234567", true, true),
            ("csi \u{9b}31m".as_bytes(), 99, "csi \u{fffd}31m", true, false),
            (b"0123456789abcdef", 15, "012345… [cut]", false, true),
            ("ééééééééé".as_bytes(), 16, "ééé… [cut]", false, true),
            (b"0123456789", 9, "… [cut]", false, true),
            (b"0123456789", 8, "01234567", false, true),
            ("€".as_bytes(), 2, "", false, true),
        ] {
            let expected = Cleaned { text: text.into(), changed, cut };
            assert_eq!(clean_line(bytes, max_bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    // proves C9, X10
    #[test]
    fn error_texts_are_cut_by_characters() {
        for (text, max_chars, expected, changed, cut) in [
            ("line 1\nline 2\r\n", 99, "line 1\nline 2\r\n", false, false),
            ("a\0b", 3, "a\u{fffd}b", true, false),
            ("\x1b[31mred\x1b[0m\x1b[2J", 99, "red", true, false),
            ("evil\x1b]0;t\x07", 99, "evil\u{fffd}]0;t\u{fffd}", true, false),
            ("ééééééééé", 9, "ééééééééé", false, false),
            ("éééééééééé", 9, "éé… [cut]", false, true),
        ] {
            let expected = Cleaned { text: expected.into(), changed, cut };
            assert_eq!(clean_chars(text, max_chars), expected, "{text}");
        }
    }

    // proves C9, X10
    #[test]
    fn results_are_cleaned_or_replaced_as_a_whole() {
        let long = "é\"".repeat(60);
        for (value, max_bytes, expected, changed) in [
            (json!({"rows": 3}), 99, json!({"rows": 3}), false),
            (json!({"k\0": ["a\0b"], "k": 1}), 99, json!({"k\u{fffd}": ["a\u{fffd}b"], "k": 1}), true),
            (json!([long]), 60, json!({"cut": true, "bytes": 244, "head": "[\"é\\\"é\\\"é\\\"é\\"}), true),
            (json!([long]), 33, json!({"cut": true}), true),
            (json!([long]), 3, Value::Null, true),
        ] {
            assert_eq!(clean_json(value, max_bytes), (expected, changed));
        }
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!("inmost"), |value, _| Value::Array(vec![value]))
    }

    // proves X10
    #[test]
    fn deep_results_are_replaced_without_a_deep_stack() {
        assert_eq!(clean_json(nested(MAX_JSON_DEPTH), 999), (nested(MAX_JSON_DEPTH), false));
        let (value, changed) = clean_json(nested(65), 999);
        assert!(changed);
        assert_eq!(value["bytes"], json!(65 * 2 + 8));
        let (value, _) = clean_json(nested(500_000), 999);
        assert_eq!(value["cut"], json!(true));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            "\\PC{0,9}|[\0\"\\\\\n]{0,9}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[a\0\"]{0,3}", inner, 0..5)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        // proves X10
        #[test]
        fn whatever_is_cleaned_would_be_accepted(
            bytes: Vec<u8>, text: String, value in any_json(), max in 4_usize..90,
        ) {
            let line = clean_line(&bytes, max);
            prop_assert!(refuse_text("line", &line.text, max).is_ok());
            prop_assert!(clean_chars(&text, max).text.chars().count() <= max);
            let (cleaned, changed) = clean_json(value.clone(), max);
            prop_assert!(refuse_json("result", &cleaned, max).is_ok());
            prop_assert_eq!(changed, cleaned != value);
            prop_assert_eq!(clean_json(cleaned.clone(), max), (cleaned, false));
        }
    }
}
