//! What is compared of an answer.

use serde_json::{Value, json};
use waypost_kernel::Guard;
use waypost_kernel::waiting::Waiting;
use waypost_store::{QueueRow, StoreError, parse_time};

/// Runs are named by the order in which they appeared, also at the beginning of a key; of times only counts that there is one.
pub fn normal(value: Value, ids: &[String]) -> Value {
    let of_run = |text: &str| {
        let rest =
            |id: &String| text.strip_prefix(id.as_str()).filter(|it| it.is_empty() || it.starts_with(':'));
        ids.iter().enumerate().find_map(|(at, id)| Some(format!("#{at}{}", rest(id)?)))
    };
    match value {
        Value::String(text) => match of_run(&text) {
            Some(named) => json!(named),
            None if text.len() >= 20 && parse_time(&text).is_some() => json!("a time"),
            None => Value::String(text),
        },
        Value::Array(values) => values.into_iter().map(|value| normal(value, ids)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(key, member)| (key, normal(member, ids))).collect()
        }
        plain => plain,
    }
}

/// Why a run waits: which runs and times it names are the store's own.
pub fn why(waiting: Option<&Waiting>, ids: &[String]) -> Value {
    let Some(waiting) = waiting else { return Value::Null };
    let named = |text: &str| {
        let text = ids
            .iter()
            .enumerate()
            .fold(text.to_owned(), |text, (at, id)| text.replace(id, &format!("#{at}")));
        let mut words: Vec<&str> = text.split(' ').collect();
        for at in 0..words.len() {
            if parse_time(words[at].trim_end_matches([',', ';', ':'])).is_some()
                || words.get(at + 1) == Some(&"s")
            {
                words[at] = "T";
            }
        }
        words.join(" ")
    };
    json!([waiting.reason.name(), named(&waiting.text), waiting.hint.as_deref().map(named)])
}

/// Words may differ between stores, and which of several wrong fields is named; what callers branch on may not.
pub fn error(error: &StoreError, ids: &[String]) -> Value {
    let told = match error {
        _ if error.code() == "INVALID_INPUT" => Value::Null,
        StoreError::Refused(refusal) => json!({
            "current": &*refusal.current,
            "requested": refusal.requested,
            "allowed": refusal.allowed.iter().map(|it| &**it).collect::<Vec<_>>(),
            "guard": refusal.guard.map(Guard::name),
        }),
        StoreError::Invalid { field, .. } => json!({ "field": field }),
        StoreError::KeyReused { key, run_id } => json!({ "key": key, "run": run_id }),
        StoreError::Outdated(_) => Value::Null,
        StoreError::NotFound { what, .. } => json!({ "what": what }),
        StoreError::Changed { run_id, seq } => json!({ "run": run_id, "seq": seq }),
        StoreError::Denied(_) | StoreError::Unavailable(_) | StoreError::Unusable(_) => {
            json!(error.to_string())
        }
    };
    normal(json!({ "code": error.code(), "told": told }), ids)
}

pub fn queue(row: &QueueRow) -> Value {
    json!({
        "tenant": row.tenant,
        "name": row.name,
        "ready": row.ready,
        "scheduled": row.scheduled,
        "held": row.held,
        "orphaned": row.orphaned,
        "has_oldest": row.oldest_ready_at.is_some(),
        "at_most": row.at_most,
        "paused": row.paused.as_ref().map(|pause| json!([pause.by, pause.reason, pause.at.is_some()])),
    })
}
