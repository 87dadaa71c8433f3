//! What a row of a source becomes: a target with its values before and after, or nothing if they are the same. Pure.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};
use waypost_kernel::Decimal;
use waypost_kernel::text::MAX_KEY_BYTES;

use super::source::Row;
use crate::playbook::{Guardrails, Targets, Violation};

/// Where a value that is an object keeps its amount.
pub const AMOUNT: &str = "unit_amount";

/// A target as a preview has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub key: String,
    pub before: Value,
    pub after: Value,
    /// What else its row said, for templates.
    pub more: Map<String, Value>,
    pub violation: Option<Violation>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    Target(Box<Target>),
    /// It has the value already.
    Unchanged,
    /// There is nothing to change, or nothing to change it to.
    NoValue,
}

/// Makes targets of rows; each key once.
#[derive(Debug)]
pub struct Maker<'p> {
    targets: &'p Targets,
    guardrails: &'p Guardrails,
    /// What formulas see beside the target: `inputs` and `run`.
    scope: Map<String, Value>,
    /// Of keys, two hashes each: the keys themselves would take ten times the room.
    seen: HashSet<(u64, u64)>,
}

impl<'p> Maker<'p> {
    pub fn new(targets: &'p Targets, guardrails: &'p Guardrails, scope: Map<String, Value>) -> Maker<'p> {
        Maker { targets, guardrails, scope, seen: HashSet::new() }
    }

    /// The error says where the row stands.
    pub fn make(&mut self, row: Row) -> Result<Made, String> {
        let Row { at, mut members } = row;
        self.made(&mut members).map_err(|problem| format!("{at}: {problem}"))
    }

    fn made(&mut self, members: &mut Map<String, Value>) -> Result<Made, String> {
        let key = key(&self.targets.id, members.get(&self.targets.id))?;
        if !self.seen.insert(hashes(&key)) {
            return Err(format!("{}: {key:?} is there twice", self.targets.id));
        }
        let before = value_of(members.get(&self.targets.before).cloned().unwrap_or_default());
        let after = match &self.targets.after {
            None => members.get(Targets::AFTER).cloned().unwrap_or_default(),
            // Of nothing nothing is computed: a product without a price is left alone.
            Some(_) if before.is_null() => Value::Null,
            Some(formula) => {
                let target = self.seen_by_formula(members, &key, &before);
                let find = |path: &[String]| found(&self.scope, &target, path);
                let computed = formula.value(&find);
                computed
                    .map_err(|problem| format!("after: {}: {problem}", formula.source()))?
                    .unwrap_or_default()
            }
        };
        let after = value_of(after);
        if after.is_null() {
            return Ok(Made::NoValue);
        }
        if is_same(&before, &after) {
            return Ok(Made::Unchanged);
        }
        let violation = self.guardrails.judge(amount_in(&before), amount_in(&after));
        for known in [self.targets.id.as_str(), self.targets.before.as_str(), Targets::AFTER] {
            members.remove(known);
        }
        let more = std::mem::take(members);
        Ok(Made::Target(Box::new(Target { key, before, after, more, violation })))
    }

    fn seen_by_formula(&self, members: &Map<String, Value>, key: &str, before: &Value) -> Value {
        let mut target = members.clone();
        target.insert("id".to_owned(), Value::from(key));
        target.insert("before".to_owned(), before.clone());
        Value::Object(target)
    }
}

/// What templates call `target`. The columns of the id and of the value before are there by their own names too, as for `after`.
pub fn in_templates(
    (id_column, before_column): (&str, &str),
    key: &str,
    (before, after): (&Value, &Value),
    more: &Map<String, Value>,
) -> Value {
    let mut target = more.clone();
    target.insert(id_column.to_owned(), Value::from(key));
    target.insert(before_column.to_owned(), before.clone());
    target.insert("id".to_owned(), Value::from(key));
    target.insert("before".to_owned(), before.clone());
    target.insert("after".to_owned(), after.clone());
    Value::Object(target)
}

/// The amount of a value: itself, or its `unit_amount`.
pub fn amount_in(value: &Value) -> &Value {
    value.get(AMOUNT).unwrap_or(value)
}

/// By how much a value is more than another one was, quoted or not, as shops write it; none of what is no number.
pub fn difference(from: &Value, to: &Value) -> Option<Decimal> {
    number_in(to)?.minus(number_in(from)?)
}

pub(super) fn number_in(value: &Value) -> Option<Decimal> {
    match amount_in(value) {
        Value::String(text) => Decimal::parse(text.trim()),
        other => Decimal::of_json(other),
    }
}

/// A value for people.
pub fn in_words(value: &Value) -> String {
    match amount_in(value) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn found(scope: &Map<String, Value>, target: &Value, path: &[String]) -> Option<Value> {
    let (root, rest) = path.split_first()?;
    let mut value = if root == "target" { target } else { scope.get(root)? };
    for part in rest {
        value = value.get(part)?;
    }
    Some(value.clone())
}

fn key(id: &str, value: Option<&Value>) -> Result<String, String> {
    let text = match value {
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        None | Some(Value::Null) => return Err(format!("there is no {id}, which names the target")),
        Some(other) => return Err(format!("{id} is {other}, and a text or a number is allowed")),
    };
    let is_plain = !text.is_empty() && !text.chars().any(char::is_control);
    if !is_plain || text.len() > MAX_KEY_BYTES {
        return Err(format!("{id} has from 1 to {MAX_KEY_BYTES} bytes and no control characters"));
    }
    Ok(text)
}

/// A number is a number, quoted or not: a file of values separated by commas has texts alone. An empty text is no value.
fn value_of(value: Value) -> Value {
    match &value {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => Decimal::parse(text).and_then(Decimal::to_json).unwrap_or(value),
        _ => value,
    }
}

/// 12.50 is 12.5, and 0 is not nothing.
fn is_same(before: &Value, after: &Value) -> bool {
    match (Decimal::of_json(before), Decimal::of_json(after)) {
        (Some(before), Some(after)) => before == after,
        _ => before == after,
    }
}

pub(super) fn hashes(key: &str) -> (u64, u64) {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, key).hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playbook::{Formula, Source};
    use serde_json::json;

    fn targets(after: Option<&str>) -> Targets {
        Targets {
            source: Source::Csv("p.csv".into()),
            timeout: None,
            list: None,
            next: None,
            id: "id".to_owned(),
            before: "before".to_owned(),
            after: after.map(|text| Formula::parse(text).expect(text)),
            valid_for: crate::targets::VALID_FOR,
        }
    }

    fn made(maker: &mut Maker<'_>, members: &Value) -> Result<Made, String> {
        let members = members.as_object().cloned().unwrap_or_default();
        maker.make(Row { at: "p.csv:2".to_owned(), members })
    }

    // proves R1
    #[test]
    fn rows_become_targets_or_are_counted() {
        let (targets, none) = (targets(None), Guardrails::default());
        let mut maker = Maker::new(&targets, &none, Map::new());
        let target = |key: &str, before: Value, after: Value| {
            Made::Target(Box::new(Target {
                key: key.to_owned(),
                before,
                after,
                more: Map::new(),
                violation: None,
            }))
        };
        for (row, expected) in [
            (json!({"id": "1", "before": "10.00", "after": "12.50"}), target("1", json!(10), json!(12.5))),
            (json!({"id": 2, "before": 0, "after": 5}), target("2", json!(0), json!(5))),
            (json!({"id": "3", "before": 5, "after": 0}), target("3", json!(5), json!(0))),
            (json!({"id": "4", "before": "12.50", "after": 12.5}), Made::Unchanged),
            (json!({"id": "5", "before": 0, "after": "0.00"}), Made::Unchanged),
            (json!({"id": "6", "before": 5, "after": null}), Made::NoValue),
            (json!({"id": "7", "before": 5, "after": ""}), Made::NoValue),
            (json!({"id": "8", "before": 5}), Made::NoValue),
            (json!({"id": "9", "before": null, "after": 5}), target("9", json!(null), json!(5))),
            (json!({"id": "10", "before": "old", "after": "new"}), target("10", json!("old"), json!("new"))),
            (json!({"id": "11", "before": {"unit_amount": 0}, "after": {"unit_amount": 0}}), Made::Unchanged),
        ] {
            assert_eq!(made(&mut maker, &row), Ok(expected), "{row}");
        }
        let Ok(Made::Target(target)) =
            made(&mut maker, &json!({"id": "a", "before": 1, "after": 2, "sku": "007"}))
        else {
            panic!("a target");
        };
        assert_eq!(Value::Object(target.more), json!({"sku": "007"}), "texts stay texts");
    }

    #[test]
    fn new_values_are_computed_from_the_row() {
        let targets =
            targets(Some("{{ target.before|percent(inputs.by)|round(2) if target.stock > 3 else none }}"));
        let (none, scope) = (Guardrails::default(), json!({"inputs": {"by": "10"}}));
        let mut maker = Maker::new(&targets, &none, scope.as_object().cloned().unwrap_or_default());
        let after = |made: Result<Made, String>| match made {
            Ok(Made::Target(target)) => Ok(target.after),
            Ok(other) => Err(format!("{other:?}")),
            Err(problem) => Err(problem),
        };
        assert_eq!(
            after(made(&mut maker, &json!({"id": "1", "before": "19.99", "stock": "5"}))),
            Ok(json!(21.99))
        );
        assert_eq!(made(&mut maker, &json!({"id": "2", "before": "19.99", "stock": "1"})), Ok(Made::NoValue));
        assert_eq!(made(&mut maker, &json!({"id": "3", "before": null, "stock": "5"})), Ok(Made::NoValue));
        assert_eq!(made(&mut maker, &json!({"id": "4", "before": 0, "stock": 5})), Ok(Made::Unchanged));
        let problem =
            made(&mut maker, &json!({"id": "5", "before": "free", "stock": 5})).expect_err("no number");
        assert!(
            problem.starts_with("p.csv:2: after: ") && problem.contains("\"free\" is no number"),
            "{problem}"
        );
    }

    #[test]
    fn a_row_that_names_no_target_is_told() {
        let (targets, none) = (targets(None), Guardrails::default());
        let mut maker = Maker::new(&targets, &none, Map::new());
        for (row, words) in [
            (json!({"before": 1}), "there is no id"),
            (json!({"id": ""}), "from 1 to 255 bytes"),
            (json!({"id": "a\nb"}), "control"),
            (json!({"id": ["a"]}), "a text or a number"),
        ] {
            let problem = made(&mut maker, &row).expect_err(words);
            assert!(problem.starts_with("p.csv:2: ") && problem.contains(words), "{problem}");
        }
        assert!(made(&mut maker, &json!({"id": "1", "before": 1, "after": 2})).is_ok());
        let twice = made(&mut maker, &json!({"id": 1, "before": 1, "after": 3})).expect_err("twice");
        assert!(twice.contains("\"1\" is there twice"), "{twice}");
    }

    // proves R12
    #[test]
    fn guardrails_judge_what_was_computed() {
        let targets = targets(Some("{{ target.before * 2 }}"));
        let guardrails = Guardrails { ceiling: Some(Decimal::from(15)), ..Guardrails::default() };
        let mut maker = Maker::new(&targets, &guardrails, Map::new());
        let mut guardrail =
            |id: u32, before: Value| match made(&mut maker, &json!({"id": id, "before": before})) {
                Ok(Made::Target(target)) => target.violation.map(|violation| violation.guardrail),
                other => panic!("{other:?}"),
            };
        assert_eq!((guardrail(1, json!(7)), guardrail(2, json!(8))), (None, Some("ceiling")));
    }
}
