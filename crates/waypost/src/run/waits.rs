//! What a run waits for, in words: for people who ask why nothing happens.

use serde_json::Value;
use waypost_kernel::{Phase, Time};
use waypost_store::RunRow;

use super::blockers;
use super::ids::short;
use super::times::age;

/// What it waits for, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub text: String,
    pub hint: Option<String>,
}

/// Of a run that waits: what the store says of it (`waiting` of the run object), or what can be told from the run alone.
pub fn of(run: &RunRow, now: Time) -> Option<Waits> {
    told(&run.object()["waiting"]).or_else(|| from_row(run, now))
}

fn told(waiting: &Value) -> Option<Waits> {
    let text = |key: &str| waiting[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(Waits { text: text("text").or_else(|| text("reason"))?, hint: text("hint") })
}

fn from_row(run: &RunRow, now: Time) -> Option<Waits> {
    let id = short(run.id());
    match run.phase() {
        Phase::Ready => Some(match countdown(run, now) {
            Some(text) => Waits { text, hint: None },
            None => for_a_worker(run),
        }),
        Phase::Parked if !blockers::open(run).is_empty() => {
            let text = format!("a decision about {}", blockers::open(run).join(", "));
            Some(Waits { text, hint: Some(format!("waypost run resume {id}")) })
        }
        Phase::Parked => {
            let reason = run.run.reason.as_deref().filter(|reason| !reason.is_empty());
            let text = reason.map_or("a person".to_owned(), |reason| format!("a person: {reason}"));
            Some(Waits { text, hint: Some(format!("waypost run resume {id} --force")) })
        }
        Phase::Draft => {
            let allowed = waypost_kernel::allowed(&run.lifecycle, &run.run);
            let command = allowed.iter().find(|name| &***name != "cancel").or(allowed.first())?;
            let text = format!("somebody to say {}", allowed.join(" or "));
            Some(Waits { text, hint: Some(format!("waypost run do {id} {command}")) })
        }
        Phase::Held | Phase::Settled => None,
    }
}

/// One that could would have taken it.
fn for_a_worker(run: &RunRow) -> Waits {
    let (what, flags) = match (&run.playbook, &run.carried) {
        (Some(playbook), None) => (playbook.as_str(), "--playbooks DIR"),
        (Some(playbook), Some(_)) => (playbook.as_str(), "--allow-commands"),
        (None, Some(_)) => ("leave to execute it", "--allow-commands"),
        (None, None) => {
            return Waits { text: "a worker that takes it over HTTP or SQL".to_owned(), hint: None };
        }
    };
    let queue = if run.queue == "default" { String::new() } else { format!(" --queue {}", run.queue) };
    Waits {
        text: format!("no worker has {what} and a slot free"),
        hint: Some(format!("waypost worker{queue} {flags}")),
    }
}

/// In a few words, for a line of a list.
pub fn in_short(run: &RunRow, now: Time) -> Option<String> {
    if run.run.intent.is_some() {
        return None;
    }
    let told = told(&run.object()["waiting"]).map(|waits| waits.text);
    told.or_else(|| countdown(run, now))
}

/// `in 2h05m`, of a run that is not due yet.
pub fn countdown(run: &RunRow, now: Time) -> Option<String> {
    let due = run.run.available_at.filter(|due| *due > now && run.phase() == Phase::Ready)?;
    Some(format!("in {}", age(due - now)))
}

/// What a person has to decide, and how.
pub fn decisions(run: &RunRow) -> Option<String> {
    let blocked = blockers::of(run).filter(|_| run.phase() == Phase::Parked)?;
    let open = blockers::open(run);
    let mut lines = Vec::new();
    for (subject, about) in blocked {
        if !open.contains(subject) {
            lines.push(format!("{subject} is decided"));
            continue;
        }
        lines.push(format!("{subject} is blocked:"));
        lines.extend(blockers::lines(about).into_iter().map(|line| format!("  {line}")));
    }
    lines.push(format!("decide: waypost run resume {}", short(run.id())));
    Some(lines.join("\n"))
}
