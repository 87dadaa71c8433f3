//! What a finish brings along, as a digest: the same finish sent again is known by it, though parts of the first were cut, left
//! out, or gave way to what was wanted of the run before.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use waypost_kernel::{Failure, Token};

use crate::json::codec::{write_canonical, write_members};
use crate::seam::verbs::{FinishWrite, ItemWrite};

/// What a finish may bring, in the words of a refusal. Each has 32 bits of the digest, which are 0 if it brings none.
const PARTS: [&str; 4] = ["error", "metadata", "details", "items"];

pub(crate) fn brings(write: &FinishWrite) -> Option<Token> {
    let FinishWrite { failure, reason, metadata, details, items, .. } = write;
    let mut parts = [0; 4];
    if failure.is_some() || reason.is_some() {
        parts[0] = digest(|out| write_canonical(&json!([failure_of(failure), reason]), out));
    }
    for (part, members) in [(1, metadata), (2, details)] {
        if !members.is_empty() {
            parts[part] = digest(|out| write_members(members, out));
        }
    }
    if !items.is_empty() {
        parts[3] = digest(|out| write_canonical(&items.iter().map(item).collect(), out));
    }
    let bits = parts.iter().fold(0, |bits, part| bits << 32 | u128::from(*part));
    (bits != 0).then_some(Token(bits))
}

/// The parts of a finish that are not those of the one that ended the run. What it does not bring is none of them.
pub(crate) fn differences(first: Option<Token>, again: Option<Token>) -> Vec<&'static str> {
    let part = |token: Option<Token>, at: usize| token.map_or(0, |token| token.0 >> (96 - 32 * at)) as u32;
    let differs = |at: &usize| !matches!(part(again, *at), same if same == 0 || same == part(first, *at));
    (0..PARTS.len()).filter(differs).map(|at| PARTS[at]).collect()
}

fn digest(write: impl FnOnce(&mut Vec<u8>)) -> u32 {
    let mut out = Vec::new();
    write(&mut out);
    let digest = Sha256::digest(&out);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]).max(1)
}

fn failure_of(failure: &Option<Failure>) -> Option<(&str, &str)> {
    failure.as_ref().map(|failure| (&*failure.code, &*failure.message))
}

fn item(item: &ItemWrite) -> Value {
    let ItemWrite { kind, key, name, status, command, progress, failure, output, details, .. } = item;
    json!([kind, key, name, status, command, progress, failure_of(failure), output, details])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn finish(metadata: Value, error: Option<&str>) -> Option<Token> {
        let metadata: Map<String, Value> = serde_json::from_value(metadata).unwrap_or_default();
        let failure = error.map(|message| Failure::new("E", message));
        brings(&FinishWrite { metadata, failure, ..FinishWrite::default() })
    }

    // proves X3
    #[test]
    fn what_differs_is_named_and_what_is_not_brought_does_not() {
        let first = finish(json!({"a": 1}), Some("x"));
        assert!(differences(first, first).is_empty());
        assert!(differences(first, None).is_empty(), "nothing is claimed");
        assert_eq!(differences(first, finish(json!({"a": 2}), None)), ["metadata"]);
        assert_eq!(differences(first, finish(json!({"a": 2}), Some("y"))), ["error", "metadata"]);
        assert_eq!(differences(None, finish(json!({}), Some("y"))), ["error"]);
        assert_eq!(finish(json!({}), None), None);
    }
}
