//! A playbook's content hash: the same for the same meaning, whatever its comments, layout and order of keys.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};
use waypost_store::codec::{hex, write_canonical};

/// SHA-256 in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(String);

impl Hash {
    /// Keys in order, values as JSON.
    pub(crate) fn of(content: &Value) -> Hash {
        let mut text = Vec::new();
        write_canonical(content, &mut text);
        Hash(hex(&Sha256::digest(&text)))
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
