//! Verbs that only look.

use std::collections::HashMap;

use serde_json::json;
use waypost_kernel::Time;
use waypost_kernel::schedule::{Timing, Zone, in_words};
use waypost_kernel::text::shell_word;
use waypost_store::{ExecutionFilter, ExecutionRow, ScheduleFilter, ScheduleSummary, Store, StoreError, iso};
use waypost_worker::schedules::{View, find, note, shown, upcoming};

use crate::output::{Format, Result, cell, cells, print, print_list, status_in_small_letters, table, tell};
use crate::place::{suggested, tenant};
use crate::run::age;

const PAGE: usize = 500;

pub async fn list(store: &dyn Store, output: Format) -> Result {
    let (now, catalog) = (store.now().await?, store.lifecycles().await?);
    let all: Vec<View> = all(store).await?.into_iter().map(|look| View::of(look, &catalog)).collect();
    let objects = all.iter().map(|view| view.object(now)).collect();
    print_list(objects, output, || as_table(&all, now))?;
    let nobodys = all.iter().filter(|view| is_nobodys(&view.summary)).count();
    if nobodys > 0 && output == Format::Table {
        let show = suggested("schedule show NAME");
        tell(&format!("nobody fires {nobodys} of these; `{show}` says what to do"));
    }
    Ok(())
}

/// Of the tenant, by name.
pub async fn all(store: &dyn Store) -> Result<Vec<ScheduleSummary>> {
    let mut all: Vec<ScheduleSummary> = Vec::new();
    loop {
        let after = all.last().map(|summary| summary.row.name.clone());
        let filter = ScheduleFilter { tenant: Some(tenant().to_owned()), after, limit: PAGE, name: None };
        let page = store.schedules(filter).await?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

fn is_nobodys(summary: &ScheduleSummary) -> bool {
    summary.fired_by == 0 && summary.row.paused.is_none()
}

/// When it fires next, or why it does not.
fn next_of(view: &View, now: Time) -> String {
    let summary = &view.summary;
    if let Some(pause) = &summary.row.paused {
        let why = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
        return format!("paused by {}{why}", pause.by);
    }
    if is_nobodys(summary) {
        return "nobody fires it".to_owned();
    }
    let Some(timing) = view.timing() else { return "not understood by this version".to_owned() };
    upcoming(timing, now, 1).first().map(|time| shown(timing, *time)).unwrap_or_default()
}

fn as_table(all: &[View], now: Time) -> String {
    if all.is_empty() {
        return format!("there are no schedules: `{}` adds some", suggested("schedule apply FILE"));
    }
    let rows = all.iter().map(|view| {
        let summary = &view.summary;
        cells([
            summary.row.name.clone(),
            view.timing().map(in_words).unwrap_or_default(),
            next_of(view, now),
            summary.last_status.as_deref().map(str::to_lowercase).unwrap_or_default(),
            summary.overdue(now).map(age).unwrap_or_default(),
            summary.stale.to_string(),
            summary.counts.skipped().to_string(),
            summary.counts.failed.to_string(),
        ])
    });
    table(&["schedule", "when", "next", "last", "overdue", "stale", "skipped", "failed"], rows)
}

/// So many of its latest plans are shown with it.
const LATEST: usize = 5;

pub async fn show(store: &dyn Store, name: &str, output: Format) -> Result {
    let found = store.schedules(ScheduleFilter::named(name)).await?.pop();
    let summary = found.ok_or_else(|| StoreError::NotFound { what: "schedule", id: name.to_owned() })?;
    let (now, catalog) = (store.now().await?, store.lifecycles().await?);
    let view = View::of(summary, &catalog);
    if output != Format::Table {
        return print(&output.object(&view.object(now)));
    }
    let filter = ExecutionFilter {
        tenant: Some(tenant().to_owned()),
        schedule: Some(name.to_owned()),
        limit: LATEST,
        ..ExecutionFilter::default()
    };
    let latest = store.executions(filter).await?.executions;
    let mut text = described(&view, now).join("\n");
    if !latest.is_empty() {
        let zones =
            HashMap::from([(name.to_owned(), view.timing().map(Timing::zone).unwrap_or_else(Zone::utc))]);
        text.push_str(&format!("\n\n{}", executions_table(&latest, &zones, now, true)));
    }
    print(&text)
}

/// Line by line, the important first.
fn described(view: &View, now: Time) -> Vec<String> {
    let summary = &view.summary;
    let (row, counts) = (&summary.row, &summary.counts);
    let mut lines = vec![match view.schedule.as_ref().and_then(|it| it.description.as_deref()) {
        Some(description) => format!("{}: {description}", row.name),
        None => row.name.clone(),
    }];
    let mut say = |name: &str, text: String| lines.push(format!("  {name:<10} {text}"));
    say("when", view.timing().map(in_words).unwrap_or_else(|| "not understood by this version".to_owned()));
    say("next", next_of(view, now));
    say("fired by", who_fires(summary));
    if let Some(late) = summary.overdue(now) {
        say("overdue", format!("for {}", age(late)));
    }
    if let Some(last) = summary.last_plan.zip(view.timing()) {
        let status = summary.last_status.as_deref().unwrap_or_default().to_lowercase();
        say("last", format!("{status}, the plan of {}", shown(last.1, last.0)));
    }
    say(
        "so far",
        format!(
            "{} succeeded, {} failed for good, {} skipped; {} under way",
            counts.succeeded,
            counts.failed,
            counts.skipped(),
            summary.running
        ),
    );
    let from = if row.carried { "was applied" } else { "is of a process's own file" };
    say("source", format!("{from}; its commands run in {}", row.folder));
    lines
}

/// The processes that fire what was applied.
pub fn who_could_fire() -> String {
    let [run, serve, dev] = ["schedule run --allow-commands", "serve --allow-commands", "dev"].map(suggested);
    format!("`{run}`, `{serve}` or `{dev}`")
}

fn who_fires(summary: &ScheduleSummary) -> String {
    match (summary.fired_by, summary.row.carried) {
        (0, true) => format!("nobody: start {}", who_could_fire()),
        (0, false) => format!(
            "nobody: no process has it in its waypost.toml as it is here; start one that has, or `{}`",
            suggested(&format!("schedule remove {}", shell_word(&summary.row.name)))
        ),
        (1, _) => "1 process".to_owned(),
        (count, _) => format!("{count} processes"),
    }
}

pub async fn next(store: &dyn Store, name: &str, count: u16, output: Format) -> Result {
    let (row, schedule) = find(store, name).await?;
    let now = store.now().await?;
    let timing = &schedule.policy.timing;
    let times = upcoming(timing, now, usize::from(count));
    let objects =
        times.iter().map(|time| json!({ "plan_time": iso(*time), "local": shown(timing, *time) })).collect();
    print_list(objects, output, || {
        let mut lines = vec![format!("{}: {}", row.name, in_words(timing))];
        lines.extend(times.iter().map(|time| format!("  {}", shown(timing, *time))));
        lines.extend(note(timing, now, &times).map(|note| format!("  {note}")));
        lines.extend(row.paused.as_ref().map(|pause| format!("  paused by {}: {}", pause.by, pause.reason)));
        lines.join("\n")
    })
}

pub async fn history(
    store: &dyn Store,
    name: Option<String>,
    scope: Option<String>,
    limit: usize,
    output: Format,
) -> Result {
    let filter = ExecutionFilter {
        tenant: Some(tenant().to_owned()),
        schedule: name.clone(),
        id: scope,
        limit,
        ..ExecutionFilter::default()
    };
    let all = store.executions(filter).await?.executions;
    let is_named = name.is_some();
    // One that was removed still has its history.
    if let Some(name) = name.filter(|_| all.is_empty()) {
        find(store, &name).await?;
    }
    if all.is_empty() && output == Format::Table {
        return print("nothing was executed yet");
    }
    let zones = zones_of(store, &all).await?;
    let now = store.now().await?;
    let objects = all.iter().map(ExecutionRow::object).collect();
    print_list(objects, output, || executions_table(&all, &zones, now, is_named))
}

/// Whose wall clock the plans of each schedule are about; UTC of those that were removed.
async fn zones_of(store: &dyn Store, executions: &[ExecutionRow]) -> Result<HashMap<String, Zone>> {
    let mut zones = HashMap::new();
    for execution in executions {
        if !zones.contains_key(&execution.schedule) {
            let found = find(store, &execution.schedule).await.ok();
            let zone = found.map(|(_, schedule)| schedule.policy.timing.zone());
            zones.insert(execution.schedule.clone(), zone.unwrap_or_else(Zone::utc));
        }
    }
    Ok(zones)
}

/// `is_named`: all are of one schedule, whose name people know.
fn executions_table(
    all: &[ExecutionRow],
    zones: &HashMap<String, Zone>,
    now: Time,
    is_named: bool,
) -> String {
    let is_global = all.iter().all(|it| it.kind == "global");
    let utc = Zone::utc();
    let rows = all.iter().map(|it| {
        let zone = zones.get(&it.schedule).unwrap_or(&utc);
        let run = it.run.as_ref();
        let begun = run.and_then(|run| run.run.started_at);
        let ended = run.and_then(|run| run.run.finished_at);
        let failure = run.and_then(|run| run.run.failure.as_ref());
        let mut cells = vec![cell(zone.shown(it.plan))];
        cells.extend((!is_named).then(|| cell(&it.schedule)));
        cells.extend((!is_global).then(|| cell(format!("{}/{}", it.kind, it.id))));
        cells.extend([
            run.map_or_else(|| cell("waits"), status_in_small_letters),
            cell(begun.map(|at| zone.shown(at)).unwrap_or_default()),
            cell(begun.map(|at| age(ended.unwrap_or(now) - at)).unwrap_or_default()),
            cell(it.attempt.to_string()),
            cell(run.map(|run| run.id().to_owned()).unwrap_or_default()),
            cell(it.manual.as_deref().unwrap_or_default()),
            cell(failure.map(|it| format!("{}: {}", it.code, it.message)).unwrap_or_default()),
        ]);
        cells
    });
    let mut heads = vec!["plan"];
    heads.extend((!is_named).then_some("schedule"));
    heads.extend((!is_global).then_some("scope"));
    heads.extend(["status", "begun", "took", "attempt", "run", "by hand", "error"]);
    table(&heads, rows)
}
