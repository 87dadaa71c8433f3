//! What a form sent.

use axum::http::header::CONTENT_TYPE;

use super::session;
use crate::answer::Result;
use crate::call::Call;
use crate::problem::{INVALID_INPUT, Problem, UNSUPPORTED_MEDIA_TYPE};

const KIND: &str = "application/x-www-form-urlencoded";

#[derive(Debug)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// One of our own pages', sent by who was shown it.
    pub fn of_page(call: &Call, raw: &[u8]) -> Result<Form> {
        let form = Form::of_site(call, raw)?;
        session::check_token(call, form.get(session::FIELD).unwrap_or_default())?;
        Ok(form)
    }

    /// The same of who is not signed in.
    pub fn of_site(call: &Call, raw: &[u8]) -> Result<Form> {
        session::check_origin(call)?;
        let kind = call.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().is_none_or(|kind| !kind.trim().eq_ignore_ascii_case(KIND)) {
            return Err(Problem::new(&UNSUPPORTED_MEDIA_TYPE, format!("a form is sent as {KIND}")));
        }
        read(raw).map(Form).ok_or_else(|| {
            Problem::field(&INVALID_INPUT, "form", "is not UTF-8, has a NUL, or has more than 2,000 fields")
        })
    }

    /// What was left empty is left out.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.trim().is_empty())
    }

    /// Whether it was on the page and left empty, or emptied.
    pub fn is_emptied(&self, name: &str) -> bool {
        self.0.iter().any(|(known, value)| known == name && value.trim().is_empty())
    }

    /// Every one of this name: boxes that were ticked, for example.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty()).collect()
    }

    pub fn is_ticked(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Fields whose names begin so, by the rest of their names; without those that were left empty.
    pub fn under<'f>(&'f self, prefix: &'f str) -> impl Iterator<Item = (&'f str, &'f str)> {
        let given = self.0.iter().filter(|(_, value)| !value.trim().is_empty());
        given.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

fn read(raw: &[u8]) -> Option<Vec<(String, String)>> {
    const MOST_FIELDS: usize = 2_000;
    let text = std::str::from_utf8(raw).ok()?;
    let pairs = || text.split('&').filter(|pair| !pair.is_empty());
    if pairs().nth(MOST_FIELDS).is_some() {
        return None;
    }
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        let text = percent_encoding::percent_decode_str(&text).decode_utf8().ok()?.into_owned();
        // Browsers send line ends of text areas as the network does.
        Some(text.replace("\r\n", "\n")).filter(|text| !text.contains('\0'))
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(name)?, decoded(value)?))
    };
    pairs().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_browsers_write_it() {
        let form = Form(read(b"a=1+2&b=%D1%8F%26&empty=&a=3&in.x=%0D%0A1").expect("a form"));
        assert_eq!(form.get("a"), Some("1 2"));
        assert_eq!(form.get("b"), Some("я&"));
        assert_eq!((form.get("empty"), form.get("none")), (None, None));
        assert_eq!(form.all("a"), ["1 2", "3"]);
        assert_eq!(form.under("in.").collect::<Vec<_>>(), [("x", "\n1")]);
        for wrong in [&b"a=%00"[..], b"a=%FF", b"\xff=1"] {
            assert!(read(wrong).is_none());
        }
    }
}
