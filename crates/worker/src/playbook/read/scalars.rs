//! Single values: each is read, or told as a problem with its line.

use toml::Spanned;
use toml::de::DeValue;
use waypost_kernel::Span;
use waypost_kernel::lifecycle::{instead_of, quoted};

use super::Reader;
use crate::playbook::format::{Keys, Kind};
use crate::playbook::node::{Node, Value};
use crate::playbook::secret::Reference;
use crate::playbook::{rule, window};

const MAX_NAME_CHARS: usize = 100;
const MAX_TEXT_BYTES: usize = 64 * 1024;

impl Reader<'_> {
    pub(super) fn scalar(&mut self, value: &Spanned<DeValue<'_>>, kind: &Kind, field: &str) -> Option<Node> {
        let found = match kind {
            Kind::Whole { at_least, at_most } => self.whole(value, (*at_least, *at_most), field)?,
            Kind::Number => self.number(value, field)?,
            Kind::Boolean => match value.get_ref().as_bool() {
                Some(value) => Value::Boolean(value),
                None => return self.wrong_type(value, field, "true or false"),
            },
            Kind::Duration => self.duration(value, field)?,
            _ => return self.text(value, kind, field),
        };
        Some(Node { line: self.line(value), field: field.to_owned(), value: found })
    }

    fn text(&mut self, value: &Spanned<DeValue<'_>>, kind: &Kind, field: &str) -> Option<Node> {
        let Some(text) = value.get_ref().as_str() else {
            return self.wrong_type(value, field, "a text between quotes");
        };
        let line = self.text_line(value);
        let mut problem = |rule, message: &str, mend: &str| {
            self.problem(line, field, rule, message, mend);
            None
        };
        if text.contains('\0') {
            return problem("bad-text", "the text has a NUL character", "remove it");
        }
        if text.len() > MAX_TEXT_BYTES {
            return problem(
                "too-long",
                "the text is longer than 64 KiB",
                "let a command read it from a file",
            );
        }
        let may_be_empty = matches!(kind, Kind::Template | Kind::Pointer);
        if text.trim().is_empty() && !may_be_empty {
            return problem("empty", "the text is empty", "write what belongs there, or remove the key");
        }
        if matches!(kind, Kind::Reference | Kind::Pointer | Kind::Path) && text.contains("{{") {
            return problem("template-syntax", "there are no templates here", "write it without {{ and }}");
        }
        match kind {
            Kind::Name if !is_name(text) => {
                let message = format!("{} is no name", quoted(text));
                return problem("bad-name", &message, "use at most 100 letters, digits, `_`, `-` and `.`");
            }
            Kind::Choice(words) if !words.contains(&text) => {
                return problem(
                    "unknown-word",
                    &format!("there is no {}", quoted(text)),
                    &instead_of(text, words),
                );
            }
            Kind::Clock if window::clock(text).is_none() => {
                let message = format!("{} is no time of day", quoted(text));
                return problem("bad-clock", &message, "write hours and minutes: 22:00");
            }
            Kind::Timezone if window::zone(text).is_none() => {
                let message = format!("there is no time zone {}", quoted(text));
                return problem("bad-timezone", &message, "write its IANA name: UTC, Europe/Kyiv");
            }
            Kind::Rate if rule::Rate::parse(text).is_none() => {
                let message = format!("{} is no rate", quoted(text));
                return problem(
                    "bad-rate",
                    &message,
                    "write a whole number above 0 per s, m or h: 2/s, 100/m",
                );
            }
            Kind::Pointer if !is_pointer(text) => {
                let message = format!("{} is no JSON pointer", quoted(text));
                return problem("bad-pointer", &message, "write the path to the value: /product/price");
            }
            Kind::Reference => {
                if let Err(mend) = Reference::parse(text) {
                    // Not quoted: it may be the secret itself.
                    return problem("bad-reference", "this is no reference to a secret", mend);
                }
            }
            _ => {}
        }
        Some(Node { line, field: field.to_owned(), value: Value::Text(text.to_owned()) })
    }

    fn duration(&mut self, value: &Spanned<DeValue<'_>>, field: &str) -> Option<Value> {
        let Some(text) = value.get_ref().as_str() else {
            let wanted = r#"a length of time between quotes, such as "60s" or "7d""#;
            return self.wrong_type(value, field, wanted);
        };
        match Span::parse(text) {
            Some(span) if span > Span::ZERO => Some(Value::Duration(span)),
            _ => {
                let message = format!("{} is no length of time", quoted(text));
                let mend = "write a whole number above 0 and a unit: 500ms, 60s, 5m, 24h, 7d";
                self.problem(self.line(value), field, "bad-duration", &message, mend);
                None
            }
        }
    }

    fn whole(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        (at_least, at_most): (i64, i64),
        field: &str,
    ) -> Option<Value> {
        let Some(digits) = value.get_ref().as_integer() else {
            return self.wrong_type(value, field, "a whole number without quotes");
        };
        let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let fits = number.filter(|number| (at_least..=at_most).contains(number));
        if fits.is_none() {
            let message = format!("{} is out of range", quoted(digits.as_str()));
            let mend = format!("write a number from {at_least} to {at_most}");
            self.problem(self.line(value), field, "bad-number", &message, &mend);
        }
        fits.map(Value::Whole)
    }

    pub(super) fn any_integer(&mut self, value: &Spanned<DeValue<'_>>, field: &str) -> Option<Node> {
        let found = self.whole(value, (i64::MIN, i64::MAX), field)?;
        Some(Node { line: self.line(value), field: field.to_owned(), value: found })
    }

    fn number(&mut self, value: &Spanned<DeValue<'_>>, field: &str) -> Option<Value> {
        if value.get_ref().as_integer().is_some() {
            return self.whole(value, (0, i64::MAX), field);
        }
        let Some(digits) = value.get_ref().as_float() else {
            return self.wrong_type(value, field, "a number without quotes");
        };
        let number = digits.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
        if number.is_none() {
            let message = format!("{} is no number that can be used", quoted(digits.as_str()));
            self.problem(self.line(value), field, "bad-number", &message, "write a number such as 1.5");
        }
        number.map(Value::Number)
    }

    pub(super) fn key_of_map(&mut self, line: usize, name: &str, keys: Keys, field: &str) {
        let found = match keys {
            Keys::Identifier if !is_identifier(name) => Some((
                "bad-name",
                format!("{} cannot be used in a template", quoted(name)),
                "use letters, digits and `_`, and begin with a letter",
            )),
            Keys::Variable if !is_identifier(name) => Some((
                "bad-variable",
                format!("{} is no environment variable", quoted(name)),
                "use letters, digits and `_`, and begin with a letter",
            )),
            Keys::Variable if name.to_ascii_uppercase().starts_with("WAYPOST_") => Some((
                "bad-variable",
                format!("{} is Waypost's to set", quoted(name)),
                "use a name without WAYPOST_",
            )),
            Keys::Header if !is_header(name) => Some((
                "bad-header",
                format!("{} is no name of a header", quoted(name)),
                "use letters, digits and `-`",
            )),
            Keys::Header if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) => Some((
                "bad-header",
                format!("{} is Waypost's to set", quoted(name)),
                "remove it: it is sent with every request, or depends on the body",
            )),
            _ => None,
        };
        if let Some((rule, message, mend)) = found {
            self.problem(line, field, rule, &message, mend);
        }
    }

    /// A text of several lines begins on the line after its opening quotes.
    fn text_line(&self, value: &Spanned<DeValue<'_>>) -> usize {
        let start = value.span().start;
        let opening = self.text.get(start..).unwrap_or_default();
        let rest = opening.strip_prefix(r#"""""#).or_else(|| opening.strip_prefix("'''"));
        let begins_below = rest.is_some_and(|rest| rest.starts_with('\n') || rest.starts_with("\r\n"));
        self.line_at(start) + usize::from(begins_below)
    }
}

const OWN_HEADERS: [&str; 6] =
    ["Idempotency-Key", "Traceparent", "Content-Length", "Transfer-Encoding", "Connection", "Host"];

fn is_name(text: &str) -> bool {
    text.chars().count() <= MAX_NAME_CHARS
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// As templates and shells write it.
fn is_identifier(name: &str) -> bool {
    name.len() <= MAX_NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_header(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_CHARS
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn is_pointer(text: &str) -> bool {
    text.is_empty()
        || text.starts_with('/')
            && text.split('~').skip(1).all(|rest| rest.starts_with('0') || rest.starts_with('1'))
}
