//! Whether two requests under one idempotency key ask for the same: a digest of what they ask for.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::verbs::NewRun;

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
    let body = json!({
        "lifecycle": new.lifecycle,
        "version": new.version,
        "status": new.status,
        "queue": new.queue,
        "priority": new.priority,
        "input": new.input,
        "metadata": new.metadata,
        "schedule_at": new.schedule_at.map(waypost_kernel::Time::micros),
        "concurrency_key": new.concurrency_key,
        "correlation_id": new.correlation_id,
        "playbook": new.playbook,
        "carried": new.carried,
        "parent_run_id": new.parent_run_id,
        "items": new.items.iter().map(item).collect::<Vec<_>>(),
    });
    let mut text = String::new();
    write_canonical(&body, &mut text);
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Members by name, whatever order they came in.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, member) in sorted {
                out.push_str(&json!(key).to_string());
                out.push(':');
                write_canonical(member, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(values) => {
            out.push('[');
            for value in values {
                write_canonical(value, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
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
