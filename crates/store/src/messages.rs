//! What an event says that came without words of its own: one wording for all stores.

use waypost_kernel::lifecycle::{Outcome, Phase, State};
use waypost_kernel::request::Level;

/// `from` is nothing for a run's first event.
pub fn standard_message(command: &str, from: Option<&State>, to: &State, by: &str) -> (Level, String) {
    let Some(from) = from else { return born(to) };
    if from.name == to.name {
        return stayed(command, by);
    }
    match to.phase {
        Phase::Settled => ended(command, to),
        Phase::Held if from.phase == Phase::Held => (Level::Info, "Run started".into()),
        Phase::Held if command == "claim" => (Level::Info, "Run claimed by worker".into()),
        Phase::Held => (Level::Info, format!("Run to be worked again: {command} by {by}")),
        Phase::Parked => (Level::Warn, format!("Run waits for a person: {}", to.name)),
        Phase::Ready => (Level::Info, "Run queued".into()),
        Phase::Draft => (Level::Info, format!("Run is {}", to.name)),
    }
}

fn born(to: &State) -> (Level, String) {
    let message = match to.phase {
        Phase::Ready => "Run queued".into(),
        Phase::Held => "Run claimed by worker".into(),
        _ => format!("Run created: {}", to.name),
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
        "owe" => (Level::Debug, "Cleanup noted".into()),
        "operation" => (Level::Info, "Operation ended".into()),
        "cancel" | "pause" => (Level::Warn, format!("Run asked to {command} by {by}")),
        _ => (Level::Info, format!("{command} by {by}")),
    }
}

fn ended(command: &str, to: &State) -> (Level, String) {
    match command {
        "lose" => return (Level::Error, format!("Run lost: {}", to.name)),
        "expire" => return (Level::Warn, format!("Run expired: {}", to.name)),
        _ => {}
    }
    let level = match to.outcome {
        Some(Outcome::Failed | Outcome::Cancelled) => Level::Error,
        Some(Outcome::Partial) => Level::Warn,
        _ => Level::Info,
    };
    (level, format!("Run finished: {}", to.name))
}
