//! Whether two requests under one idempotency key ask for the same: a digest of what they ask for.

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::codec::{exactly, hex, write_canonical};
use crate::columns::{COLUMNS, Cell, Field};
use crate::verbs::NewRun;

/// Columns that do not say what is asked for: whose key it is, the key, and what the run repeats.
const BESIDE: [&str; 3] = ["tenant", "idempotency_key", "retry_of"];

pub(crate) fn fingerprint(new: &NewRun) -> String {
    let item = |item: &crate::verbs::NewItem| {
        json!([
            item.kind,
            item.key,
            item.name,
            item.status,
            item.max_retries,
            item.reruns,
            item.role.name(),
            item.details
        ])
    };
    let mut body = json!({
        "lifecycle": new.lifecycle,
        "input": new.input,
        "metadata": new.metadata,
        "items": new.items.iter().map(item).collect::<Vec<_>>(),
    });
    // What was left out is no part of it.
    let mut asked = |name: &str, cell: Cell<'_>| match cell {
        Cell::Null => {}
        cell => body[name] = exactly(cell),
    };
    asked("version", new.version.cell());
    asked("status", new.status.cell());
    for column in COLUMNS.iter().filter(|column| !BESIDE.contains(&column.name)) {
        if let Some(given) = &column.given {
            asked(column.name, (given.asked)(new));
        }
    }
    let mut text = String::new();
    write_canonical(&body, &mut text);
    hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves X7
    #[test]
    fn equal_bodies_have_equal_fingerprints() {
        let of = |text: &str| {
            let input = serde_json::from_str(text).unwrap_or_default();
            fingerprint(&NewRun { input, ..NewRun::default() })
        };
        assert_eq!(of(r#"{"a": {"b": 1, "c": [2]}, "d": null}"#), of(r#"{"d":null,"a":{"c":[2],"b":1}}"#));
        assert_ne!(of(r#"{"a": 1}"#), of(r#"{"a": 2}"#));
        assert_ne!(of(r#"{"a": [1, 2]}"#), of(r#"{"a": [2, 1]}"#));
        assert_ne!(of(r#"["a,b"]"#), of(r#"["a","b"]"#));
    }
}
