//! What a reader of agents' runs may see, as seed 001 has it: the documents of a run, judged each time that they are looked at. Nothing here
//! knows how they are made.

use std::collections::BTreeMap;

use serde_json::Value;

const SCHEMA: &str = include_str!("../data/status.schema.json");
/// In the order of seed 001's machine; the last two are terminal.
const ORDER: [&str; 5] = ["requested", "queued", "running", "completed", "failed"];

/// The documents of a run. What is written before another one is read after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Documents {
    pub status: Value,
    /// By their numbers.
    pub steps: BTreeMap<u64, Value>,
    pub manifest: Option<Value>,
}

/// Knows what was seen before.
#[derive(Debug)]
pub struct Judge {
    schema: Value,
    seen: BTreeMap<String, Documents>,
}

impl Default for Judge {
    fn default() -> Judge {
        let schema =
            serde_json::from_str(SCHEMA).unwrap_or_else(|error| panic!("the schema is JSON: {error}"));
        Judge { schema, seen: BTreeMap::new() }
    }
}

impl Judge {
    pub fn has_seen(&self, id: &str) -> bool {
        self.seen.contains_key(id)
    }

    /// Whether `status.json` is as it was.
    pub fn knows(&self, id: &str, status: &Value) -> bool {
        self.seen.get(id).is_some_and(|seen| seen.status == *status)
    }

    /// Whether it has exactly the seed's fields.
    pub fn check_fields(&self, status: &Value) {
        check(&self.schema, status);
    }

    pub fn look(&mut self, id: &str, now: Documents) {
        let Documents { status, steps, manifest } = &now;
        check(&self.schema, status);
        let total = status["steps_total"].as_u64().unwrap_or(0);
        for (n, step) in steps {
            assert_eq!((step["n"].as_u64(), step["run_id"].as_str()), (Some(*n), Some(id)));
        }
        let done = steps.values().filter(|step| step["status"] == "completed").count() as u64;
        assert!(Some(done) >= status["steps_completed"].as_u64(), "a step's file is there before: {status}");
        if status["status"] == "completed" {
            let Some(manifest) = manifest else {
                panic!("the manifest is there before completed is seen: {status}")
            };
            assert_eq!(manifest["finished_at"], status["finished_at"]);
            assert_eq!(manifest["steps"].as_array().map(Vec::len), usize::try_from(total).ok());
        }
        if let Some(seen) = self.seen.get(id) {
            check_forward(&seen.status, status);
            for (n, before) in &seen.steps {
                assert_eq!(steps.get(n), Some(before), "a step that ended stays as it is");
            }
            assert!(!is_terminal(&seen.status) || *seen == now, "nothing is written after a terminal state");
        }
        self.seen.insert(id.to_owned(), now);
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
    let created = |status: &Value| status["proposals_created"].as_array().cloned().unwrap_or_default();
    assert!(created(after).starts_with(&created(before)), "proposals stay: {before} → {after}");
    // A step is told by its name alone; that there is one does not go back.
    assert!(before["current_step"].is_null() || !after["current_step"].is_null(), "{before} → {after}");
    for fixed in ["run_id", "agent_slug", "trigger"] {
        assert_eq!(before[fixed], after[fixed]);
    }
    if !before["started_at"].is_null() {
        assert_eq!(before["started_at"], after["started_at"]);
    }
}

/// Against the schema that was written from the seed; as much of JSON Schema as that one needs.
fn check(schema: &Value, status: &Value) {
    let object = status.as_object().unwrap_or_else(|| panic!("{status} is no object"));
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(object.contains_key(name.as_str().unwrap_or_default()), "{name} is missing: {status}");
    }
    for (name, value) in object {
        let rule = &schema["properties"][name];
        assert!(rule.is_object(), "{name} is no field of the seed's: {status}");
        check_value(name, rule, value);
    }
    let when = &schema["when"][status["status"].as_str().unwrap_or_default()];
    for (list, is_null) in [("null", true), ("set", false)] {
        for name in when[list].as_array().into_iter().flatten() {
            assert_eq!(status[name.as_str().unwrap_or_default()].is_null(), is_null, "{name}: {status}");
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
    assert!(rule["type"].as_array().into_iter().flatten().any(|allowed| *allowed == kind), "{name}: {value}");
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
