//! What people decide about what a parked run asks, subject by subject (such as a host). Decisions come with the command
//! that lets the run go on. If they are not about everything that it asks, they are kept and the run goes on waiting. Of one
//! pause the first decision about a subject counts. What is decided about a thing such as a host holds in later pauses too; the answer to
//! a question (`ask`) is one of its pause alone, and may come until the time that the question names. In which members of the run's
//! details all this stands, its lifecycle says.

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{self, Phase};
use waypost_kernel::request::{DECIDE, With};
use waypost_kernel::text::{MAX_NAME_BYTES, clean_chars, refuse_text};
use waypost_kernel::{Run, Time};

use crate::rules::details::{DECISIONS_BYTES, length};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::{RunRow, iso, parse_time};
use crate::seam::verbs::CommandWrite;

const FIELD: &str = "resolutions";
/// The member of a decision that says in which pause it was made.
const ATTEMPT: &str = "attempt";
const MAX_DECISION_CHARS: usize = 255;

/// What a command says about what its run asks.
pub(crate) struct Decisions {
    saved: Map<String, Value>,
    /// There is one about every subject, and one at least is of this pause.
    pub is_complete: bool,
    /// There are new ones, but not about every subject.
    pub is_partial: bool,
    /// All that are given were given in this pause already, and others are still missing.
    pub is_repeat: bool,
}

impl Decisions {
    pub fn of(row: &RunRow, write: &CommandWrite, now: Time) -> Result<Decisions> {
        let Some(words) = &row.lifecycle.decisions else { return none(row, write) };
        let asked = row.details.get(words.asked()).and_then(Value::as_object);
        let mut saved = saved_in(row, words);
        let is_parked = row.phase() == Phase::Parked;
        let mut is_new = false;
        for (subject, given) in &write.resolutions {
            let decision = decision_of(subject, given)?;
            check_choice(subject, &decision, asked)?;
            let known = saved.get(subject).filter(|known| !is_parked || is_of_this_pause(known, row));
            match known {
                Some(known) if known["decision"] == *decision => {}
                None if is_parked => {
                    check_time(subject, asked, now)?;
                    is_new = true;
                    let (by, reason, attempt) = (&write.by, &write.reason, row.run.attempt);
                    let entry = json!({ "decision": decision, "by": by, "reason": reason, "at": iso(now), ATTEMPT: attempt });
                    saved.insert(subject.clone(), entry);
                }
                known => return Err(too_late(subject, known, row)),
            }
        }
        check_room(&saved, write)?;
        let waits = row.details.get(words.waiting()).is_some_and(|waiting| *waiting == true);
        let mut subjects = asked.into_iter().filter(|_| waits).flatten();
        let is_decided = subjects.all(|(subject, about)| decides(about, saved.get(subject), row));
        let is_complete = is_parked && is_decided && saved.values().any(|known| is_of_this_pause(known, row));
        let is_partial = is_parked && !is_complete && !write.resolutions.is_empty();
        let is_repeat = is_partial && !is_new && !write.force;
        Ok(Decisions { saved, is_complete, is_partial, is_repeat })
    }

    /// What is merged into the run's details with the command, if it makes a waiting run go on or is about decisions alone.
    pub fn patch(self, row: &RunRow, change: &Change) -> Map<String, Value> {
        let mut patch = Map::new();
        let goes_on = row.phase() == Phase::Parked && is_open(row, &change.after);
        let decides = change.events.iter().any(|event| &*event.command == DECIDE);
        let Some(words) = row.lifecycle.decisions.as_ref().filter(|_| goes_on || decides) else {
            return patch;
        };
        if goes_on && row.details.get(words.waiting()).is_some_and(|waiting| *waiting == true) {
            patch.insert(words.waiting().into(), json!(false));
        }
        if self.saved != saved_in(row, words) {
            patch.insert(words.given().into(), Value::Object(self.saved));
        }
        patch
    }
}

/// What is merged into a run's details when it goes on though nobody has answered.
pub(crate) fn given_up(row: &RunRow, change: &Change) -> Map<String, Value> {
    let goes_on = row.phase() == Phase::Parked && is_open(row, &change.after);
    let words = row.lifecycle.decisions.as_ref().filter(|_| goes_on);
    let waits = words.filter(|words| row.details.get(words.waiting()).is_some_and(|waits| *waits == true));
    waits.map(|words| (words.waiting().to_owned(), json!(false))).into_iter().collect()
}

impl RunRow {
    /// What the run asks and nobody has decided in a way that counts for this pause: the subject, and what is asked about it.
    pub fn undecided(&self) -> Vec<(&str, &Value)> {
        self.asked().filter(|(_, _, decision)| decision.is_none()).map(|(it, about, _)| (it, about)).collect()
    }

    /// What of that is decided: the subject, and the decision with who made it and why.
    pub fn decided(&self) -> Vec<(&str, &Value)> {
        self.asked().filter_map(|(subject, _, decision)| Some((subject, decision?))).collect()
    }

    pub(crate) fn is_partly_decided(&self) -> bool {
        self.asked().any(|(_, _, decision)| decision.is_some())
    }

    /// What is asked in this pause, what about it, and the decision that counts for it.
    fn asked(&self) -> impl Iterator<Item = (&str, &Value, Option<&Value>)> {
        let words = self.lifecycle.decisions.as_ref();
        let waits = words.and_then(|words| self.details.get(words.waiting())) == Some(&Value::Bool(true));
        let asked = words.filter(|_| waits).and_then(|words| self.details.get(words.asked())?.as_object());
        let given = words.and_then(|words| self.details.get(words.given()));
        asked.into_iter().flatten().map(move |(subject, about)| {
            let known = given.and_then(|given| given.get(subject.as_str()));
            (subject.as_str(), about, known.filter(|known| decides(about, Some(known), self)))
        })
    }
}

/// When a question can be answered no more.
pub fn answer_by(about: &Value) -> Option<Time> {
    parse_time(about["until"].as_str().filter(|_| is_question(about))?)
}

/// A question of a step, and no thing that blocks the run.
fn is_question(about: &Value) -> bool {
    about["ask"].is_string()
}

/// Whether what is known counts as the decision about what is asked. A question is asked anew in each pause: what was answered in
/// another one, or in the run that this one repeats, is no answer to it.
fn decides(about: &Value, known: Option<&Value>, row: &RunRow) -> bool {
    known.is_some_and(|known| !is_question(about) || is_of_this_pause(known, row))
}

/// The time to answer is over when the run may go on without an answer, whether somebody has taken it up since or not.
fn check_time(subject: &str, asked: Option<&Map<String, Value>>, now: Time) -> Result<()> {
    let until = asked.and_then(|asked| asked.get(subject)).and_then(answer_by);
    let Some(until) = until.filter(|until| *until <= now) else { return Ok(()) };
    let message =
        format!("{subject}: it could be answered until {}; the run goes on without an answer", iso(until));
    Err(StoreError::invalid(FIELD, message))
}

/// A pause ends with a claim or a retry, which counts an attempt: no two pauses have the same.
fn is_of_this_pause(known: &Value, row: &RunRow) -> bool {
    known[ATTEMPT].as_u64() == Some(u64::from(row.run.attempt))
}

/// Of a run whose lifecycle asks for none.
fn none(row: &RunRow, write: &CommandWrite) -> Result<Decisions> {
    if write.resolutions.is_empty() {
        return Ok(Decisions { saved: Map::new(), is_complete: false, is_partial: false, is_repeat: false });
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

impl CommandWrite {
    pub(crate) fn check_seq(&self, run: &Run) -> Result<()> {
        match self.if_seq {
            Some(seq) if seq != run.seq => {
                Err(StoreError::Changed { run_id: run.id.to_string(), seq: run.seq })
            }
            _ => Ok(()),
        }
    }

    /// What comes along with the command, as the kernel takes it.
    pub(crate) fn with<'a>(&'a self, chosen: Option<&'a [Item]>, decisions: &Decisions) -> With<'a> {
        With {
            reason: self.reason.as_deref(),
            force: self.force,
            resolved: decisions.is_complete,
            partly: decisions.is_partial,
            graceful: self.graceful,
            chosen,
            ..With::default()
        }
    }
}
