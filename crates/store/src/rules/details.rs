//! The room of a run's details, at most 1 MiB. What handlers and people put there shares three quarters of it; each
//! member that the engine owns has room of its own in the last quarter. So no handler's details push out what a run
//! waits for or what was decided about it, and no long log pushes out either.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::lifecycle::{DecisionPart, Lifecycle};
use waypost_kernel::text::{MAX_PAYLOAD_BYTES, clean_json, refuse_members};

use crate::rules::intake::cleaned_patch;
use crate::rules::metadata::LEFT_OUT;
use crate::seam::error::{Result, StoreError};

/// What all other members share.
pub(crate) const OTHERS_BYTES: usize = MAX_PAYLOAD_BYTES / 4 * 3;

/// Says that something did not fit.
pub(crate) const CUT: &str = "cut";

/// The room of a member that the engine owns.
#[derive(Clone, Copy)]
struct Room {
    /// As JSON, without its name.
    bytes: usize,
    too_long: TooLong,
}

/// What becomes of a value that is too long.
#[derive(Clone, Copy)]
enum TooLong {
    /// The first entries of a list stay.
    First,
    /// The last entries of a list stay.
    Last,
    /// Of each subject the choices stay, and of subjects as many as there is room for: those that are left out are asked
    /// about again.
    Subjects,
    /// The beginning of a text stays.
    Text,
    /// It is left out.
    Whole,
}

const KIB: usize = 1_024;

const fn room(bytes: usize, too_long: TooLong) -> Room {
    Room { bytes, too_long }
}

/// Those that every lifecycle has. Both stores, SQL and the docs have them from here.
const ENGINE: [(&str, Room); 8] = [
    ("pause_reason", room(8 * KIB, TooLong::Text)),
    ("paused_step", room(2 * KIB, TooLong::Text)),
    ("worked", room(512, TooLong::Whole)),
    ("tries", room(512, TooLong::Whole)),
    ("cleanup_failed", room(8 * KIB, TooLong::First)),
    ("console_log", room(48 * KIB, TooLong::Last)),
    ("artifacts", room(24 * KIB, TooLong::First)),
    (LEFT_OUT, room(2 * KIB, TooLong::First)),
];

/// Those of the decisions that a lifecycle's pauses ask for; it names them.
const fn room_of_part(part: DecisionPart) -> Room {
    match part {
        DecisionPart::Asked => room(80 * KIB, TooLong::Subjects),
        DecisionPart::Given => room(80 * KIB, TooLong::Whole),
        DecisionPart::Waiting | DecisionPart::AskedCount | DecisionPart::CriticalCount => {
            room(512, TooLong::Whole)
        }
    }
}

fn room_of(lifecycle: &Lifecycle, name: &str) -> Option<Room> {
    let own = ENGINE.iter().find(|(known, _)| *known == name).map(|(_, room)| *room);
    own.or_else(|| lifecycle.decision_part(name).map(room_of_part))
}

/// A null takes such a member away.
pub(crate) fn is_engines(lifecycle: &Lifecycle, name: &str) -> bool {
    room_of(lifecycle, name).is_some()
}

/// How many bytes of decisions are kept.
pub(crate) const DECISIONS_BYTES: usize = room_of_part(DecisionPart::Given).bytes;

/// A new run's details, which come from a caller: refused where they are too large.
pub(crate) fn check(lifecycle: &Lifecycle, details: &Map<String, Value>) -> Result<()> {
    let too_long = |field: &str, bytes: usize, room: usize| {
        StoreError::invalid(field, format!("is {bytes} bytes long; at most {room} are allowed"))
    };
    let others = others_of(lifecycle, details);
    let bytes = length(&Value::Object(others));
    if bytes > OTHERS_BYTES {
        return Err(too_long("details", bytes, OTHERS_BYTES));
    }
    for (name, value) in details {
        if let Some(room) = room_of(lifecycle, name).filter(|room| length(value) > room.bytes) {
            return Err(too_long(&format!("details.{name}"), length(value), room.bytes));
        }
    }
    Ok(())
}

/// A patch as it is kept in the event: bounded like everything that handlers put out. A null is kept, and takes a member
/// of the engine's away.
pub(crate) fn cleaned(lifecycle: &Lifecycle, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = cleaned_patch(&others_of(lifecycle, patch));
    for (name, value) in patch {
        let Some(room) = room_of(lifecycle, name) else { continue };
        let (value, whole) = room.fit(clean_json(value.clone(), usize::MAX).0);
        if let Some(value) = value {
            kept.insert(name.clone(), value);
        }
        if !whole {
            kept.insert(CUT.into(), Value::Bool(true));
        }
    }
    kept
}

/// A patch laid over what is there, member by member. What others bring that would make it too large is left out and its
/// absence marked.
pub(crate) fn merge(lifecycle: &Lifecycle, into: &mut Map<String, Value>, patch: &Map<String, Value>) {
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
    for (name, value) in patch.into_iter().filter(|(name, _)| is_engines(lifecycle, name)) {
        if value.is_null() {
            into.remove(&name);
        } else {
            into.insert(name, value);
        }
    }
}

/// The same for details that other copies of the row share: they are copied first.
pub(crate) fn merge_shared(
    lifecycle: &Lifecycle,
    into: &mut Arc<Map<String, Value>>,
    patch: &Map<String, Value>,
) {
    if !patch.is_empty() {
        merge(lifecycle, Arc::make_mut(into), patch);
    }
}

fn others_of(lifecycle: &Lifecycle, details: &Map<String, Value>) -> Map<String, Value> {
    let others = details.iter().filter(|(name, _)| !is_engines(lifecycle, name));
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl Room {
    /// What there is room for, and whether that is all of it.
    fn fit(&self, value: Value) -> (Option<Value>, bool) {
        if length(&value) <= self.bytes {
            return (Some(value), true);
        }
        let fitted = match (self.too_long, value) {
            (TooLong::First, Value::Array(list)) => Some(Value::Array(self.entries(list.into_iter()))),
            (TooLong::Last, Value::Array(list)) => {
                let mut last = self.entries(list.into_iter().rev());
                last.reverse();
                Some(Value::Array(last))
            }
            (TooLong::Subjects, Value::Object(asked)) => Some(Value::Object(self.subjects(asked))),
            (TooLong::Text, Value::String(text)) => Some(Value::String(self.beginning(&text))),
            _ => None,
        };
        (fitted, false)
    }

    fn entries(&self, list: impl Iterator<Item = Value>) -> Vec<Value> {
        let mut bytes = 2;
        list.take_while(|entry| {
            bytes += length(entry) + 1;
            bytes <= self.bytes
        })
        .collect()
    }

    fn subjects(&self, asked: Map<String, Value>) -> Map<String, Value> {
        let mut bytes = 2;
        let short = asked.into_iter().map(|(subject, about)| {
            let choices = about.get("choices").map(|choices| json!({ "choices": choices }));
            (subject, choices.unwrap_or_else(|| json!({})))
        });
        short
            .take_while(|(subject, about)| {
                bytes += length(&json!(subject)) + length(about) + 2;
                bytes <= self.bytes
            })
            .collect()
    }

    /// An escaped character takes at most six bytes.
    fn beginning(&self, text: &str) -> String {
        text.chars().take(self.bytes / 6).collect()
    }
}

/// As it is written: JSON without spaces.
pub(crate) fn length(value: &Value) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// What SQL knows of it: the room of each member of the engine's, and null of any other.
pub(crate) fn sql() -> String {
    let mut rooms = String::new();
    for (name, room) in &ENGINE {
        let _ = write!(rooms, " WHEN '{name}' THEN {}", room.bytes);
    }
    let mut parts = String::new();
    for part in DecisionPart::ALL {
        let _ = write!(parts, " WHEN p_decisions ->> '{}' THEN {}", part.name(), room_of_part(part).bytes);
    }
    format!(
        "-- What the lifecycle of a state says about decisions: which members of a run's details they are in. Null if it has none.
CREATE FUNCTION waypost.decisions(p_state smallint) RETURNS jsonb LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
  RETURN (SELECT nullif(l.definition::jsonb -> 'decisions', 'null') FROM waypost.lifecycle_states s
    JOIN waypost.lifecycles l ON l.name = s.lifecycle AND l.version = s.version WHERE s.code = p_state);
-- The members of a run's details that the engine owns, and how long each may be: those of every run, and those of its decisions.
CREATE FUNCTION waypost.engine_room(p_member text, p_decisions jsonb) RETURNS int LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
  RETURN coalesce(CASE p_member{rooms} END, CASE p_member{parts} END);
-- What all other members share.
CREATE FUNCTION waypost.others_room() RETURNS int LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp RETURN {OTHERS_BYTES};
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;
    use waypost_kernel::lifecycle::OWN_DETAILS;

    fn shipped(name: &str) -> Arc<Lifecycle> {
        Catalog::shipped().expect("shipped").latest(name).expect("known").clone()
    }

    #[test]
    fn the_engines_members_have_a_quarter_of_the_room() {
        const LONGEST_NAME: usize = 63;
        let own: usize = ENGINE.iter().map(|(name, room)| name.len() + 4 + room.bytes).sum();
        let parts = DecisionPart::ALL.into_iter().map(|part| LONGEST_NAME + 4 + room_of_part(part).bytes);
        let all = own + parts.sum::<usize>();
        assert!(OTHERS_BYTES + all <= MAX_PAYLOAD_BYTES, "{all}");
    }

    #[test]
    fn no_lifecycle_can_call_its_own_like_the_engines() {
        let own: Vec<&str> = ENGINE.iter().map(|(name, _)| *name).chain([CUT]).collect();
        assert_eq!(own, OWN_DETAILS);
    }

    #[test]
    fn a_long_value_keeps_what_there_is_room_for() {
        let line = "x".repeat(1_000);
        let lines: Vec<String> = (0..100).map(|number| format!("{number} {line}")).collect();
        let about = json!({ "choices": ["go", "skip"], "why": "y".repeat(2_000) });
        let hosts: Map<String, Value> = (0..100).map(|at| (format!("h{at:02}"), about.clone())).collect();
        let patch = json!({ "console_log": lines, "artifacts": lines, "current_blockers": hosts,
            "pause_reason": "z".repeat(20_000), "worked": "w".repeat(600), "cut": false });
        let mut details = Map::new();
        let job = &shipped("job");
        merge(job, &mut details, patch.as_object().expect("there"));
        assert_eq!(details["cut"], true);
        assert_eq!(details["console_log"].as_array().expect("there").last(), Some(&json!(lines[99])));
        assert_eq!(details["artifacts"][0], json!(lines[0]));
        let kept = details["current_blockers"].as_object().expect("there");
        assert_eq!((kept.len(), &kept["h99"]), (100, &json!({ "choices": ["go", "skip"] })));
        assert!(details["pause_reason"].as_str().expect("there").starts_with("zz"));
        assert!(!details.contains_key("worked"));
        for (name, value) in &details {
            assert!(room_of(job, name).is_none_or(|room| length(value) <= room.bytes), "{name}");
        }
        let again = details.clone();
        merge(job, &mut details, &again);
        assert_eq!(details, again, "what was kept once is kept again");
    }

    #[test]
    fn a_null_takes_a_member_of_the_engines_away_and_no_other() {
        // Only a lifecycle that asks for decisions has members for them.
        for (lifecycle, left) in
            [("job", json!({ "own": null })), ("deploy", json!({ "own": null, "current_blockers": null }))]
        {
            let known = json!({ "cleanup_failed": ["a"], "own": 1, "current_blockers": { "h": {} } });
            let patch = json!({ "cleanup_failed": null, "own": null, "current_blockers": null });
            let mut details = known.as_object().cloned().expect("there");
            merge(&shipped(lifecycle), &mut details, patch.as_object().expect("there"));
            assert_eq!(Value::Object(details), left, "{lifecycle}");
        }
    }
}
