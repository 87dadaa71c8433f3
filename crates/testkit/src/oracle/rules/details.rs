//! The room of a run's details, at most 1 MiB. What handlers and people put there shares three quarters of it; each
//! member that the engine owns has room of its own in the last quarter, so that neither pushes out the other.

use serde_json::{Map, Value, json};
use waypost_kernel::lifecycle::{DecisionPart, Lifecycle};
use waypost_kernel::text::{MAX_PAYLOAD_BYTES, clean_json, refuse_members};
use waypost_store::{Result, StoreError};

use super::intake::cleaned_patch;

/// What all other members share.
const OTHERS_BYTES: usize = MAX_PAYLOAD_BYTES / 4 * 3;

/// Says that something did not fit.
const CUT: &str = "cut";

/// What becomes of a value that is too long.
#[derive(Clone, Copy)]
enum TooLong {
    /// The first entries of a list stay.
    First,
    /// The last entries of a list stay.
    Last,
    /// Of each subject the choices stay, and of subjects as many as there is room for.
    Subjects,
    /// The beginning of a text stays.
    Text,
    /// It is left out.
    Whole,
}

/// How many bytes of JSON what was decided may have.
pub const GIVEN_BYTES: usize = 80 * 1_024;

/// The members that the engine owns in every run, and how many bytes of JSON each may have.
const ENGINE: [(&str, usize, TooLong); 7] = [
    ("pause_reason", 8 * 1_024, TooLong::Text),
    ("paused_step", 2 * 1_024, TooLong::Text),
    ("worked", 512, TooLong::Whole),
    ("tries", 512, TooLong::Whole),
    ("cleanup_failed", 8 * 1_024, TooLong::First),
    ("console_log", 48 * 1_024, TooLong::Last),
    ("artifacts", 24 * 1_024, TooLong::First),
];

fn of_engine(lifecycle: &Lifecycle, name: &str) -> Option<(usize, TooLong)> {
    let own = ENGINE.iter().find(|(member, ..)| *member == name);
    if let Some((_, bytes, too_long)) = own {
        return Some((*bytes, *too_long));
    }
    let (_, part) = {
        let decisions = lifecycle.decisions.as_ref()?;
        decisions.members().map(|(part, member)| (member, part)).find(|(member, _)| *member == name)?
    };
    Some(match part {
        DecisionPart::Asked => (80 * 1_024, TooLong::Subjects),
        DecisionPart::Given => (GIVEN_BYTES, TooLong::Whole),
        _ => (512, TooLong::Whole),
    })
}

/// A new run's details, which come from a caller: refused where they are too large.
pub fn check(lifecycle: &Lifecycle, details: &Map<String, Value>) -> Result<()> {
    let too_long = |field: &str, bytes: usize, room: usize| {
        StoreError::invalid(field, format!("is {bytes} bytes long; at most {room} are allowed"))
    };
    let bytes = length(&Value::Object(others_of(lifecycle, details)));
    if bytes > OTHERS_BYTES {
        return Err(too_long("details", bytes, OTHERS_BYTES));
    }
    for (name, value) in details {
        if let Some((room, _)) = of_engine(lifecycle, name).filter(|(room, _)| length(value) > *room) {
            return Err(too_long(&format!("details.{name}"), length(value), room));
        }
    }
    Ok(())
}

/// A patch as a handler may bring it. A null is kept, and takes a member of the engine's away.
pub fn cleaned(lifecycle: &Lifecycle, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = cleaned_patch(&others_of(lifecycle, patch));
    for (name, value) in patch {
        let Some((room, too_long)) = of_engine(lifecycle, name) else { continue };
        let value = clean_json(value.clone(), usize::MAX).0;
        if length(&value) <= room {
            kept.insert(name.clone(), value);
            continue;
        }
        kept.extend(shortened(value, room, too_long).map(|value| (name.clone(), value)));
        kept.insert(CUT.into(), Value::Bool(true));
    }
    kept
}

/// A patch laid over what is there, member by member. What others bring that would make it too large is left out and its
/// absence marked.
pub fn merge(lifecycle: &Lifecycle, into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if patch.is_empty() {
        return;
    }
    let patch = cleaned(lifecycle, patch);
    let mut others = others_of(lifecycle, into);
    others.extend(others_of(lifecycle, &patch));
    if refuse_members("", &others, OTHERS_BYTES).is_ok() {
        into.extend(others);
    } else {
        into.insert(CUT.into(), Value::Bool(true));
    }
    for (name, value) in patch.into_iter().filter(|(name, _)| of_engine(lifecycle, name).is_some()) {
        if value.is_null() {
            into.remove(&name);
        } else {
            into.insert(name, value);
        }
    }
}

fn others_of(lifecycle: &Lifecycle, details: &Map<String, Value>) -> Map<String, Value> {
    let others = details.iter().filter(|(name, _)| of_engine(lifecycle, name).is_none());
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What there is room for of a value that is too long.
fn shortened(value: Value, room: usize, too_long: TooLong) -> Option<Value> {
    match (too_long, value) {
        (TooLong::First, Value::Array(list)) => Some(Value::Array(fitting(list, room))),
        (TooLong::Last, Value::Array(mut list)) => {
            list.reverse();
            let mut last = fitting(list, room);
            last.reverse();
            Some(Value::Array(last))
        }
        (TooLong::Subjects, Value::Object(hosts)) => {
            let short = hosts.into_iter().map(|(host, about)| {
                let choices = about.get("choices").map(|choices| json!({ "choices": choices }));
                (host, choices.unwrap_or_else(|| json!({})))
            });
            let bytes = |(host, about): &(String, Value)| length(&json!(host)) + length(about) + 2;
            Some(Value::Object(while_they_fit(short, room, bytes).collect()))
        }
        // An escaped character takes at most six bytes.
        (TooLong::Text, Value::String(text)) => Some(Value::String(text.chars().take(room / 6).collect())),
        _ => None,
    }
}

fn fitting(list: Vec<Value>, room: usize) -> Vec<Value> {
    while_they_fit(list.into_iter(), room, |entry| length(entry) + 1).collect()
}

/// The first entries that fit between two brackets.
fn while_they_fit<T>(
    entries: impl Iterator<Item = T>,
    room: usize,
    bytes: impl Fn(&T) -> usize,
) -> impl Iterator<Item = T> {
    let mut used = 2;
    entries.take_while(move |entry| {
        used += bytes(entry);
        used <= room
    })
}

/// As it is written: JSON without spaces.
pub fn length(value: &Value) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}
