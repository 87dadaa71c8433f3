//! A playbook's values by type, each with its line and the path that leads to it, for the checks behind.

use serde_json::{Map, Number, json};
use waypost_kernel::Span;

/// A value of the right kind.
#[derive(Clone, Debug)]
pub struct Node {
    /// Of a text: where its first character stands.
    pub line: usize,
    /// As in `step[0].http.url`.
    pub field: String,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    Text(String),
    Duration(Span),
    Whole(i64),
    Number(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
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

    pub fn text_of(&self, key: &str) -> Option<String> {
        self.get(key).map(|node| node.text().to_owned())
    }

    pub fn duration_of(&self, key: &str) -> Option<Span> {
        self.get(key).and_then(Node::duration)
    }

    pub fn duration(&self) -> Option<Span> {
        match self.value {
            Value::Duration(span) => Some(span),
            _ => None,
        }
    }

    pub fn durations_of(&self, key: &str) -> Vec<Span> {
        self.get(key).map(|list| list.items().iter().filter_map(Node::duration).collect()).unwrap_or_default()
    }

    pub fn whole_of(&self, key: &str) -> Option<i64> {
        match self.get(key)?.value {
            Value::Whole(number) => Some(number),
            _ => None,
        }
    }

    pub fn number_of(&self, key: &str) -> Option<f64> {
        match self.get(key)?.value {
            Value::Whole(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    pub fn boolean_of(&self, key: &str) -> Option<bool> {
        match self.get(key)?.value {
            Value::Boolean(value) => Some(value),
            _ => None,
        }
    }

    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Text(text) => json!(text),
            Value::Duration(span) => json!(span.to_string()),
            Value::Whole(number) => json!(number),
            Value::Number(number) => Number::from_f64(*number).map_or(json!(null), serde_json::Value::Number),
            Value::Boolean(value) => json!(value),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Table(entries) => {
                let entries = entries.iter().map(|(key, node)| (key.clone(), node.to_json()));
                serde_json::Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }
}
