//! What people are told of steps and cleanups, by the command line and by the console.

use serde_json::Value;
use waypost_kernel::item::Role;
use waypost_kernel::{Outcome, Phase, Span, Time};
use waypost_store::{ItemRow, PLACEHOLDER, RunRow};

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

/// Steps in the order of the playbook, what each consists of after it with that step, as it began; then what belongs to none. What stands
/// for the steps of a run that came without any is none.
pub fn in_order<'i>(run: &RunRow, items: &'i [ItemRow]) -> Vec<(&'i ItemRow, Option<&'i ItemRow>)> {
    let number =
        |item: &ItemRow, key: &str| item.details.get(key).and_then(Value::as_u64).unwrap_or_default();
    let first = run.lifecycle.items.first().map_or("", |kind| &kind.name);
    let of = |item: &ItemRow| item.details.get("step").and_then(Value::as_str).map(str::to_owned);
    let known = || items.iter().filter(|item| item.key != PLACEHOLDER);
    let mut steps: Vec<&ItemRow> = known().filter(|item| *item.kind == *first).collect();
    steps.sort_by_key(|item| (number(item, "order"), number(item, "number")));
    let mut rest: Vec<&ItemRow> = known().filter(|item| *item.kind != *first).collect();
    // What has not begun comes last.
    rest.sort_by_key(|item| (item.started_at.is_none(), item.started_at));
    let mut all = Vec::with_capacity(items.len());
    for step in steps {
        all.push((step, None));
        let (own, others) = rest.into_iter().partition(|item| of(item).is_some_and(|of| of == step.key));
        let own: Vec<&ItemRow> = own;
        all.extend(own.into_iter().map(|part| (part, Some(step))));
        rest = others;
    }
    all.extend(rest.into_iter().map(|item| (item, None)));
    all
}

/// How long a step was worked, and not how long it waited between. None: it did not begin, or waits to go on.
pub fn worked(run: &RunRow, item: &ItemRow, now: Time) -> Option<Span> {
    let kind = run.lifecycle.items.iter().find(|kind| *kind.name == *item.kind);
    let state = kind.and_then(|kind| kind.state_named(&item.status).map(|id| kind.state(id)));
    let phase = state.map_or(Phase::Ready, |state| state.phase);
    // A step that ran again after a pause knows how long it ran: when it began the first time says nothing of that.
    let ran = item.details.get("duration_ms").and_then(Value::as_i64);
    let ran = ran.filter(|_| phase == Phase::Settled).map(Span::from_ms);
    let end = item.finished_at.or(Some(now).filter(|_| phase == Phase::Held));
    // A step that asks takes as long as a person thinks: that is no work.
    let is_asking = item.details.contains_key("ask");
    ran.or(item.started_at.zip(end).filter(|_| !is_asking).map(|(start, end)| end - start))
}

/// A line per thing that blocks a host: `vm-7 (usb passthrough, critical): detach the device`.
pub fn blockers_in_words(about: &Value) -> Vec<String> {
    let listed = about.get("blockers").unwrap_or(about).as_array();
    let line = |blocker: &Value| {
        let text = |keys: [&str; 2]| keys.iter().find_map(|key| blocker[*key].as_str());
        let Some(vm) = text(["vm_name", "name"]) else { return blocker.to_string() };
        let about = [text(["reason", "type"]), blocker["severity"].as_str()];
        let about: Vec<String> = about.into_iter().flatten().map(|word| word.replace('_', " ")).collect();
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        let mend = text(["remediation", "details"]).map(|mend| format!(": {mend}")).unwrap_or_default();
        format!("{vm}{about}{mend}")
    };
    match listed {
        Some(listed) => listed.iter().map(line).collect(),
        // What there is besides what is shown anyway.
        None => {
            let known = |name: &str| matches!(name, "choices" | "ask" | "until");
            let members = about.as_object().into_iter().flatten().filter(|(name, _)| !known(name));
            members.map(|(name, value)| format!("{name}: {}", as_text(value))).collect()
        }
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
