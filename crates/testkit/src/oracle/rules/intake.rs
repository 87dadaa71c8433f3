//! What comes in is refused where it is wrong, with the field named. What handlers put out is cleaned and cut instead.

use serde_json::{Map, Value, json};
use waypost_kernel::Failure;
use waypost_kernel::id::check_id;
use waypost_kernel::text::{
    ENGINE_KEYS, MAX_ERROR_CHARS, MAX_EVENT_BYTES, MAX_KEY_BYTES, MAX_LINE_BYTES, MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES, MAX_REASON_CHARS, TextError, clean_chars, clean_json, clean_line, refuse_json,
    refuse_members, refuse_text,
};
use waypost_store::{NewItem, NewRun, Pause, Result, StoreError};

/// Everything about a new run that can be told without looking at others.
pub fn check_new(new: &NewRun) -> Result<()> {
    check_text("by", &new.by, MAX_NAME_BYTES)?;
    check_name("tenant", &new.tenant)?;
    check_tenant(&new.tenant)?;
    check_name("queue", &new.queue)?;
    check_key("concurrency_key", new.concurrency_key.as_deref())?;
    check_key("correlation_id", new.correlation_id.as_deref())?;
    check_key("idempotency_key", new.idempotency_key.as_deref())?;
    check_key("title", new.title.as_deref())?;
    check_key("playbook", new.playbook.as_deref())?;
    for (field, id) in [("parent_run_id", &new.parent_run_id), ("retry_of", &new.retry_of)] {
        if let Some(id) = id {
            check_id(id).map_err(|message| StoreError::invalid(field, message))?;
        }
    }
    refuse_json("input", &new.input, MAX_PAYLOAD_BYTES).map_err(wrong)?;
    check_map("metadata", &new.metadata)?;
    check_map("details", &new.details)?;
    for (field, members) in [("metadata", &new.metadata), ("details", &new.details)] {
        check_artifacts(field, members.get("artifacts"))?;
    }
    if let Some(carried) = &new.carried {
        refuse_json("embedded", carried, MAX_PAYLOAD_BYTES).map_err(wrong)?;
    }
    new.items.iter().try_for_each(check_item)
}

/// Each of a list is one of five kinds.
fn check_artifacts(field: &str, listed: Option<&Value>) -> Result<()> {
    let field = format!("{field}.artifacts");
    let listed = match listed {
        None => return Ok(()),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err(StoreError::invalid(&field, "is no list of objects with type and url")),
    };
    for artifact in listed {
        if !["image", "sbom", "logs", "evidence", "manifest"].iter().any(|kind| artifact["type"] == **kind) {
            let kind = &artifact["type"];
            let message = format!("type: {kind} is none; allowed: image, sbom, logs, evidence, manifest");
            return Err(StoreError::invalid(&field, message));
        }
    }
    Ok(())
}

fn check_item(item: &NewItem) -> Result<()> {
    check_name("items.key", &item.key)?;
    check_text("items.name", &item.name, MAX_NAME_BYTES)?;
    check_map("items.details", &item.details)
}

/// Of a tenant, a queue, a worker, an item: there must be one.
pub fn check_name(field: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(StoreError::invalid(field, "is empty"));
    }
    check_text(field, name, MAX_NAME_BYTES)
}

/// A tenant's name ends where its own names begin.
pub fn check_tenant(tenant: &str) -> Result<()> {
    waypost_kernel::tenant::check_given("tenant", tenant).map_err(wrong)
}

pub fn check_key(field: &str, key: Option<&str>) -> Result<()> {
    match key {
        None => Ok(()),
        Some("") => Err(StoreError::invalid(field, "is empty: leave it out instead")),
        Some(key) => check_text(field, key, MAX_KEY_BYTES),
    }
}

/// What the engine names its own runs by is not for others.
pub fn check_client_key(key: Option<&str>) -> Result<()> {
    if key.unwrap_or_default().starts_with(ENGINE_KEYS) {
        let message = format!("begins with {ENGINE_KEYS:?}, as the engine's own do: use another one");
        return Err(StoreError::invalid("idempotency_key", message));
    }
    Ok(())
}

/// A person's reason for a command. A handler's is cleaned instead.
pub fn check_reason(reason: Option<&str>) -> Result<()> {
    let Some(reason) = reason else { return Ok(()) };
    let chars = reason.chars().count();
    if chars > MAX_REASON_CHARS {
        let message = format!("is {chars} characters long; at most {MAX_REASON_CHARS} are allowed");
        return Err(StoreError::invalid("reason", message));
    }
    check_text("reason", reason, usize::MAX)
}

pub fn check_pause(pause: Option<&Pause>) -> Result<()> {
    let Some(pause) = pause else { return Ok(()) };
    check_name("by", &pause.by)?;
    check_reason(Some(&pause.reason))
}

pub fn check_text(field: &str, text: &str, max_bytes: usize) -> Result<()> {
    refuse_text(field, text, max_bytes).map_err(wrong)
}

fn check_map(field: &str, map: &Map<String, Value>) -> Result<()> {
    refuse_members(field, map, MAX_PAYLOAD_BYTES).map_err(wrong)
}

fn wrong(error: TextError) -> StoreError {
    StoreError::Invalid { field: error.field, message: error.message }
}

/// A worker's name, where what it brings must not be lost over it.
pub fn cleaned_name(name: &str) -> String {
    clean_line(name.as_bytes(), MAX_NAME_BYTES).text
}

/// An event's words may have several lines.
pub fn cleaned_message(message: &str) -> String {
    clean_chars(message, MAX_LINE_BYTES).text
}

pub fn cleaned_payload(payload: Value) -> Value {
    clean_json(payload, MAX_EVENT_BYTES).0
}

pub fn cleaned_reason(reason: &str) -> String {
    clean_chars(reason, MAX_REASON_CHARS).text
}

pub fn cleaned_failure(failure: &Failure) -> Failure {
    Failure::new(&cleaned_name(&failure.code), &clean_chars(&failure.message, MAX_ERROR_CHARS).text)
}

/// An item's result.
pub fn cleaned_output(output: Value) -> Value {
    clean_json(output, MAX_PAYLOAD_BYTES).0
}

/// A handler's patch.
pub fn cleaned_patch(patch: &Map<String, Value>) -> Map<String, Value> {
    match cleaned_output(Value::Object(patch.clone())) {
        Value::Object(patch) => patch,
        _ => Map::new(),
    }
}

/// A handler's metadata: each member cleaned for itself, and as many of them, by name, as there is room for. Also the names of the
/// others.
pub fn cleaned_metadata(patch: &Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let mut cleaned = Map::new();
    for (name, value) in patch {
        let name = clean_json(json!(name), usize::MAX).0.as_str().unwrap_or_default().to_owned();
        let mut own = Map::new();
        own.insert("m".to_owned(), value.clone());
        let own = clean_json(Value::Object(own), usize::MAX).0;
        cleaned.insert(name, own.get("m").cloned().unwrap_or(own));
    }
    let mut kept = Map::new();
    let left_out = add_members(&mut kept, &cleaned);
    (kept, left_out)
}

/// Metadata have 1 MiB. Members are tried by name; the names of those that are too long for what is left come back.
pub fn add_members(into: &mut Map<String, Value>, patch: &Map<String, Value>) -> Vec<String> {
    let mut names: Vec<&String> = patch.keys().collect();
    names.sort();
    let mut too_long = Vec::new();
    for name in names {
        let before = into.insert(name.clone(), patch[name].clone());
        if serde_json::to_string(into).map_or(0, |text| text.len()) > MAX_PAYLOAD_BYTES {
            match before {
                Some(before) => into.insert(name.clone(), before),
                None => into.remove(name),
            };
            too_long.push(name.clone());
        }
    }
    too_long
}

/// A patch of an item's details, laid over what is there, member by member. One that would make it too large is left out and its
/// absence marked.
pub fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if patch.is_empty() {
        return;
    }
    let mut merged = into.clone();
    merged.extend(cleaned_patch(patch));
    if refuse_members("", &merged, MAX_PAYLOAD_BYTES).is_ok() {
        *into = merged;
    } else {
        into.insert("cut".into(), Value::Bool(true));
    }
}
