//! Checks of texts, for the formats that are made of them.

use std::borrow::Cow;

/// A text of a file is not longer than this.
const MAX_BYTES: usize = 64 * 1024;

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub rule: &'static str,
    pub message: Cow<'static, str>,
    pub hint: Cow<'static, str>,
}

impl Fault {
    pub fn new(
        rule: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Fault {
        Fault { rule, message: message.into(), hint: hint.into() }
    }
}

/// The text as it is to be kept where that is not the text itself: `60s` is `1m`.
pub type Checked = Result<Option<String>, Fault>;

/// Whatever it is.
pub fn any_text(_: &str) -> Checked {
    Ok(None)
}

/// Perhaps nothing, but not endless, and nothing that a database cannot store.
pub fn text(text: &str) -> Checked {
    if text.contains('\0') {
        return Err(Fault::new("bad-text", "the text has a NUL character", "remove it"));
    }
    if text.len() > MAX_BYTES {
        let hint = "let a command read it from a file";
        return Err(Fault::new("too-long", "the text is longer than 64 KiB", hint));
    }
    Ok(None)
}

/// The same, and it says something.
pub fn some_text(given: &str) -> Checked {
    text(given)?;
    if given.trim().is_empty() {
        let hint = "write what belongs there, or remove the key";
        return Err(Fault::new("empty", "the text is empty", hint));
    }
    Ok(None)
}
