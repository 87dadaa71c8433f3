//! What people decide about what a parked run asks, subject by subject (such as a host). Decisions come with the command
//! that lets the run go on, so the first one counts: a later one finds the run no longer waiting. In which members of the
//! run's details all this stands, its lifecycle says.

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::{self, Phase};
use waypost_kernel::text::{MAX_NAME_BYTES, clean_chars, refuse_text};
use waypost_kernel::{Run, Time};

use crate::rules::details::{DECISIONS_BYTES, length};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::{RunRow, iso};
use crate::seam::verbs::CommandWrite;

const FIELD: &str = "resolutions";
const MAX_DECISION_CHARS: usize = 255;

/// What a command says about what its run asks.
pub(crate) struct Decisions {
    saved: Map<String, Value>,
    /// There is one about every subject.
    pub is_complete: bool,
}

impl Decisions {
    pub fn of(row: &RunRow, write: &CommandWrite, now: Time) -> Result<Decisions> {
        let Some(words) = &row.lifecycle.decisions else { return none(row, write) };
        let asked = row.details.get(words.asked()).and_then(Value::as_object);
        let mut saved = saved_in(row, words);
        for (subject, given) in &write.resolutions {
            let decision = decision_of(subject, given)?;
            check_choice(subject, &decision, asked)?;
            if row.phase() == Phase::Parked {
                let entry =
                    json!({ "decision": decision, "by": write.by, "reason": write.reason, "at": iso(now) });
                saved.insert(subject.clone(), entry);
            } else if saved.get(subject).is_none_or(|known| known["decision"] != *decision) {
                return Err(too_late(subject, saved.get(subject), row));
            }
        }
        let missing: Vec<&str> = asked
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .filter(|subject| !saved.contains_key(*subject))
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
        let mut patch = Map::new();
        let goes_on = row.phase() == Phase::Parked && is_open(row, &change.after);
        let Some(words) = row.lifecycle.decisions.as_ref().filter(|_| goes_on) else { return patch };
        if row.details.get(words.waiting()).is_some_and(|waiting| *waiting == true) {
            patch.insert(words.waiting().into(), json!(false));
        }
        if self.saved != saved_in(row, words) {
            patch.insert(words.given().into(), Value::Object(self.saved));
        }
        patch
    }
}

/// Of a run whose lifecycle asks for none.
fn none(row: &RunRow, write: &CommandWrite) -> Result<Decisions> {
    if write.resolutions.is_empty() {
        return Ok(Decisions { saved: Map::new(), is_complete: false });
    }
    Err(StoreError::invalid(FIELD, format!("a {} run asks for no decisions", row.lifecycle.name)))
}

/// A decision that would not be kept is not taken.
fn check_room(saved: &Map<String, Value>, write: &CommandWrite) -> Result<()> {
    let bytes = length(&Value::Object(saved.clone()));
    if write.resolutions.is_empty() || bytes <= DECISIONS_BYTES {
        return Ok(());
    }
    let message = format!(
        "with those of before they are {bytes} bytes long; at most {DECISIONS_BYTES} are kept: decide with a shorter reason"
    );
    Err(StoreError::invalid(FIELD, message))
}

fn is_open(row: &RunRow, after: &Run) -> bool {
    !matches!(row.lifecycle.phase(after.state), Phase::Parked | Phase::Settled)
}

fn saved_in(row: &RunRow, words: &lifecycle::Decisions) -> Map<String, Value> {
    row.details.get(words.given()).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A word, or an object with one.
fn decision_of(subject: &str, given: &Value) -> Result<String> {
    let word = given.as_str().or_else(|| given.get("decision").and_then(Value::as_str)).unwrap_or_default();
    let fits = !word.trim().is_empty() && word.chars().count() <= MAX_DECISION_CHARS;
    if !fits
        || refuse_text(FIELD, subject, MAX_NAME_BYTES).is_err()
        || refuse_text(FIELD, word, 1_024).is_err()
    {
        let subject = clean_chars(subject, 80).text;
        let message = format!("{subject:?} needs a decision: a word such as skip, at most 255 characters");
        return Err(StoreError::invalid(FIELD, message));
    }
    Ok(word.trim().to_owned())
}

/// Only about what is asked, and only what its handler offers, if it says.
fn check_choice(subject: &str, decision: &str, asked: Option<&Map<String, Value>>) -> Result<()> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(()) };
    let Some(about) = asked.get(subject) else {
        let known: Vec<&str> = asked.keys().map(String::as_str).collect();
        let message = format!("nothing blocks {subject:?}; blocked are: {}", known.join(", "));
        return Err(StoreError::invalid(FIELD, message));
    };
    let choices: Vec<&str> =
        about["choices"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if choices.is_empty() || choices.contains(&decision) {
        return Ok(());
    }
    let message = format!("{subject}: {decision:?} is no choice; allowed: {}", choices.join(", "));
    Err(StoreError::invalid(FIELD, message))
}

fn too_late(subject: &str, known: Option<&Value>, row: &RunRow) -> StoreError {
    let message = match known {
        Some(known) => {
            let text = |key: &str| known[key].as_str().unwrap_or("somebody").to_owned();
            format!("{subject} was decided already: {} by {}", text("decision"), text("by"))
        }
        None => format!("{subject}: the run does not wait for decisions, it is {}", row.status()),
    };
    StoreError::invalid(FIELD, message)
}
