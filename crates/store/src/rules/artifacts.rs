//! Artifacts: what a run leaves behind for others, as seed 000 has them. They stand in the run's details, where workers put them, or in
//! its metadata, where callers of `ops.finish_run` do.

use serde_json::{Map, Value, json};

use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;

/// The member of details and of metadata that lists them.
const MEMBER: &str = "artifacts";
const TYPES: [&str; 5] = ["image", "sbom", "logs", "evidence", "manifest"];

/// What a new run comes with is refused where its type is none.
pub(crate) fn check(field: &str, members: &Map<String, Value>) -> Result<()> {
    let Some(listed) = members.get(MEMBER) else { return Ok(()) };
    let field = format!("{field}.{MEMBER}");
    let Some(listed) = listed.as_array() else {
        return Err(StoreError::invalid(&field, "is no list of objects with type and url"));
    };
    match listed.iter().find(|artifact| !has_type(artifact)) {
        None => Ok(()),
        Some(wrong) => {
            let message = format!("type: {} is none; allowed: {}", wrong["type"], TYPES.join(", "));
            Err(StoreError::invalid(&field, message))
        }
    }
}

/// What a handler gives is kept, and marked where its type is none: a result is not lost over it.
pub fn marked(artifact: Value) -> Value {
    match artifact {
        Value::Object(mut members) => {
            if !has_type(&Value::Object(members.clone())) {
                members.insert("unknown_type".into(), Value::Bool(true));
            }
            Value::Object(members)
        }
        other => json!({ "value": other, "unknown_type": true }),
    }
}

fn has_type(artifact: &Value) -> bool {
    artifact["type"].as_str().is_some_and(|kind| TYPES.contains(&kind))
}

impl RunRow {
    /// What its workers left behind, whichever way they told of it.
    pub fn artifacts(&self) -> Vec<Value> {
        let listed =
            [&self.details, &self.metadata].map(|members| members.get(MEMBER).and_then(Value::as_array));
        listed.into_iter().flatten().flatten().cloned().map(marked).collect()
    }
}
