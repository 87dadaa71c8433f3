//! Settings that change while a simulator runs.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The settings with what a JSON Merge Patch (RFC 7396) changes in them.
pub fn merge<T: Serialize + DeserializeOwned>(settings: &T, patch: Value) -> Result<T, String> {
    if !patch.is_object() {
        return Err("the body is an object of what changes".to_owned());
    }
    let mut merged = serde_json::to_value(settings).map_err(|error| error.to_string())?;
    apply(&mut merged, patch);
    serde_json::from_value(merged).map_err(|error| error.to_string())
}

fn apply(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = Value::Object(serde_json::Map::new());
    }
    let Value::Object(into) = into else { return };
    for (name, value) in patch {
        if value.is_null() {
            into.remove(&name);
        } else {
            apply(into.entry(name).or_insert(Value::Null), value);
        }
    }
}
