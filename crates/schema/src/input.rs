//! Values as they come, TOML or JSON, opened one level at a time: what is kept as it is need not be walked.

use std::borrow::Cow;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[derive(Debug)]
pub(crate) enum Input<'i> {
    Toml(Spanned<DeValue<'i>>),
    Json(Value),
}

#[derive(Debug)]
pub(crate) struct Opened<'i> {
    pub line: usize,
    /// Of a text: where its first character stands.
    pub text_line: usize,
    pub content: Content<'i>,
}

#[derive(Debug)]
pub(crate) enum Content<'i> {
    Null,
    Text(Cow<'i, str>),
    /// With its digits, for what does not fit.
    Integer(Option<i64>, String),
    Float(Option<f64>, String),
    Boolean(bool),
    Datetime(String),
    List(Vec<Input<'i>>),
    Table(Vec<Entry<'i>>),
}

#[derive(Debug)]
pub(crate) struct Entry<'i> {
    pub name: Cow<'i, str>,
    pub line: usize,
    pub value: Input<'i>,
}

/// Where each line of a text ends, so that the line of an offset is found without reading it again.
#[derive(Debug, Default)]
pub(crate) struct Lines<'t> {
    text: &'t str,
    ends: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub fn of(text: &'t str) -> Lines<'t> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        let mut ends: Vec<usize> = ends.collect();
        if !text.is_empty() && !text.ends_with('\n') {
            ends.push(text.len());
        }
        Lines { text, ends }
    }

    pub fn last(&self) -> usize {
        self.ends.len().max(1)
    }

    /// What is missing at the end of the file is told of its last line.
    pub fn at(&self, offset: usize) -> usize {
        let before = self.ends.partition_point(|end| *end < offset);
        (before + 1).min(self.last())
    }

    /// A text of several lines begins on the line after its opening quotes.
    fn of_text(&self, start: usize) -> usize {
        let opening = self.text.get(start..).unwrap_or_default();
        let rest = opening.strip_prefix(r#"""""#).or_else(|| opening.strip_prefix("'''"));
        let begins_below = rest.is_some_and(|rest| rest.starts_with('\n') || rest.starts_with("\r\n"));
        self.at(start) + usize::from(begins_below)
    }
}

impl<'i> Input<'i> {
    pub fn open(self, lines: &Lines<'_>) -> Opened<'i> {
        match self {
            Input::Json(value) => Opened { line: 0, text_line: 0, content: of_json(value) },
            Input::Toml(value) => {
                let start = value.span().start;
                Opened {
                    line: lines.at(start),
                    text_line: lines.of_text(start),
                    content: of_toml(value.into_inner(), lines),
                }
            }
        }
    }
}

fn of_toml<'i>(value: DeValue<'i>, lines: &Lines<'_>) -> Content<'i> {
    match value {
        DeValue::String(text) => Content::Text(text),
        DeValue::Integer(digits) => {
            let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
            Content::Integer(number, digits.as_str().to_owned())
        }
        DeValue::Float(digits) => {
            let number = digits.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            Content::Float(number, digits.as_str().to_owned())
        }
        DeValue::Boolean(truth) => Content::Boolean(truth),
        DeValue::Datetime(time) => Content::Datetime(time.to_string()),
        DeValue::Array(items) => Content::List(items.into_iter().map(Input::Toml).collect()),
        DeValue::Table(table) => Content::Table(entries(table, lines)),
    }
}

pub(crate) fn entries<'i>(table: DeTable<'i>, lines: &Lines<'_>) -> Vec<Entry<'i>> {
    let entry = |(name, value): (Spanned<Cow<'i, str>>, Spanned<DeValue<'i>>)| Entry {
        line: lines.at(name.span().start),
        name: name.into_inner(),
        value: Input::Toml(value),
    };
    table.into_iter().map(entry).collect()
}

fn of_json<'i>(value: Value) -> Content<'i> {
    match value {
        Value::Null => Content::Null,
        Value::Bool(truth) => Content::Boolean(truth),
        Value::String(text) => Content::Text(text.into()),
        Value::Number(number) if number.is_f64() => Content::Float(number.as_f64(), number.to_string()),
        Value::Number(number) => Content::Integer(number.as_i64(), number.to_string()),
        Value::Array(items) => Content::List(items.into_iter().map(Input::Json).collect()),
        Value::Object(members) => Content::Table(of_members(members)),
    }
}

pub(crate) fn of_members<'i>(members: serde_json::Map<String, Value>) -> Vec<Entry<'i>> {
    let entry =
        |(name, value): (String, Value)| Entry { name: name.into(), line: 0, value: Input::Json(value) };
    members.into_iter().map(entry).collect()
}

impl Content<'_> {
    /// With its article.
    pub fn type_name(&self) -> &'static str {
        match self {
            Content::Null => "a null",
            Content::Text(_) => "a string",
            Content::Integer(..) => "an integer",
            Content::Float(..) => "a float",
            Content::Boolean(_) => "a boolean",
            Content::Datetime(_) => "a datetime",
            Content::List(_) => "an array",
            Content::Table(_) => "a table",
        }
    }
}
