//! Runs, newest first, as far as the filter says.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::{Span, Time};
use waypost_store::{Filter, Page, RunRow, iso};

use super::{export, many};
use crate::answer::Result;
use crate::api::requests::{RunsQuery, filter_of};
use crate::api::runs::{check_filter, listed};
use crate::call::Call;
use crate::console::draw::strip;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{
    self, ago, asked, empty, hidden, next_page, now, run_path, shown, state, worked,
};
use crate::console::{ask, filter as bar_text, session};
use crate::problem::{INVALID_QUERY, Problem};

const LIMIT: &str = "50";
/// Of the strip above the list.
const BARS: &str = "60";

const CHIPS: [(&str, &str); 5] = [
    ("All", ""),
    ("Wait for a person", "needs:person"),
    ("Orphaned", "needs:worker"),
    ("24 hours", "since:24h"),
    ("7 days", "since:7d"),
];

pub async fn page(call: Call) -> Result {
    let filter = asked(&call, "filter").unwrap_or_default().trim().to_owned();
    let cursor = asked(&call, "cursor").unwrap_or_default().to_owned();
    let now = now(&call).await?;
    // A filter that cannot be read is mended in its own field, not on a page about errors.
    let (found, activity, wrong) = match look(&call, &filter, &cursor, now).await {
        Ok((found, activity)) => (found, activity, None),
        Err(problem) if problem.status == 400 => {
            (Page { runs: Vec::new(), next: None }, Value::Null, Some(problem.detail))
        }
        Err(problem) => return Err(problem),
    };
    let took = took(&call, &found.runs).await?;
    let content = html! {
        h1 { "Runs" }
        (bar(&filter, wrong.as_deref()))
        div #strip data-part { (strip::brush(&activity, &filter)) }
        div #rows data-part {
            @if !found.runs.is_empty() { (selectable(&call, &found, &took, &filter, now)) }
            @else if wrong.is_some() {}
            @else if filter.is_empty() { (empty("No run yet. Start one:", Some("waypost run start --wait -- echo hi"))) }
            @else { (empty("No run matches.", None)) }
        }
        @if !found.runs.is_empty() { (foot(&filter, found.next.as_deref())) }
    };
    // Only the newest page changes by itself, and what is wrong with a filter does not.
    let live = (cursor.is_empty() && wrong.is_none()).then_some(Live::AllRuns);
    let status = if wrong.is_some() { 400 } else { 200 };
    Ok(answered(&call, status, &Sheet { title: "Runs", nav: Nav::Runs, live }, &content))
}

async fn look(call: &Call, filter: &str, cursor: &str, now: Time) -> Result<(Page, Value)> {
    let found = find(call, filter, "", cursor).await?;
    if !cursor.is_empty() {
        return Ok((found, Value::Null));
    }
    let query = query(filter, now)?;
    let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let activity = ask::ask(call, "getActivity", &[], &[&query[..], &[("buckets", BARS)]].concat()).await?;
    Ok((found, activity))
}

fn query(text: &str, now: Time) -> Result<Vec<(&'static str, String)>> {
    bar_text::query(text, now).map_err(|wrong| Problem::field(&INVALID_QUERY, "filter", &wrong))
}

/// A page of what `filter` says, by the API's own function.
pub async fn find(call: &Call, filter: &str, include: &str, cursor: &str) -> Result<Page> {
    let mut query = query(filter, now(call).await?)?;
    let more = [("include", include), ("cursor", cursor), ("limit", LIMIT)];
    query.extend(more.map(|(name, value)| (name, value.to_owned())));
    Ok(listed(call, read(call, &query)?).await?.2)
}

/// The same for who asks the store itself.
pub async fn filter(call: &Call, text: &str, now: Time) -> Result<Filter> {
    let query = read(call, &query(text, now)?)?;
    let filter: Filter = filter_of!(call, query);
    check_filter(call, &filter).await?;
    Ok(filter)
}

fn read(call: &Call, query: &[(&'static str, String)]) -> Result<RunsQuery> {
    let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    ask::query(call, "listRuns", &query)
}

fn bar(filter: &str, wrong: Option<&str>) -> Markup {
    html! {
        form.filter method="get" action="/runs" role="search" {
            label.unseen for="filter" { "Filter" }
            input #filter type="search" name="filter" value=(filter) placeholder="status:… lifecycle:… queue:… playbook:… since:24h needs:person text"
                autocomplete="off" spellcheck="false" aria-invalid=[wrong.map(|_| "true")] aria-describedby=[wrong.map(|_| "wrong")];
            button type="submit" { "Filter" }
        }
        @if let Some(wrong) = wrong { p.alert #wrong role="alert" { (shown(wrong)) } }
        p.chips {
            @for (label, chip) in CHIPS {
                a.chip href={ "/runs" @if !chip.is_empty() { "?filter=" (ask::encoded(chip)) } }
                    aria-current=[(filter == chip).then_some("true")] { (label) }
            }
        }
    }
}

/// What the list goes on with, and as files.
fn foot(filter: &str, next: Option<&str>) -> Markup {
    let export =
        |format: &str| format!("/runs/export?{}", ask::written(&[("filter", filter), ("format", format)]));
    html! {
        div.foot {
            (next_page("/runs", &[("filter", filter)], next))
            p.hint { "Export what matches (at most " (export::MOST) "): " a href=(export("csv")) download { "CSV" } " · " a href=(export("jsonl")) download { "JSON lines" } }
        }
    }
}

/// The list with a box before each run, for who may do something about many at once.
fn selectable(call: &Call, found: &Page, took: &[Option<Span>], filter: &str, now: Time) -> Markup {
    if !ask::may(call, "commandRuns") {
        return table(&found.runs, took, now);
    }
    let commands = many::commands(found);
    html! {
        form method="post" action="/runs/bulk" {
            (hidden(&session::form_token(call)))
            input type="hidden" name="filter" value=(filter);
            input type="hidden" name="seen_at" value=(iso(now));
            div.actions.many {
                label.tick.js hidden { input #all-here type="checkbox"; "all on this page" }
                label.in-row for="command" { "With the selected" }
                select #command name="command" { @for command in &commands { option value=(command) { (shown(command)) } } }
                button type="submit" { "Go on…" }
                @if !filter.is_empty() { button type="submit" name="all" value="yes" { "With all that match…" } }
            }
            (rows(&found.runs, took, now, true))
        }
    }
}

pub fn table(runs: &[RunRow], took: &[Option<Span>], now: Time) -> Markup {
    rows(runs, took, now, false)
}

/// How long each was worked, by the one function that figures and charts have it from.
pub async fn took(call: &Call, runs: &[RunRow]) -> Result<Vec<Option<Span>>> {
    Ok(call.app.store.took(runs.to_vec()).await?)
}

fn rows(runs: &[RunRow], took: &[Option<Span>], now: Time, has_boxes: bool) -> Markup {
    html! {
        table.list {
            thead {
                tr {
                    @if has_boxes { th.box scope="col" { span.unseen { "Selected" } } }
                    th scope="col" { "State" }
                    th scope="col" { "Run" }
                    th.wide scope="col" { "Lifecycle" }
                    th.wide scope="col" { "Queue" }
                    th scope="col" { "Came in" }
                    th.wide scope="col" { "Took" }
                }
            }
            tbody { @for (row, took) in runs.iter().zip(took) { (line(row, *took, now, has_boxes)) } }
        }
    }
}

fn line(row: &RunRow, took: Option<Span>, now: Time, has_box: bool) -> Markup {
    let why = row.waiting().map(|waiting| waiting.text.as_str());
    let why = why.or(row.run.failure.as_ref().map(|failure| &*failure.message)).filter(|why| !why.is_empty());
    html! {
        tr data-row {
            @if has_box { td.box { input type="checkbox" name="run" value=(row.id()) aria-label={ "select " (parts::title(row)) }; } }
            td { (state(row)) }
            td.main {
                a.title href=(run_path(row.id())) { (parts::title(row)) }
                " " code.id title=(row.id()) { (parts::short(row.id())) }
                @if let Some(why) = why { span.why { (shown(why)) } }
            }
            td.wide { (chip("lifecycle", &row.lifecycle.name)) }
            td.wide { (chip("queue", &row.queue)) }
            td.when { (ago(Some(row.run.created_at), now)) }
            td.wide { (worked(took, row, now)) }
        }
    }
}

/// A value that leads to all runs that have it.
fn chip(key: &str, value: &str) -> Markup {
    html! { a.quiet href=(bar_text::runs_with(&[(key, value)])) { (shown(value)) } }
}
