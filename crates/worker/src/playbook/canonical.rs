//! A playbook's content hash: the same for the same meaning, whatever its comments, layout and order of keys.

use std::fmt::{self, Write as _};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(String);

impl Hash {
    /// Keys in order, values as JSON.
    pub(crate) fn of(content: &Value) -> Hash {
        let mut text = String::new();
        write_sorted(&mut text, content);
        let digest = Sha256::digest(text.as_bytes());
        Hash(digest.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }

    /// For people: enough to tell versions apart.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// By ourselves, since another crate may switch serde_json to the order of insertion.
fn write_sorted(text: &mut String, value: &Value) {
    match value {
        Value::Object(entries) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in sorted {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_sorted(text, value);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_sorted(text, item);
                text.push(',');
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}
