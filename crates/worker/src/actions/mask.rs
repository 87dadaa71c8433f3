//! Hides secrets in whatever is stored or shown.

use std::borrow::Cow;
use std::fmt;

const SHOWN: &str = "***";

/// Shorter ones would hide half of every text.
const MIN_BYTES: usize = 4;

/// Texts that must not be seen, and the other ways in which programs write them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mask {
    /// The longest first, so that a part never leaves the rest behind.
    hidden: Vec<String>,
}

impl Mask {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Mask {
        let mut mask = Mask::default();
        for secret in secrets {
            mask.add(secret);
        }
        mask
    }

    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    pub fn add(&mut self, secret: &str) {
        let lines = secret.lines().map(str::trim).filter(|_| secret.contains('\n'));
        for text in std::iter::once(secret).chain(lines) {
            for form in [text.to_owned(), escaped(text), percent(text)] {
                if form.len() >= MIN_BYTES && !self.hidden.contains(&form) {
                    self.hidden.push(form);
                }
            }
        }
        self.hidden.sort_by_key(|text| std::cmp::Reverse(text.len()));
    }

    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut shown = Cow::Borrowed(text);
        for hidden in &self.hidden {
            if shown.contains(hidden.as_str()) {
                shown = Cow::Owned(shown.replace(hidden.as_str(), SHOWN));
            }
        }
        shown
    }

    /// In all texts of a value, keys included.
    pub fn hide_json(&self, value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        if self.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.hide(&text).into_owned()),
            Value::Array(items) => items.into_iter().map(|item| self.hide_json(item)).collect(),
            Value::Object(entries) => entries
                .into_iter()
                .map(|(key, value)| (self.hide(&key).into_owned(), self.hide_json(value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other,
        }
    }
}

/// What it hides is not to be seen here either.
impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({})", self.hidden.len())
    }
}

/// As it stands in JSON.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// As it stands in a URL.
fn percent(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
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
            ("s3cret-and-more", "***"),
            ("just lines of it", "just ***"),
            (r#"{"t":"a\"b c"}"#, r#"{"t":"***"}"#),
            ("https://h/?t=a%22b%20c", "https://h/?t=***"),
            ("abc is too short", "abc is too short"),
        ] {
            assert_eq!(mask.hide(text), shown);
        }
        assert!(matches!(mask.hide("nothing"), Cow::Borrowed(_)));
        assert_eq!(mask.hide_json(json!({"s3cret": ["s3cret", 1]})), json!({"***": ["***", 1]}));
        assert!(!format!("{mask:?}").contains("s3c"));
    }
}
