//! Ids of runs, made from a template such as `run-{uuid7}` or `run_{date}_{time}_{rand6}`. Every part has a
//! fixed width, so an id can be checked against its template without guessing.

mod made;

use std::fmt;

use crate::time::Time;
use made::Made;

pub const MAX_ID_CHARS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdFormat {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Made(Made),
}

impl Part {
    fn width(&self) -> usize {
        match self {
            Part::Literal(text) => text.len(),
            Part::Made(made) => made.width(),
        }
    }
}

impl IdFormat {
    pub fn parse(template: &str) -> Result<IdFormat, String> {
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let (part, tail) = next_part(rest)?;
            parts.push(part);
            rest = tail;
        }
        let width: usize = parts.iter().map(Part::width).sum();
        if width > MAX_ID_CHARS {
            return Err(format!("makes ids of {width} characters; at most {MAX_ID_CHARS} are allowed"));
        }
        if !parts.iter().any(|part| matches!(part, Part::Made(made) if made.is_unique())) {
            return Err("makes the same id twice: it needs {uuid7}, {uuid4}, {rand6} or {rand12}".into());
        }
        Ok(IdFormat { parts })
    }

    /// The id for these inputs; the same inputs make the same id.
    pub fn make(&self, now: Time, random: u128) -> String {
        let mut id = String::with_capacity(MAX_ID_CHARS);
        let mut random = random;
        for part in &self.parts {
            match part {
                Part::Literal(text) => id.push_str(text),
                Part::Made(made) => {
                    id.push_str(&made.make(now, random));
                    // Two random parts must not be the same text.
                    random = random.rotate_right(43);
                }
            }
        }
        id
    }

    /// Whether this format could have made the id.
    pub fn matches(&self, id: &str) -> bool {
        let mut rest = id.as_bytes();
        for part in &self.parts {
            let Some((text, tail)) = rest.split_at_checked(part.width()) else { return false };
            let fits = match part {
                Part::Literal(literal) => literal.as_bytes() == text,
                Part::Made(made) => made.matches(text),
            };
            if !fits {
                return false;
            }
            rest = tail;
        }
        rest.is_empty()
    }
}

/// The template again.
impl fmt::Display for IdFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Literal(text) => f.write_str(text),
            Part::Made(made) => write!(f, "{{{}}}", made.name()),
        })
    }
}

fn next_part(rest: &str) -> Result<(Part, &str), String> {
    if let Some(inner) = rest.strip_prefix('{') {
        let Some((name, tail)) = inner.split_once('}') else {
            return Err(format!("has a part that is not closed: {:?}", shortened(rest)));
        };
        return match Made::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, made)) => Ok((Part::Made(*made), tail)),
            None => Err(format!("has an unknown part {:?}; {ALLOWED}", shortened(&format!("{{{name}}}")))),
        };
    }
    let (literal, tail) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
    match literal.chars().find(|character| !is_allowed(*character)) {
        Some(character) => Err(format!("has the character {character:?}; {ALLOWED}")),
        None => Ok((Part::Literal(literal.into()), tail)),
    }
}

const ALLOWED: &str = "allowed are {uuid7}, {uuid4}, {date}, {time}, {rand6}, {rand12} and A-Z a-z 0-9 _ -";

fn shortened(text: &str) -> String {
    text.chars().take(20).collect()
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// Any id that a client or an older format may have given: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn check_id(id: &str) -> Result<(), String> {
    if id.is_empty() {
        return Err("the id is empty".into());
    }
    if let Some(character) = id.chars().find(|character| !is_allowed(*character)) {
        return Err(format!("the id has the character {character:?}; allowed are A-Z a-z 0-9 _ -"));
    }
    match id.len() {
        ..=MAX_ID_CHARS => Ok(()),
        length => Err(format!("the id has {length} characters; at most {MAX_ID_CHARS} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RANDOM: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

    fn format(template: &str) -> IdFormat {
        IdFormat::parse(template).expect(template)
    }

    // proves D1, A1
    #[test]
    fn formats_make_what_they_match() {
        let now = Time::from_ms(1_771_056_000_000);
        for (template, expected) in [
            ("run-{uuid7}", "run-019c5b29-ec00-7def-8123-456789abcdef"),
            ("run_{date}_{time}_{rand6}", "run_2026-02-14_080000_6s307d"),
            ("{uuid7}", "019c5b29-ec00-7def-8123-456789abcdef"),
            ("rule-{uuid4}", "rule-01234567-89ab-4def-8123-456789abcdef"),
            ("{rand12}", "3nb89axrzwkk"),
        ] {
            let id = format(template).make(now, RANDOM);
            assert_eq!(id, expected, "{template}");
            assert_eq!(format(template).make(now, RANDOM), id, "the same inputs make the same id");
            assert!(format(template).matches(&id));
            assert_eq!(format(template).to_string(), template);
            assert_eq!(check_id(&id), Ok(()));
        }
    }

    // proves A1
    #[test]
    fn ids_of_other_formats_do_not_match() {
        let agent = format("run_{date}_{time}_{rand6}");
        assert!(agent.matches("run_2026-02-14_080000_abc123"));
        for id in [
            "",
            "run_2026-02-14_080000_abc12",
            "run_2026-02-14_080000_abc1234",
            "run_2026-02-31_080000_abc123",
            "run-2026-02-14_080000_abc123",
            "run_2026-02-14_080000_abcé3",
            "run-019c5b29-ec00-7def-8123-456789abcdef",
        ] {
            assert!(!agent.matches(id), "{id}");
        }
    }

    #[test]
    fn bad_templates_name_the_bad_part() {
        let long = format!("{{uuid7}}{}", "x".repeat(29));
        for (template, named) in [
            ("", "makes the same id twice"),
            ("run-{date}", "{uuid7}, {uuid4}, {rand6} or {rand12}"),
            ("run-{uuid5}", "unknown part \"{uuid5}\"; allowed are {uuid7}"),
            ("run-{}", "unknown part \"{}\""),
            ("run-{uuid7", "not closed: \"{uuid7\""),
            ("run {uuid7}", "character ' '"),
            ("run}{uuid7}", "character '}'"),
            ("пуск-{uuid7}", "character 'п'"),
            ("run\0{uuid7}", "character '\\0'"),
            (&long, "65 characters; at most 64"),
        ] {
            let error = IdFormat::parse(template).expect_err(template);
            assert!(error.contains(named), "{template}: {error}");
        }
    }

    #[test]
    fn two_random_parts_differ() {
        let id = format("{rand6}-{rand6}").make(Time::default(), RANDOM);
        assert_ne!(id.split_once('-').map(|(first, _)| first), id.split_once('-').map(|(_, second)| second));
    }

    // proves X10
    #[test]
    fn ids_are_checked() {
        let longest = "x".repeat(MAX_ID_CHARS);
        for id in ["a", "run_2026-02-14_080000_abc123", "-", &longest] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
        let too_long = "x".repeat(MAX_ID_CHARS + 1);
        for (id, named) in [("", "empty"), ("a b", "' '"), ("a\0", "'\\0'"), ("é", "'é'"), (&too_long, "65")]
        {
            let error = check_id(id).expect_err(id);
            assert!(error.contains(named), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_time_and_random_number_makes_a_valid_id(now: i64, random: u128) {
            for template in ["run-{uuid7}", "run_{date}_{time}_{rand6}", "{uuid4}_{rand12}{rand6}"] {
                let id = format(template).make(Time::from_micros(now), random);
                prop_assert!(format(template).matches(&id) && check_id(&id).is_ok(), "{}", id);
            }
        }

        #[test]
        fn any_text_is_refused_or_printed_back(template in "[a-z{}0-9-]{0,30}|\\PC{0,30}") {
            if let Ok(format) = IdFormat::parse(&template) {
                prop_assert_eq!(format.to_string(), template);
            }
        }
    }
}
