//! The room of a run's details, at most 1 MiB. What handlers and people put there shares three quarters of it; each
//! member that the engine owns has room of its own in the last quarter. So no handler's details push out what a run
//! waits for or what was decided about it, and no long log pushes out either.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::text::{MAX_PAYLOAD_BYTES, clean_json, refuse_members};

use crate::error::{Result, StoreError};
use crate::intake::cleaned_patch;

/// What all other members share.
pub(crate) const OTHERS_BYTES: usize = MAX_PAYLOAD_BYTES / 4 * 3;

/// Says that something did not fit.
pub(crate) const CUT: &str = "cut";

pub(crate) const BLOCKERS: &str = "current_blockers";
pub(crate) const RESOLUTIONS: &str = "maintenance_blocker_resolutions";
pub(crate) const AWAITING: &str = "awaiting_blocker_resolution";

/// A member that the engine owns.
pub(crate) struct Member {
    pub name: &'static str,
    /// As JSON, without its name.
    pub bytes: usize,
    too_long: TooLong,
}

/// What becomes of a value that is too long.
#[derive(Clone, Copy)]
enum TooLong {
    /// The first entries of a list stay.
    First,
    /// The last entries of a list stay.
    Last,
    /// Of each host the choices stay, and of hosts as many as there is room for: those that are left out ask again.
    Hosts,
    /// The beginning of a text stays.
    Text,
    /// It is left out.
    Whole,
}

const KIB: usize = 1_024;

/// All of them, and the only place that names them: both stores, SQL and the docs have them from here.
pub(crate) const ENGINE: [Member; 11] = [
    Member { name: BLOCKERS, bytes: 80 * KIB, too_long: TooLong::Hosts },
    Member { name: RESOLUTIONS, bytes: 80 * KIB, too_long: TooLong::Whole },
    Member { name: AWAITING, bytes: 512, too_long: TooLong::Whole },
    Member { name: "pause_reason", bytes: 8 * KIB, too_long: TooLong::Text },
    Member { name: "paused_step", bytes: 2 * KIB, too_long: TooLong::Text },
    Member { name: "hosts_with_blockers", bytes: 512, too_long: TooLong::Whole },
    Member { name: "total_critical_blockers", bytes: 512, too_long: TooLong::Whole },
    Member { name: "worked", bytes: 512, too_long: TooLong::Whole },
    Member { name: "cleanup_failed", bytes: 8 * KIB, too_long: TooLong::First },
    Member { name: "console_log", bytes: 48 * KIB, too_long: TooLong::Last },
    Member { name: "artifacts", bytes: 24 * KIB, too_long: TooLong::First },
];

fn member(name: &str) -> Option<&'static Member> {
    ENGINE.iter().find(|member| member.name == name)
}

/// A null takes such a member away.
pub(crate) fn is_engines(name: &str) -> bool {
    member(name).is_some()
}

/// How much room a member of the engine's has.
pub(crate) fn room_of(name: &str) -> usize {
    member(name).map_or(OTHERS_BYTES, |member| member.bytes)
}

/// A new run's details, which come from a caller: refused where they are too large.
pub(crate) fn check(details: &Map<String, Value>) -> Result<()> {
    let too_long = |field: &str, bytes: usize, room: usize| {
        StoreError::invalid(field, format!("is {bytes} bytes long; at most {room} are allowed"))
    };
    let others = others_of(details);
    let bytes = length(&Value::Object(others));
    if bytes > OTHERS_BYTES {
        return Err(too_long("details", bytes, OTHERS_BYTES));
    }
    for (name, value) in details {
        if let Some(member) = member(name).filter(|member| length(value) > member.bytes) {
            return Err(too_long(&format!("details.{name}"), length(value), member.bytes));
        }
    }
    Ok(())
}

/// A patch as it is kept in the event: bounded like everything that handlers put out. A null is kept, and takes a member
/// of the engine's away.
pub(crate) fn cleaned(patch: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = cleaned_patch(&others_of(patch));
    for (name, value) in patch {
        let Some(member) = member(name) else { continue };
        let (value, whole) = member.fit(clean_json(value.clone(), usize::MAX).0);
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
pub(crate) fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if patch.is_empty() {
        return;
    }
    let patch = cleaned(patch);
    let mut others = others_of(into);
    others.extend(others_of(&patch));
    if refuse_members("", &others, OTHERS_BYTES).is_ok() {
        into.extend(others);
    } else {
        into.insert(CUT.into(), Value::Bool(true));
    }
    for (name, value) in patch.into_iter().filter(|(name, _)| member(name).is_some()) {
        if value.is_null() {
            into.remove(&name);
        } else {
            into.insert(name, value);
        }
    }
}

/// The same, of what others may have too.
pub(crate) fn merge_shared(into: &mut Arc<Map<String, Value>>, patch: &Map<String, Value>) {
    if !patch.is_empty() {
        merge(Arc::make_mut(into), patch);
    }
}

fn others_of(details: &Map<String, Value>) -> Map<String, Value> {
    let others = details.iter().filter(|(name, _)| member(name).is_none());
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl Member {
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
            (TooLong::Hosts, Value::Object(hosts)) => Some(Value::Object(self.hosts(hosts))),
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

    fn hosts(&self, hosts: Map<String, Value>) -> Map<String, Value> {
        let mut bytes = 2;
        let short = hosts.into_iter().map(|(host, about)| {
            let choices = about.get("choices").map(|choices| json!({ "choices": choices }));
            (host, choices.unwrap_or_else(|| json!({})))
        });
        short
            .take_while(|(host, about)| {
                bytes += length(&json!(host)) + length(about) + 2;
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
    for member in &ENGINE {
        let _ = write!(rooms, " WHEN '{}' THEN {}", member.name, member.bytes);
    }
    format!(
        "-- The members of a run's details that the engine owns, and how long each may be.
CREATE FUNCTION waypost.engine_room(p_member text) RETURNS int LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
  RETURN CASE p_member{rooms} END;
-- What all other members share.
CREATE FUNCTION waypost.others_room() RETURNS int LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp RETURN {OTHERS_BYTES};
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_members_have_a_quarter_of_the_room() {
        let names: usize = ENGINE.iter().map(|member| member.name.len() + 4 + member.bytes).sum();
        assert!(OTHERS_BYTES + names <= MAX_PAYLOAD_BYTES, "{names}");
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
        merge(&mut details, patch.as_object().expect("there"));
        assert_eq!(details["cut"], true);
        assert_eq!(details["console_log"].as_array().expect("there").last(), Some(&json!(lines[99])));
        assert_eq!(details["artifacts"][0], json!(lines[0]));
        let kept = details["current_blockers"].as_object().expect("there");
        assert_eq!((kept.len(), &kept["h99"]), (100, &json!({ "choices": ["go", "skip"] })));
        assert!(details["pause_reason"].as_str().expect("there").starts_with("zz"));
        assert!(!details.contains_key("worked"));
        for member in &ENGINE {
            assert!(length(&details.get(member.name).cloned().unwrap_or_default()) <= member.bytes);
        }
        let again = details.clone();
        merge(&mut details, &again);
        assert_eq!(details, again, "what was kept once is kept again");
    }

    #[test]
    fn a_null_takes_a_member_of_the_engines_away_and_no_other() {
        let mut details = json!({ "cleanup_failed": ["a"], "own": 1 }).as_object().cloned().expect("there");
        merge(&mut details, json!({ "cleanup_failed": null, "own": null }).as_object().expect("there"));
        assert_eq!(Value::Object(details), json!({ "own": null }));
    }
}
