//! What comes in is refused where it is wrong, with the field named. What handlers put out is cleaned and cut
//! instead: a finish is never lost because of what it carries.

use serde_json::{Map, Value};
use waypost_kernel::id::check_id;
use waypost_kernel::tenant::check_given;
use waypost_kernel::text::{
    ENGINE_KEYS, MAX_ERROR_CHARS, MAX_EVENT_BYTES, MAX_KEY_BYTES, MAX_LINE_BYTES, MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES, MAX_REASON_CHARS, TextError, clean_chars, clean_json, clean_line, refuse_json,
    refuse_members, refuse_playbook_name, refuse_text,
};
use waypost_kernel::{Failure, Time};

use crate::columns::{COLUMNS, Check};
use crate::rules::artifacts;
use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::{NewItem, NewRun};

/// Everything about a new run that can be told without a database.
pub fn check_new(new: &NewRun) -> Result<()> {
    refuse_text("by", &new.by, MAX_NAME_BYTES).map_err(wrong)?;
    for column in COLUMNS {
        let Some(given) = &column.given else { continue };
        let asked = (given.asked)(new).into_text();
        match given.check {
            Check::Name => check_name(column.name, &asked.unwrap_or_default())?,
            Check::Key => check_key(column.name, asked.as_deref())?,
            Check::Id => asked
                .map_or(Ok(()), |id| check_id(&id))
                .map_err(|message| StoreError::invalid(column.name, message))?,
            Check::Other => {}
        }
    }
    check_given_name("tenant", &new.tenant)?;
    refuse_json("input", &new.input, MAX_PAYLOAD_BYTES).map_err(wrong)?;
    check_map("metadata", &new.metadata)?;
    check_map("details", &new.details)?;
    artifacts::check("metadata", &new.metadata)?;
    artifacts::check("details", &new.details)?;
    if let Some(carried) = &new.carried {
        refuse_json("embedded", carried, MAX_PAYLOAD_BYTES).map_err(wrong)?;
    }
    new.items.iter().try_for_each(check_item)
}

fn check_item(item: &NewItem) -> Result<()> {
    check_name("items.key", &item.key)?;
    refuse_text("items.name", &item.name, MAX_NAME_BYTES).map_err(wrong)?;
    check_map("items.details", &item.details)
}

/// Of a tenant, a queue, a worker, an item: there must be one.
pub(crate) fn check_name(field: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(StoreError::invalid(field, "is empty"));
    }
    check_text(field, name, MAX_NAME_BYTES)
}

/// Of a tenant, or of what it declares: whose a stored name is must be seen from it.
pub(crate) fn check_given_name(field: &str, name: &str) -> Result<()> {
    check_given(field, name).map_err(wrong)
}

pub(crate) fn check_playbook_name(field: &str, name: &str) -> Result<()> {
    refuse_playbook_name(field, name).map_err(wrong)
}

pub(crate) fn check_text(field: &str, text: &str, max_bytes: usize) -> Result<()> {
    refuse_text(field, text, max_bytes).map_err(wrong)
}

pub(crate) fn check_key(field: &str, key: Option<&str>) -> Result<()> {
    match key {
        None => Ok(()),
        Some("") => Err(StoreError::invalid(field, "is empty: leave it out instead")),
        Some(key) => refuse_text(field, key, MAX_KEY_BYTES).map_err(wrong),
    }
}

/// The engine's own keys can be worked out (a schedule's name and a plan's time): whoever could take one beforehand would keep the
/// engine's run from being made.
pub(crate) fn check_client_key(key: Option<&str>) -> Result<()> {
    match key.is_some_and(|key| key.starts_with(ENGINE_KEYS)) {
        true => Err(StoreError::invalid(
            "idempotency_key",
            format!("begins with {ENGINE_KEYS:?}, as the engine's own do: use another one"),
        )),
        false => Ok(()),
    }
}

/// A person's reason for a command. A handler's is cleaned instead.
pub(crate) fn check_reason(reason: Option<&str>) -> Result<()> {
    let Some(reason) = reason else { return Ok(()) };
    let chars = reason.chars().count();
    if chars > MAX_REASON_CHARS {
        let message = format!("is {chars} characters long; at most {MAX_REASON_CHARS} are allowed");
        return Err(StoreError::invalid("reason", message));
    }
    refuse_text("reason", reason, usize::MAX).map_err(wrong)
}

fn check_map(field: &str, map: &Map<String, Value>) -> Result<()> {
    if map.is_empty() {
        return Ok(());
    }
    refuse_members(field, map, MAX_PAYLOAD_BYTES).map_err(wrong)
}

fn wrong(error: TextError) -> StoreError {
    StoreError::Invalid { field: error.field, message: error.message }
}

/// A worker's name, where what it brings must not be lost over it.
pub(crate) fn cleaned_name(name: &str) -> String {
    clean_line(name.as_bytes(), MAX_NAME_BYTES).text
}

/// An event's words may have several lines: 16 Ki characters are at most 64 KiB.
pub(crate) fn cleaned_message(message: &str) -> String {
    clean_chars(message, MAX_LINE_BYTES).text
}

pub(crate) fn cleaned_payload(payload: Value) -> Value {
    clean_json(payload, MAX_EVENT_BYTES).0
}

pub(crate) fn cleaned_reason(reason: &str) -> String {
    clean_chars(reason, MAX_REASON_CHARS).text
}

/// A time that every database keeps as it is, within the calendar that times are written in. Rather late than early.
pub(crate) fn whole_ms(at: Time) -> Time {
    const LAST: Time = Time::from_micros(253_402_128_000_000_000);
    Time::from_ms(at.micros().saturating_add(999).div_euclid(1_000)).min(LAST)
}

pub(crate) fn cleaned_failure(failure: &Failure) -> Failure {
    Failure::new(&cleaned_name(&failure.code), &clean_chars(&failure.message, MAX_ERROR_CHARS).text)
}

/// An item's result.
pub(crate) fn cleaned_output(output: Value) -> Value {
    clean_json(output, MAX_PAYLOAD_BYTES).0
}

/// A handler's patch, as it is kept in the event: bounded like everything that handlers put out.
pub(crate) fn cleaned_patch(patch: &Map<String, Value>) -> Map<String, Value> {
    if patch.is_empty() {
        return Map::new();
    }
    match cleaned_output(Value::Object(patch.clone())) {
        Value::Object(patch) => patch,
        _ => Map::new(),
    }
}

/// A patch of an item's details, laid over what is there, member by member. One that would make it too large is left out and its
/// absence marked.
pub(crate) fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
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
