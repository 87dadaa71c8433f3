//! The engine's values as JSON, within limits: some of its lists are made while they are read.

use minijinja::value::{Value, ValueKind};
use serde_json::{Map, Number, Value as Json};

const MAX_VALUES: usize = 100_000;
const MAX_BYTES: usize = 1024 * 1024;
const MAX_DEPTH: usize = 64;

struct Budget {
    values: usize,
    bytes: usize,
}

pub fn to_json(value: &Value) -> Result<Json, String> {
    convert(value, 0, &mut Budget { values: MAX_VALUES, bytes: MAX_BYTES })
}

pub fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            _ => Value::from(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<Value>>()),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, value)| (key.as_str(), from_json(value))))
        }
    }
}

/// As it stands within a text: a text as it is, nothing for null, JSON for lists and objects.
pub fn to_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

fn convert(value: &Value, depth: usize, budget: &mut Budget) -> Result<Json, String> {
    if depth > MAX_DEPTH {
        return Err(format!("the value is nested more than {MAX_DEPTH} deep"));
    }
    budget.values = budget.values.checked_sub(1).ok_or("the value has more than 100,000 parts")?;
    match value.kind() {
        ValueKind::Undefined => Err("a part of the value is undefined".to_owned()),
        ValueKind::None => Ok(Json::Null),
        ValueKind::Bool => Ok(Json::Bool(value.is_true())),
        ValueKind::Number => number(value),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            budget.bytes = budget.bytes.checked_sub(text.len()).ok_or("the value is larger than 1 MiB")?;
            Ok(Json::String(text.to_owned()))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter().map_err(|error| error.to_string())? {
                items.push(convert(&item, depth + 1, budget)?);
            }
            Ok(Json::Array(items))
        }
        ValueKind::Map => {
            let mut entries = Map::new();
            for key in value.try_iter().map_err(|error| error.to_string())? {
                let item = value.get_item(&key).map_err(|error| error.to_string())?;
                let name = to_text(&convert(&key, depth + 1, budget)?);
                entries.insert(name, convert(&item, depth + 1, budget)?);
            }
            Ok(Json::Object(entries))
        }
        _ => Err("the value is nothing that JSON knows".to_owned()),
    }
}

fn number(value: &Value) -> Result<Json, String> {
    if value.is_integer() {
        if let Ok(number) = i64::try_from(value.clone()) {
            return Ok(Json::from(number));
        }
        if let Ok(number) = u64::try_from(value.clone()) {
            return Ok(Json::from(number));
        }
    }
    let number = f64::try_from(value.clone()).ok().and_then(Number::from_f64);
    number.map(Json::Number).ok_or_else(|| "the number is nothing that JSON knows".to_owned())
}
