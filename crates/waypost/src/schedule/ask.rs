//! Verbs that change something.

use std::path::PathBuf;

use serde_json::json;
use waypost_kernel::Time;
use waypost_kernel::schedule::Plans;
use waypost_store::{ScheduleChange, ScheduleChanged, Store, StoreError, iso, parse_time};
use waypost_worker::playbook::Problem;
use waypost_worker::schedules::{self, Asked, Schedule, shown};

use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, Result, print, print_list};
use crate::place::lifecycles;
use crate::run::who;

/// Nothing is stored unless all files are sound.
pub async fn apply(store: &dyn Store, files: &[PathBuf], check: bool, output: Format) -> Result {
    let catalog = lifecycles(store).await?;
    let mut found: Vec<(PathBuf, Schedule)> = Vec::new();
    let mut bad = Vec::new();
    for file in files {
        match schedules::load(file, &catalog) {
            Ok(all) => found.extend(all.into_iter().map(|schedule| (file.clone(), schedule))),
            Err(problems) => bad.push(problems),
        }
    }
    for (at, (file, schedule)) in found.iter().enumerate() {
        if let Some((other, _)) = found[..at].iter().find(|(_, other)| other.name == schedule.name) {
            let message = format!(
                "{}:{}: schedule {:?} is also in {}: give one of them another name",
                file.display(),
                schedule.line,
                schedule.name,
                other.display()
            );
            return Err(Failed::new(BAD_INPUT, message));
        }
    }
    if !bad.is_empty() {
        let is_missing = |problem: &Problem| problem.rule == "unreadable" && !problem.file.exists();
        let missing = bad.iter().any(|problems| problems.0.iter().any(is_missing));
        let words: Vec<String> = bad.iter().map(ToString::to_string).collect();
        return Err(Failed::new(if missing { NOT_FOUND } else { BAD_INPUT }, words.join("\n")));
    }
    let mut done = Vec::new();
    let now = store.now().await?;
    for (_, schedule) in &found {
        let (word, is_new) = match check {
            true => ("sound", true),
            false => {
                let changed = schedules::apply(store, schedule, who(None)).await?;
                (changed.name(), changed == ScheduleChanged::Added)
            }
        };
        done.push((schedule, word, is_new.then(|| schedule.policy.plan("", None, now, false))));
    }
    let object = |(schedule, word, first): &(&Schedule, &str, Option<Plans>)| {
        let plan = first.as_ref().and_then(|first| first.fire.first().copied().or(first.wake_at));
        json!({ "name": schedule.name, "result": word, "first_plan": plan.map(iso) })
    };
    print_list(done.iter().map(object).collect(), output, || {
        let line = |(schedule, word, first): &(&Schedule, &str, Option<Plans>)| {
            let first = first.as_ref().map(|first| format!("; {}", what_comes_first(schedule, first)));
            format!("{}: {word}{}", schedule.name, first.unwrap_or_default())
        };
        done.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Of a schedule without a history.
fn what_comes_first(schedule: &Schedule, first: &Plans) -> String {
    let timing = &schedule.policy.timing;
    match (first.fire.first(), first.wake_at) {
        (Some(plan), _) => format!("its latest plan, {}, is executed at once", shown(timing, *plan)),
        (None, Some(at)) => format!("first at {}", shown(timing, at)),
        (None, None) => "it has no plan any more".to_owned(),
    }
}

pub async fn pause(store: &dyn Store, name: &str, reason: String) -> Result {
    store.change_schedule(ScheduleChange::Pause(name.to_owned()), who(Some(reason))).await?;
    print(&format!("{name} is paused: nothing of it begins until `waypost schedule resume {name}`"))
}

pub async fn resume(store: &dyn Store, name: &str) -> Result {
    store.change_schedule(ScheduleChange::Resume(name.to_owned()), who(None)).await?;
    print(&format!("{name} goes on with its next plan"))
}

pub async fn remove(store: &dyn Store, name: &str) -> Result {
    match store.change_schedule(ScheduleChange::Remove(name.to_owned()), who(None)).await {
        Ok(_) => print(&format!(
            "{name} is removed: plans that waited are dropped, and what was being executed is asked to cancel"
        )),
        Err(StoreError::NotFound { .. }) => {
            Err(Failed::new(NOT_FOUND, format!("there is no schedule {name:?}")))
        }
        Err(error) => Err(error.into()),
    }
}

pub async fn trigger(store: &dyn Store, name: &str, scopes: Vec<String>) -> Result {
    added(store, name, Asked::Now, scopes, false).await
}

pub async fn backfill(
    store: &dyn Store,
    name: &str,
    (from, to): (&str, &str),
    scopes: Vec<String>,
    again: bool,
) -> Result {
    let asked = Asked::Range(instant("from", from)?, instant("to", to)?);
    added(store, name, asked, scopes, again).await
}

async fn added(store: &dyn Store, name: &str, asked: Asked, scopes: Vec<String>, again: bool) -> Result {
    let is_range = asked != Asked::Now;
    let added = schedules::add_plans(store, name, asked, scopes, again, who(None)).await?;
    if added == 0 && is_range && !again {
        return print(&format!(
            "0 to execute: every plan of the range has its execution; --again repeats those that failed, see `waypost schedule history {name}`"
        ));
    }
    print(&format!("{added} to execute; see `waypost schedule history {name}`"))
}

fn instant(field: &str, text: &str) -> Result<Time> {
    parse_time(text).ok_or_else(|| {
        let message = format!("{field}: {text:?} is no instant; allowed: 2026-02-14T08:00:00Z");
        Failed::new(BAD_INPUT, message)
    })
}
