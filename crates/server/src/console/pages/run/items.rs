//! A run's steps, tasks or targets.

use maud::{Markup, html};
use waypost_kernel::Time;
use waypost_store::{ItemFilter, ItemRow, RunRow};
use waypost_worker::targets::has_targets;
use waypost_worker::{in_order, left_in_words, worked};

use super::targets;
use super::timeline::state_of;
use crate::answer::Result;
use crate::call::Call;
use crate::console::ask;
use crate::console::parts::{asked, badge, document, lasted, next_page, run_path, shown};

const LIMIT: usize = 100;

/// What this lifecycle calls its parts.
pub fn name(row: &RunRow) -> String {
    let Some(kind) = row.lifecycle.items.first() else { return "Parts".to_owned() };
    let mut letters = kind.name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase()).unwrap_or_default();
    format!("{first}{}s", letters.as_str())
}

pub async fn tab(call: &Call, row: &RunRow, now: Time) -> Result<Markup> {
    if has_targets(row) {
        return targets::tab(call, row, now).await;
    }
    let filter = |name: &str| asked(call, name).map(str::to_owned);
    let asked_for = ItemFilter {
        run_id: row.id().to_owned(),
        kind: filter("kind"),
        status: filter("status"),
        limit: LIMIT,
        cursor: filter("cursor"),
        ..ItemFilter::default()
    };
    let turn = call.page_turn().await;
    let page = call.store().item_page(asked_for).await?;
    drop(turn);
    let path = run_path(row.id());
    let (kind, status) = (asked(call, "kind").unwrap_or_default(), asked(call, "status").unwrap_or_default());
    Ok(html! {
        (counts(row, &path, kind, status))
        @if page.items.is_empty() { p.empty { "There are none." } }
        @else {
            table.list {
                thead { tr {
                    th scope="col" { "State" } th scope="col" { "Name" } th scope="col" { "Took" } th.wide.num scope="col" { "Tries" }
                } }
                tbody { @for (item, step) in in_order(row, &page.items) { (line(row, item, step, now)) } }
            }
        }
        (next_page(&path, &[("tab", "items"), ("kind", kind), ("status", status)], page.next.as_deref()))
    })
}

/// How many there are of each state: each leads to these alone.
pub fn counts(row: &RunRow, path: &str, kind: &str, status: &str) -> Markup {
    let link = |kind: &str, status: &str| {
        format!("{path}?tab=items&kind={}&status={}#tab", ask::encoded(kind), ask::encoded(status))
    };
    html! {
        p.chips {
            a.chip href={ (path) "?tab=items#tab" } aria-current=[status.is_empty().then_some("true")] { "All" }
            @for (known, tally) in row.lifecycle.items.iter().zip(&*row.run.tallies) {
                @for (state, count) in known.states.iter().zip(&tally.by_state).filter(|(_, count)| **count > 0) {
                    a.chip href=(link(&known.name, &state.name)) aria-current=[(*known.name == *kind && *state.name == *status).then_some("true")] {
                        (shown(&known.name)) " " (badge(&state.name, state.phase, state.outcome)) " " (count)
                    }
                }
            }
        }
    }
}

/// `step`: what it is a part of.
fn line(row: &RunRow, item: &ItemRow, step: Option<&ItemRow>, now: Time) -> Markup {
    let state = state_of(row, item).map(|(lifecycle, id)| lifecycle.state(id));
    let failure = item.failure.as_ref().filter(|failure| !failure.code.is_empty());
    let has_more = !item.output.is_null() || !item.details.is_empty();
    html! {
        tr.part[step.is_some()] data-of={ (shown(&item.kind)) " " (shown(&item.key)) } {
            td { @if let Some(state) = state { (badge(&item.status, state.phase, state.outcome)) } }
            td.main {
                b { (shown(&item.name)) } " " span.hint { (shown(&item.kind)) @if let Some(step) = step { " of " (shown(&step.name)) } }
                @if (1..100).contains(&item.progress) { " " progress max="100" value=(item.progress) { (item.progress) " %" } }
                @if let Some(failure) = failure { span.why { code { (shown(&failure.code)) } " " (shown(&failure.message)) } }
                @if let Some(left) = left_in_words(row, item) { span.why { (shown(&left)) } }
                @if has_more {
                    details { summary { "more" }
                        @if !item.output.is_null() { h3 { "Output" } (document(&item.output)) }
                        @if !item.details.is_empty() { h3 { "Details" } (document(&serde_json::Value::Object(item.details.clone()))) }
                    }
                }
            }
            td { @match worked(row, item, now) { Some(span) => span.num { (lasted(span)) }, None => span.none { "–" } } }
            td.wide.num { @if item.started_at.is_none() { span.none { "–" } } @else { (item.attempts + 1) " of " (item.max_retries + 1) } }
        }
    }
}
