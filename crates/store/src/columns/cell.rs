//! A value on its way between a row, a database and the wire.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use waypost_kernel::item::Role;
use waypost_kernel::{Span, Time, Token};
use waypost_schema::Kind as Api;

use crate::json::codec::token_text;
use crate::seam::run::{iso, shared};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Flag(bool),
    Number(i64),
    Time(Time),
    Token(Token),
    /// Of JSON too, as a database gives it.
    Text(Cow<'a, str>),
    Json(Cow<'a, Value>),
    Members(&'a Map<String, Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flag,
    Int2,
    Int4,
    Int8,
    Time,
    Token,
    Text,
    /// JSON whose text is kept as it came.
    Json,
    /// JSON that the database looks into.
    Jsonb,
}

/// A type that columns have.
pub(crate) trait Field: Sized {
    const KIND: Kind;
    /// As the API describes it.
    const API: Api;
    /// It is never null.
    const IS_NEEDED: bool = true;
    fn cell(&self) -> Cell<'_>;
    /// Of a cell of that kind; of any other, what stands for none.
    fn of(cell: Cell<'_>) -> Self;
}

impl Kind {
    /// Its type in PostgreSQL.
    pub fn postgres(self) -> &'static str {
        match self {
            Kind::Flag => "boolean",
            Kind::Int2 => "smallint",
            Kind::Int4 => "int",
            Kind::Int8 => "bigint",
            Kind::Time => "timestamptz",
            Kind::Token => "uuid",
            Kind::Text => "text",
            Kind::Json => "json",
            Kind::Jsonb => "jsonb",
        }
    }

    pub fn is_json(self) -> bool {
        matches!(self, Kind::Json | Kind::Jsonb)
    }

    /// What another process sent; none if it is of another kind.
    pub fn cell_of(self, value: &Value) -> Option<Cell<'_>> {
        Some(match (self, value) {
            (_, Value::Null) => Cell::Null,
            (Kind::Flag, Value::Bool(flag)) => Cell::Flag(*flag),
            (Kind::Int2 | Kind::Int4 | Kind::Int8, number) => Cell::Number(number.as_i64()?),
            (Kind::Time, text) => Cell::Time(Time::parse(text.as_str()?)?),
            (Kind::Text, Value::String(text)) => Cell::Text(Cow::Borrowed(text)),
            (Kind::Json | Kind::Jsonb, value) => Cell::Json(Cow::Borrowed(value)),
            _ => return None,
        })
    }
}

impl<'a> Cell<'a> {
    pub fn text(text: &'a str) -> Cell<'a> {
        Cell::Text(Cow::Borrowed(text))
    }

    pub fn json(value: Value) -> Cell<'a> {
        Cell::Json(Cow::Owned(value))
    }

    /// As the wire has it.
    pub fn into_json(self) -> Value {
        match self {
            Cell::Null => Value::Null,
            Cell::Flag(flag) => flag.into(),
            Cell::Number(number) => number.into(),
            Cell::Time(time) => iso(time).into(),
            Cell::Token(token) => token_text(token).into(),
            Cell::Text(text) => text.into(),
            Cell::Json(value) => value.into_owned(),
            Cell::Members(members) => Value::Object(members.clone()),
        }
    }

    /// As a database takes it: JSON is written out.
    pub fn into_text(self) -> Option<Cow<'a, str>> {
        match self {
            Cell::Text(text) => Some(text),
            Cell::Json(value) => Some(Cow::Owned(value.to_string())),
            Cell::Members(members) => Some(Cow::Owned(members_text(members))),
            _ => None,
        }
    }
}

/// As [`Cell::into_json`], without the value.
impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Null => serializer.serialize_unit(),
            Cell::Flag(flag) => serializer.serialize_bool(*flag),
            Cell::Number(number) => serializer.serialize_i64(*number),
            Cell::Time(time) => serializer.serialize_str(&iso(*time)),
            Cell::Token(token) => serializer.serialize_str(&token_text(*token)),
            Cell::Text(text) => serializer.serialize_str(text),
            Cell::Json(value) => value.serialize(serializer),
            Cell::Members(members) => members.serialize(serializer),
        }
    }
}

/// An object as it is written.
pub(crate) fn members_text(members: &Map<String, Value>) -> String {
    if members.is_empty() {
        "{}".into()
    } else {
        serde_json::to_string(members).unwrap_or_else(|_| "{}".into())
    }
}

/// What cannot be read is null.
pub(crate) fn parse(text: &str) -> Value {
    if text == "{}" { Value::Object(Map::new()) } else { serde_json::from_str(text).unwrap_or(Value::Null) }
}

/// Any text.
pub(crate) const LONG: Api = Api::Text(4 * 1024 * 1024);
pub(crate) const NAME: Api = Api::Text(waypost_kernel::text::MAX_NAME_BYTES);
pub(crate) const COUNT: Api = Api::Integer(0, i64::MAX);
pub(crate) const TIME: Api = Api::Format(&waypost_kernel::format::TIME);

/// Types of one kind: how each becomes a cell, which cell it is read from, and what it is without one.
macro_rules! fields {
    ($($of:ty: $kind:ident, $api:expr, $it:ident => $cell:expr, $found:pat => $value:expr;)+) => {
        $(impl Field for $of {
            const KIND: Kind = Kind::$kind;
            const API: Api = $api;

            fn cell(&self) -> Cell<'_> {
                let $it = self;
                $cell
            }

            #[allow(unreachable_patterns, reason = "some types take whatever comes")]
            fn of(cell: Cell<'_>) -> $of {
                match cell {
                    $found => $value,
                    _ => <$of>::default(),
                }
            }
        })+
    };
}

fields! {
    bool: Flag, Api::Boolean, it => Cell::Flag(*it), Cell::Flag(flag) => flag;
    u8: Int2, Api::Integer(0, 255), it => Cell::Number((*it).into()), Cell::Number(number) => number.try_into().unwrap_or_default();
    i16: Int2, Api::Integer(-32_768, 32_767), it => Cell::Number((*it).into()), Cell::Number(number) => number.try_into().unwrap_or_default();
    u32: Int4, COUNT, it => Cell::Number((*it).into()), Cell::Number(number) => number.try_into().unwrap_or_default();
    u64: Int4, COUNT, it => Cell::Number(*it as i64), Cell::Number(number) => number.unsigned_abs();
    Span: Int8, COUNT, it => Cell::Number(it.ms()), Cell::Number(ms) => Span::from_ms(ms);
    Time: Time, TIME, it => Cell::Time(*it), Cell::Time(time) => time;
    String: Text, NAME, it => Cell::text(it), Cell::Text(text) => text.into_owned();
    Arc<str>: Text, NAME, it => Cell::text(it), Cell::Text(text) => text.into();
    Value: Json, Api::Any, it => Cell::Json(Cow::Borrowed(it)), cell => value_of(cell);
    Arc<Value>: Json, Api::Any, it => Cell::Json(Cow::Borrowed(it)), cell => Arc::new(value_of(cell));
    Map<String, Value>: Jsonb, Api::Object, it => Cell::Members(it), cell => members_of(cell);
    Arc<Map<String, Value>>: Jsonb, Api::Object, it => Cell::Members(it), cell => shared(members_of(cell));
    Vec<String>: Json, Api::List { of: &NAME, least: 0, most: usize::MAX }, it => Cell::json(serde_json::json!(it)),
        cell => serde_json::from_value(value_of(cell)).unwrap_or_default();
    Role: Text, Api::Choice(&[Role::Step.name(), Role::Optional.name(), Role::Cleanup.name()]), it => Cell::text(it.name()),
        Cell::Text(name) => Role::named(&name).unwrap_or_default();
}

impl Field for Token {
    const KIND: Kind = Kind::Token;
    const API: Api = NAME;

    fn cell(&self) -> Cell<'_> {
        Cell::Token(*self)
    }

    fn of(cell: Cell<'_>) -> Token {
        if let Cell::Token(token) = cell { token } else { Token(0) }
    }
}

fn value_of(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Text(text) => parse(&text),
        Cell::Json(value) => value.into_owned(),
        _ => Value::Null,
    }
}

fn members_of(cell: Cell<'_>) -> Map<String, Value> {
    if let Value::Object(members) = value_of(cell) { members } else { Map::new() }
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;
    const API: Api = T::API;
    const IS_NEEDED: bool = false;

    fn cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Null, T::cell)
    }

    fn of(cell: Cell<'_>) -> Option<T> {
        if cell == Cell::Null { None } else { Some(T::of(cell)) }
    }
}
