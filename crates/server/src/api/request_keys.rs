//! Idempotency keys of requests that make runs.

use crate::answer::Result;
use crate::call::Call;
use crate::problem::{INVALID_INPUT, INVALID_QUERY, Problem};

/// The idempotency key of a request that makes a run: the header's or the body's.
pub fn request_key(call: &Call, of_body: Option<String>) -> Result<Option<String>> {
    let Some(key) = call.headers.get("idempotency-key") else { return Ok(of_body) };
    let key = key_of(key.to_str().ok())?;
    if of_body.is_some_and(|other| other != key) {
        let message = "is another one than the header Idempotency-Key: send one of them";
        return Err(Problem::field(&INVALID_INPUT, "idempotency_key", message));
    }
    Ok(Some(key))
}

/// A structured-field string (`"key"`), or the key alone.
fn key_of(text: Option<&str>) -> Result<String> {
    let wrong = |message: &str| Problem::field(&INVALID_QUERY, "Idempotency-Key", message);
    let text = text.ok_or_else(|| wrong("must be visible ASCII characters"))?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').ok_or_else(|| wrong("has a quote at one end only"))?,
        None => text,
    };
    if key.is_empty() || key.len() > waypost_kernel::text::MAX_KEY_BYTES {
        return Err(wrong("must have 1 to 255 characters"));
    }
    Ok(key.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_are_quoted_or_bare() {
        for (text, key) in [("k1", "k1"), ("\"k1\"", "k1"), (" \"a b\" ", "a b"), (r#""a\"b""#, "a\"b")] {
            assert_eq!(key_of(Some(text)).ok().as_deref(), Some(key), "{text}");
        }
        let long = "k".repeat(256);
        for text in [None, Some(""), Some("\"\""), Some("\"k"), Some(long.as_str())] {
            assert!(key_of(text).is_err(), "{text:?}");
        }
    }
}
