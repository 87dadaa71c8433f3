//! The steps that a run has from its beginning. Those of a `for_each` over what an earlier step answers are added
//! when that is known.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};
use waypost_kernel::Lifecycle;
use waypost_kernel::item::Role;
use waypost_store::{ItemRow, NewItem};

use super::step_log::{Added, is_dropped, number};
use crate::playbook::{Context, Expression, Hash, Playbook, Scope, Step};

/// For the run that is to be queued. `inputs` as [`Playbook::accept`] gave them.
pub fn first_steps(playbook: &Playbook, lifecycle: &Lifecycle, inputs: &Map<String, Value>) -> Vec<NewItem> {
    let Some(kind) = lifecycle.counted_items() else { return Vec::new() };
    let known = known_steps(playbook, inputs);
    known
        .into_iter()
        .map(|added| NewItem {
            kind: kind.name.to_string(),
            key: added.key,
            name: added.name,
            status: None,
            max_retries: added.retries,
            reruns: added.reruns,
            role: added.role,
            details: added.details,
            copied: false,
        })
        .collect()
}

pub(crate) fn known_steps(playbook: &Playbook, inputs: &Map<String, Value>) -> Vec<Added> {
    let context = playbook.context(&Scope { inputs: inputs.clone(), ..Scope::default() });
    let mut known = Vec::new();
    for step in playbook.steps.iter().chain(&playbook.cleanups) {
        if step.for_each.is_none() {
            known.push(single(playbook, step, &context));
        } else if depends_on_inputs_alone(step) && !step.is_cleanup {
            let items = playbook.items_of(step, &context).ok().flatten().unwrap_or_default();
            known.extend(revised(playbook, step, &items, std::iter::empty(), &context).added);
        }
    }
    known
}

/// How the items of a `for_each` differ from those that its run has.
pub(crate) struct Revised {
    /// The keys of all that are wanted, in the order of the list.
    pub keys: Vec<String>,
    pub added: Vec<Added>,
    /// The keys of those that are no longer wanted.
    pub dropped: Vec<String>,
}

/// A step that ran again after a pause may answer anew, and the list that is made of it with it. An item is known again by
/// what it is, so that none is done twice because another came before it.
pub(crate) fn revised<'r>(
    playbook: &Playbook,
    step: &Step,
    items: &[Value],
    known: impl Iterator<Item = &'r ItemRow>,
    context: &Context,
) -> Revised {
    let mut last = 0;
    let mut dropped = Vec::new();
    let mut keys_of: HashMap<String, VecDeque<&str>> = HashMap::new();
    for row in known {
        last = last.max(number(row));
        // Whoever comes back after that is another one.
        if is_dropped(row) {
            continue;
        }
        dropped.push(row.key.as_str());
        let hash = row.details.get("hash").and_then(Value::as_str);
        let hash = hash.map_or_else(|| hash_of(row.details.get("item")), str::to_owned);
        keys_of.entry(hash).or_default().push_back(&row.key);
    }
    let mut kept = HashSet::new();
    let (mut keys, mut added) = (Vec::new(), Vec::new());
    for item in items {
        if let Some(key) = keys_of.get_mut(&hash_of(Some(item))).and_then(VecDeque::pop_front) {
            kept.insert(key);
            keys.push(key.to_owned());
        } else {
            last += 1;
            let part = part(playbook, step, item, last, context);
            keys.push(part.key.clone());
            added.push(part);
        }
    }
    dropped.retain(|key| !kept.contains(key));
    Revised { keys, added, dropped: dropped.into_iter().map(str::to_owned).collect() }
}

/// The step of one item.
fn part(playbook: &Playbook, step: &Step, item: &Value, number: u64, context: &Context) -> Added {
    let own = key_of(step);
    let details = json!({
        "of": own,
        "number": number,
        "item": item,
        "hash": hash_of(Some(item)),
        "order": order_of(playbook, step),
    });
    Added {
        name: name_of(playbook, step, &context.with_item(item)),
        key: format!("{own}[{number}]"),
        retries: step.retries,
        reruns: runs_again(playbook, step),
        role: role_of(step),
        details: details.as_object().cloned().unwrap_or_default(),
    }
}

/// Of the item itself: what the store keeps of it may have been cleaned.
fn hash_of(item: Option<&Value>) -> String {
    Hash::of(&plain(item.unwrap_or(&Value::Null))).short().to_owned()
}

/// The same however a database writes its numbers: PostgreSQL makes `1.7e18` an integer, and `-0.0` zero.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            let whole = float.filter(|float| float.fract() == 0.0).map(|float| float + 0.0);
            Value::String(whole.map_or_else(|| format!("#{number}"), |whole| format!("#{whole:.0}")))
        }
        Value::String(text) => Value::String(format!("${text}")),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        Value::Null | Value::Bool(_) => value.clone(),
    }
}

/// What a part of a list is known by, without what came of it.
pub(crate) fn planned_part(row: &ItemRow) -> Map<String, Value> {
    let kept = ["of", "number", "item", "hash", "order"].into_iter();
    kept.filter_map(|name| Some((name.to_owned(), row.details.get(name)?.clone()))).collect()
}

/// A part of a list of which is known that there is one, and not what it is for.
pub(crate) fn untold_part(playbook: &Playbook, step: &Step, kind: &str, number: u64) -> NewItem {
    let (own, details) = (key_of(step), json!({ "of": key_of(step), "number": number }));
    let key = format!("{own}[{number}]");
    NewItem {
        kind: kind.to_owned(),
        name: key.clone(),
        key,
        status: None,
        max_retries: step.retries,
        reruns: runs_again(playbook, step),
        role: role_of(step),
        details: details.as_object().cloned().unwrap_or_default(),
        copied: false,
    }
}

pub(crate) fn is_untold(item: &NewItem) -> bool {
    item.details.contains_key("of") && !item.details.contains_key("item")
}

/// A cleanup may have a step's name.
pub(crate) const CLEANUP: &str = "cleanup: ";

/// What a step is called in the run.
pub(crate) fn key_of(step: &Step) -> String {
    if step.is_cleanup { format!("{CLEANUP}{}", step.key) } else { step.key.clone() }
}

/// Of a step without items; of one with them, what stands for it when there are none.
pub(crate) fn single(playbook: &Playbook, step: &Step, context: &Context) -> Added {
    Added {
        key: key_of(step),
        name: name_of(playbook, step, context),
        retries: step.retries,
        reruns: runs_again(playbook, step),
        role: role_of(step),
        details: Map::from_iter([("order".to_owned(), json!(order_of(playbook, step)))]),
    }
}

/// Made of what is known by then; a name that needs more is told by its key until it begins.
fn name_of(playbook: &Playbook, step: &Step, context: &Context) -> String {
    playbook.name_of(step, context).unwrap_or_else(|_| step.key.clone())
}

/// What its failure means to the others.
fn role_of(step: &Step) -> Role {
    match step.continue_on_failure {
        _ if step.is_cleanup => Role::Cleanup,
        true => Role::Optional,
        false => Role::Step,
    }
}

fn order_of(playbook: &Playbook, step: &Step) -> Option<usize> {
    let is_same = |it: &Step| it.key == step.key && it.is_cleanup == step.is_cleanup;
    playbook.steps.iter().chain(&playbook.cleanups).position(is_same)
}

/// After a resume: cleanups, and what they undid.
pub(crate) fn runs_again(playbook: &Playbook, step: &Step) -> bool {
    let undone = |cleanup: &Step| cleanup.after.as_ref() == Some(&step.key);
    step.is_cleanup || playbook.cleanups.iter().any(undone)
}

fn depends_on_inputs_alone(step: &Step) -> bool {
    let names_others = |expression: &Expression| expression.names("steps") || expression.names("run");
    step.for_each.as_ref().is_some_and(|expression| !names_others(expression))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_known_again_however_its_numbers_are_written() {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        for (ours, theirs) in [
            ("1.7e18", "1700000000000000000"),
            ("-0.0", "0.0"),
            ("1.0", "1"),
            ("[1e16]", "[10000000000000000]"),
            (r#"{"a":2.50}"#, r#"{"a":2.5}"#),
        ] {
            assert_eq!(hash_of(Some(&read(ours))), hash_of(Some(&read(theirs))), "{ours}");
        }
        for (one, other) in [("1", "\"1\""), ("1", "\"#1\""), ("1.5", "1"), ("null", "\"\""), ("[]", "{}")] {
            assert_ne!(hash_of(Some(&read(one))), hash_of(Some(&read(other))), "{one}");
        }
    }
}
