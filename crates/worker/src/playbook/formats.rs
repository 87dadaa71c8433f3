//! Texts of a playbook or schedule that have a form: what each looks like, and what is said where it does not.

use waypost_schema::{Checked, Fault, Format, Keys, quoted, some_text, text};

use super::guardrails::Change;
use super::rule::Rate;
use super::secret::Reference;
use super::window;

const MAX_NAME_CHARS: usize = 100;
const IDENTIFIER: &str = "^[A-Za-z_][A-Za-z0-9_]*$";

pub static NAME: Format = Format {
    name: "a name",
    pattern: Some("^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
    most_chars: Some(MAX_NAME_CHARS),
    check: |given| {
        some_text(given)?;
        let hint = "use at most 100 letters, digits, `_`, `-` and `.`";
        fits(is_name(given), "bad-name", || format!("{} is no name", quoted(given)), hint)
    },
    ..Format::TEXT
};

/// Of a file, relative to the playbook's.
pub static PATH: Format = Format { name: "a file", check: literal, ..Format::TEXT };

/// Text with `{{ expressions }}`.
pub static TEMPLATE: Format = Format { name: "a template", may_be_empty: true, check: text, ..Format::TEXT };

/// One expression without braces.
pub static EXPRESSION: Format = Format { name: "an expression", ..Format::TEXT };

pub static CLOCK: Format = Format {
    name: "`HH:MM`",
    example: r#""22:00""#,
    pattern: Some("^([01][0-9]|2[0-3]):[0-5][0-9]$"),
    check: |given| {
        some_text(given)?;
        let message = || format!("{} is no time of day", quoted(given));
        fits(window::clock(given).is_some(), "bad-clock", message, "write hours and minutes: 22:00")
    },
    ..Format::TEXT
};

pub static TIMEZONE: Format = Format {
    name: "an IANA time zone",
    check: |given| {
        some_text(given)?;
        let message = || format!("there is no time zone {}", quoted(given));
        fits(window::zone(given).is_some(), "bad-timezone", message, "write its IANA name: UTC, Europe/Kyiv")
    },
    ..Format::TEXT
};

pub static REFERENCE: Format = Format {
    name: "`env:NAME` or `file:/path`",
    pattern: Some("^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$"),
    check: |given| {
        literal(given)?;
        // Not quoted: it may be the secret itself.
        let fault =
            |hint: &'static str| Fault::new("bad-reference", "this is no reference to a secret", hint);
        Reference::parse(given).map(|_| None).map_err(fault)
    },
    ..Format::TEXT
};

pub static RATE: Format = Format {
    name: "a rate, `2/s`",
    example: r#""2/s""#,
    pattern: Some("^[1-9][0-9]*/(s|m|h)$"),
    check: |given| {
        some_text(given)?;
        let hint = "write a whole number above 0 per s, m or h: 2/s, 100/m";
        fits(Rate::parse(given).is_some(), "bad-rate", || format!("{} is no rate", quoted(given)), hint)
    },
    ..Format::TEXT
};

pub static CHANGE: Format = Format {
    name: "`20%` or an amount",
    example: r#""20%""#,
    pattern: Some("^[0-9]+([.][0-9]+)?%?$"),
    check: |given| {
        some_text(given)?;
        let hint = "write a share or an amount, 0 or more: 20%, 5.00";
        let message = || format!("{} is no share and no amount", quoted(given));
        fits(Change::parse(given).is_some(), "bad-amount", message, hint)
    },
    ..Format::TEXT
};

pub static POINTER: Format = Format {
    name: "a JSON pointer",
    pattern: Some("^(/.*)?$"),
    may_be_empty: true,
    check: |given| {
        text(given)?;
        no_templates(given)?;
        let message = || format!("{} is no JSON pointer", quoted(given));
        fits(is_pointer(given), "bad-pointer", message, "write the path to the value: /product/price")
    },
    ..Format::TEXT
};

/// As templates write it: letters, digits and `_`.
pub static IDENTIFIERS: Keys = Keys {
    pattern: Some(IDENTIFIER),
    not: None,
    check: |name| {
        let message = || format!("{} cannot be used in a template", quoted(name));
        fits(is_identifier(name), "bad-name", message, "use letters, digits and `_`, and begin with a letter")
    },
};

/// Environment variables.
pub static VARIABLES: Keys = Keys {
    pattern: Some(IDENTIFIER),
    not: Some("^WAYPOST_"),
    check: |name| {
        let message = || format!("{} is no environment variable", quoted(name));
        let hint = "use letters, digits and `_`, and begin with a letter";
        fits(is_identifier(name), "bad-variable", message, hint)?;
        let is_free = !name.to_ascii_uppercase().starts_with("WAYPOST_");
        let message = || format!("{} is Waypost's to set", quoted(name));
        fits(is_free, "bad-variable", message, "use a name without WAYPOST_")
    },
};

/// For commands that no playbook names.
pub fn check_variable(name: &str) -> Result<(), String> {
    (VARIABLES.check)(name).map(drop).map_err(|fault| format!("{}: {}", fault.message, fault.hint))
}

pub static HEADERS: Keys = Keys {
    pattern: None,
    not: None,
    check: |name| {
        let message = || format!("{} is no name of a header", quoted(name));
        fits(is_header(name), "bad-header", message, "use letters, digits and `-`")?;
        let is_free = !OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own));
        let message = || format!("{} is Waypost's to set", quoted(name));
        let hint = "remove it: it is sent with every request, or depends on the body";
        fits(is_free, "bad-header", message, hint)
    },
};

const OWN_HEADERS: [&str; 6] =
    ["Idempotency-Key", "Traceparent", "Content-Length", "Transfer-Encoding", "Connection", "Host"];

fn fits(it_does: bool, rule: &'static str, message: impl Fn() -> String, hint: &'static str) -> Checked {
    if it_does { Ok(None) } else { Err(Fault::new(rule, message(), hint)) }
}

/// Says something, and is what it says.
fn literal(given: &str) -> Checked {
    some_text(given)?;
    no_templates(given)
}

fn no_templates(given: &str) -> Checked {
    let message = || "there are no templates here".to_owned();
    fits(!given.contains("{{"), "template-syntax", message, "write it without {{ and }}")
}

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
