//! What a run came with and left behind: its data, its artifacts, and the document that front ends read.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_store::RunRow;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask;
use crate::console::parts::{copied, copy_of, document, run_path, shown, text};

pub fn data(row: &RunRow) -> Markup {
    let map = |members: &Map<String, Value>| Value::Object(members.clone());
    let one = |label: &str, value: &Value| html! { h2 { (label) " " (copy_of(value)) } (document(value)) };
    html! {
        (one("Input", &row.input))
        @if let Some(carried) = &row.carried { (one("Command", carried)) }
        @if let Some(output) = row.details.get("output") { (one("Output", output)) }
        (one("Metadata", &map(&row.metadata)))
        (one("Details", &map(&row.details)))
        p { a href={ "/v1" (run_path(row.id())) } { "The run as JSON" } }
    }
}

/// What others fetch by it; not a link, since nobody here knows where it leads.
pub fn artifacts(row: &RunRow) -> Markup {
    let artifacts = row.artifacts();
    html! {
        @if artifacts.is_empty() { p.empty { "It left none." } }
        @else {
            table.list {
                thead { tr { th scope="col" { "Type" } th scope="col" { "Where" } th.wide scope="col" { "More" } } }
                tbody { @for artifact in &artifacts { (artifact_line(artifact)) } }
            }
        }
    }
}

fn artifact_line(artifact: &Value) -> Markup {
    let more: Map<String, Value> = artifact
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["type", "url", "unknown_type"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    html! {
        tr {
            td { (shown(text(artifact, "type"))) @if artifact["unknown_type"] == true { span.warn { "no type that is known" } } }
            td.main { @if !text(artifact, "url").is_empty() { (copied(text(artifact, "url"))) } }
            td.wide { @if !more.is_empty() { (document(&Value::Object(more))) } }
        }
    }
}

/// `status.json` as it stands in the object store, and how far that is behind the run.
pub async fn projected(call: &Call, row: &RunRow) -> Result<Markup> {
    let (document_now, version) = match ask::tagged(call, "getRunStatus", &[("run_id", row.id())]).await {
        Ok(found) => found,
        Err(problem) if problem.status < 500 || problem.status == 502 => {
            return Ok(html! { p.alert { (shown(&problem.detail)) } });
        }
        Err(problem) => return Err(problem),
    };
    let said = text(&document_now, "status");
    let is_behind = said != row.status();
    html_of(row, &document_now, &version, said, is_behind)
}

fn html_of(row: &RunRow, document_now: &Value, version: &str, said: &str, is_behind: bool) -> Result<Markup> {
    Ok(html! {
        dl.facts {
            dt { "Object" } dd { (copied(&format!("runs/{}/status.json", row.id()))) }
            dt { "Version" } dd { code { (shown(version)) } }
            dt { "Lag" } dd {
                @if is_behind { span.warn { "it says " (shown(said)) ", the run is " (row.status()) ": it follows within a second, as a rule" } }
                @else { "none: it says what the run is" }
            }
        }
        h2 { "status.json " (copy_of(document_now)) }
        (document(document_now))
    })
}
