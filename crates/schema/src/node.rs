//! Values that were read and have the right kind, each with its place, and the way from them to types.

use serde_json::{Map, Number, json};

use crate::shape::Kind;

/// A value of the right kind.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Of a text: where its first character stands. 0: it came from JSON.
    pub line: usize,
    /// As in `step[0].http.url`. Requests do not keep it.
    pub field: String,
    pub value: Value,
}

#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Null,
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    /// As it came.
    Json(serde_json::Value),
}

/// A type that values become. None: the value is not of the kind that the type is for.
pub trait FromNode: Sized {
    /// Kinds whose every value it takes. [`requests!`](crate::requests) compares them when it is compiled.
    const TAKES: Takes;

    fn from_node(node: Node) -> Option<Self>;
}

/// What a type takes.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Or what a text stands for.
    Text,
    Integer(i64, i64),
    Number,
    Boolean,
    Object,
    /// Whatever it is.
    Json,
    List(&'static Takes),
    /// A struct of its own.
    Fields,
}

impl Takes {
    /// Whether it takes everything that is of this kind.
    pub const fn all_of(&self, kind: &Kind) -> bool {
        match (self, kind) {
            (Takes::Json, _)
            | (Takes::Text, Kind::Text(_) | Kind::Format(_) | Kind::Choice(_))
            | (Takes::Number, Kind::Number | Kind::Integer(..))
            | (Takes::Boolean, Kind::Boolean)
            | (Takes::Object, Kind::Object | Kind::Map { .. })
            | (Takes::Fields, Kind::Of(_)) => true,
            (Takes::Integer(least, most), Kind::Integer(from, to)) => *least <= *from && *to <= *most,
            (Takes::List(takes), Kind::List { of, .. }) => takes.all_of(of),
            _ => false,
        }
    }
}

/// A type that says what a field is that was left out.
pub trait MayBeAbsent: FromNode {
    fn absent() -> Self;
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The value of a key as a type. None: it is not there, or was not sound, which was told already.
    pub fn of<T: FromNode>(&self, key: &str) -> Option<T> {
        self.get(key).and_then(Node::typed)
    }

    pub fn typed<T: FromNode>(&self) -> Option<T> {
        T::from_node(self.clone())
    }

    pub fn remove(&mut self, key: &str) -> Option<Node> {
        let Value::Table(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(name, _)| name == key)?;
        Some(entries.swap_remove(at).1)
    }

    pub fn entries(&self) -> &[(String, Node)] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    pub fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            _ => "",
        }
    }

    pub fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key).map(Node::text)
    }

    pub fn to_json(&self) -> serde_json::Value {
        self.clone().into_json()
    }

    pub fn into_json(self) -> serde_json::Value {
        match self.value {
            Value::Null => serde_json::Value::Null,
            Value::Text(text) => text.into(),
            Value::Integer(number) => number.into(),
            Value::Number(number) => Number::from_f64(number).map_or(json!(null), serde_json::Value::Number),
            Value::Boolean(truth) => truth.into(),
            Value::List(items) => items.into_iter().map(Node::into_json).collect(),
            Value::Table(entries) => {
                let members = entries.into_iter().map(|(key, node)| (key, node.into_json()));
                members.collect::<Map<_, _>>().into()
            }
            Value::Json(value) => value,
        }
    }
}

impl FromNode for String {
    const TAKES: Takes = Takes::Text;

    fn from_node(node: Node) -> Option<String> {
        match node.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl FromNode for bool {
    const TAKES: Takes = Takes::Boolean;

    fn from_node(node: Node) -> Option<bool> {
        match node.value {
            Value::Boolean(truth) => Some(truth),
            _ => None,
        }
    }
}

impl FromNode for f64 {
    const TAKES: Takes = Takes::Number;

    fn from_node(node: Node) -> Option<f64> {
        match node.value {
            Value::Integer(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}

macro_rules! integers {
    ($($type:ty: $least:expr, $most:expr;)+) => {$(
        impl FromNode for $type {
            const TAKES: Takes = Takes::Integer($least, $most);

            fn from_node(node: Node) -> Option<$type> {
                match node.value {
                    Value::Integer(number) => number.try_into().ok(),
                    _ => None,
                }
            }
        }
    )+};
}

integers! {
    i64: i64::MIN, i64::MAX;
    u64: 0, i64::MAX;
    u32: 0, u32::MAX as i64;
    i16: i16::MIN as i64, i16::MAX as i64;
    u8: 0, u8::MAX as i64;
    usize: 0, i64::MAX;
}

impl FromNode for serde_json::Value {
    const TAKES: Takes = Takes::Json;

    fn from_node(node: Node) -> Option<serde_json::Value> {
        Some(node.into_json())
    }
}

impl FromNode for Map<String, serde_json::Value> {
    const TAKES: Takes = Takes::Object;

    fn from_node(node: Node) -> Option<Map<String, serde_json::Value>> {
        match node.into_json() {
            serde_json::Value::Object(members) => Some(members),
            _ => None,
        }
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    const TAKES: Takes = Takes::List(&T::TAKES);

    fn from_node(node: Node) -> Option<Vec<T>> {
        match node.value {
            Value::List(items) => items.into_iter().map(T::from_node).collect(),
            _ => None,
        }
    }
}

impl<T: FromNode> FromNode for Option<T> {
    const TAKES: Takes = T::TAKES;

    fn from_node(node: Node) -> Option<Option<T>> {
        T::from_node(node).map(Some)
    }
}

impl<T: FromNode> MayBeAbsent for Option<T> {
    fn absent() -> Option<T> {
        None
    }
}

impl<T: FromNode> MayBeAbsent for Vec<T> {
    fn absent() -> Vec<T> {
        Vec::new()
    }
}

impl MayBeAbsent for Map<String, serde_json::Value> {
    fn absent() -> Map<String, serde_json::Value> {
        Map::new()
    }
}

impl MayBeAbsent for bool {
    fn absent() -> bool {
        false
    }
}
