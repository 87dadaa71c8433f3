//! What people did, the newest first.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::Time;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded};
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::parts::{ago, asked, empty, list, now, run_path, shown, text, time};

const LIMIT: usize = 100;

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let before = asked(&call, "before").unwrap_or_default();
    let query = [("latest", "true"), ("before", before), ("limit", &LIMIT.to_string())];
    let found = ask(&call, "listAudit", &[], &query).await?;
    let entries = list(&found, "audit");
    let content = html! {
        h1 { "Audit" }
        @if entries.is_empty() { (empty("Nobody did anything yet that is kept here.", None)) }
        @else {
            table.list {
                thead { tr { th scope="col" { "When" } th.wide scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "To" } th.wide scope="col" { "Why" } } }
                tbody { @for entry in entries { (line(entry, now)) } }
            }
        }
        @if let (LIMIT, Some(last)) = (entries.len(), entries.last()) {
            p.pager { a.button rel="next" href={ "/audit?before=" (last["number"]) } { "Older" } }
        }
    };
    Ok(answered(&call, 200, &Sheet { title: "Audit", nav: Nav::Audit, live: None }, &content))
}

fn line(entry: &Value, now: Time) -> Markup {
    let (action, subject) = (text(entry, "action"), text(entry, "subject"));
    html! {
        tr data-row {
            td.when { (ago(time(entry, "at"), now)) }
            td.wide { (shown(text(entry, "by"))) }
            td.verb { code { (shown(action)) } }
            td.main {
                @match place(action, subject) { Some(path) => a href=(path) { (shown(subject)) }, None => (shown(subject)) }
                span.why.narrow-only { "by " (shown(text(entry, "by"))) @if entry["reason"].is_string() { ": " (shown(text(entry, "reason"))) } }
            }
            td.wide { (shown(text(entry, "reason"))) }
        }
    }
}

/// Where what was done it to is shown, if it has a page. What is done to runs are commands of their lifecycles, which have no noun.
fn place(action: &str, subject: &str) -> Option<String> {
    match action.split_once('.') {
        None => Some(run_path(subject)),
        Some(("run", _)) => Some(run_path(subject)),
        Some(("schedule", _)) => Some(format!("/schedules/{}", encoded(subject))),
        Some(("queue" | "key", _)) => Some("/queues".to_owned()),
        Some(("agent" | "agents", _)) => Some("/agents".to_owned()),
        Some(("alert" | "alerts", _)) => Some("/alerts".to_owned()),
        Some(("lifecycle", _)) => Some("/lifecycles".to_owned()),
        Some(_) => None,
    }
}
