//! Verbs that change something.

use std::path::PathBuf;

use serde_json::json;
use waypost_kernel::schedule::{Plans, Running};
use waypost_kernel::text::shell_word;
use waypost_kernel::{Span, Time};
use waypost_store::{ScheduleChange, ScheduleChanged, ScheduleSummary, Store, StoreError, iso};
use waypost_worker::playbook::Problem;
use waypost_worker::schedules::{self, Asked, Schedule, shown};

use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, Result, print, print_list, tell};
use crate::place::{lifecycles, suggested};
use crate::run::who;
use crate::times::day_or_instant;

use super::look::{all, who_could_fire};

/// Nothing is stored unless all files are sound.
pub async fn apply(
    store: &dyn Store,
    files: &[PathBuf],
    (check, prune): (bool, bool),
    output: Format,
) -> Result {
    let found = sound(store, files).await?;
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
        let first = is_new.then(|| schedule.policy.plan("", None, now, Running::Nothing));
        let plan = first.as_ref().filter(|first| first.fire.is_empty()).and_then(|first| first.wake_at);
        let words = first.as_ref().map(|first| format!("; {}", what_comes_first(schedule, first)));
        done.push(Applied {
            name: schedule.name.clone(),
            word,
            first: plan,
            words: words.unwrap_or_default(),
        });
    }
    let named: Vec<&str> = found.iter().map(|(_, schedule)| schedule.name.as_str()).collect();
    for name in if prune { left_over(store, &named).await? } else { Vec::new() } {
        if !check {
            store
                .change_schedule(ScheduleChange::Remove(name.clone()), who(Some(NOT_IN_FILES.into())))
                .await?;
        }
        let word = if check { "would be removed" } else { "removed" };
        done.push(Applied { name, word, first: None, words: format!(": {NOT_IN_FILES}") });
    }
    let object =
        |it: &Applied| json!({ "name": it.name, "result": it.word, "first_plan": it.first.map(iso) });
    print_list(done.iter().map(object).collect(), output, || {
        let line = |it: &Applied| format!("{}: {}{}", it.name, it.word, it.words);
        done.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    if !check {
        say_who_fires(store, &named).await?;
    }
    Ok(())
}

/// What the files say, if all of them are sound.
pub async fn sound(store: &dyn Store, files: &[PathBuf]) -> Result<Vec<(PathBuf, Schedule)>> {
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
    Ok(found)
}

const NOT_IN_FILES: &str = "none of the files has it";

/// What became of one.
struct Applied {
    name: String,
    word: &'static str,
    first: Option<Time>,
    /// The same for people.
    words: String,
}

/// Schedules of the tenant that are in none of the files. One of a process's own file is left to that process while it is there.
async fn left_over(store: &dyn Store, named: &[&str]) -> Result<Vec<String>> {
    let is_left = |it: &ScheduleSummary| {
        let name = it.row.name.as_str();
        !named.contains(&name) && !name.starts_with("waypost.") && (it.row.carried || it.fired_by == 0)
    };
    let all = all(store).await?;
    Ok(all.into_iter().filter(is_left).map(|it| it.row.name).collect())
}

/// Applying fires nothing by itself.
async fn say_who_fires(store: &dyn Store, named: &[&str]) -> Result {
    let nobody = |it: &&ScheduleSummary| named.contains(&it.row.name.as_str()) && it.fired_by == 0;
    if all(store).await?.iter().any(|it| nobody(&it)) {
        tell(&format!("no process fires these yet: start {}", who_could_fire()));
    }
    Ok(())
}

/// Of a schedule without a history.
fn what_comes_first(schedule: &Schedule, first: &Plans) -> String {
    let timing = &schedule.policy.timing;
    match (first.fire.first(), first.wake_at) {
        // Which one that is, is known when somebody looks.
        (Some(plan), _) => format!(
            "first its latest plan, as soon as a process that fires schedules sees it; now that is {}",
            shown(timing, *plan)
        ),
        (None, Some(at)) => format!("first at {}", shown(timing, at)),
        (None, None) => "it has no plan any more".to_owned(),
    }
}

pub async fn pause(store: &dyn Store, name: &str, reason: String) -> Result {
    let before = schedules::find(store, name).await?.0.paused;
    store.change_schedule(ScheduleChange::Pause(name.to_owned()), who(Some(reason))).await?;
    let before =
        before.map(|it| format!("; it was already, by {}: {}", it.by, it.reason)).unwrap_or_default();
    let resume = suggested(&format!("schedule resume {}", shell_word(name)));
    print(&format!("{name} is paused: nothing of it begins until `{resume}`{before}"))
}

pub async fn resume(store: &dyn Store, name: &str, reason: Option<String>) -> Result {
    store.change_schedule(ScheduleChange::Resume(name.to_owned()), who(reason)).await?;
    print(&format!("{name} goes on with its next plan"))
}

pub async fn remove(store: &dyn Store, name: &str, reason: Option<String>) -> Result {
    match store.change_schedule(ScheduleChange::Remove(name.to_owned()), who(reason)).await {
        Ok(_) => print(&format!(
            "{name} is removed: plans that waited are dropped, and what was being executed is asked to cancel"
        )),
        Err(StoreError::NotFound { .. }) => {
            Err(Failed::new(NOT_FOUND, format!("there is no schedule {name:?}")))
        }
        Err(error) => Err(error.into()),
    }
}

pub async fn trigger(store: &dyn Store, name: &str, scopes: Vec<String>, reason: Option<String>) -> Result {
    added(store, name, Asked::Now, scopes, false, reason).await
}

pub async fn backfill(
    store: &dyn Store,
    name: &str,
    (from, to): (&str, &str),
    scopes: Vec<String>,
    again: bool,
    reason: Option<String>,
) -> Result {
    let zone = schedules::find(store, name).await?.1.policy.timing.zone();
    let from = day_or_instant("from", from, &zone)?.0;
    // Of a day, all of it that has been.
    let (to, is_day) = match day_or_instant("to", to, &zone)? {
        (_, Some(next_day)) => (next_day - Span::from_micros(1), true),
        (instant, None) => (instant, false),
    };
    let to = if is_day { to.min(store.now().await?) } else { to };
    added(store, name, Asked::Range(from, to), scopes, again, reason).await
}

async fn added(
    store: &dyn Store,
    name: &str,
    asked: Asked,
    scopes: Vec<String>,
    again: bool,
    reason: Option<String>,
) -> Result {
    let is_range = asked != Asked::Now;
    let added = schedules::add_plans(store, name, asked, scopes, again, who(reason)).await?;
    let history = suggested(&format!("schedule history {}", shell_word(name)));
    if added == 0 && is_range && !again {
        return print(&format!(
            "0 to execute: every plan of the range has its execution; --again repeats those that failed, see `{history}`"
        ));
    }
    print(&format!("{added} to execute; see `{history}`"))
}
