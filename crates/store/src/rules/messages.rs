//! What an event says that came without words of its own: one wording for all stores.

use serde_json::{Map, Value, json};
use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase, State};
use waypost_kernel::request::Level;

use crate::seam::targets::{kind_of_targets, target_key};

/// The type of an event by which targets are tried: one event for many of them.
const TARGET_APPLY: &str = "automation.target.apply";

/// `from` is absent for a run's first event.
pub fn standard_message(command: &str, from: Option<&State>, to: &State, by: &str) -> (Level, String) {
    let Some(from) = from else { return first_message(to) };
    if from.name == to.name {
        return stayed(command, by);
    }
    match to.phase {
        Phase::Settled => ended(command, to),
        Phase::Held if from.phase == Phase::Held => (Level::Info, format!("Run started by {by}")),
        Phase::Held if command == "claim" => (Level::Info, "Run claimed by worker".into()),
        Phase::Held => (Level::Info, format!("Run to be worked again: {command} by {by}")),
        Phase::Parked => (Level::Warn, format!("Run waits for a person: {}", to.name)),
        Phase::Ready => (Level::Info, "Run queued".into()),
        Phase::Draft => (Level::Info, format!("Run is {}", to.name)),
    }
}

fn first_message(to: &State) -> (Level, String) {
    let message = match to.phase {
        Phase::Ready => "Run queued".into(),
        Phase::Held => "Run claimed by worker".into(),
        _ => format!("Run created: {}", to.name),
    };
    (Level::Info, message)
}

fn stayed(command: &str, by: &str) -> (Level, String) {
    match command {
        "take-over" => (Level::Warn, "Run taken over by worker".into()),
        "steal" => (Level::Warn, "Run stolen from a stale worker".into()),
        "release" => (Level::Info, "Run released by worker".into()),
        "lose" | "expire" => (Level::Error, "Worker lost; the run's cleanup is left to another".into()),
        "items" => (Level::Debug, "Items moved".into()),
        "require-cleanup" => (Level::Debug, "Cleanup noted".into()),
        "operation" => (Level::Info, "Operation ended".into()),
        "decide" => (Level::Info, format!("Decided by {by}; the run goes on waiting")),
        "cancel" | "pause" => (Level::Warn, format!("Run asked to {command} by {by}")),
        _ => (Level::Info, format!("{command} by {by}")),
    }
}

fn ended(command: &str, to: &State) -> (Level, String) {
    match command {
        "lose" => return (Level::Error, format!("Run lost: {}", to.name)),
        "expire" => return (Level::Warn, format!("Run expired: {}", to.name)),
        _ => {}
    }
    let level = match to.outcome {
        Some(Outcome::Failed | Outcome::Cancelled) => Level::Error,
        Some(Outcome::Partial) => Level::Warn,
        _ => Level::Info,
    };
    (level, format!("Run finished: {}", to.name))
}

/// What an event of a run tells beside its words, from what it did: which items moved, why, and what was decided.
pub fn standard_payload(lifecycle: &Lifecycle, run_id: &str, effect: Option<&Value>) -> Value {
    let mut payload = Map::new();
    let Some(effect) = effect else { return Value::Object(payload) };
    let moved = effect["moved"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !moved.is_empty() {
        let items: Vec<Value> = moved.iter().map(|moved| item_moved(lifecycle, run_id, moved)).collect();
        if items.iter().any(|item| item.get(EVENT_KEY).is_some()) {
            payload.insert("eventType".into(), json!(TARGET_APPLY));
        }
        payload.insert("items".into(), items.into());
    }
    let reason = [&effect["reason"], &effect["intent"]["reason"]].into_iter().find(|it| it.is_string());
    payload.extend(reason.map(|reason| ("reason".to_owned(), reason.clone())));
    let decided = lifecycle.decisions.as_ref().map(|decisions| &effect["details"][decisions.given()]);
    if let Some(decided) = decided.filter(|decided| decided.is_object()) {
        payload.insert("resolutions".into(), decided.clone());
    }
    if effect["forced"] == true {
        payload.insert("forced".into(), json!(true));
    }
    Value::Object(payload)
}

/// What an event did is small, or it is about many items, of which a bulk change's events name hundreds each: a page with hundreds of events
/// leaves out what is larger than this.
pub const BRIEF_BYTES: usize = 4_096;

/// In place of what was left out.
pub fn left_out(bytes: u64) -> Value {
    json!({ "left_out_bytes": bytes })
}

/// What a run's first event tells beside its words: its metadata, and which items it has from the run that it repeats.
pub fn first_payload(effect: Option<&Value>, metadata: Option<Value>) -> Value {
    let mut payload = Map::new();
    payload.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    let moved = effect.and_then(|effect| effect["moved"].as_array()).map(Vec::as_slice).unwrap_or_default();
    // No other item has ended before its run began.
    let copied = moved.iter().filter(|item| !item["finished_at"].is_null()).map(|item| item["key"].clone());
    let copied: Vec<Value> = copied.collect();
    if !copied.is_empty() {
        payload.insert("copied".into(), copied.into());
    }
    Value::Object(payload)
}

/// Where items went, in words: `scan: completed, update[1]: running`.
pub fn items_message(payload: &Value) -> Option<String> {
    const SHOWN: usize = 4;
    let items = payload["items"].as_array().filter(|items| !items.is_empty())?;
    let word = |item: &Value| {
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let percent = item["progress"].as_u64().filter(|percent| (1..100).contains(percent));
        let percent = percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
        format!("{}: {}{percent}", text("key"), text("to"))
    };
    let mut words: Vec<String> = items.iter().take(SHOWN).map(word).collect();
    if items.len() > SHOWN {
        words.push(format!("and {} more", items.len() - SHOWN));
    }
    Some(words.join(", "))
}

/// What goes outside with the try that the item began.
const EVENT_KEY: &str = "eventKey";

fn item_moved(lifecycle: &Lifecycle, run_id: &str, moved: &Value) -> Value {
    let mut out = Map::new();
    for key in ["kind", "key", "from", "to", "progress"] {
        if !moved[key].is_null() {
            out.insert(key.to_owned(), moved[key].clone());
        }
    }
    if let Some(code) = moved["failure"]["code"].as_str() {
        out.insert("error_code".into(), json!(code));
    }
    out.extend(key_of_try(lifecycle, run_id, moved).map(|key| (EVENT_KEY.to_owned(), json!(key))));
    Value::Object(out)
}

/// None: no target of a bulk change was begun. Those are there while their run is a draft; tasks are not.
fn key_of_try(lifecycle: &Lifecycle, run_id: &str, moved: &Value) -> Option<String> {
    let is_gathered = |kind: &&Lifecycle| kind.states.iter().any(|state| state.phase == Phase::Draft);
    let kind = kind_of_targets(lifecycle).filter(|kind| moved["kind"] == *kind.name).filter(is_gathered)?;
    let to = kind.state_named(moved["to"].as_str()?)?;
    // A number that is not there is the first.
    let try_no = moved["try_no"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
    let key = moved["key"].as_str().filter(|_| kind.phase(to) == Phase::Held)?;
    Some(target_key(run_id, key, try_no))
}
