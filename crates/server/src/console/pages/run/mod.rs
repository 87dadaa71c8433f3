//! One run: what matters first, then its parts.

pub mod actions;
mod attempts;
mod documents;
mod events;
mod items;
pub mod log;
pub mod operations;
pub mod targets;
mod timeline;

use maud::{Markup, html};
use waypost_kernel::{Phase, Span, Time};
use waypost_store::{INBOX, PROPOSAL, RunRow, iso};
use waypost_worker::cleanup_failed_in_words;
use waypost_worker::targets::has_targets;

use super::bulk::report::report;
use super::people::{decisions, proposals};
use super::runs;
use crate::answer::Result;
use crate::call::Call;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{self, ago, asked, copied, now, run_link, run_path, shown, state, worked};

const TABS: [(&str, &str); 9] = [
    ("log", "Log"),
    ("timeline", "Timeline"),
    ("items", "Steps"),
    (REPORT, "Report"),
    ("events", "Events"),
    ("data", "Input and output"),
    (ARTIFACTS, "Artifacts"),
    (STATUS, "status.json"),
    ("lease", "Lease"),
];

/// Where an operation says what it came to.
const REPORT: &str = "report";
const ARTIFACTS: &str = "artifacts";
/// Of runs that are shown as documents of an object store.
const STATUS: &str = "status";
/// Rows of a report on its own page.
const MOST_ROWS: usize = 500;

pub async fn page(call: Call) -> Result {
    let row = call.run().await?;
    let row = call.store().explain(vec![row]).await?.remove(0);
    let now = now(&call).await?;
    let chosen = asked(&call, "tab").unwrap_or_else(|| first_tab(&row));
    let tab = match chosen {
        "timeline" => timeline::tab(&call, &row, now).await?,
        "items" => items::tab(&call, &row, now).await?,
        REPORT => report(&row.details.get(REPORT).cloned().unwrap_or_default(), MOST_ROWS),
        "events" => events::tab(&call, &row, now).await?,
        "data" => documents::data(&row),
        ARTIFACTS => documents::artifacts(&row),
        STATUS => documents::projected(&call, &row, now).await?,
        "lease" => lease(&row, now),
        _ => log::tab(&call, &row).await?,
    };
    let moves = timeline::moves(&call, &row).await?;
    let took = runs::took(&call, std::slice::from_ref(&row)).await?.remove(0);
    let content = html! {
        div.page-head #head data-part { (head(&call, &row, took, now)) }
        div #totals data-part {
            @if row.phase() == Phase::Draft { (operations::preview(&row)) }
            @if let Some(proposal) = proposals::of_its_run(&call, &row, now) { (proposal) }
        }
        div #actions data-part { (actions::bar(&call, &row)) (decisions::form(&call, &row, now)) }
        div #drawing data-part { (timeline::drawing(&row, &moves)) }
        (tabs(&row, chosen))
        div #tab data-part { (tab) }
    };
    let is_at_rest = row.phase() == Phase::Settled && row.lifecycle.is_terminal(row.run.state);
    let live = (!is_at_rest).then(|| Live::Run(row.id().to_owned()));
    let title = parts::title(&row);
    Ok(answered(&call, 200, &Sheet { title: &title, nav: Nav::Runs, live }, &content))
}

fn head(call: &Call, row: &RunRow, took: Option<Span>, now: Time) -> Markup {
    let failure = row.run.failure.as_ref().filter(|failure| !failure.code.is_empty());
    html! {
        h1 { (state(row)) " " (parts::title(row)) }
        p.ids { (copied(row.id())) }
        @if let Some(waits) = parts::waits(row, now) { p.waits { (waits) } }
        @if let Some(hint) = row.waiting().and_then(|waiting| waiting.hint.as_ref()) { p.hint { (copied(hint)) } }
        @if let Some(failure) = failure {
            p.alert { code { (shown(&failure.code)) } " " (shown(&failure.message)) }
        }
        @if let Some(unclean) = cleanup_failed_in_words(row) {
            p.alert { b { "Cleanup failed" } " " (shown(&unclean)) }
        }
        @if let Some(intent) = &row.run.intent {
            p.waits { b { (intent.want.command()) } " was asked for, and is under way" }
        }
        dl.facts.in-line {
            (fact("Came in", &ago(Some(row.run.created_at), now)))
            (fact("Took", &worked(took, row, now)))
            (fact("Lifecycle", &html! { a href={ "/lifecycles#" (row.lifecycle.name) } { (shown(&row.lifecycle.name)) } " " (row.lifecycle.version) }))
            (fact("Queue", &html! { (shown(&row.queue)) }))
            @if let Some(playbook) = &row.playbook { (fact("Playbook", &playbook_name(call, row, playbook))) }
            @if let Some(reason) = &row.run.reason { (fact("Reason", &html! { (shown(reason)) })) }
            @if let Some(key) = &row.concurrency_key { (fact("Key", &html! { (shown(key)) })) }
            @if let Some(id) = &row.correlation_id { (fact("Correlation id", &copied(id))) }
            @if let Some(id) = &row.parent_run_id { (fact("Part of", &run_link(id))) }
            @if let Some(id) = &row.retry_of { (fact("Repeats", &run_link(id))) }
            @if row.run.attempt > 1 { (fact("Attempt", &html! { (attempts(row)) })) }
            @for artifact in row.artifacts() {
                (fact(&shown(parts::text(&artifact, "type")), &copied(parts::text(&artifact, "url"))))
            }
        }
    }
}

/// A run that was resumed was claimed more often than it may be tried.
fn attempts(row: &RunRow) -> String {
    let (attempt, most) = (row.run.attempt, row.run.max_attempts);
    if attempt > most { attempt.to_string() } else { format!("{attempt} of {most}") }
}

fn fact(label: &str, value: &Markup) -> Markup {
    html! { div { dt { (label) } dd { (value) } } }
}

/// What a run brought along stands nowhere else.
fn playbook_name(call: &Call, row: &RunRow, playbook: &str) -> Markup {
    let (name, hash) = playbook.split_once('@').unwrap_or((playbook, ""));
    let short: String = hash.chars().take(12).collect();
    html! {
        @if row.carried.is_none() && crate::console::ask::may(call, "startRun") {
            a href={ "/playbooks/" (crate::console::ask::encoded(name)) } { (shown(name)) }
        } @else { (shown(name)) }
        @if !short.is_empty() { " " code.id { (short) } }
    }
}

/// What people come for: the targets of a bulk change, the report of an operation, the log of everything else.
fn first_tab(row: &RunRow) -> &'static str {
    match (row.details.contains_key(REPORT), has_targets(row)) {
        (true, _) => REPORT,
        (false, true) => "items",
        // Nothing is printed by what people decide alone.
        _ if [PROPOSAL, INBOX].contains(&&*row.lifecycle.name) => "data",
        _ => TABS[0].0,
    }
}

fn has_tab(row: &RunRow, tab: &str) -> bool {
    match tab {
        "items" => !row.lifecycle.items.is_empty(),
        REPORT => row.details.contains_key(REPORT),
        ARTIFACTS => !row.artifacts().is_empty(),
        STATUS => row.lifecycle.projected,
        _ => true,
    }
}

fn tabs(row: &RunRow, chosen: &str) -> Markup {
    let path = run_path(row.id());
    let chosen = TABS.iter().find(|(tab, _)| *tab == chosen).map_or(TABS[0].0, |(tab, _)| *tab);
    html! {
        nav.tabs aria-label="Parts of the run" {
            @for (tab, label) in TABS.into_iter().filter(|(tab, _)| has_tab(row, tab)) {
                a href={ (path) "?tab=" (tab) "#tab" } aria-current=[(tab == chosen).then_some("page")] {
                    @if tab == "items" { (items::name(row)) } @else { (label) }
                }
            }
        }
    }
}

fn lease(row: &RunRow, now: Time) -> Markup {
    let lease = row.run.lease.as_ref();
    html! {
        dl.facts {
            dt { "Held by" } dd {
                @match lease.and_then(|lease| lease.worker.as_deref()) { Some(worker) => (shown(worker)), None => "nobody" }
            }
            @if let Some(lease) = lease {
                dt { "Lease ends" } dd { (ago(Some(lease.until), now)) }
            }
            dt { "Fence" } dd { (row.run.fence) }
            dt { "Attempt" } dd { (attempts(row)) }
            dt { "Taken over" } dd { (row.run.take_overs) " times" }
            dt { "Last event" } dd { (row.run.seq) }
            @if let Some(at) = row.run.available_at { dt { "May be taken from" } dd { (iso(at)) } }
            @if let Some(at) = row.run.expires_at { dt { "Expires" } dd { (iso(at)) } }
        }
    }
}
