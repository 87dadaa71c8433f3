//! What a run waits for, in words: for people who ask why nothing happens. The reason itself is the store's.

use serde_json::Value;
use waypost_kernel::text::terminal::{name, plain};
use waypost_kernel::{Phase, Time};
use waypost_store::RunRow;

use crate::run::act::blockers;
use crate::run::times::age;

/// Why a run that was explained waits, and what to do about it.
pub fn in_full(run: &RunRow) -> Option<String> {
    let waiting = run.waiting()?;
    let hint = waiting.hint.as_ref().map(|hint| format!("\n  {}", plain(hint))).unwrap_or_default();
    Some(format!("{}{hint}", plain(&waiting.text)))
}

/// In a few words, for a line of a list.
pub fn in_short(run: &RunRow, now: Time) -> Option<String> {
    countdown(run, now).or_else(|| run.waiting().map(|waiting| waiting.text.clone()))
}

/// `in 2h05m`, of a run that is not due yet.
fn countdown(run: &RunRow, now: Time) -> Option<String> {
    let due = run.run.available_at.filter(|due| *due > now && run.phase() == Phase::Ready)?;
    Some(format!("in {}", age(due - now)))
}

/// What a person has to decide, and how.
pub fn decisions(run: &RunRow, now: Time) -> Option<String> {
    blockers::of(run).filter(|_| run.phase() == Phase::Parked)?;
    let decided = run.decided().into_iter().map(|(subject, decision)| answer(subject, decision));
    let lines: Vec<String> = decided.chain(blockers::questions(run, now)).collect();
    Some(plain(&lines.join("\n")).into_owned())
}

/// `go ahead? is decided: yes, by kim (looks fine)`.
fn answer(subject: &str, decision: &Value) -> String {
    let text = |member: &str| decision[member].as_str().map(name);
    let choice = text("decision").unwrap_or_default();
    let by = text("by").map(|by| format!(", by {by}")).unwrap_or_default();
    let reason = text("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{} is decided: {choice}{by}{reason}", name(subject))
}
