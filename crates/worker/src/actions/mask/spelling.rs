//! The ways in which programs write a character: as it is, or encoded for a URL, for HTML, for JSON, for a shell. What
//! an encoder leaves alone differs from one to the next, so that each character has its ways, and a text any mixture.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// All of them, encodings of encodings included: a log in JSON quotes an answer in JSON.
pub(super) fn spellings(character: char) -> Vec<String> {
    let encoded = encodings(character);
    let twice = encoded.iter().flat_map(|text| {
        let of_all = |encode: fn(char) -> Option<String>| {
            text.chars().map(|c| encode(c).unwrap_or_else(|| c.to_string())).collect::<String>()
        };
        [of_all(in_json), of_all(in_html), of_all(|c| in_url(c, true)), of_all(|c| in_url(c, false))]
    });
    let all: BTreeSet<String> = twice.chain(encoded.iter().cloned()).chain([character.to_string()]).collect();
    all.into_iter().collect()
}

fn encodings(character: char) -> Vec<String> {
    let code = u32::from(character);
    let mut all = vec![
        escaped_bytes(character, true),
        escaped_bytes(character, false),
        format!("&#{code};"),
        format!("&#{code:03};"),
        format!("&#x{code:x};"),
        format!("&#x{code:X};"),
        escaped_units(character, true),
        escaped_units(character, false),
    ];
    all.extend(in_json(character));
    all.extend(in_html(character));
    let others: &[&str] = match character {
        ' ' => &["+"],
        '/' => &["\\/"],
        '\'' => &["&apos;", "'\\''", "'\"'\"'"],
        _ => &[],
    };
    all.extend(others.iter().map(|&text| text.to_owned()));
    // As shells quote what is not within quotes.
    all.extend(
        (character.is_ascii() && !character.is_ascii_alphanumeric()).then(|| format!("\\{character}")),
    );
    all
}

/// As an encoder does it that leaves nothing but letters, digits and `-._~`.
fn in_url(character: char, is_upper: bool) -> Option<String> {
    let is_plain = character.is_ascii_alphanumeric() || "-._~".contains(character);
    (!is_plain).then(|| escaped_bytes(character, is_upper))
}

fn escaped_bytes(character: char, is_upper: bool) -> String {
    let mut buffer = [0; 4];
    character.encode_utf8(&mut buffer).bytes().fold(String::new(), |mut text, byte| {
        let _ = if is_upper { write!(text, "%{byte:02X}") } else { write!(text, "%{byte:02x}") };
        text
    })
}

fn escaped_units(character: char, is_upper: bool) -> String {
    let mut buffer = [0; 2];
    character.encode_utf16(&mut buffer).iter().fold(String::new(), |mut text, unit| {
        let _ = if is_upper { write!(text, "\\u{unit:04X}") } else { write!(text, "\\u{unit:04x}") };
        text
    })
}

fn in_json(character: char) -> Option<String> {
    let quoted = serde_json::Value::from(character.to_string()).to_string();
    let escaped = &quoted[1..quoted.len() - 1];
    escaped.starts_with('\\').then(|| escaped.to_owned())
}

fn in_html(character: char) -> Option<String> {
    let escaped = match character {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        _ => return None,
    };
    Some(escaped.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_has_all_its_spellings() {
        for (character, expected) in [
            ('a', &["a", "%61", "&#97;", "&#097;", "&#x61;", "\\u0061"][..]),
            ('/', &["/", "%2F", "%2f", "%252F", "%252f", "\\/", "&#x2F;", "&#x2f;"]),
            ('"', &["\"", "\\\"", "\\\\\\\"", "%22", "&quot;", "&amp;quot;", "&#34;", "\\u0022"]),
            ('\\', &["\\", "\\\\", "\\\\\\\\", "%5C", "%5c"]),
            ('\n', &["\n", "\\n", "\\\\n", "%0A", "%0a", "\\u000a", "\\u000A"]),
            (' ', &[" ", "+", "%20", "%2520"]),
            ('é', &["é", "%C3%A9", "%c3%a9", "\\u00e9", "\\u00E9", "&#233;"]),
            ('😀', &["😀", "\\ud83d\\ude00", "%F0%9F%98%80"]),
            ('\'', &["'", "&#39;", "&#039;", "&apos;", "'\\''"]),
        ] {
            let found = spellings(character);
            for spelling in expected {
                assert!(found.contains(&(*spelling).to_owned()), "{character:?} as {spelling}: {found:?}");
            }
            assert!(found.len() < 60 && found.iter().all(|text| !text.is_empty()), "{found:?}");
        }
    }
}
