//! The room of a run's metadata, at most 1 MiB. Of a finish the members are laid over what is there in the order of their names,
//! each as long as there is room for it; those that are left out are named in the run's details, and the event has them all. An
//! event whose members do not fit is refused: its sender is told, and nothing has happened that would be lost with it.

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::text::{MAX_PAYLOAD_BYTES, clean_json, refuse_members};

use crate::rules::details::length;
use crate::seam::error::{Result, StoreError};

/// The member of a run's details that names what of a finish's metadata there was no room for.
pub(crate) const LEFT_OUT: &str = "metadata_left_out";

/// What is named is to be found, not to be kept.
const LEFT_OUT_NAMES: usize = 100;
const LEFT_OUT_CHARS: usize = 64;

/// A handler's patch as it is kept in the event, and the names of what there is no room for even there.
pub(crate) fn cleaned(patch: &Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    if patch.is_empty() || refuse_members("", patch, MAX_PAYLOAD_BYTES).is_ok() {
        return (patch.clone(), Vec::new());
    }
    let members: Map<String, Value> = patch.iter().map(cleaned_member).collect();
    let mut kept = Map::new();
    let left_out = lay_over(&mut kept, &members);
    (kept, left_out)
}

/// Its depth is that within the object.
fn cleaned_member((name, value): (&String, &Value)) -> (String, Value) {
    let name = match clean_json(Value::from(name.as_str()), usize::MAX).0 {
        Value::String(name) => name,
        _ => String::new(),
    };
    let within = Value::Object(Map::from_iter([(String::new(), value.clone())]));
    let value = match clean_json(within, usize::MAX).0 {
        Value::Object(mut within) => within.remove("").unwrap_or(Value::Object(within)),
        value => value,
    };
    (name, value)
}

/// A patch laid over what is there. Gives the names of what was left out.
pub(crate) fn lay_over(into: &mut Map<String, Value>, patch: &Map<String, Value>) -> Vec<String> {
    let mut left_out = Vec::new();
    if patch.is_empty() {
        return left_out;
    }
    let mut bytes = 1 + into.iter().map(member_bytes).sum::<usize>();
    let mut members: Vec<(&String, &Value)> = patch.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in members {
        let before = into.get(name).map_or(0, |before| member_bytes((name, before)));
        let after = bytes - before + member_bytes((name, value));
        if after > MAX_PAYLOAD_BYTES {
            left_out.push(name.clone());
        } else {
            into.insert(name.clone(), value.clone());
            bytes = after;
        }
    }
    left_out
}

/// The same for metadata that other copies of the row share: they are copied first.
pub(crate) fn lay_over_shared(into: &mut Arc<Map<String, Value>>, patch: &Map<String, Value>) -> Vec<String> {
    if patch.is_empty() { Vec::new() } else { lay_over(Arc::make_mut(into), patch) }
}

/// As it is written, with what comes between two members.
fn member_bytes((name, value): (&String, &Value)) -> usize {
    length(&Value::from(name.as_str())) + length(value) + 2
}

/// Of an event: whether there is room for all that it brings.
pub(crate) fn check_room(there: &Map<String, Value>, patch: &Map<String, Value>) -> Result<()> {
    if patch.is_empty() || lay_over(&mut there.clone(), patch).is_empty() {
        return Ok(());
    }
    let mut both = there.clone();
    both.extend(patch.clone());
    let message = format!(
        "would be {} bytes long with what the run has; at most {MAX_PAYLOAD_BYTES} are allowed",
        length(&Value::Object(both))
    );
    Err(StoreError::invalid("metadata", message))
}

/// What is put into the details of a run if something was left out.
pub(crate) fn note_left_out(details: &mut Map<String, Value>, names: Vec<String>) {
    if names.is_empty() {
        return;
    }
    let names = names.into_iter().map(|name| name.chars().take(LEFT_OUT_CHARS).collect::<String>());
    let names: Vec<String> = names.take(LEFT_OUT_NAMES).collect();
    match details.entry(LEFT_OUT).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(known) => known.extend(names.into_iter().map(Value::String)),
        other => *other = names.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap_or_default()
    }

    // proves X10
    #[test]
    fn members_are_kept_in_the_order_of_their_names_while_there_is_room() {
        let mut there = map(json!({ "b": "x".repeat(MAX_PAYLOAD_BYTES / 2) }));
        let patch = map(json!({ "a": 1, "c": "y".repeat(MAX_PAYLOAD_BYTES / 2), "d": 2 }));
        assert_eq!(lay_over(&mut there, &patch), ["c"]);
        assert_eq!((&there["a"], &there["d"], there.get("c")), (&json!(1), &json!(2), None));
        let smaller = map(json!({ "b": "", "c": "y".repeat(MAX_PAYLOAD_BYTES / 2) }));
        assert!(lay_over(&mut there, &smaller).is_empty(), "what is replaced makes room");
    }

    // proves X10
    #[test]
    fn what_fits_exactly_is_kept() {
        let fits = map(json!({ "k": "x".repeat(MAX_PAYLOAD_BYTES - 8) }));
        assert!(lay_over(&mut Map::new(), &fits).is_empty());
        assert_eq!(length(&Value::Object(fits)), MAX_PAYLOAD_BYTES);
        let longer = map(json!({ "k": "x".repeat(MAX_PAYLOAD_BYTES - 7) }));
        assert_eq!(lay_over(&mut Map::new(), &longer), ["k"]);
    }

    // proves X10
    #[test]
    fn one_member_that_cannot_be_kept_does_not_cost_the_others() {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        let patch =
            map(json!({ "deep": deep, "n\0": "v\0", "large": "x".repeat(MAX_PAYLOAD_BYTES), "ok": 1 }));
        let (kept, left_out) = cleaned(&patch);
        assert_eq!(left_out, ["large"]);
        assert_eq!(
            (&kept["deep"]["cut"], &kept["n\u{fffd}"], &kept["ok"]),
            (&json!(true), &json!("v\u{fffd}"), &json!(1))
        );
    }
}
