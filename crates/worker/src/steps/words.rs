//! What people are told of steps and cleanups, by the command line and by the console.

use serde_json::Value;
use waypost_kernel::Outcome;
use waypost_kernel::item::Role;
use waypost_store::{ItemRow, RunRow};

use super::ending::CLEANUP_FAILED;
use super::step_log::was_not_wanted;

/// Of a step that had begun, was not under way when its run ended, and was skipped by that: nobody began it again. One that was skipped
/// by its handler or its playbook says how long it took, or why.
pub fn left_in_words(run: &RunRow, item: &ItemRow) -> Option<String> {
    let kind = run.lifecycle.items.iter().find(|kind| *kind.name == *item.kind)?;
    let outcome = kind.state_named(&item.status).and_then(|state| kind.state(state).outcome);
    if outcome != Some(Outcome::Skipped)
        || item.started_at.is_none()
        || item.finished_at != run.run.finished_at
    {
        return None;
    }
    let has_told = ["duration_ms", "reason"].iter().any(|told| item.details.contains_key(*told));
    // What a handler says is never `skipped` here: it would not run again after a pause.
    let runs_again = item.reruns || item.role == Role::Cleanup;
    let words = match &item.failure {
        Some(failure) if !has_told => {
            format!("its next try did not begin; the last: {}: {}", failure.code, failure.message)
        }
        _ if runs_again && has_told && !was_not_wanted(item) => {
            "it ran before the pause, and was not begun again".to_owned()
        }
        None if !has_told => "it had begun before, and was not begun again".to_owned(),
        _ => return None,
    };
    Some(words)
}

/// Which cleanups of a run did not do what they were for, whatever else became of it.
pub fn cleanup_failed_in_words(run: &RunRow) -> Option<String> {
    let names = match run.details.get(CLEANUP_FAILED) {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    match names.is_empty() {
        false => Some(not_undone(&names)),
        true => run.run.cleanup_failed.then(|| "no worker was left to undo what was to be undone".to_owned()),
    }
}

pub(super) fn not_undone<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    format!("what was to be undone was not: {}", names.join(", "))
}
