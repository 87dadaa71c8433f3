//! What of an object was asked for.

use serde_json::{Map, Value, json};

use super::parse::{Condition, Document, Field, Selection};

/// An error of the whole request.
#[derive(Debug)]
pub struct Problem {
    pub message: String,
    pub code: &'static str,
}

impl Problem {
    pub fn new(code: &'static str, message: impl Into<String>) -> Problem {
        Problem { message: message.into(), code }
    }
}

#[derive(Debug)]
pub struct Scope<'a> {
    pub document: &'a Document,
    pub variables: &'a Map<String, Value>,
}

impl Scope<'_> {
    /// The fields of a selection, with those of its fragments, and without those that are skipped.
    pub fn fields(&self, selections: &[Selection]) -> Result<Vec<Field>, Problem> {
        let mut fields = Vec::new();
        self.gather(selections, &mut fields, 0)?;
        Ok(fields)
    }

    fn gather(&self, selections: &[Selection], fields: &mut Vec<Field>, depth: usize) -> Result<(), Problem> {
        if depth > 24 {
            return Err(Problem::new("infiniteLoop", "fragments contain each other"));
        }
        for selection in selections {
            match selection {
                Selection::Field(field) if self.is_wanted(&field.conditions) => fields.push(field.clone()),
                Selection::Inline { selections, conditions } if self.is_wanted(conditions) => {
                    self.gather(selections, fields, depth + 1)?;
                }
                Selection::Spread { name, conditions } if self.is_wanted(conditions) => {
                    let fragment = self.document.fragments.get(name).ok_or_else(|| {
                        Problem::new(
                            "useAndDefineFragment",
                            format!("Fragment {name} was used, but not defined"),
                        )
                    })?;
                    self.gather(fragment, fields, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_wanted(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| {
            condition.input.value(self.variables).and_then(|value| value.as_bool()) == Some(condition.wanted)
        })
    }

    pub fn arguments(&self, field: &Field) -> Map<String, Value> {
        let given = field.arguments.iter();
        given.filter_map(|(name, input)| Some((name.clone(), input.value(self.variables)?))).collect()
    }

    /// An object has its type in `__typename` and all of its fields; this gives those that were asked for.
    pub fn project(&self, value: &Value, field: &Field) -> Result<Value, Problem> {
        match value {
            Value::Array(items) => items
                .iter()
                .map(|item| self.project(item, field))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from),
            Value::Object(object) => {
                let kind = object.get("__typename").and_then(Value::as_str).unwrap_or_default();
                if field.selections.is_empty() {
                    let message =
                        format!("Field must have selections (field '{}' returns {kind})", field.name);
                    return Err(Problem::new("selectionMismatch", message));
                }
                let mut chosen = Map::new();
                for inner in self.fields(&field.selections)? {
                    let value = object.get(&inner.name).ok_or_else(|| undefined(&inner.name, kind))?;
                    chosen.insert(inner.alias.clone(), self.project(value, &inner)?);
                }
                Ok(Value::Object(chosen))
            }
            Value::Null => Ok(json!(null)),
            scalar if field.selections.is_empty() => Ok(scalar.clone()),
            _ => {
                let message = format!("Selections can't be made on scalars (field '{}')", field.name);
                Err(Problem::new("selectionMismatch", message))
            }
        }
    }
}

pub fn undefined(field: &str, kind: &str) -> Problem {
    Problem::new(
        "undefinedField",
        format!("Field '{field}' doesn't exist on type '{kind}', or is not simulated"),
    )
}
