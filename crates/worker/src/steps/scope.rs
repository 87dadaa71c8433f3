//! What templates see of a run and of its steps so far.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use waypost_store::{ItemRow, RunRow};

use super::state_names::StepState;
use super::step_log::{StepLog, is_dropped};
use crate::playbook::{Playbook, Scope, Step, Unattended};

/// Nobody is there to be asked: it was scheduled, or whoever started it says so.
pub(crate) fn is_unattended(row: &RunRow) -> bool {
    row.metadata.get("unattended").and_then(Value::as_bool).unwrap_or(row.schedule_at.is_some())
}

/// What people decided about what the run asked.
pub(crate) fn resolutions(row: &RunRow) -> Value {
    let given = row.lifecycle.decisions.as_ref().and_then(|decisions| row.details.get(decisions.given()));
    given.cloned().unwrap_or_else(|| json!({}))
}

/// What a scheduled run does with what would pause it; null for one that somebody watches.
pub(crate) fn unattended(playbook: &Playbook, row: &RunRow) -> Value {
    match (is_unattended(row), playbook.unattended) {
        (false, _) => Value::Null,
        (true, Unattended::Skip) => json!("skip"),
        (true, Unattended::Fail) => json!("fail"),
    }
}

/// Of which steps templates see the results: the same whatever else is under way.
#[derive(Clone, Copy)]
pub(crate) enum Seen<'s> {
    /// Those that this one waits for.
    Before(&'s Step),
    /// Its own, too.
    With(&'s Step),
    All,
}

impl Seen<'_> {
    fn has(self, at: usize, step: &Step) -> bool {
        let waits = |own: &Step| own.is_cleanup || own.before.binary_search(&at).is_ok();
        match self {
            Seen::Before(own) => waits(own),
            Seen::With(own) => waits(own) || own.key == step.key,
            Seen::All => true,
        }
    }
}

pub(crate) fn scope(
    playbook: &Playbook,
    row: &RunRow,
    inputs: &Map<String, Value>,
    (step_log, lists): (&StepLog, &HashMap<String, Vec<String>>),
    seen: Seen<'_>,
) -> Scope {
    let mut steps = Map::new();
    for (_, step) in playbook.steps.iter().enumerate().filter(|(at, step)| seen.has(*at, step)) {
        let whole = step_log.row(&step.key);
        if step.for_each.is_none() {
            steps.extend(whole.map(|row| (step.key.clone(), result(step_log, &[row], None))));
            continue;
        }
        // Those of the present list, if it was come to; what was in an earlier one is not in its output.
        let rows: Vec<&ItemRow> = match lists.get(&step.key) {
            Some(keys) => keys.iter().filter_map(|key| step_log.row(key)).collect(),
            None => step_log.parts_of(&step.key).filter(|row| !is_dropped(row)).collect(),
        };
        if !rows.is_empty() || whole.is_some() || lists.contains_key(&step.key) {
            steps.insert(step.key.clone(), result(step_log, &rows, Some(whole)));
        }
    }
    Scope { inputs: inputs.clone(), steps, run: run(row), ..Scope::default() }
}

/// `whole` is for a step with a list: what it came to as a whole, if it came to that.
fn result(step_log: &StepLog, rows: &[&ItemRow], whole: Option<Option<&ItemRow>>) -> Value {
    let is_ok =
        |row: &&ItemRow| matches!(step_log.names.state(&row.status), StepState::Done | StepState::Skipped);
    let outputs = || rows.iter().map(|row| row.output.clone());
    let has_failed =
        whole.flatten().is_some_and(|row| step_log.names.state(&row.status) == StepState::Failed);
    let ended = rows.iter().filter(|row| step_log.names.state(&row.status).is_settled()).count();
    json!({
        "output": if whole.is_some() { Value::Array(outputs().collect()) } else { outputs().next().unwrap_or_default() },
        "ran": rows.iter().any(|row| step_log.has_run(row)),
        "ok": rows.iter().all(is_ok) && !has_failed,
        "total": rows.len(),
        "done": rows.iter().filter(|row| step_log.names.state(&row.status) == StepState::Done).count(),
        "ended": ended,
        "percent": ended * 100 / rows.len().max(1),
    })
}

/// The keys that the checker knows.
pub(crate) fn run(row: &RunRow) -> Map<String, Value> {
    let object = json!({
        "id": row.id(),
        "attempt": row.run.attempt,
        "resolutions": resolutions(row),
        "unattended": is_unattended(row),
        "metadata": row.metadata,
        "details": row.details,
        "queue": row.queue,
        "priority": row.priority,
        "lifecycle": &*row.lifecycle.name,
        "playbook": row.playbook,
        "tenant": row.tenant,
        "correlation_id": row.correlation_id,
    });
    object.as_object().cloned().unwrap_or_default()
}
