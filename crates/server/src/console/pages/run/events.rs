//! Everything that happened to a run.

use maud::{Markup, html};
use waypost_kernel::Time;
use waypost_store::log::output_lines;
use waypost_store::{EventRow, RunRow};

use super::timeline::{events, left_out};
use crate::answer::Result;
use crate::call::Call;
use crate::console::parts::{ago, asked, excerpt, run_path, shown, text};

const PAGE: u64 = 100;
/// Of each one's payload: a page stays below 300 KB.
const MOST_SHOWN: usize = 1_200;

pub async fn tab(call: &Call, row: &RunRow, now: Time) -> Result<Markup> {
    let last = row.run.seq.saturating_sub(PAGE);
    let after = asked(call, "after").and_then(|text| text.parse::<u64>().ok()).unwrap_or(last).min(last);
    let found = events(call, row, after, after + PAGE + 1).await?;
    let path = run_path(row.id());
    Ok(html! {
        p.pager {
            @if after > 0 { a.button href={ (path) "?tab=events&after=" (after.saturating_sub(PAGE)) "#tab" } { "Earlier" } }
            @if after < last { a.button href={ (path) "?tab=events&after=" (after + PAGE) "#tab" } { "Later" } }
        }
        table.list {
            thead { tr {
                th.num scope="col" { "No." } th scope="col" { "When" } th scope="col" { "What" } th.wide scope="col" { "State" } th.wide scope="col" { "By" }
            } }
            tbody { @for event in found.iter().rev() { (line(event, now)) } }
        }
    })
}

fn line(event: &EventRow, now: Time) -> Markup {
    let has_more = event.payload.as_object().is_some_and(|members| !members.is_empty());
    html! {
        tr id={ "E" (event.seq) } {
            td.num { (event.seq) }
            td.when { (ago(Some(event.at), now)) }
            td.main {
                (shown(&event.message))
                @if let Some(words) = in_short(event) { ": " span.hint { (shown(&words)) } }
                @if let Some(reason) = event.payload["reason"].as_str() { " " span.why { (shown(reason)) } }
                span.hint.narrow-only { "by " (shown(&event.by)) }
                @if let Some(bytes) = left_out(event) { span.hint { " about " (bytes.div_ceil(1_000)) " KB, which the API has" } }
                @else if has_more { details { summary.hint { "details of " code { (shown(&event.command)) } } (excerpt(&event.payload, MOST_SHOWN)) } }
            }
            td.wide {
                @match &event.from { Some(from) if *from != event.to => { (shown(from)) " → " (shown(&event.to)) }, Some(_) => (shown(&event.to)), None => { "→ " (shown(&event.to)) } }
            }
            td.wide { (shown(&event.actor)) " " span.hint { (shown(&event.by)) } }
        }
    }
}

/// Letters of what is told beside a message.
const MOST_LETTERS: usize = 80;

/// What is in it: the first line that was printed, and by which step. None: the message says it.
fn in_short(event: &EventRow) -> Option<String> {
    let cut = |text: &str| match text.char_indices().nth(MOST_LETTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    let mut printed = output_lines(&event.payload);
    if let Some((_, first)) = printed.next() {
        let more = printed.count();
        let rest = match more {
            0 => String::new(),
            1 => " and another line".to_owned(),
            _ => format!(" and {more} more lines"),
        };
        let step = text(&event.payload, "step");
        let of = if step.is_empty() { String::new() } else { format!("{step}: ") };
        return Some(format!("{of}{}{rest}", cut(first)));
    }
    // A step's own notes are no part of the event.
    event.message.ends_with(": details").then(|| "kept with the step".to_owned())
}
