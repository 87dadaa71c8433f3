//! `waypost run show`: one run, whole. What it waits for comes first, then what it is, its steps and its log.

use clap::Args;
use comfy_table::Cell;
use serde_json::Value;
use waypost_kernel::lifecycle::{DecisionPart, Outcome, Phase};
use waypost_kernel::{Span, Time};
use waypost_store::{ItemRow, RunRow, Store, iso};

use super::look::events_table;
use super::{age, blockers, explained, waiting_text};
use crate::output::{Format, Result, coloured, print, status, table};

/// Of a run's log, from its beginning.
const EVENTS: usize = 500;
/// Shown elsewhere, or for programs.
const NOT_SHOWN: [&str; 3] = ["console_log", "worked", "artifacts"];

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  waypost run show run-0192\n  waypost run show run-0192 -o json")]
pub struct Show {
    /// The id, or as much of its beginning as is unique.
    run: String,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn show(store: &dyn Store, flags: Show) -> Result {
    let run = explained(store, &flags.run).await?;
    if flags.output != Format::Table {
        return print(&flags.output.object(&run.object()));
    }
    let now = store.now().await?;
    let items = store.items(run.id().to_owned(), None).await?;
    let events = store.events(run.id().to_owned(), 0, EVENTS).await?;
    let waits = waits_for(&run).or_else(|| waiting_text(&run));
    let parts = [waits, Some(fields(&run, now)), steps(&run, &items, now), artifacts(&run)];
    let mut parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.push(events_table(&events));
    if events.len() == EVENTS {
        parts.push(format!("the first {EVENTS} events; more: waypost run events {}", run.id()));
    }
    print(&parts.join("\n\n"))
}

/// What a person has to decide, and how.
fn waits_for(run: &RunRow) -> Option<String> {
    let asked = blockers::of(run).filter(|_| run.phase() == Phase::Parked)?;
    let open = blockers::open(run);
    let decided = asked.keys().filter(|subject| !open.contains(subject));
    let decided = decided.map(|subject| format!("{subject} is decided"));
    Some(decided.chain(blockers::told(run)).collect::<Vec<_>>().join("\n"))
}

/// What is empty is left out.
fn fields(run: &RunRow, now: Time) -> String {
    let Value::Object(object) = run.object() else { return String::new() };
    let rows = object.into_iter().filter_map(|(key, value)| {
        let text = match (key.as_str(), value) {
            (_, Value::Null) => return None,
            ("items" | "artifacts" | "waiting", _) => return None,
            ("carried", carried) => in_words(&carried),
            ("details", Value::Object(mut details)) => {
                let is_asked = |key: &str| run.lifecycle.decision_part(key) == Some(DecisionPart::Asked);
                details.retain(|key, _| !NOT_SHOWN.contains(&key.as_str()) && !is_asked(key));
                if details.is_empty() {
                    return None;
                }
                Value::Object(details).to_string()
            }
            ("schedule_at", Value::String(text)) => match countdown(run, now) {
                Some(left) => format!("{text}, {left}"),
                None => text,
            },
            (_, Value::Object(map)) if map.is_empty() => return None,
            (_, Value::String(text)) => text,
            (_, other) => other.to_string(),
        };
        let cell = if key == "status" { status(run) } else { Cell::new(text) };
        Some(vec![Cell::new(key), cell])
    });
    table(&["field", "value"], rows)
}

/// `in 2h05m`, of a run that is not due yet.
pub fn countdown(run: &RunRow, now: Time) -> Option<String> {
    let due = run.schedule_at.filter(|due| *due > now && run.phase() == Phase::Ready)?;
    Some(format!("in {}", age(due - now)))
}

/// What a run brings along, without the text of it.
fn in_words(carried: &Value) -> String {
    match carried["playbook"]["file"].as_str() {
        Some(file) => format!("playbook {file}"),
        None => carried.to_string(),
    }
}

/// In the order of the playbook; the parts of a step after it.
fn steps(run: &RunRow, items: &[ItemRow], now: Time) -> Option<String> {
    let first = run.lifecycle.items.first()?;
    let number =
        |item: &ItemRow, key: &str| item.details.get(key).and_then(Value::as_u64).unwrap_or_default();
    let mut steps: Vec<&ItemRow> = items.iter().filter(|item| *item.kind == *first.name).collect();
    steps.sort_by_key(|item| (number(item, "order"), number(item, "number")));
    let parts_of = |step: &ItemRow| {
        let key = step.key.clone();
        items.iter().filter(move |item| item.details.get("step").is_some_and(|of| *of == *key))
    };
    let mut rows = Vec::new();
    for step in &steps {
        rows.push(line(run, step, &step.name, now));
        rows.extend(parts_of(step).map(|part| line(run, part, &format!("  {}", part.name), now)));
    }
    (!rows.is_empty()).then(|| table(&["step", "status", "progress", "took", "why"], rows))
}

fn line(run: &RunRow, item: &ItemRow, name: &str, now: Time) -> Vec<Cell> {
    let kind = run.lifecycle.items.iter().find(|kind| *kind.name == *item.kind);
    let state = kind.and_then(|kind| kind.state_named(&item.status).map(|id| kind.state(id)));
    let (phase, outcome) = state.map_or((Phase::Ready, None), |state| (state.phase, state.outcome));
    let is_open = !matches!(phase, Phase::Settled);
    let end = item.finished_at.or(Some(now).filter(|_| is_open && phase == Phase::Held));
    // A step that ran again after a pause knows how long it ran.
    let ran = item.details.get("duration_ms").and_then(Value::as_i64).filter(|_| !is_open).map(Span::from_ms);
    let took = ran.or(item.started_at.zip(end).map(|(start, end)| end - start)).map(age).unwrap_or_default();
    let failure = item.failure.as_ref().map(|failure| format!("{}: {}", failure.code, failure.message));
    let reason = || item.details.get("reason").and_then(Value::as_str).map(str::to_owned);
    // Its worker stopped or died, nobody began it again, and the run's end made this of it.
    let is_left = outcome == Some(Outcome::Skipped)
        && item.started_at.is_some()
        && item.finished_at == run.run.finished_at;
    let left =
        || is_left.then(|| "it was under way when its worker was lost, and was not begun again".to_owned());
    let waits = item.not_before.filter(|at| is_open && *at > now).map(|at| format!("again at {}", iso(at)));
    let progress =
        if outcome == Some(Outcome::Skipped) { String::new() } else { format!("{} %", item.progress) };
    vec![
        Cell::new(name),
        coloured(&item.status, phase, outcome),
        Cell::new(progress),
        Cell::new(took),
        Cell::new(waits.or(failure).or_else(reason).or_else(left).unwrap_or_default()),
    ]
}

fn artifacts(run: &RunRow) -> Option<String> {
    let listed = run.artifacts();
    if listed.is_empty() {
        return None;
    }
    let rows = listed.iter().map(|artifact| {
        let text = |key: &str| match &artifact[key] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mark = if artifact["unknown_type"] == true { " (unknown type)" } else { "" };
        let url = if artifact["url"].is_null() { text("value") } else { text("url") };
        [format!("{}{mark}", text("type")), url, text("digest"), text("size")].map(Cell::new).to_vec()
    });
    Some(table(&["artifact", "url", "digest", "size"], rows))
}
