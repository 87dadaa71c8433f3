//! Somebody who reads the documents again and again, and knows of them what seed 001 says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use waypost_worker::projection::objects::Objects;

const SCHEMA: &str = include_str!("../../data/status.schema.json");
/// In the order of seed 001's machine; the last two are terminal.
const ORDER: [&str; 5] = ["requested", "queued", "running", "completed", "failed"];

pub struct Watcher {
    objects: Arc<dyn Objects>,
    schema: Value,
    seen: BTreeMap<String, Seen>,
}

#[derive(Default)]
struct Seen {
    status: Option<Value>,
    steps: BTreeMap<u64, Value>,
    manifest: Option<Value>,
}

impl Watcher {
    pub fn new(objects: &Arc<dyn Objects>) -> Watcher {
        let schema = serde_json::from_str(SCHEMA).unwrap();
        Watcher { objects: objects.clone(), schema, seen: BTreeMap::new() }
    }

    async fn read(&self, id: &str, name: &str) -> Option<Value> {
        let stored = self.objects.read(&format!("runs/{id}/{name}")).await.unwrap()?;
        Some(serde_json::from_slice(&stored.bytes).unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    /// Looks at all documents of a run; gives its status.
    pub async fn look(&mut self, id: &str) -> Option<Value> {
        let Some(status) = self.read(id, "status.json").await else {
            assert!(self.seen.get(id).is_none_or(|seen| seen.status.is_none()), "it was there");
            return None;
        };
        check(&self.schema, &status);
        // What was written before it is read after it.
        let total = status["steps_total"].as_u64().unwrap_or(0);
        let mut steps = BTreeMap::new();
        for n in 1..=total {
            if let Some(step) = self.read(id, &format!("steps/{n}.json")).await {
                assert_eq!((step["n"].as_u64(), step["run_id"].as_str()), (Some(n), Some(id)));
                steps.insert(n, step);
            }
        }
        let manifest = self.read(id, "manifest.json").await;
        let done = steps.values().filter(|step| step["status"] == "completed").count() as u64;
        assert!(
            done >= status["steps_completed"].as_u64().unwrap(),
            "a step's file is there before: {status}"
        );
        if status["status"] == "completed" {
            let manifest = manifest.as_ref().expect("the manifest is there before completed is seen");
            assert_eq!(manifest["finished_at"], status["finished_at"]);
            assert_eq!(manifest["steps"].as_array().unwrap().len() as u64, total);
        }
        let seen = self.seen.entry(id.to_owned()).or_default();
        if let Some(before) = &seen.status {
            check_forward(before, &status);
        }
        let is_over = seen.status.as_ref().is_some_and(is_terminal);
        for (n, before) in &seen.steps {
            assert_eq!(steps.get(n), Some(before), "a step that ended stays as it is");
        }
        assert!(!is_over || seen.manifest == manifest, "nothing is written after a terminal state");
        assert!(!is_over || seen.steps == steps, "nothing is written after a terminal state");
        *seen = Seen { status: Some(status.clone()), steps, manifest };
        Some(status)
    }
}

pub fn is_terminal(status: &Value) -> bool {
    status["status"] == "completed" || status["status"] == "failed"
}

fn check_forward(before: &Value, after: &Value) {
    if is_terminal(before) {
        assert_eq!(before, after, "a terminal document does not change");
        return;
    }
    let place = |status: &Value| ORDER.iter().position(|name| status["status"] == *name);
    assert!(place(before) <= place(after), "{before} → {after}");
    assert!(before["steps_completed"].as_u64() <= after["steps_completed"].as_u64(), "{before} → {after}");
    assert!(before["steps_total"].as_u64() <= after["steps_total"].as_u64(), "{before} → {after}");
    for fixed in ["run_id", "agent_slug", "trigger"] {
        assert_eq!(before[fixed], after[fixed]);
    }
    if !before["started_at"].is_null() {
        assert_eq!(before["started_at"], after["started_at"]);
    }
}

/// Against the schema that was written from the seed; as much of JSON Schema as that one needs.
pub fn check(schema: &Value, status: &Value) {
    let object = status.as_object().unwrap_or_else(|| panic!("{status} is no object"));
    for name in schema["required"].as_array().unwrap() {
        assert!(object.contains_key(name.as_str().unwrap()), "{name} is missing: {status}");
    }
    for (name, value) in object {
        let rule = &schema["properties"][name];
        assert!(rule.is_object(), "{name} is no field of the seed's: {status}");
        check_value(name, rule, value);
    }
    let when = &schema["when"][status["status"].as_str().unwrap()];
    for (list, is_null) in [("null", true), ("set", false)] {
        for name in when[list].as_array().into_iter().flatten() {
            assert_eq!(status[name.as_str().unwrap()].is_null(), is_null, "{name}: {status}");
        }
    }
}

fn check_value(name: &str, rule: &Value, value: &Value) {
    if let Some(allowed) = rule["enum"].as_array() {
        assert!(allowed.contains(value), "{name}: {value}");
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
        _ => "other",
    };
    assert!(rule["type"].as_array().unwrap().iter().any(|allowed| *allowed == kind), "{name}: {value}");
    let Some(text) = value.as_str() else { return };
    if let Some(prefix) = rule["prefix"].as_str() {
        assert!(text.starts_with(prefix), "{name}: {text}");
    }
    match rule["format"].as_str() {
        // 2026-02-14T08:00:00Z
        Some("seconds") => {
            let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(shape, "0000-00-00T00:00:00Z", "{name}");
        }
        Some(_) => {
            let (code, message) = text.split_once(": ").unwrap_or_else(|| panic!("{name}: {text}"));
            assert!(
                !message.is_empty()
                    && code.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()),
                "{text}"
            );
        }
        None => {}
    }
}
