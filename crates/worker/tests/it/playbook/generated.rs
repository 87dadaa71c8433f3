//! What is rendered from the format is committed, and a stale file fails here. `UPDATE=1 cargo nextest run generated`
//! rewrites them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use waypost_worker::playbook::{json_schema, reference};

use super::{CLUSTER, PRICES, judge};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

#[test]
fn generated_files_are_current() {
    let notice = "<!-- Generated from the format. UPDATE=1 cargo nextest run generated -->\n\n";
    for (name, text) in [
        ("playbook.schema.json", format!("{:#}\n", json_schema())),
        ("playbook.md", format!("{notice}{}", reference())),
    ] {
        let path = docs().join(name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is stale: UPDATE=1 cargo nextest run generated", path.display());
    }
}

/// Enough of JSON Schema for our own: what it says of the sound files must agree with the checker.
fn fits(value: &Value, schema: &Value) -> bool {
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    let of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    let required = |schema: &Value| {
        let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.into_iter().all(|name| value.get(name).is_some())
    };
    let one_of = schema["oneOf"]
        .as_array()
        .is_none_or(|ways| ways.iter().filter(|way| fits(value, way) && required(way)).count() == 1);
    let inner = value.as_object().into_iter().flatten().all(|(name, value)| {
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(property), _) => fits(value, property),
            (None, Value::Bool(allowed)) => *allowed,
            (None, additional) => fits(value, additional),
        }
    });
    let items = value.as_array().into_iter().flatten().all(|item| fits(item, &schema["items"]));
    of_type && required(schema) && one_of && inner && items
}

fn as_json(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn the_schema_agrees_with_the_checker() {
    let schema = json_schema();
    for text in [CLUSTER, PRICES] {
        assert!(judge(text).is_ok() && fits(&as_json(text), &schema));
    }
    for (old, new) in [
        ("timeout = \"30s\"", "tiemout = \"30s\""),
        ("retries = 3", "retries = \"3\""),
        ("unattended = \"skip\"", "unattended = \"wait\""),
        ("exec = [\"./ha.sh\", \"off\"]", ""),
        ("lifecycle = \"job\"", ""),
        ("type = \"list\"", "type = \"array\""),
    ] {
        let text = CLUSTER.replacen(old, new, 1);
        assert!(judge(&text).is_err() && !fits(&as_json(&text), &schema), "{new}");
    }
}
