//! What was done about a bulk change by runs of their own: rollbacks, reconciliations, and what gathered its targets.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::Time;
use waypost_store::{Preview, RunRow};

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded};
use crate::console::pages::bulk::report::{report, signed};
use crate::console::parts::{ago, badge_of, figure, list, run_link, shown, text, time};
use waypost_worker::targets::gather::is_stopped;
use waypost_worker::targets::row::in_words;

const LIMIT: &str = "10";
/// Rows of a report; all are on the operation's own page.
const MOST: usize = 5;

pub async fn section(call: &Call, row: &RunRow, now: Time) -> Result<Markup> {
    let query = [("parent_run_id", row.id()), ("include", "input,details"), ("limit", LIMIT)];
    let found = ask(call, "listRuns", &[], &query).await?;
    let runs = list(&found, "runs");
    Ok(html! {
        @if !runs.is_empty() {
            h2 { "Operations" }
            @for (place, run) in runs.iter().enumerate() { (card(run, place == 0, now)) }
        }
        p {
            a href={ "/reconciliations?run_id=" (encoded(row.id())) } { "All its reconciliations" } " · "
            a href={ "/dlq?run_id=" (encoded(row.id())) } { "Its dead letters by class" }
        }
    })
}

/// The latest one is open.
fn card(run: &Value, is_open: bool, now: Time) -> Markup {
    let told = &run["details"]["report"];
    let chosen = run["input"]["targets"].as_array().map(Vec::len);
    html! {
        details.card.operation open[is_open] {
            summary { h3 {
                @if let Some(badge) = badge_of(run) { (badge) " " }
                (shown(run["input"]["operation"].as_str().unwrap_or(text(run, "lifecycle"))))
                @if let Some(chosen) = chosen { " of " (chosen) " chosen" }
                " " span.hint { (ago(time(run, "queued_at"), now)) }
            } }
            p { "Run " (run_link(text(run, "run_id"))) }
            @if let Some(words) = run["error_msg"].as_str() { p.alert { code { (shown(text(run, "error_code"))) } " " (shown(words)) } }
            @if told.is_object() { (report(told, MOST)) }
        }
    }
}

/// What a preview comes to, before it is let loose.
pub fn preview(row: &RunRow) -> Markup {
    let Some(preview) = Preview::of(&row.details) else { return html! {} };
    let totals = Value::Object(preview.totals.clone());
    let number = |name: &str| totals[name].as_u64().unwrap_or_default();
    let changed = preview.targets.saturating_sub(preview.stopped);
    html! {
        section.card.preview {
            h2 { "Preview" }
            @if !preview.ready { p.waits { "The targets are still being gathered: " (preview.rows) " rows so far." } }
            dl.figures {
                (figure("Would change", &html! { (changed) }, false))
                (figure("Up", &html! { (number("rises")) }, false))
                (figure("Down", &html! { (number("falls")) }, false))
                (figure("Unchanged", &html! { (preview.unchanged) }, false))
                (figure("Without a value", &html! { (number("no_value")) }, number("no_value") > 0))
                (figure("Stopped by guardrails", &html! { (preview.stopped) }, preview.stopped > 0))
            }
            @if is_stopped(&preview) { p.waits { "Nothing would change: on_violation is “stop”, and targets are past a guardrail." } }
            @if !totals["before"].is_null() && !totals["after"].is_null() {
                p { "In all " b.num { (in_words(&totals["before"])) } " → " b.num { (in_words(&totals["after"])) } " (" (signed(&in_words(&totals["difference"]))) ")" }
            }
            (largest(&totals))
        }
    }
}

fn largest(totals: &Value) -> Markup {
    let stopped = totals["stopped_by"].as_object();
    html! {
        @for (name, words) in [("largest_rise", "Most up"), ("largest_fall", "Most down")] {
            @if totals[name].is_object() { p.hint { (words) ": " b { (shown(text(&totals[name], "target"))) } " by " (in_words(&totals[name]["percent"])) " %" } }
        }
        @if let Some(stopped) = stopped.filter(|stopped| !stopped.is_empty()) {
            p.hint { "Guardrails: " @for (place, (name, count)) in stopped.iter().enumerate() { @if place > 0 { ", " } (shown(name)) " stops " (count) } }
        }
    }
}
