//! The steps that a run has from its beginning. Those of a `for_each` over what an earlier step answers are added
//! when that is known.

use serde_json::{Map, Value, json};
use waypost_kernel::Lifecycle;
use waypost_kernel::item::Role;
use waypost_store::NewItem;

use super::sheet::Added;
use crate::playbook::{Playbook, Scope, Step};

/// For the run that is to be queued. `inputs` as [`Playbook::accept`] gave them.
pub fn first_steps(playbook: &Playbook, lifecycle: &Lifecycle, inputs: &Map<String, Value>) -> Vec<NewItem> {
    let Some(kind) = lifecycle.items.first() else { return Vec::new() };
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
            role: Role::Step,
            details: added.details,
        })
        .collect()
}

pub(crate) fn known_steps(playbook: &Playbook, inputs: &Map<String, Value>) -> Vec<Added> {
    let scope = Scope { inputs: inputs.clone(), ..Scope::default() };
    let mut known = Vec::new();
    for (order, step) in playbook.steps.iter().chain(&playbook.cleanups).enumerate() {
        if step.for_each.is_none() {
            known.push(single(playbook, step, order, &scope));
        } else if depends_on_inputs_alone(step) && !is_cleanup(playbook, step) {
            let items = playbook.items_of(step, &scope).ok().flatten().unwrap_or_default();
            known.extend(parts(playbook, step, &items, &scope));
        }
    }
    known
}

/// The steps of a `for_each`, one for each item.
pub(crate) fn parts(playbook: &Playbook, step: &Step, items: &[Value], scope: &Scope) -> Vec<Added> {
    let order = order_of(playbook, step);
    let part = |(index, item): (usize, &Value)| {
        let number = index + 1;
        let scope = Scope { item: Some(item.clone()), ..scope.clone() };
        let own = key_of(playbook, step);
        let details = json!({ "of": own, "number": number, "item": item, "order": order });
        Added {
            name: name_of(playbook, step, &scope),
            key: format!("{own}[{number}]"),
            retries: step.retries,
            reruns: runs_again(playbook, step),
            details: details.as_object().cloned().unwrap_or_default(),
        }
    };
    items.iter().enumerate().map(part).collect()
}

/// A cleanup may have a step's name.
pub(crate) const CLEANUP: &str = "cleanup: ";

/// What a step is called in the run.
pub(crate) fn key_of(playbook: &Playbook, step: &Step) -> String {
    if is_cleanup(playbook, step) { format!("{CLEANUP}{}", step.key) } else { step.key.clone() }
}

fn single(playbook: &Playbook, step: &Step, order: usize, scope: &Scope) -> Added {
    Added {
        key: key_of(playbook, step),
        name: name_of(playbook, step, scope),
        retries: step.retries,
        reruns: runs_again(playbook, step),
        details: Map::from_iter([("order".to_owned(), json!(order))]),
    }
}

/// Made of what is known by then; a name that needs more is told by its key until it begins.
fn name_of(playbook: &Playbook, step: &Step, scope: &Scope) -> String {
    playbook.name_of(step, scope).unwrap_or_else(|_| step.key.clone())
}

fn is_cleanup(playbook: &Playbook, step: &Step) -> bool {
    playbook.cleanups.iter().any(|cleanup| std::ptr::eq(cleanup, step))
}

fn order_of(playbook: &Playbook, step: &Step) -> Option<usize> {
    playbook.steps.iter().chain(&playbook.cleanups).position(|it| std::ptr::eq(it, step))
}

/// After a resume: cleanups, and what they undid.
fn runs_again(playbook: &Playbook, step: &Step) -> bool {
    let undone = |cleanup: &Step| cleanup.after.as_ref() == Some(&step.key);
    is_cleanup(playbook, step) || playbook.cleanups.iter().any(undone)
}

fn depends_on_inputs_alone(step: &Step) -> bool {
    let names_others = |source: &str| source.contains("steps") || source.contains("run");
    step.for_each.as_ref().is_some_and(|expression| !names_others(expression.source()))
}
