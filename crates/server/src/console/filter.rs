//! What is typed into the bar above the list of runs: `status:failed queue:"my builds" since:24h text`.

use waypost_kernel::{Span, Time};
use waypost_schema::{instead_of, nearest};
use waypost_store::{iso, parse_time};

use super::ask;

/// What `key:value` may be asked for, as the API calls it; anything else is looked for as text.
const KEYS: [&str; 7] = ["status", "lifecycle", "queue", "playbook", "needs", "since", "until"];

/// A query of the API's list, or what is wrong with it.
pub fn query(text: &str, now: Time) -> Result<Vec<(&'static str, String)>, String> {
    let (mut query, mut words) = (Vec::new(), Vec::new());
    for word in words_of(text)? {
        let Some((key, value)) = key_of(&word)? else {
            words.push(word.text);
            continue;
        };
        if value.is_empty() {
            return Err(format!("{key}: needs a value after the colon"));
        }
        if query.iter().any(|(known, _)| *known == key) {
            return Err(format!("{key}: is there twice"));
        }
        query.push((
            key,
            if matches!(key, "since" | "until") { time(key, value, now)? } else { value.to_owned() },
        ));
    }
    query.push(("q", words.join(" ")));
    Ok(query)
}

/// The page of the runs that have all of these values: every link to such a list is written here.
pub fn runs_with(terms: &[(&str, &str)]) -> String {
    let set: Vec<(&str, Option<&str>)> = terms.iter().map(|(key, value)| (*key, Some(*value))).collect();
    format!("/runs?filter={}", ask::encoded(&with("", &set)))
}

/// The same bar with one key set, or taken out.
pub fn with(text: &str, set: &[(&str, Option<&str>)]) -> String {
    let is_set = |word: &Word| {
        let key = key_of(word).ok().flatten().map(|(key, _)| key);
        set.iter().any(|(name, _)| Some(*name) == key)
    };
    let kept = words_of(text).unwrap_or_default().into_iter().filter(|word| !is_set(word));
    let set = set.iter().filter_map(|(key, value)| Some(format!("{key}:{}", quoted((*value)?))));
    set.chain(kept.map(|word| word.written())).collect::<Vec<_>>().join(" ")
}

struct Word {
    text: String,
    /// Where its colon is, if it has one outside of quotes.
    colon: Option<usize>,
    is_quoted: bool,
}

impl Word {
    fn written(&self) -> String {
        match self.colon {
            Some(colon) => format!("{}:{}", &self.text[..colon], quoted(&self.text[colon + 1..])),
            None if self.is_quoted => in_quotes(&self.text),
            None => quoted(&self.text),
        }
    }
}

fn quoted(value: &str) -> String {
    let needs = |character: char| character.is_whitespace() || character == '"';
    if value.contains(needs) { in_quotes(value) } else { value.to_owned() }
}

fn in_quotes(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn words_of(text: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let mut word = Word { text: String::new(), colon: None, is_quoted: rest.starts_with('"') };
        let mut is_inside = false;
        let mut end = rest.len();
        let mut characters = rest.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                // Within quotes a quote and a backslash stand behind one.
                '\\' if is_inside
                    && characters.peek().is_some_and(|(_, next)| matches!(next, '"' | '\\')) =>
                {
                    word.text.extend(characters.next().map(|(_, next)| next));
                }
                '"' => is_inside = !is_inside,
                _ if character.is_whitespace() && !is_inside => {
                    end = at;
                    break;
                }
                _ => {
                    if character == ':' && !is_inside && word.colon.is_none() {
                        word.colon = Some(word.text.len());
                    }
                    word.text.push(character);
                }
            }
        }
        if is_inside {
            return Err("a quote (\") is not closed".to_owned());
        }
        words.push(word);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

/// A word with a colon whose key is nearly one that there is was typed wrongly; an address is text.
fn key_of(word: &Word) -> Result<Option<(&'static str, &str)>, String> {
    let Some(colon) = word.colon else { return Ok(None) };
    let (key, value) = (&word.text[..colon], &word.text[colon + 1..]);
    if let Some(known) = KEYS.into_iter().find(|known| *known == key) {
        return Ok(Some((known, value)));
    }
    match nearest(key, KEYS) {
        Some(_) => Err(format!("{key}: is no key of a filter; {}", instead_of(key, &KEYS))),
        None => Ok(None),
    }
}

fn time(key: &str, value: &str, now: Time) -> Result<String, String> {
    let ago = Span::parse(value).map(|span| now - span);
    // A day begins with its first moment and ends with its last, in UTC as all times here.
    let whole = if key == "until" { Span::from_seconds(24 * 3_600) } else { Span::ZERO };
    let day = || parse_time(&format!("{value}T00:00:00Z")).map(|midnight| midnight + whole);
    ago.or_else(|| parse_time(value)).or_else(day).map(iso).ok_or_else(|| {
        format!("{key}:{value} is neither a time (2026-01-31, 2026-01-31T08:00:00Z) nor how long ago (90m, 24h, 7d)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_ms(1_800_000_000_000);

    fn read(text: &str) -> Vec<String> {
        query(text, NOW).expect(text).iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn a_filter_has_keys_and_text() {
        assert_eq!(
            read("status:failed staging queue:\"my builds\""),
            ["status=failed", "queue=my builds", "q=staging"]
        );
        assert_eq!(read("http://x \"a b\" host:8080"), ["q=http://x a b host:8080"]);
        assert_eq!(read(""), ["q="]);
        let hour = iso(NOW - Span::from_seconds(3_600));
        assert_eq!(read("since:1h"), [format!("since={hour}"), "q=".to_owned()]);
        assert_eq!(read(&format!("until:{hour}")), [format!("until={hour}"), "q=".to_owned()]);
    }

    #[test]
    fn what_is_written_is_read_as_it_was_meant() {
        for name in ["builds", "my builds", "a\"b", "\"", "a\\b c", "\\\" \"\\", "x:y", "es\u{202e}\u{a0}t"] {
            let written = with("", &[("queue", Some(name))]);
            assert_eq!(read(&written), [format!("queue={name}"), "q=".to_owned()], "{written}");
            assert_eq!(with(&written, &[("since", None)]), written);
        }
        assert_eq!(with("\"a \\\"b\" x", &[]), "\"a \\\"b\" x");
        assert_eq!(
            runs_with(&[("queue", "a b"), ("status", "x")]),
            "/runs?filter=queue%3A%22a%20b%22%20status%3Ax"
        );
    }

    #[test]
    fn a_day_is_whole() {
        assert_eq!(
            read("since:2026-11-18 until:2026-11-18"),
            ["since=2026-11-18T00:00:00.000Z", "until=2026-11-19T00:00:00.000Z", "q="]
        );
    }

    #[test]
    fn what_was_typed_wrongly_is_told() {
        for (text, part) in [
            ("stauts:failed", "did you mean `status`"),
            ("since:yesterday", "neither a time"),
            ("status:", "needs a value"),
            ("status:a status:b", "twice"),
            ("queue:\"a", "not closed"),
        ] {
            let error = query(text, NOW).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_key_is_set_in_place_of_the_one_before() {
        assert_eq!(with("since:24h queue:\"a b\" x", &[("since", Some("1h"))]), "since:1h queue:\"a b\" x");
        assert_eq!(with("since:24h until:1h x", &[("since", None), ("until", None)]), "x");
        assert_eq!(with("", &[("queue", Some("a b"))]), "queue:\"a b\"");
    }
}
