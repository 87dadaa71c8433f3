//! A value that a JSON Schema takes, always the same one.

use serde_json::{Map, Value, json};

use crate::serving::hash;

/// Schemas may contain themselves.
const MAX_DEPTH: usize = 12;

pub fn example(schema: &Value, seed: u64, prompt: &str) -> Value {
    Maker { root: schema, seed, prompt }.make(schema, "$", 0)
}

struct Maker<'a> {
    root: &'a Value,
    seed: u64,
    prompt: &'a str,
}

impl Maker<'_> {
    fn draw(&self, path: &str) -> u64 {
        hash(self.seed, path, self.prompt)
    }

    fn make(&self, schema: &Value, path: &str, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return target.map_or(Value::Null, |target| self.make(target, path, depth + 1));
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array).filter(|it| !it.is_empty()) {
            return choices[(self.draw(path) % choices.len() as u64) as usize].clone();
        }
        for word in ["anyOf", "oneOf", "allOf"] {
            if let Some(first) = schema.get(word).and_then(Value::as_array).and_then(|it| it.first()) {
                return self.make(first, path, depth + 1);
            }
        }
        match kind(schema) {
            "object" => self.object(schema, path, depth),
            "array" => self.array(schema, path, depth),
            "integer" => json!(self.number(schema, path).round() as i64),
            "number" => json!(self.number(schema, path)),
            "boolean" => json!(self.draw(path).is_multiple_of(2)),
            "null" => Value::Null,
            _ => self.text(schema, path),
        }
    }

    fn object(&self, schema: &Value, path: &str, depth: usize) -> Value {
        let mut object = Map::new();
        for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let required = schema.get("required").and_then(Value::as_array);
            let is_required = required.is_some_and(|names| names.contains(&json!(name)));
            // What may be left out ends a schema that contains itself.
            if is_required || depth < 3 {
                object.insert(name.clone(), self.make(inner, &format!("{path}.{name}"), depth + 1));
            }
        }
        Value::Object(object)
    }

    fn array(&self, schema: &Value, path: &str, depth: usize) -> Value {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let least = bound("minItems").unwrap_or(u64::from(depth < 6)).min(100);
        let count = bound("maxItems").map_or(least, |most| least.min(most));
        let items = schema.get("items").unwrap_or(&Value::Null);
        (0..count).map(|at| self.make(items, &format!("{path}[{at}]"), depth + 1)).collect()
    }

    fn number(&self, schema: &Value, path: &str) -> f64 {
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        let least = bound("minimum").or_else(|| bound("exclusiveMinimum").map(|it| it + 1.0));
        let most = bound("maximum").or_else(|| bound("exclusiveMaximum").map(|it| it - 1.0));
        let (least, most) = match (least, most) {
            (Some(least), Some(most)) => (least, most.max(least)),
            (Some(least), None) => (least, least + 100.0),
            (None, Some(most)) => (most - 100.0, most),
            (None, None) => (0.0, 100.0),
        };
        least + (self.draw(path) % 101) as f64 / 100.0 * (most - least)
    }

    fn text(&self, schema: &Value, path: &str) -> Value {
        let drawn = self.draw(path);
        let text = match schema.get("format").and_then(Value::as_str) {
            Some("date") => format!("2026-01-{:02}", drawn % 28 + 1),
            Some("date-time") => format!("2026-01-{:02}T12:00:00Z", drawn % 28 + 1),
            Some("uuid") => format!("{:08x}-0000-4000-8000-{:012x}", drawn >> 32, drawn & 0xffff_ffff),
            Some("email") => format!("user{}@example.com", drawn % 1_000),
            Some("uri") => format!("https://example.com/{}", drawn % 1_000),
            _ => format!("text {:08x}", drawn >> 32),
        };
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64).map(|it| it.min(10_000) as usize);
        let text = format!("{text:.<width$}", width = bound("minLength").unwrap_or(0));
        Value::from(text.chars().take(bound("maxLength").unwrap_or(10_000)).collect::<String>())
    }
}

fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.get("properties").is_some() => "object",
        _ if schema.get("items").is_some() => "array",
        _ => "string",
    }
}
