//! All schedules.

pub mod one;

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::{Lifecycle, Span, Time};
use waypost_worker::schedules::LIFECYCLE;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded};
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{age, ago, asked, badge, empty, list, next_page, now, shown, text, time};

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let cursor = asked(&call, "cursor").unwrap_or_default();
    let found = ask(&call, "listSchedules", &[], &[("cursor", cursor), ("limit", "100")]).await?;
    let schedules = list(&found, "schedules");
    let catalog = call.lifecycles().await?;
    let lifecycle = catalog.latest(LIFECYCLE).map(|it| &**it);
    let content = html! {
        h1 { "Schedules" }
        div #rows data-part {
            @if schedules.is_empty() { (empty("No schedule. Declare one in waypost.toml, and apply it:", Some("waypost schedule apply waypost.toml"))) }
            @else {
                table.list {
                    thead { tr { th scope="col" { "Schedule" } th scope="col" { "Next" } th scope="col" { "Last" } th.wide scope="col" { "Lag" } th.wide.num scope="col" { "Succeeded" } th.wide.num scope="col" { "Failed for good" } th.wide.num scope="col" { "Skipped" } } }
                    tbody { @for schedule in schedules { (line(schedule, lifecycle, now)) } }
                }
            }
        }
        (next_page("/schedules", &[], found["next_cursor"].as_str()))
    };
    Ok(answered(
        &call,
        200,
        &Sheet { title: "Schedules", nav: Nav::Schedules, live: Some(Live::Polled) },
        &content,
    ))
}

fn line(schedule: &Value, lifecycle: Option<&Lifecycle>, now: Time) -> Markup {
    let last = text(schedule, "last_status");
    let state = lifecycle.and_then(|it| Some(it.state(it.state_named(last)?)));
    html! {
        tr data-row {
            td.main {
                a.title href={ "/schedules/" (encoded(text(schedule, "name"))) } { (shown(text(schedule, "name"))) }
                span.why { (shown(text(schedule, "when"))) }
                (warnings(schedule))
            }
            td { (ago(time(schedule, "due_at"), now)) }
            td { @match state { Some(state) => (badge(&state.name, state.phase, state.outcome)), None => (shown(last)) } " " span.hint { (ago(time(schedule, "last_plan"), now)) } }
            td.wide { (lag(schedule)) }
            td.wide.num { (schedule["succeeded"]) }
            td.wide.num { (schedule["failed_unretried"]) }
            td.wide.num { (one::skipped(schedule).filter_map(|(_, count)| count.as_u64()).sum::<u64>()) }
        }
    }
}

/// How long ago the latest plan was that succeeded.
pub fn lag(schedule: &Value) -> Markup {
    html! {
        @match schedule["lag_s"].as_i64() {
            Some(seconds) => span.num { (age(Span::from_seconds(seconds))) },
            None => span.none { "–" },
        }
    }
}

/// What somebody should know about it.
pub fn warnings(schedule: &Value) -> Markup {
    let pause = &schedule[crate::console::pages::queues::PAUSE];
    html! {
        @if pause.is_object() {
            span.warn { "paused by " (shown(text(pause, "by"))) @if let Some(reason) = pause["reason"].as_str() { ": " (shown(reason)) } }
        }
        @if schedule["fired_by"].as_u64() == Some(0) { span.warn { "nobody fires it: no server or scheduler has it" } }
        @if let Some(seconds) = schedule["overdue_s"].as_i64() { span.warn { "overdue by " (age(Span::from_seconds(seconds))) } }
        @if let Some(count) = schedule["running_stale"].as_u64().filter(|count| *count > 0) { span.warn { (count) " under way, and nobody renews the lease" } }
        @if let Some(words) = schedule["clock_change"].as_str() { span.warn { (shown(words)) } }
    }
}
