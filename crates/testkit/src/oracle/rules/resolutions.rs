//! What people decide about the hosts that block a run. They come with the command that lets the run go on, so the
//! first one counts: a later one finds the run no longer waiting.

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::text::{MAX_NAME_BYTES, clean_chars, refuse_text};
use waypost_kernel::{Run, Time};
use waypost_store::{CommandWrite, Result, RunRow, StoreError};

use super::details::{AWAITING, BLOCKERS, RESOLUTIONS, length, room_of};
use super::iso;

const FIELD: &str = "resolutions";
const MAX_DECISION_CHARS: usize = 255;

/// What a command says about a run's blockers.
pub struct Decisions {
    saved: Map<String, Value>,
    /// Every host that blocks has one.
    pub is_complete: bool,
}

impl Decisions {
    pub fn of(row: &RunRow, write: &CommandWrite, now: Time) -> Result<Decisions> {
        let blockers = row.details.get(BLOCKERS).and_then(Value::as_object);
        let mut saved = saved_in(row);
        for (host, given) in &write.resolutions {
            let decision = decision_of(host, given)?;
            check_choice(host, &decision, blockers)?;
            if row.phase() == Phase::Parked {
                let entry =
                    json!({ "decision": decision, "by": write.by, "reason": write.reason, "at": iso(now) });
                saved.insert(host.clone(), entry);
            } else if saved.get(host).is_none_or(|known| known["decision"] != *decision) {
                return Err(too_late(host, saved.get(host), row));
            }
        }
        let missing: Vec<&str> = blockers
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .filter(|host| !saved.contains_key(*host))
            .collect();
        if !missing.is_empty() && !write.resolutions.is_empty() && !write.force {
            let message = format!("nothing is decided about {}: decide, or force it", missing.join(", "));
            return Err(StoreError::invalid(FIELD, message));
        }
        check_room(&saved, write)?;
        let is_complete = missing.is_empty() && !write.resolutions.is_empty();
        Ok(Decisions { saved, is_complete })
    }

    /// What is merged into the run's details with the command, if it makes a waiting run go on.
    pub fn patch(self, row: &RunRow, change: &Change) -> Map<String, Value> {
        let goes_on = row.phase() == Phase::Parked && is_open(row, &change.after);
        let mut patch = Map::new();
        if goes_on && row.details.get(AWAITING).is_some_and(|awaiting| *awaiting == true) {
            patch.insert(AWAITING.into(), json!(false));
        }
        if goes_on && self.saved != saved_in(row) {
            patch.insert(RESOLUTIONS.into(), Value::Object(self.saved));
        }
        patch
    }
}

/// A decision that would not be kept is not taken.
fn check_room(saved: &Map<String, Value>, write: &CommandWrite) -> Result<()> {
    let (bytes, room) = (length(&Value::Object(saved.clone())), room_of(RESOLUTIONS));
    if write.resolutions.is_empty() || bytes <= room {
        return Ok(());
    }
    let message = format!(
        "with those of before they are {bytes} bytes long; at most {room} are kept: decide with a shorter reason"
    );
    Err(StoreError::invalid(FIELD, message))
}

fn is_open(row: &RunRow, after: &Run) -> bool {
    !matches!(row.lifecycle.phase(after.state), Phase::Parked | Phase::Settled)
}

fn saved_in(row: &RunRow) -> Map<String, Value> {
    row.details.get(RESOLUTIONS).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A word, or an object with one.
fn decision_of(host: &str, given: &Value) -> Result<String> {
    let word = given.as_str().or_else(|| given.get("decision").and_then(Value::as_str)).unwrap_or_default();
    let fits = !word.trim().is_empty() && word.chars().count() <= MAX_DECISION_CHARS;
    if !fits || refuse_text(FIELD, host, MAX_NAME_BYTES).is_err() || refuse_text(FIELD, word, 1_024).is_err()
    {
        let host = clean_chars(host, 80).text;
        let message = format!("{host:?} needs a decision: a word such as skip, at most 255 characters");
        return Err(StoreError::invalid(FIELD, message));
    }
    Ok(word.trim().to_owned())
}

/// Only about what blocks, and only what its handler offers, if it says.
fn check_choice(host: &str, decision: &str, blockers: Option<&Map<String, Value>>) -> Result<()> {
    let Some(blockers) = blockers.filter(|blockers| !blockers.is_empty()) else { return Ok(()) };
    let Some(about) = blockers.get(host) else {
        let known: Vec<&str> = blockers.keys().map(String::as_str).collect();
        let message = format!("nothing blocks {host:?}; blocked are: {}", known.join(", "));
        return Err(StoreError::invalid(FIELD, message));
    };
    let choices: Vec<&str> =
        about["choices"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if choices.is_empty() || choices.contains(&decision) {
        return Ok(());
    }
    let message = format!("{host}: {decision:?} is no choice; allowed: {}", choices.join(", "));
    Err(StoreError::invalid(FIELD, message))
}

fn too_late(host: &str, known: Option<&Value>, row: &RunRow) -> StoreError {
    let message = match known {
        Some(known) => {
            let text = |key: &str| known[key].as_str().unwrap_or("somebody").to_owned();
            format!("{host} was decided already: {} by {}", text("decision"), text("by"))
        }
        None => format!("{host}: the run does not wait for decisions, it is {}", row.status()),
    };
    StoreError::invalid(FIELD, message)
}
