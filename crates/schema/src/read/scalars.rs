//! Single values: each is read, or told as a problem with its place.

use super::Reader;
use crate::input::{Content, Opened};
use crate::node::{Node, Value};
use crate::path::Path;
use crate::shape::{Format, Kind};
use crate::text::{Fault, text};
use crate::words::{instead_of, quoted};

/// A text among whatever else a file may hold.
static TEXT: Format = Format { may_be_empty: true, check: text, ..Format::TEXT };

/// What a scalar of any value is held to.
pub(super) fn of_part(content: &Content<'_>) -> Kind {
    match content {
        Content::Integer(..) => Kind::Integer(i64::MIN, i64::MAX),
        Content::Float(..) => Kind::Number,
        Content::Boolean(_) => Kind::Boolean,
        _ => Kind::Format(&TEXT),
    }
}

impl Reader<'_> {
    pub(super) fn scalar(&mut self, found: Opened<'_>, kind: &Kind, path: &Path<'_>) -> Option<Node> {
        let (mut line, type_name) = (found.line, found.content.type_name());
        let read = match (kind, found.content) {
            (Kind::Text(most), Content::Text(given)) if given.len() <= *most => {
                Ok(Value::Text(given.into_owned()))
            }
            (Kind::Text(_), Content::Text(given)) => {
                Err(Fault::new("too-long", format!("the text has {} bytes", given.len()), "shorten it"))
            }
            (Kind::Format(format), Content::Text(given)) => {
                line = found.text_line;
                (format.check)(&given).map(|kept| Value::Text(kept.unwrap_or_else(|| given.into_owned())))
            }
            (Kind::Choice(words), Content::Text(given)) => {
                line = found.text_line;
                choice(&given, words)
            }
            (Kind::Integer(least, most), Content::Integer(number, digits)) => {
                whole(number, &digits, *least, *most)
            }
            (Kind::Number, Content::Integer(number, digits)) => whole(number, &digits, 0, i64::MAX),
            (Kind::Number, Content::Float(number, digits)) => number.map(Value::Number).ok_or_else(|| {
                let message = format!("{} is no number that can be used", quoted(&digits));
                Fault::new("bad-number", message, "write a number such as 1.5")
            }),
            (Kind::Boolean, Content::Boolean(truth)) => Ok(Value::Boolean(truth)),
            (kind, _) => {
                let wanted = in_file(kind, path);
                let message = format!("this is {type_name}, not {wanted}");
                Err(Fault::new("wrong-type", message, format!("write {wanted}")))
            }
        };
        match read {
            Ok(value) => Some(self.node(line, path, value)),
            Err(fault) => self.fault(&fault, kind, line, path),
        }
    }
}

fn choice(given: &str, words: &[&str]) -> Result<Value, Fault> {
    if !words.contains(&given) {
        let message = format!("there is no {}", quoted(given));
        return Err(Fault::new("unknown-word", message, instead_of(given, words)));
    }
    Ok(Value::Text(given.to_owned()))
}

fn whole(number: Option<i64>, digits: &str, least: i64, most: i64) -> Result<Value, Fault> {
    let fits = number.filter(|number| (least..=most).contains(number));
    fits.map(Value::Integer).ok_or_else(|| {
        let hint = match (least, most) {
            (i64::MIN, i64::MAX) => "write a number with fewer digits".to_owned(),
            _ => format!("write a number from {least} to {most}"),
        };
        Fault::new("bad-number", format!("{} is out of range", quoted(digits)), hint)
    })
}

/// What to write instead of something else.
fn in_file(kind: &Kind, path: &Path<'_>) -> String {
    match kind {
        Kind::Format(format) => format.wanted.to_owned(),
        Kind::Text(_) | Kind::Choice(_) => Format::TEXT.wanted.to_owned(),
        Kind::Integer(..) => "a whole number without quotes".to_owned(),
        Kind::Number => "a number without quotes".to_owned(),
        Kind::List { of: Kind::Of(_), .. } => {
            format!("a list of tables: write [[{}]] above each", path.in_file())
        }
        Kind::List { .. } | Kind::Row(_) => "a list between [ and ]".to_owned(),
        Kind::Map { .. } => "a table of names".to_owned(),
        Kind::Of(_) | Kind::Object | Kind::Either(_) => "a table".to_owned(),
        Kind::Boolean | Kind::TextOrList { .. } | Kind::Any | Kind::Parts(_) => kind.wanted(),
    }
}
