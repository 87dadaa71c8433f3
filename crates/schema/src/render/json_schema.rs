//! JSON Schema (2020-12), as a document of its own or as components of OpenAPI.

use serde_json::{Map, Value, json};

use crate::shape::{Field, Format, Keys, Kind, Row, Shape};

/// How it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// For editors: one document, each shape in its place.
    Whole,
    /// For OpenAPI: shapes by reference, and what may be left out may be null.
    Components,
}

/// The schema of a kind of files.
pub fn document(title: &str, description: &str, shape: &Shape) -> Value {
    let mut schema = of_shape(shape, Style::Whole);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = title.into();
    schema["description"] = description.into();
    schema
}

/// The schema of a request, or of an answer: there all fields are there, some of them null.
pub fn component(shape: &Shape, is_answer: bool) -> Value {
    let mut schema = of_shape(shape, Style::Components);
    if is_answer {
        let always = shape.fields.iter().filter(|field| !field.may_be_left_out);
        schema["required"] = always.map(|field| field.name).collect::<Vec<_>>().into();
    }
    schema
}

/// Of a parameter or header.
pub fn of_field(field: &Field) -> Value {
    of_kind(&field.kind, Style::Components)
}

fn of_shape(shape: &Shape, style: Style) -> Value {
    let mut properties = Map::new();
    for field in shape.fields {
        let mut property = of_kind(&field.kind, style);
        if style == Style::Components && !field.is_needed {
            property = or_null(property, &field.kind);
        }
        property["description"] = field.description.into();
        properties.insert(field.name.to_owned(), property);
    }
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    let needed = shape.fields.iter().filter(|field| field.is_needed);
    let needed: Vec<&str> = needed.map(|field| field.name).collect();
    if !needed.is_empty() {
        schema["required"] = needed.into();
    }
    if !shape.one_of.is_empty() {
        schema["oneOf"] = shape.one_of.iter().map(|name| json!({ "required": [name] })).collect();
    }
    if let Some(others) = shape.others {
        schema["patternProperties"] = json!({ format!("^{}", others.prefix): of_kind(others.kind, style) });
    }
    schema
}

fn or_null(mut schema: Value, kind: &Kind) -> Value {
    match schema.get("type").cloned() {
        Some(Value::String(name)) => {
            schema["type"] = json!([name, "null"]);
            if let Some(choices) = schema.get_mut("enum").and_then(Value::as_array_mut) {
                choices.push(Value::Null);
            }
            schema
        }
        _ if matches!(kind, Kind::Any) => schema,
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

fn of_kind(kind: &Kind, style: Style) -> Value {
    match kind {
        Kind::Text(most) => json!({ "type": "string", "maxLength": most }),
        Kind::Format(format) => of_format(format),
        Kind::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Number => json!({ "type": "number", "minimum": 0 }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Choice(words) if style == Style::Whole => json!({ "enum": words }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Object => json!({ "type": "object" }),
        Kind::Any | Kind::Parts(_) => json!({}),
        Kind::List { of, least, most } | Kind::Row(Row { of, least, most, .. }) => {
            let mut schema = json!({ "type": "array", "items": of_kind(of, style), "maxItems": most });
            if *least > 0 {
                schema["minItems"] = (*least).into();
            }
            schema
        }
        Kind::TextOrList { text, list, .. } => {
            json!({ "oneOf": [of_kind(text, style), of_kind(list, style)] })
        }
        Kind::Map { of, keys, most } => of_map(&of_kind(of, style), *keys, *most),
        Kind::Of(shape) if style == Style::Whole => of_shape(shape, style),
        Kind::Of(shape) => json!({ "$ref": format!("#/components/schemas/{}", shape.name) }),
        Kind::Either(shapes) => {
            let shapes = shapes.iter().map(|shape| of_kind(&Kind::Of(shape), style));
            json!({ "anyOf": shapes.collect::<Vec<_>>() })
        }
    }
}

fn of_format(format: &Format) -> Value {
    let mut schema = json!({ "type": "string" });
    for (key, value) in [("pattern", format.pattern), ("format", format.format)] {
        if let Some(value) = value {
            schema[key] = value.into();
        }
    }
    if let Some(most) = format.most_chars {
        schema["maxLength"] = most.into();
    }
    if !format.may_be_empty && format.pattern.is_none() && format.format.is_none() {
        schema["minLength"] = 1.into();
    }
    schema
}

fn of_map(values: &Value, keys: Option<&Keys>, most: usize) -> Value {
    let mut schema = json!({ "type": "object", "additionalProperties": values });
    if let Some(keys) = keys {
        let mut names = match keys.pattern {
            Some(pattern) => json!({ "pattern": pattern }),
            None => json!({ "minLength": 1 }),
        };
        if let Some(pattern) = keys.not {
            names["not"] = json!({ "pattern": pattern });
        }
        schema["propertyNames"] = names;
    }
    if most < usize::MAX {
        schema["maxProperties"] = most.into();
    }
    schema
}
