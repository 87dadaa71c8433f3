//! Hides secrets in whatever is stored or shown.

mod spelling;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use waypost_kernel::text::CUT_MARKER;

const SHOWN: &str = "***";

/// Shorter ones would hide half of every text.
const MIN_BYTES: usize = 4;

/// Texts that must not be seen, however programs write them: each of their characters in any of its spellings.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mask {
    hidden: Vec<Vec<char>>,
    spellings: BTreeMap<char, Vec<String>>,
    /// By byte: whether something hidden may begin with it. Most of a text is passed over by this alone.
    begins: Vec<bool>,
}

impl Mask {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Mask {
        let mut mask = Mask::default();
        for secret in secrets {
            mask.add(secret);
        }
        mask
    }

    /// What either hides.
    pub fn and(mut self, other: &Mask) -> Mask {
        for hidden in &other.hidden {
            if !self.hidden.contains(hidden) {
                self.add(&hidden.iter().collect::<String>());
            }
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    pub fn add(&mut self, secret: &str) {
        let lines = secret.lines().map(str::trim).filter(|_| secret.contains('\n'));
        for text in std::iter::once(secret).chain(lines).filter(|text| text.len() >= MIN_BYTES) {
            let characters: Vec<char> = text.chars().collect();
            for character in &characters {
                self.spellings.entry(*character).or_insert_with(|| spelling::spellings(*character));
            }
            self.begins.resize(256, false);
            for first in characters.first().and_then(|first| self.spellings.get(first)).into_iter().flatten()
            {
                self.begins[usize::from(first.as_bytes()[0])] = true;
            }
            self.hidden.push(characters);
        }
    }

    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.found(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        let mut after = 0;
        for (from, to) in found {
            shown.push_str(&text[after..from]);
            shown.push_str(SHOWN);
            after = to;
        }
        shown.push_str(&text[after..]);
        Cow::Owned(shown)
    }

    /// Hides, and then cuts: of what crosses the limit, or begins behind it, nothing is left. Needs as much of the text behind the
    /// limit as [`Mask::longest`] says.
    pub fn hide_line(&self, text: &str, max_bytes: usize) -> String {
        if text.len() <= max_bytes {
            let hidden = self.hide(text).into_owned();
            return if hidden.len() <= max_bytes { hidden } else { cut(hidden, max_bytes) };
        }
        let mut shown = String::with_capacity(max_bytes);
        let mut after = 0;
        for (from, to) in self.found(text.as_bytes()).into_iter().filter(|(from, _)| *from < max_bytes) {
            shown.push_str(&text[after..from]);
            shown.push_str(SHOWN);
            after = to;
        }
        let end = text.floor_char_boundary(max_bytes);
        shown.push_str(text.get(after..end).unwrap_or_default());
        cut(shown, max_bytes)
    }

    /// How many bytes a secret may have, however it is spelt.
    pub fn longest(&self) -> usize {
        let spelt =
            |character: &char| self.spellings.get(character).into_iter().flatten().map(String::len).max();
        let bytes = |hidden: &Vec<char>| hidden.iter().filter_map(&spelt).sum();
        self.hidden.iter().map(bytes).max().unwrap_or(0)
    }

    /// Where something hidden stands. Places that overlap are one: of two secrets that share a part nothing is left.
    fn found(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        if self.is_empty() {
            return found;
        }
        for from in (0..text.len()).filter(|at| self.begins[usize::from(text[*at])]) {
            let ends = self.hidden.iter().filter_map(|hidden| self.end_of(hidden, text, from));
            let Some(to) = ends.max() else { continue };
            match found.last_mut().filter(|last| from < last.1) {
                Some(last) => last.1 = last.1.max(to),
                None => found.push((from, to)),
            }
        }
        found
    }

    /// Where this one ends if it begins there. One spelling may begin like another (`\` and `\\`): all that fit so
    /// far are followed.
    fn end_of(&self, hidden: &[char], text: &[u8], from: usize) -> Option<usize> {
        let mut ends = vec![from];
        for character in hidden {
            let mut next = Vec::new();
            for spelling in self.spellings.get(character)? {
                let fitting = ends.iter().filter(|end| text[**end..].starts_with(spelling.as_bytes()));
                next.extend(fitting.map(|end| end + spelling.len()));
            }
            next.sort_unstable();
            next.dedup();
            if next.is_empty() {
                return None;
            }
            ends = next;
        }
        ends.last().copied()
    }

    /// In all texts and numbers of a value, keys included. A number that shows a secret becomes a text that does not.
    pub fn hide_json(&self, value: Value) -> Value {
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.hide(&text).into_owned()),
            Value::Number(number) => match self.hide(&number.to_string()) {
                Cow::Borrowed(_) => Value::Number(number),
                Cow::Owned(hidden) => Value::String(hidden),
            },
            Value::Array(items) => items.into_iter().map(|item| self.hide_json(item)).collect(),
            Value::Object(entries) => entries
                .into_iter()
                .map(|(key, value)| (self.hide(&key).into_owned(), self.hide_json(value)))
                .collect::<Map<_, _>>()
                .into(),
            other @ (Value::Null | Value::Bool(_)) => other,
        }
    }
}

/// With the mark of what was cut, even if what is left is short.
fn cut(mut text: String, max_bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(max_bytes.saturating_sub(CUT_MARKER.len())));
    text.push_str(CUT_MARKER);
    text
}

/// What it hides is not to be seen here either.
impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({})", self.hidden.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_hidden_in_every_form() {
        let mask = Mask::new(["s3cret", "s3cret-and-more", "two\nlines of it", "a\"b c", "abc"]);
        for (text, shown) in [
            ("nothing here", "nothing here"),
            ("x s3cret y s3cret", "x *** y ***"),
            ("s3crets3cret", "******"),
            ("s3cret-and-more", "***"),
            ("just lines of it", "just ***"),
            (r#"{"t":"a\"b c"}"#, r#"{"t":"***"}"#),
            (r#"{"t":"two\nlines of it"}"#, r#"{"t":"***"}"#),
            ("https://h/?t=a%22b%20c", "https://h/?t=***"),
            ("abc is too short", "abc is too short"),
            ("s3cre", "s3cre"),
        ] {
            assert_eq!(mask.hide(text), shown);
        }
        assert!(matches!(mask.hide("nothing"), Cow::Borrowed(_)));
        assert!(!format!("{mask:?}").contains("s3c"));
    }

    #[test]
    fn whoever_encodes_a_secret_does_not_show_it() {
        let mask = Mask::new(["p/w+d&<é>\"'x y\\z"]);
        for (encoder, text) in [
            ("urllib.parse.quote", "p/w%2Bd%26%3C%C3%A9%3E%22%27x%20y%5Cz"),
            ("encodeURIComponent", "p%2Fw%2Bd%26%3C%C3%A9%3E%22'x%20y%5Cz"),
            ("a form", "p%2Fw%2Bd%26%3C%C3%A9%3E%22%27x+y%5Cz"),
            ("lower-case digits", "p%2fw%2bd%26%3c%c3%a9%3e%22%27x%20y%5cz"),
            ("html.escape", "p/w+d&amp;&lt;é&gt;&quot;&#x27;x y\\z"),
            ("htmlspecialchars", "p/w+d&amp;&lt;é&gt;&quot;&#039;x y\\z"),
            ("json.dumps", r#"p/w+d&<\u00e9>\"'x y\\z"#),
            ("Go's encoding/json", r#"p/w+d\u0026\u003cé\u003e\"'x y\\z"#),
            ("PHP's json_encode", r#"p\/w+d&<\u00e9>\"'x y\\z"#),
            ("JSON in JSON", r#"p/w+d&<\\u00e9>\\\"'x y\\\\z"#),
            ("a URL in a URL", "p%252Fw%252Bd%2526%253C%25C3%25A9%253E%2522%2527x%2520y%255Cz"),
            ("a shell's trace", r#"p/w+d&<é>"'\''x y\z"#),
        ] {
            assert_eq!(mask.hide(&format!("<{text}>")), "<***>", "{encoder}");
        }
    }

    #[test]
    fn what_overlaps_is_hidden_as_a_whole() {
        let mask = Mask::new(["abcdef", "defghi", "zzzz"]);
        assert_eq!(mask.hide("_abcdefghi_"), "_***_");
        assert_eq!(mask.hide("zzzzzzzzzz"), "***");
        let mask = Mask::new([r"\\\\\\"]);
        assert_eq!(mask.hide(&format!("x{}y", r"\".repeat(12))), "x***y");
    }

    #[test]
    fn numbers_and_keys_are_hidden_too() {
        let mask = Mask::new(["123456789", "s3cret"]);
        let value = json!({"s3cret": ["s3cret", 1, null, true], "pin": 123_456_789, "id": 9_123_456_789_u64, "n": 1.5});
        let shown = json!({"***": ["***", 1, null, true], "pin": "***", "id": "9***", "n": 1.5});
        assert_eq!(mask.hide_json(value), shown);
        let written: Value = serde_json::from_str("[-1234567890.5]").expect("JSON");
        assert_eq!(mask.hide_json(written), json!(["-***0.5"]));
    }
}
