//! What an operation on another run came to, for people.

use serde_json::Value;
use waypost_kernel::text::terminal::plain;
use waypost_store::RunRow;

use crate::output::{cells, table_within, width};

/// `78 rolled back, 2 could not be, 3 had been changed by others`.
pub fn summary(run: &RunRow) -> Option<String> {
    let report = report(run)?;
    let number = |name: &str| report[name].as_u64();
    let words = match (number("rolledBack"), number("totalChecked")) {
        (Some(done), _) => {
            let (failed, drifted) = (number("errors")?, number("drifted")?);
            format!("{done} rolled back, {failed} could not be, {drifted} had been changed by others")
        }
        (None, Some(checked)) => {
            let (mismatches, errors) = (number("mismatches")?, number("fetchErrors")?);
            let retried = report["retriedBy"].as_str().map(|id| format!("; changed again by {id}"));
            let retried = retried.unwrap_or_default();
            let superseded = number("superseded").filter(|count| *count > 0);
            let superseded = superseded.map(|count| format!(", {count} were changed by later runs since"));
            let superseded = superseded.unwrap_or_default();
            format!(
                "{checked} compared, {mismatches} are not what was applied{superseded}, {errors} could not be read{retried}"
            )
        }
        (None, None) => return None,
    };
    Some(match number("inDoubt").filter(|count| *count > 0) {
        Some(count) => {
            format!("{words}; of {count} that failed without an answer {} were changed", number("made")?)
        }
        None => words,
    })
}

fn report(run: &RunRow) -> Option<&Value> {
    run.details.get("report").filter(|_| &*run.lifecycle.name == "operation")
}

/// Targets that a person should look at; none if there are none.
pub fn listed(run: &RunRow) -> Option<String> {
    let report = report(run)?;
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let mut parts = Vec::new();
    let differing: Vec<Value> = list("details").into_iter().chain(list("drift")).collect();
    if !differing.is_empty() {
        let rows = differing.iter().map(|it| row(it, &["targetId", "expected", "actual", "difference"]));
        parts.push(table_within(&["target", "expected", "actual", "difference"], rows, width()));
    }
    if !list("doubts").is_empty() {
        let doubts = list("doubts");
        let rows = doubts.iter().map(|it| row(it, &["targetId", "code", "found", "actual"]));
        parts.push(table_within(&["target", "failed with", "the change was", "actual"], rows, width()));
    }
    if !list("failures").is_empty() {
        let failures = list("failures");
        let rows = failures.iter().map(|it| row(it, &["targetId", "code", "message"]));
        parts.push(table_within(&["target", "failed with", "why"], rows, width()));
    }
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

fn row(object: &Value, names: &[&str]) -> Vec<comfy_table::Cell> {
    let texts = names.iter().map(|name| match &object[*name] {
        Value::Null => String::new(),
        Value::String(text) => plain(text).into_owned(),
        other => other.to_string(),
    });
    cells(texts.collect::<Vec<_>>())
}
