//! What people decide about what a parked run asks. All of it lets the run go on; some of it is kept, and the run waits for
//! the rest. Who decided about a subject first in this pause is right.

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::text::{MAX_NAME_BYTES, clean_chars, refuse_text};
use waypost_kernel::{Run, Time};
use waypost_store::{CommandWrite, Result, RunRow, StoreError};

use super::details::{GIVEN_BYTES, length};
use super::iso;

const FIELD: &str = "resolutions";
const MAX_DECISION_CHARS: usize = 255;

/// What a command says about what its run asks.
pub struct Decisions {
    saved: Map<String, Value>,
    pub standing: Standing,
}

/// How far people are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was said, or nobody waits for it.
    Nothing,
    /// Everything is decided, and something of it since the run stopped.
    Everything,
    /// Something new, while other things are open.
    Something,
    /// Only what was known already, while other things are open.
    Known,
}

impl Decisions {
    pub fn of(row: &RunRow, write: &CommandWrite, now: Time) -> Result<Decisions> {
        let Some(words) = &row.lifecycle.decisions else {
            if write.resolutions.is_empty() {
                return Ok(Decisions { saved: Map::new(), standing: Standing::Nothing });
            }
            let message = format!("a {} run asks for no decisions", row.lifecycle.name);
            return Err(StoreError::invalid(FIELD, message));
        };
        let asked = row.details.get(words.asked()).and_then(Value::as_object);
        let before = saved_in(row);
        let mut saved = before.clone();
        let waits = row.phase() == Phase::Parked;
        let fresh = |known: &Value| known["attempt"] == row.run.attempt;
        for (subject, given) in &write.resolutions {
            let decision = decision_of(subject, given)?;
            check_choice(subject, &decision, asked)?;
            let earlier = saved.get(subject).filter(|known| fresh(known) || !waits);
            if earlier.is_some_and(|earlier| earlier["decision"] == *decision) {
                continue;
            }
            if earlier.is_some() || !waits {
                return Err(too_late(subject, earlier, row));
            }
            let about = asked.and_then(|asked| asked.get(subject)).filter(|about| about["ask"].is_string());
            // Written as the engine does, so that the text sorts as the time.
            let ends =
                about.and_then(|about| about["until"].as_str()).filter(|ends| *ends <= iso(now).as_str());
            if let Some(ends) = ends {
                let message = format!(
                    "{subject}: it could be answered until {ends}; the run goes on without an answer"
                );
                return Err(StoreError::invalid(FIELD, message));
            }
            let entry = json!({
                "decision": decision, "by": write.by, "reason": write.reason, "at": iso(now), "attempt": row.run.attempt,
            });
            saved.insert(subject.clone(), entry);
        }
        check_room(&saved, write)?;
        let is_asked = row.details.get(words.waiting()) == Some(&Value::Bool(true));
        // The answer to a question is for the pause that asked it.
        let counts = |about: &Value, known: &Value| about["ask"].as_str().is_none() || fresh(known);
        let is_open =
            |(it, about): (&String, &Value)| !saved.get(it).is_some_and(|known| counts(about, known));
        let open = asked.filter(|_| is_asked).is_some_and(|asked| asked.iter().any(is_open));
        let standing = match () {
            () if !waits => Standing::Nothing,
            () if !open && saved.values().any(fresh) => Standing::Everything,
            () if write.resolutions.is_empty() => Standing::Nothing,
            () if saved == before => Standing::Known,
            () => Standing::Something,
        };
        Ok(Decisions { saved, standing })
    }

    /// What is merged into the run's details with the command, if it makes a waiting run go on.
    pub fn patch(self, row: &RunRow, change: &Change) -> Map<String, Value> {
        let goes_on = row.phase() == Phase::Parked && is_open(row, &change.after);
        let stays = change.events.first().is_some_and(|event| &*event.command == "decide");
        let mut patch = Map::new();
        let Some(words) = &row.lifecycle.decisions else { return patch };
        if goes_on && row.details.get(words.waiting()).is_some_and(|waiting| *waiting == true) {
            patch.insert(words.waiting().into(), json!(false));
        }
        if (goes_on || stays) && self.saved != saved_in(row) {
            patch.insert(words.given().into(), Value::Object(self.saved));
        }
        patch
    }
}

/// A decision that would not be kept is not taken.
fn check_room(saved: &Map<String, Value>, write: &CommandWrite) -> Result<()> {
    let (bytes, room) = (length(&Value::Object(saved.clone())), GIVEN_BYTES);
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
    let given = row.lifecycle.decisions.as_ref().and_then(|words| row.details.get(words.given()));
    given.and_then(Value::as_object).cloned().unwrap_or_default()
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
        let message = format!("nothing is asked about {subject:?}; asked are: {}", known.join(", "));
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
