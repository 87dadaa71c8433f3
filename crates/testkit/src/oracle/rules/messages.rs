//! What an event says that came without words of its own.

use serde_json::{Map, Value, json};
use waypost_kernel::event::{Event, Moved};
use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase, State};
use waypost_kernel::request::Level;

/// How many items an event names.
const NAMED: usize = 4;

/// Level and words.
pub fn message(lifecycle: &Lifecycle, event: &Event) -> (Level, String) {
    let (command, by, to) = (&*event.command, &*event.by, lifecycle.state(event.to));
    let Some(from) = event.from.map(|from| lifecycle.state(from)) else { return first_message(to) };
    let (level, standard) =
        if from.name == to.name { stayed(command, by) } else { moved(command, by, from, to) };
    (level, items_in_words(lifecycle, &event.effect.moved).unwrap_or(standard))
}

/// Of a run's first event: its metadata, and what it has from the run that it repeats.
pub fn first_payload(event: &Event, metadata: &Map<String, Value>) -> Value {
    let mut payload = Map::new();
    if !metadata.is_empty() {
        payload.insert("metadata".to_owned(), json!(metadata));
    }
    let had_ended = event.effect.moved.iter().filter(|moved| moved.item.finished_at.is_some());
    let copied: Vec<&str> = had_ended.map(|moved| &*moved.item.key).collect();
    if !copied.is_empty() {
        payload.insert("copied".to_owned(), json!(copied));
    }
    payload.into()
}

fn first_message(to: &State) -> (Level, String) {
    let message = match to.phase {
        Phase::Ready => "Run queued".into(),
        Phase::Held => "Run claimed by worker".into(),
        Phase::Draft | Phase::Parked | Phase::Settled => format!("Run created: {}", to.name),
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

fn moved(command: &str, by: &str, from: &State, to: &State) -> (Level, String) {
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

fn ended(command: &str, to: &State) -> (Level, String) {
    match (command, to.outcome) {
        ("lose", _) => (Level::Error, format!("Run lost: {}", to.name)),
        ("expire", _) => (Level::Warn, format!("Run expired: {}", to.name)),
        (_, Some(Outcome::Failed | Outcome::Cancelled)) => {
            (Level::Error, format!("Run finished: {}", to.name))
        }
        (_, Some(Outcome::Partial)) => (Level::Warn, format!("Run finished: {}", to.name)),
        _ => (Level::Info, format!("Run finished: {}", to.name)),
    }
}

/// What an event tells beside its words: which items moved, why, and what was decided. `details` is what the same move
/// merged into the run's.
pub fn payload(lifecycle: &Lifecycle, run_id: &str, event: &Event, details: &Map<String, Value>) -> Value {
    let mut payload = Map::new();
    let effect = &event.effect;
    if !effect.moved.is_empty() {
        let items = effect.moved.iter().map(|moved| item_moved(lifecycle, run_id, moved));
        payload.insert("items".into(), items.collect());
        if effect.moved.iter().any(|moved| is_tried(lifecycle, moved)) {
            payload.insert("eventType".into(), json!("automation.target.apply"));
        }
    }
    let wanted = effect.intent.as_ref().and_then(|intent| intent.reason.as_ref());
    if let Some(reason) = effect.reason.as_ref().or(wanted) {
        payload.insert("reason".into(), json!(&**reason));
    }
    let given = lifecycle.decisions.as_ref().and_then(|decisions| details.get(decisions.given()));
    if let Some(decided) = given.filter(|decided| decided.is_object()) {
        payload.insert("resolutions".into(), decided.clone());
    }
    if effect.forced {
        payload.insert("forced".into(), json!(true));
    }
    Value::Object(payload)
}

/// Whether a target is tried from here on: targets are what a run has as a draft already.
fn is_tried(lifecycle: &Lifecycle, moved: &Moved) -> bool {
    let kind = &lifecycle.items[usize::from(moved.item.kind)];
    let is_target = !kind.stops_run && kind.states.iter().any(|state| state.phase == Phase::Draft);
    is_target && kind.phase(moved.item.state) == Phase::Held
}

fn item_moved(lifecycle: &Lifecycle, run_id: &str, moved: &Moved) -> Value {
    let item = &moved.item;
    let kind = &lifecycle.items[usize::from(item.kind)];
    let mut told = Map::new();
    told.insert("kind".into(), json!(&*kind.name));
    told.insert("key".into(), json!(&*item.key));
    if let Some(from) = moved.from {
        told.insert("from".into(), json!(&*kind.state(from).name));
    }
    told.insert("to".into(), json!(&*kind.state(item.state).name));
    if item.progress > 0 {
        told.insert("progress".into(), json!(item.progress));
    }
    if let Some(failure) = &item.failure {
        told.insert("error_code".into(), json!(&*failure.code));
    }
    if is_tried(lifecycle, moved) {
        told.insert("eventKey".into(), json!(format!("{run_id}:{}:apply:{}", item.key, item.try_no)));
    }
    Value::Object(told)
}

/// Where items went: `scan: completed, update[1]: running 40 %`.
fn items_in_words(lifecycle: &Lifecycle, moved: &[Moved]) -> Option<String> {
    let word = |moved: &Moved| {
        let item = &moved.item;
        let state = &lifecycle.items[usize::from(item.kind)].state(item.state).name;
        match item.progress {
            0 | 100.. => format!("{}: {state}", item.key),
            percent => format!("{}: {state} {percent} %", item.key),
        }
    };
    let mut words: Vec<String> = moved.iter().take(NAMED).map(word).collect();
    if moved.len() > NAMED {
        words.push(format!("and {} more", moved.len() - NAMED));
    }
    (!words.is_empty()).then(|| words.join(", "))
}
