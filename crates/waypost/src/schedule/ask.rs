//! Verbs that change something.

use std::path::PathBuf;

use serde_json::json;
use waypost_kernel::Time;
use waypost_store::{ManualPlans, Pause, Put, Store, parse_time};
use waypost_worker::playbook::Problem;
use waypost_worker::schedules::{self, Schedule};

use super::find;
use crate::output::{BAD_INPUT, Failed, Format, NOT_FOUND, Result, print, print_list};
use crate::run::user;

/// Nothing is stored unless all files are sound.
pub async fn apply(store: &dyn Store, files: &[PathBuf], check: bool, output: Format) -> Result {
    let catalog = store.lifecycles().await?;
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
    for (_, schedule) in &found {
        let word = if check { "sound" } else { said(schedules::apply(store, schedule).await?) };
        done.push((schedule.name.clone(), word));
    }
    let objects = done.iter().map(|(name, word)| json!({ "name": name, "result": word })).collect();
    print_list(objects, output, || {
        done.iter().map(|(name, word)| format!("{name}: {word}")).collect::<Vec<_>>().join("\n")
    })
}

fn said(put: Put) -> &'static str {
    match put {
        Put::Added => "added",
        Put::Changed => "changed",
        Put::Same => "unchanged",
    }
}

pub async fn pause(store: &dyn Store, name: &str, reason: String) -> Result {
    let pause = Pause { by: user(), reason, at: None };
    store.pause_schedule(name.to_owned(), Some(pause)).await?;
    print(&format!("{name} is paused: nothing of it begins until `waypost schedule resume {name}`"))
}

pub async fn resume(store: &dyn Store, name: &str) -> Result {
    store.pause_schedule(name.to_owned(), None).await?;
    print(&format!("{name} goes on with its next plan"))
}

pub async fn remove(store: &dyn Store, name: &str) -> Result {
    if !store.remove_schedule(name.to_owned()).await? {
        return Err(Failed::new(NOT_FOUND, format!("there is no schedule {name:?}")));
    }
    print(&format!("{name} is removed"))
}

pub async fn trigger(store: &dyn Store, name: &str, scopes: Vec<String>) -> Result {
    let (_, schedule) = find(store, name).await?;
    let ids = chosen(store, name, scopes).await?;
    let plans = ManualPlans {
        schedule: name.to_owned(),
        kind: schedule.scopes.kind().to_owned(),
        ids,
        plans: None,
        how: "trigger".into(),
        by: user(),
    };
    let added = store.add_plans(plans).await?;
    print(&format!("{added} to execute; see `waypost schedule history {name}`"))
}

pub async fn backfill(
    store: &dyn Store,
    name: &str,
    (from, to): (&str, &str),
    scopes: Vec<String>,
) -> Result {
    let (_, schedule) = find(store, name).await?;
    let (from, to) = (instant("from", from)?, instant("to", to)?);
    let now = store.now().await?;
    if to < from || to > now {
        let message = "to: is not after from, or lies ahead; allowed: a range of the past, oldest first";
        return Err(Failed::new(BAD_INPUT, message));
    }
    let before = from - waypost_kernel::Span::from_micros(1);
    let times = schedule.policy.timing.between(before, to, waypost_store::MAX_MANUAL + 1);
    let plans = ManualPlans {
        schedule: name.to_owned(),
        kind: schedule.scopes.kind().to_owned(),
        ids: chosen(store, name, scopes).await?,
        plans: Some(times),
        how: "backfill".into(),
        by: user(),
    };
    let added = store.add_plans(plans).await?;
    print(&format!("{added} to execute; see `waypost schedule history {name}`"))
}

/// Those that were named, or all that there are.
async fn chosen(store: &dyn Store, name: &str, asked: Vec<String>) -> Result<Vec<String>> {
    let scopes = store.scopes(name.to_owned()).await?;
    let known: Vec<String> =
        scopes.into_iter().filter(|scope| !scope.retired).map(|scope| scope.id).collect();
    if let Some(unknown) = asked.iter().find(|id| !known.contains(id)) {
        let message = format!("scope: {name} has no {unknown:?}; it has {}", known.join(", "));
        return Err(Failed::new(NOT_FOUND, message));
    }
    Ok(if asked.is_empty() { known } else { asked })
}

fn instant(field: &str, text: &str) -> Result<Time> {
    parse_time(text).ok_or_else(|| {
        let message = format!("{field}: {text:?} is no instant; allowed: 2026-02-14T08:00:00Z");
        Failed::new(BAD_INPUT, message)
    })
}
