//! What of a run's events is its log, for people: what its commands printed, and what its workers said.

use serde_json::Value;

use crate::seam::run::EventRow;

/// Lines of output in an event's payload: which stream each came by, and what it says.
pub fn output_lines(payload: &Value) -> impl Iterator<Item = (&str, &str)> {
    let lines = payload["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.iter().filter_map(|line| Some((line.get(0)?.as_str()?, line.get(1)?.as_str()?)))
}

/// Whether a worker says something in its own words. Its first may come with the run's beginning.
pub fn is_said(event: &EventRow) -> bool {
    let is_own = event.command == "note" || event.from.is_some() && !event.message.starts_with("Run ");
    let is_moved = event.command != "note" && event.from.as_ref() == Some(&event.to);
    // Why a step failed for good stands with the step; that it is tried again stands nowhere else.
    let has = |key: &str| event.payload[key].is_string();
    let is_shown_elsewhere = event.level == "debug" || has("step") && has("code") && !has("message");
    event.actor == "worker" && is_own && !is_moved && !is_shown_elsewhere
}
