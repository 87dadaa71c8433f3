//! What a run came with and left behind: its data, its artifacts, and the document that front ends read.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::Time;
use waypost_store::{EventRow, RunRow};

use super::timeline::{events, is_move};
use crate::answer::Result;
use crate::call::Call;
use crate::console::ask;
use crate::console::parts::{self, copied, copy_of, document, empty, run_path, shown, text};

/// Events after a document in which is looked for what it lacks.
const MOST_READ: u64 = 1_000;

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
pub async fn projected(call: &Call, row: &RunRow, now: Time) -> Result<Markup> {
    if call.app.options.projection.is_none() {
        let command = "waypost serve --object-store file:///srv/waypost-objects";
        return Ok(empty(
            "This server has no object store to write status.json to. Give it one:",
            Some(command),
        ));
    }
    let (document_now, version) = match ask::tagged(call, "getRunStatus", &[("run_id", row.id())]).await {
        Ok(found) => found,
        Err(problem) if problem.status < 500 || problem.status == 502 => {
            return Ok(html! { p.alert { (shown(&problem.detail)) } });
        }
        Err(problem) => return Err(problem),
    };
    let missing = missing(call, row, version.parse().unwrap_or(row.run.seq)).await?;
    Ok(html! {
        dl.facts {
            dt { "Object" } dd { (copied(&format!("runs/{}/status.json", row.id()))) }
            dt { "Version" } dd { (shown(&version)) " of " (row.run.seq) " events" }
            dt { "Lag" } dd {
                @match missing {
                    Some(since) => span.warn { "behind " (parts::since(since, now)) ": it follows within a second, as a rule" },
                    None => "none: it says what the run is",
                }
            }
        }
        h2 { "status.json " (copy_of(&document_now)) }
        (document(&document_now))
    })
}

/// Since when the run or its steps are not what the document of this version says. What was printed meanwhile does not stand in it.
async fn missing(call: &Call, row: &RunRow, version: u64) -> Result<Option<Time>> {
    let later = events(call, row, version, (version + MOST_READ).min(row.run.seq) + 1).await?;
    let is_told = |event: &&EventRow| is_move(event) || event.payload["items"].is_array();
    Ok(later.iter().find(is_told).map(|event| event.at))
}
