//! What reconciliations found: targets that are not what was applied.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::{Lifecycle, Time};

use super::report::report;
use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, may};
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{
    ago, asked, badge, button_with_reason, empty, list, next_page, now, run_link, run_path, shown, text, time,
};

const LIMIT: &str = "20";
/// Rows of each; all are on the operation's own page.
const MOST: usize = 10;

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let (run, cursor) =
        (asked(&call, "run_id").unwrap_or_default(), asked(&call, "cursor").unwrap_or_default());
    let query = [("run_id", run), ("cursor", cursor), ("limit", LIMIT)];
    let found = ask(&call, "listReconciliations", &[], &query).await?;
    let catalog = call.lifecycles().await?;
    let reports = list(&found, "reconciliations");
    let content = html! {
        h1 { "Reconciliation" }
        p.hint { "What was applied, compared with what is there now." }
        @if !run.is_empty() { p.chips { span.chip { "only of " (run_link(run)) } a.chip href="/reconciliations" { "of all runs" } } }
        div #rows data-part {
            @if reports.is_empty() { (empty("Nothing was compared yet.", Some("waypost run reconcile RUN --wait"))) }
            @for entry in reports {
                @let lifecycle = catalog.latest("operation");
                (card(&call, entry, lifecycle.map(|it| &**it), now))
            }
        }
        (next_page("/reconciliations", &[("run_id", run)], found["next_cursor"].as_str()))
    };
    let sheet = Sheet { title: "Reconciliation", nav: Nav::Reconciliations, live: Some(Live::Polled) };
    Ok(answered(&call, 200, &sheet, &content))
}

fn card(call: &Call, entry: &Value, lifecycle: Option<&Lifecycle>, now: Time) -> Markup {
    let (run, operation) = (text(entry, "run_id"), text(entry, "operation_id"));
    let state = lifecycle.and_then(|it| Some(it.state(it.state_named(text(entry, "status"))?)));
    html! {
        section.card {
            h2 {
                @match state { Some(state) => (badge(&state.name, state.phase, state.outcome)), None => (shown(text(entry, "status"))) }
                " Run " (run_link(run))
            }
            p.hint {
                @if entry["finished_at"].is_string() { "ended " (ago(time(entry, "finished_at"), now)) }
                @else if entry["due_at"].is_string() { "due " (ago(time(entry, "due_at"), now)) }
                @else { "under way" }
                " · " a href={ (run_path(operation)) "?tab=report" } { "the whole report" }
            }
            (report(entry, MOST))
            @if may(call, "commandRun") && entry["finished_at"].is_string() {
                div.actions { (button_with_reason(call, &format!("{}/reconcile", run_path(run)), "reconcile again")) }
            }
        }
    }
}
