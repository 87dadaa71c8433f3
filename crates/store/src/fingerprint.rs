//! Whether two requests under one idempotency key ask for the same: a digest of what they ask for.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use waypost_kernel::Time;

use crate::verbs::{NewItem, NewRun};

/// The digest of a JSON object with sorted members, written as it is made: this is done for every run that has a key.
pub(crate) fn fingerprint(new: &NewRun) -> String {
    let mut out = Canonical(Vec::with_capacity(1_024));
    out.0.push(b'{');
    out.member("carried", |out| out.value(new.carried.as_ref().unwrap_or(&Value::Null)));
    out.member("concurrency_key", |out| out.plain(&new.concurrency_key));
    out.member("correlation_id", |out| out.plain(&new.correlation_id));
    out.member("input", |out| out.value(&new.input));
    out.member("items", |out| out.list(&new.items, Canonical::item));
    out.member("lifecycle", |out| out.plain(&new.lifecycle));
    out.member("metadata", |out| out.object(&new.metadata));
    out.member("parent_run_id", |out| out.plain(&new.parent_run_id));
    out.member("playbook", |out| out.plain(&new.playbook));
    out.member("priority", |out| out.plain(&new.priority));
    out.member("queue", |out| out.plain(&new.queue));
    out.member("schedule_at", |out| out.plain(&new.schedule_at.map(Time::micros)));
    out.member("status", |out| out.plain(&new.status));
    out.member("version", |out| out.plain(&new.version));
    out.0.push(b'}');
    hex(&Sha256::digest(&out.0))
}

/// JSON with the members of objects in the order of their names, whatever order they came in.
struct Canonical(Vec<u8>);

impl Canonical {
    fn plain(&mut self, value: &impl Serialize) {
        // To memory, and of texts and numbers: it cannot fail.
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    fn member(&mut self, name: &str, write: impl FnOnce(&mut Canonical)) {
        self.plain(&name);
        self.0.push(b':');
        write(self);
        self.0.push(b',');
    }

    fn list<T>(&mut self, list: &[T], write: impl Fn(&mut Canonical, &T)) {
        self.0.push(b'[');
        for it in list {
            write(self, it);
            self.0.push(b',');
        }
        self.0.push(b']');
    }

    fn object(&mut self, members: &Map<String, Value>) {
        self.0.push(b'{');
        if members.keys().is_sorted() {
            members.iter().for_each(|(name, value)| self.member(name, |out| out.value(value)));
        } else {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            sorted.into_iter().for_each(|(name, value)| self.member(name, |out| out.value(value)));
        }
        self.0.push(b'}');
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(members) => self.object(members),
            Value::Array(values) => self.list(values, Canonical::value),
            plain => self.plain(plain),
        }
    }

    fn item(&mut self, item: &NewItem) {
        let NewItem { kind, key, name, status, max_retries, reruns, role, details } = item;
        self.value(&json!([kind, key, name, status, max_retries, reruns, role.name(), details]));
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
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
