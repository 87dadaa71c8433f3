//! The format, rendered: as JSON Schema for editors, and as the reference's table for people.

use serde_json::{Map, Value, json};

use super::format::{Keys, Kind, PLAYBOOK, Shape};
use super::problem::Problem;

const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]*$";
const IDENTIFIER: &str = "^[A-Za-z_][A-Za-z0-9_]*$";

/// JSON Schema (2020-12) of a playbook.
pub fn json_schema() -> Value {
    schema_of("Waypost playbook", "What a run does: steps in order, or a change to many targets.", &PLAYBOOK)
}

pub(crate) fn schema_of(title: &str, description: &str, shape: &Shape) -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
    });
    if let (Some(schema), Value::Object(shape)) = (schema.as_object_mut(), of_shape(shape)) {
        schema.extend(shape);
    }
    schema
}

fn of_shape(shape: &Shape) -> Value {
    let mut properties = Map::new();
    for key in shape.keys {
        let mut property = of_kind(&key.kind);
        property["description"] = json!(key.about);
        properties.insert(key.name.to_owned(), property);
    }
    let needed: Vec<&str> = shape.keys.iter().filter(|key| key.needed).map(|key| key.name).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !needed.is_empty() {
        schema["required"] = json!(needed);
    }
    if !shape.one_of.is_empty() {
        let ways = shape.one_of.iter().map(|name| json!({ "required": [name] }));
        schema["oneOf"] = ways.collect();
    }
    schema
}

fn of_kind(kind: &Kind) -> Value {
    let pattern = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match kind {
        Kind::Name => json!({ "type": "string", "pattern": NAME, "maxLength": 100 }),
        Kind::Text | Kind::Path | Kind::Expression | Kind::Timezone => {
            json!({ "type": "string", "minLength": 1 })
        }
        Kind::Template => json!({ "type": "string" }),
        Kind::Duration => pattern(DURATION),
        Kind::Whole { at_least, at_most } => {
            json!({ "type": "integer", "minimum": at_least, "maximum": at_most })
        }
        Kind::Number => json!({ "type": "number", "minimum": 0 }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Clock => pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$"),
        Kind::Reference => pattern("^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$"),
        Kind::Rate => pattern("^[1-9][0-9]*/(s|m|h)$"),
        Kind::Pointer => pattern("^(/.*)?$"),
        Kind::Json | Kind::Anything => json!({}),
        Kind::List { of, at_least, at_most } => {
            json!({ "type": "array", "items": of_kind(of), "minItems": at_least, "maxItems": at_most })
        }
        Kind::Names => json!({ "oneOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 100 },
        ]}),
        Kind::Map { of, keys, at_most } => {
            let names = match keys {
                Keys::Identifier => json!({ "pattern": IDENTIFIER }),
                Keys::Variable => json!({ "pattern": IDENTIFIER, "not": { "pattern": "^WAYPOST_" } }),
                Keys::Header => json!({ "minLength": 1 }),
            };
            json!({
                "type": "object",
                "additionalProperties": of_kind(of),
                "propertyNames": names,
                "maxProperties": at_most,
            })
        }
        Kind::Table(shape) => of_shape(shape),
        Kind::Tables { of, at_most } => {
            json!({ "type": "array", "items": of_shape(of), "maxItems": at_most })
        }
    }
}

/// The page of all keys and rules, in Markdown.
pub fn reference() -> String {
    let mut page = "# Keys of a playbook\n".to_owned();
    section(&mut page, "A playbook", &PLAYBOOK);
    for key in PLAYBOOK.keys {
        describe(&mut page, key.name, &key.kind);
    }
    page.push_str("\n## Rules\n\nWhat `waypost playbook check` holds a file to.\n\n| rule | what it asks for |\n|---|---|\n");
    for (rule, about) in Problem::RULES {
        page.push_str(&format!("| `{rule}` | {about} |\n"));
    }
    page
}

fn describe(page: &mut String, name: &str, kind: &Kind) {
    match kind {
        Kind::Table(shape) => {
            section(page, &format!("`[{name}]`"), shape);
            for key in
                shape.keys.iter().filter(|key| matches!(key.kind, Kind::Table(_)) && key.name != "http")
            {
                describe(page, &format!("{name}.{}", key.name), &key.kind);
            }
        }
        Kind::Tables { of, .. } => {
            section(page, &format!("`[[{name}]]`"), of);
            if let Some(http) = of.key("http").filter(|_| name == "step") {
                describe(page, "http", &http.kind);
            }
        }
        Kind::Map { of: Kind::Table(shape), .. } => section(page, &format!("`[{name}.NAME]`"), shape),
        _ => {}
    }
}

pub(crate) fn section(page: &mut String, title: &str, shape: &Shape) {
    page.push_str(&format!("\n## {title}\n\n"));
    if !shape.one_of.is_empty() {
        page.push_str(&format!("Exactly one of {}.\n\n", shape.one_of.join(", ")));
    }
    page.push_str("| key | value | |\n|---|---|---|\n");
    for key in shape.keys {
        let needed = if key.needed { " (needed)" } else { "" };
        let about = key.about.replace('|', "\\|");
        page.push_str(&format!("| `{}`{needed} | {} | {about} |\n", key.name, in_words(&key.kind)));
    }
}

fn in_words(kind: &Kind) -> String {
    match kind {
        Kind::Name => "a name".to_owned(),
        Kind::Text => "a text".to_owned(),
        Kind::Path => "a file".to_owned(),
        Kind::Template => "a template".to_owned(),
        Kind::Expression => "an expression".to_owned(),
        Kind::Duration => "a duration".to_owned(),
        Kind::Whole { at_least, at_most } => format!("{at_least} to {at_most}"),
        Kind::Number => "a number".to_owned(),
        Kind::Boolean => "true or false".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Clock => "`HH:MM`".to_owned(),
        Kind::Timezone => "an IANA time zone".to_owned(),
        Kind::Reference => "`env:NAME` or `file:/path`".to_owned(),
        Kind::Rate => "a rate, `2/s`".to_owned(),
        Kind::Pointer => "a JSON pointer".to_owned(),
        Kind::Json => "any value with templates".to_owned(),
        Kind::Anything => "any value".to_owned(),
        Kind::List { of, .. } => format!("a list: {}", in_words(of)),
        Kind::Names => "a list of names, or an expression".to_owned(),
        Kind::Map { of: Kind::Table(_), .. } | Kind::Table(_) => "a table".to_owned(),
        Kind::Map { of, .. } => format!("a table: {} each", in_words(of)),
        Kind::Tables { .. } => "tables".to_owned(),
    }
}
