//! Values that were read and have the right kind, each with its place, and the way from them to types.

use serde_json::{Map, Number, json};

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
    fn from_node(node: Node) -> Option<Self>;
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
    fn from_node(node: Node) -> Option<String> {
        match node.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl FromNode for bool {
    fn from_node(node: Node) -> Option<bool> {
        match node.value {
            Value::Boolean(truth) => Some(truth),
            _ => None,
        }
    }
}

impl FromNode for f64 {
    fn from_node(node: Node) -> Option<f64> {
        match node.value {
            Value::Integer(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl FromNode for $type {
            fn from_node(node: Node) -> Option<$type> {
                match node.value {
                    Value::Integer(number) => number.try_into().ok(),
                    _ => None,
                }
            }
        }
    )+};
}

integers!(i64, u64, u32, i16, u8, usize);

impl FromNode for serde_json::Value {
    fn from_node(node: Node) -> Option<serde_json::Value> {
        Some(node.into_json())
    }
}

impl FromNode for Map<String, serde_json::Value> {
    fn from_node(node: Node) -> Option<Map<String, serde_json::Value>> {
        match node.into_json() {
            serde_json::Value::Object(members) => Some(members),
            _ => None,
        }
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: Node) -> Option<Vec<T>> {
        match node.value {
            Value::List(items) => items.into_iter().map(T::from_node).collect(),
            _ => None,
        }
    }
}

impl<T: FromNode> FromNode for Option<T> {
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
