//! `waypost run show`: one run. What matters first: how it is, what it is, what it waits for; then its steps, and what they gave.

use clap::Args;
use serde_json::Value;
use waypost_kernel::Time;
use waypost_kernel::lifecycle::{DecisionPart, Outcome, Phase};
use waypost_kernel::text::terminal::{indented, name};
use waypost_store::{EventRow, ItemRow, RunRow, Store};
use waypost_worker::cleanup_failed_in_words;
use waypost_worker::targets::has_targets;

use super::events::{all_events, events_table};
use super::{operations, steps, targets, waits, worked};
use crate::output::{Format, Result, cells, print, table_within, width};
use crate::place::suggested;
use crate::run::ids::{explained, short};
use crate::run::times::{Clock, age};

/// Shown elsewhere, or for programs.
const NOT_SHOWN: [&str; 3] = ["console_log", "worked", "artifacts"];

/// Failed targets that are shown.
const FIRST_FAILURES: usize = 10;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run show @1\n  waypost run show f9aac1c9 -v\n  waypost run show f9aac1c9 -o json"
)]
pub struct Show {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Everything: all fields, outputs in full, all events. With -o json: the steps, too.
    #[arg(short, long)]
    verbose: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn show(store: &dyn Store, flags: Show) -> Result {
    let run = explained(store, &flags.run).await?;
    if flags.output != Format::Table {
        let mut object = run.object();
        if flags.verbose && !has_targets(&run) {
            let items = store.items(run.id().to_owned(), None).await?;
            object["steps"] = items.iter().map(ItemRow::object).collect();
        }
        return print(&flags.output.object(&object));
    }
    let clock = Clock::at(store.now().await?);
    // A hundred thousand targets are not read to be shown.
    let items = match has_targets(&run) {
        true => Vec::new(),
        false => store.items(run.id().to_owned(), None).await?,
    };
    let events = all_events(store, run.id(), 0).await?;
    let page = page(&run, &items, &events, &clock, (width(), flags.verbose));
    let operation = operations::summary(&run).into_iter().chain(operations::listed(&run));
    let operation = Some(operation.collect::<Vec<_>>().join("\n\n")).filter(|text| !text.is_empty());
    let bulk = bulk(store, &run).await?.or(operation);
    print(&bulk.map_or_else(|| page.clone(), |bulk| format!("{page}\n\n{bulk}")))
}

/// Of a bulk change: what its preview comes to, how many targets are how, and the first that failed.
async fn bulk(store: &dyn Store, run: &RunRow) -> Result<Option<String>> {
    let Some(summary) = targets::summary(store, run).await? else { return Ok(None) };
    let preview = targets::preview_in_words(run).filter(|_| run.phase() == Phase::Draft);
    let states = run.lifecycle.items.first().map(|kind| &kind.states);
    let failed = states.into_iter().flatten().find(|state| state.outcome == Some(Outcome::Failed));
    let mut pages = targets::Pages::new(run, failed.map(|state| state.name.to_string()), FIRST_FAILURES);
    let first = pages.next(store).await?.map(|items| targets::table_of(&items));
    Ok(Some(preview.into_iter().chain([summary]).chain(first).collect::<Vec<_>>().join("\n\n")))
}

/// All that is shown of a run, from all that decides it.
pub fn page(
    run: &RunRow,
    items: &[ItemRow],
    events: &[EventRow],
    clock: &Clock,
    (width, is_verbose): (Option<usize>, bool),
) -> String {
    let facts = facts(run, events, clock);
    let widest = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let facts: Vec<String> = facts.iter().map(|(name, text)| fact(name, text, widest)).collect();
    let mut parts = vec![format!("{}\n\n{}", headline(run, events, clock), facts.join("\n"))];
    parts.extend(waits::decisions(run, clock.now));
    parts.extend(steps::as_table(run, items, clock, (width, is_verbose)));
    parts.extend(artifacts(run, width));
    if is_verbose {
        parts.push(fields(run, width));
        parts.push(events_table(events, items, width));
    } else {
        let id = short(run.id());
        let [log, all] = ["logs", "show -v"].map(|verb| suggested(&format!("run {verb} {id}")));
        parts.push(format!("log: {log}   everything: {all}"));
    }
    parts.join("\n\n")
}

/// `failed 3m12s ago, after 12s: EXIT_3: ship to eu: shipping`.
fn headline(run: &RunRow, events: &[EventRow], clock: &Clock) -> String {
    let since = worked::since(run, events);
    let since = since.map(|since| format!(" {} ago", age(clock.now - since))).unwrap_or_default();
    let took = worked::worked(run, events, clock.now);
    let took = match run.phase() {
        Phase::Settled if run.run.started_at.is_some() => format!(", after {}", age(took)),
        Phase::Held => format!(", for {}", age(took)),
        _ => String::new(),
    };
    let since = if run.phase() == Phase::Settled {
        since
    } else {
        since.replace(" ago", "").replacen(' ', " for ", 1)
    };
    let since = if run.phase() == Phase::Held { String::new() } else { since };
    let why = failure(run).map(|why| format!(": {}", indented(&why, 2))).unwrap_or_default();
    let title = run.title.as_deref().map(|title| format!("{}\n", name(title))).unwrap_or_default();
    let unclean = unclean(run).map(|words| format!("\n{}", indented(&words, 2))).unwrap_or_default();
    format!("{title}{}{since}{took}{why}{unclean}", name(run.status()))
}

/// That cleanups failed, unless that is what the run failed by.
pub fn unclean(run: &RunRow) -> Option<String> {
    let is_told = |words: &String| run.run.failure.as_ref().is_some_and(|it| it.message.contains(&**words));
    let words = cleanup_failed_in_words(run).filter(|words| !is_told(words))?;
    Some(format!("cleanup failed: {words}"))
}

/// Why it failed. Where retries ran out, what the last try said, and how many there were.
fn failure(run: &RunRow) -> Option<String> {
    let failure = run.run.failure.as_ref()?;
    let last = run.metadata.get("last_error").and_then(Value::as_str);
    let tries = run.metadata.get("retry_count").and_then(Value::as_u64);
    match (last, tries) {
        (Some(last), Some(tries)) => Some(format!("{last} ({tries} tries)")),
        (Some(last), None) => Some(format!("{last} ({})", failure.code)),
        _ if failure.message.is_empty() => Some(failure.code.to_string()),
        _ => Some(format!("{}: {}", failure.code, failure.message)),
    }
}

/// In the order in which people ask.
fn facts(run: &RunRow, events: &[EventRow], clock: &Clock) -> Vec<(&'static str, String)> {
    let times = &run.run;
    let by = |event: &EventRow| format!(" by {}", event.by);
    let first = events.first().filter(|event| event.seq == 1).map(by).unwrap_or_default();
    let waits = run.waiting();
    // Of one that waits, the reason begins with what was asked.
    let asked = waypost_kernel::waiting::asked(&run.lifecycle, &run.run).filter(|_| waits.is_none());
    let priority = if run.priority == 0 { String::new() } else { format!(", priority {}", run.priority) };
    // One that was given back is in nobody's hands.
    let held = times.lease.as_ref().filter(|lease| run.phase() == Phase::Held && !lease.is_vacant());
    let worker = held.map(|lease| {
        let lapsed = if lease.until < clock.now { ", whose lease ran out" } else { "" };
        format!("{}{lapsed}", lease.worker.as_deref().unwrap_or_default())
    });
    let time = |time: Option<Time>| time.map(|time| clock.relative(time));
    let allowed = waypost_kernel::allowed(&run.lifecycle, &run.run);
    let optional = |text: &Option<String>| text.clone();
    let id = short(run.id());
    [
        (
            "run",
            (id != run.id()).then(|| format!("{} (short: {id})", run.id())).or_else(|| Some(id.to_owned())),
        ),
        ("what", what(run)),
        ("why", waits.map(|waits| waits.text.clone())),
        ("do", waits.and_then(|waits| waits.hint.clone())),
        ("asked", asked),
        ("reason", reason(run, events)),
        ("queued", Some(format!("{}{first}", clock.relative(times.created_at)))),
        ("due", time(run.schedule_at.filter(|due| *due > clock.now && run.phase() == Phase::Ready))),
        ("started", time(times.started_at)),
        ("finished", time(times.finished_at)),
        ("worker", worker),
        ("queue", Some(format!("{}{priority}", run.queue))),
        ("lifecycle", Some(format!("{} {}", run.lifecycle.name, run.lifecycle.version))),
        ("key", optional(&run.concurrency_key)),
        ("correlation", optional(&run.correlation_id)),
        ("parent", optional(&run.parent_run_id)),
        ("repeats", optional(&run.retry_of)),
        ("input", object(&run.input)),
        ("metadata", object(&Value::Object((*run.metadata).clone()))),
        (
            "commands",
            (!allowed.is_empty()).then(|| {
                let give = suggested(&format!("run do {id} COMMAND"));
                format!("{} ({give})", allowed.join(", "))
            }),
        ),
    ]
    .into_iter()
    .filter_map(|(name, text)| Some((name, text?)))
    .collect()
}

/// A line, and its further lines below it.
fn fact(name: &str, text: &str, widest: usize) -> String {
    format!("  {name:<widest$}  {}", indented(text, widest + 4))
}

fn object(value: &Value) -> Option<String> {
    let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    (!is_empty).then(|| value.to_string())
}

/// What is to be done, beside the title.
fn what(run: &RunRow) -> Option<String> {
    let carried = run.carried.as_ref();
    let file = carried.and_then(|carried| carried["playbook"]["file"].as_str());
    let playbook = run.playbook.as_deref().map(|playbook| match playbook.split_once('@') {
        Some((name, hash)) => format!("playbook {name}@{}", hash.get(..8).unwrap_or(hash)),
        None => format!("playbook {playbook}"),
    });
    let command = carried.and_then(|carried| carried["command"].as_array()).map(|words| {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        format!("command {}", words.join(" "))
    });
    let schedule = run.metadata.get("schedule").unwrap_or(&run.input);
    let schedule = schedule["job_name"].as_str().map(|name| {
        format!("schedule {name}, planned for {}", schedule["plan_time"].as_str().unwrap_or_default())
    });
    let from = file.map(|file| format!(" from {file}")).unwrap_or_default();
    let playbook = playbook.map(|playbook| format!("{playbook}{from}"));
    let parts: Vec<String> = [playbook, command, schedule].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Who moved it last, and why, if they said.
fn reason(run: &RunRow, events: &[EventRow]) -> Option<String> {
    let is_person = |event: &&EventRow| matches!(event.actor.as_str(), "operator" | "client");
    let with_reason = |event: &EventRow| {
        let reason = event.payload["reason"].as_str().filter(|reason| !reason.is_empty())?;
        Some(format!("{reason} ({} by {})", event.command, event.by))
    };
    // What was said of an earlier move says nothing of how the run is now.
    let said = events.iter().rev().find(is_person).and_then(with_reason);
    said.or_else(|| run.run.reason.as_ref().map(ToString::to_string).filter(|reason| !reason.is_empty()))
}

/// All fields of the run object, by name. What is empty is left out.
fn fields(run: &RunRow, width: Option<usize>) -> String {
    let Value::Object(object) = run.object() else { return String::new() };
    let rows = object.into_iter().filter_map(|(key, value)| {
        let text = match (key.as_str(), value) {
            (_, Value::Null) => return None,
            ("items" | "artifacts" | "waiting", _) => return None,
            ("carried", carried) => match carried["playbook"]["file"].as_str() {
                Some(file) => format!("playbook {file}"),
                None => carried.to_string(),
            },
            ("details", Value::Object(mut details)) => {
                let is_asked = |key: &str| run.lifecycle.decision_part(key) == Some(DecisionPart::Asked);
                details.retain(|key, _| !NOT_SHOWN.contains(&key.as_str()) && !is_asked(key));
                if details.is_empty() {
                    return None;
                }
                Value::Object(details).to_string()
            }
            (_, Value::Object(map)) if map.is_empty() => return None,
            (_, Value::String(text)) => text,
            (_, other) => other.to_string(),
        };
        Some(cells([key, text]))
    });
    table_within(&["field", "value"], rows, width)
}

fn artifacts(run: &RunRow, width: Option<usize>) -> Option<String> {
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
        cells([format!("{}{mark}", text("type")), url, text("digest"), text("size")])
    });
    Some(table_within(&["artifact", "url", "digest", "size"], rows, width))
}
