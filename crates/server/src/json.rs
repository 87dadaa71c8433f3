//! Bodies: as people and programs send them, and as workers do.

use serde_json::Value;
use waypost_kernel::text::explain;

/// Nothing but JSON. It is nested at most 128 deep: serde_json stops there.
pub fn strict(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| explain(&error))
}

/// What handlers printed may hold half a surrogate pair (Python writes a byte that is no UTF-8 so): that becomes U+FFFD
/// instead of costing the whole report. NULs and depth are the store's to clean.
pub fn lenient(bytes: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(bytes);
    match serde_json::from_str(&text) {
        Ok(value) => Ok(value),
        Err(first) => serde_json::from_str(&mended(&text)).map_err(|_| explain(&first)),
    }
}

/// Every `\udXXX` that has no other half, as `\ufffd`.
fn mended(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (taken, replaced) = match (bytes[at], unit(bytes, at)) {
            (b'\\', Some(0xd800..=0xdbff)) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => {
                (12, false)
            }
            (b'\\', Some(0xd800..=0xdfff)) => (6, true),
            // Two of them are one backslash, and what follows is no escape.
            (b'\\', _) => (2, false),
            _ => (1, false),
        };
        let end = (at + taken).min(bytes.len());
        out.extend_from_slice(if replaced { b"\\ufffd" } else { &bytes[at..end] });
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The number of the escape `\uXXXX` that begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves X10
    #[test]
    fn halves_of_pairs_become_marks_and_pairs_stay() {
        for (text, expected) in [
            (r#""a\udc80b""#, json!("a\u{fffd}b")),
            (r#"["\ud800", "\ud83d\ude00", "\ud800x"]"#, json!(["\u{fffd}", "😀", "\u{fffd}x"])),
            (r#""\\ud800""#, json!("\\ud800")),
            (r#""\ud800\ud800\udc00""#, json!("\u{fffd}\u{10000}")),
            (r#"{"n": "\u0000"}"#, json!({"n": "\0"})),
        ] {
            assert_eq!(lenient(text.as_bytes()), Ok(expected), "{text}");
        }
        assert_eq!(lenient(b"\"\xff\""), Ok(json!("\u{fffd}")));
        for text in ["", "{", r#""\ud800"#, "[1e999]"] {
            assert!(lenient(text.as_bytes()).is_err() && strict(text.as_bytes()).is_err(), "{text}");
        }
    }
}
