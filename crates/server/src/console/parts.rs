//! Pieces of pages.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::text::terminal::{json, plain};
use waypost_kernel::waiting::Reason;
use waypost_kernel::{Outcome, Phase, Span, Time};
use waypost_store::{RunRow, iso, parse_time};

use super::{ask, session};
use crate::answer::Result;
use crate::call::Call;

/// What is shown of a document that may be of any size.
const MOST_SHOWN: usize = 64 * 1024;

/// A parameter of the page's address.
pub fn asked<'c>(call: &'c Call, name: &str) -> Option<&'c str> {
    call.query.get(name)?.as_str()
}

/// Text that others wrote: what is unseen or turns text around is shown as such. The page escapes the rest.
pub fn shown(text: &str) -> String {
    plain(text).into_owned()
}

pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

pub fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn time(value: &Value, name: &str) -> Option<Time> {
    parse_time(value[name].as_str()?)
}

pub async fn now(call: &Call) -> Result<Time> {
    Ok(call.store().now().await?)
}

pub fn age(span: Span) -> String {
    span.rounded()
}

/// `1 run`, `2 runs`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// How long something took: what took less than a second, in thousandths of it.
pub fn lasted(span: Span) -> String {
    match span.ms() {
        ms @ 0..1_000 => format!("{ms}ms"),
        _ => age(span),
    }
}

/// How long ago, or in how long; the instant itself stands behind it.
pub fn ago(at: Option<Time>, now: Time) -> Markup {
    html! {
        @match at {
            Some(at) => time datetime=(iso(at)) title=(iso(at)) {
                @if at > now { "in " (age(at - now)) } @else { (age(now - at)) " ago" }
            },
            None => span.none { "–" },
        }
    }
}

/// Why a run waits and for how long, or in how long it begins.
pub fn waits(row: &RunRow, now: Time) -> Option<Markup> {
    let waiting = row.waiting()?;
    let due = row.run.available_at.filter(|due| *due > now && waiting.reason == Reason::Scheduled);
    Some(html! {
        @match due {
            Some(due) => { b { "begins " (ago(Some(due), now)) } " " span.hint { "at " (iso(due)) } },
            None => { b { (shown(&waiting.text)) } " " (since(waiting.since, now)) },
        }
    })
}

/// For how long; the instant itself stands behind it.
pub fn since(at: Time, now: Time) -> Markup {
    html! { span.hint { "for " time datetime=(iso(at)) title={ "since " (iso(at)) } { (age(now - at)) } } }
}

pub fn took(from: Option<Time>, to: Option<Time>, now: Time) -> Markup {
    html! {
        @match from {
            Some(from) => span.num { (lasted(to.unwrap_or(now) - from)) },
            None => span.none { "–" },
        }
    }
}

/// How long a run was worked. Of one with more events than are read for this, its last attempt: `started_at` tells of that.
pub fn worked(took: Option<Span>, row: &RunRow, now: Time) -> Markup {
    html! {
        @match (took, row.run.started_at) {
            (Some(took), _) => span.num { (lasted(took)) },
            (None, Some(_)) => { (self::took(row.run.started_at, row.run.finished_at, now)) " " span.hint { "last attempt" } },
            (None, None) => span.none { "–" },
        }
    }
}

/// What colour a state has: that of its outcome, or of its phase.
pub fn tone(phase: Phase, outcome: Option<Outcome>) -> String {
    outcome.map_or_else(|| format!("phase-{}", phase.name()), |outcome| format!("outcome-{}", outcome.name()))
}

/// A state with a mark and its name: never colour alone.
pub fn badge(name: &str, phase: Phase, outcome: Option<Outcome>) -> Markup {
    let class = format!("badge {}", tone(phase, outcome));
    let mark = match (phase, outcome) {
        (_, Some(Outcome::Succeeded)) => "✓",
        (_, Some(Outcome::Partial)) => "◐",
        (_, Some(Outcome::Failed)) => "✕",
        (_, Some(Outcome::Cancelled)) => "⊘",
        (_, Some(Outcome::Skipped)) => "↷",
        (_, Some(Outcome::Reverted)) => "↶",
        (Phase::Draft, None) => "✎",
        (Phase::Ready, None) => "·",
        (Phase::Held, None) => "▶",
        (Phase::Parked, None) => "?",
        (Phase::Settled, None) => "■",
    };
    html! { span class=(class) { span aria-hidden="true" { (mark) } " " (shown(name)) } }
}

/// The same of a run as the API tells of it; nothing of one that has not begun.
pub fn badge_of(run: &Value) -> Option<Markup> {
    let place = Phase::NAMES.iter().position(|name| *name == text(run, "phase"))?;
    Some(badge(text(run, "status"), Phase::ALL[place], outcome_of(run)))
}

pub fn outcome_of(run: &Value) -> Option<Outcome> {
    Outcome::ALL.into_iter().find(|it| it.name() == text(run, "outcome"))
}

pub fn state(row: &RunRow) -> Markup {
    badge(row.status(), row.phase(), row.outcome())
}

/// What a run is, for people.
pub fn title(row: &RunRow) -> String {
    let playbook = row.playbook.as_deref().map(|playbook| playbook.split('@').next().unwrap_or(playbook));
    shown(row.title.as_deref().or(playbook).unwrap_or(row.id()))
}

pub fn run_path(id: &str) -> String {
    format!("/runs/{}", ask::encoded(id))
}

/// By its id, of which the end tells runs of one moment apart.
pub fn run_link(id: &str) -> Markup {
    html! { a href=(run_path(id)) { code title=(shown(id)) { (short(id)) } } }
}

pub fn short(id: &str) -> String {
    let id = shown(id);
    let count = id.chars().count();
    if count <= 20 { id } else { format!("…{}", id.chars().skip(count - 12).collect::<String>()) }
}

/// JSON for people, cut if it is too much for a page.
pub fn document(value: &Value) -> Markup {
    excerpt(value, MOST_SHOWN)
}

/// The same of one of many on a page.
pub fn excerpt(value: &Value, most: usize) -> Markup {
    let whole = json(serde_json::to_string_pretty(value).unwrap_or_default());
    let mut end = whole.len().min(most);
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    html! {
        pre.json tabindex="0" { (whole[..end]) }
        @if end < whole.len() { p.hint { "cut: " (whole.len()) " bytes in all; the API has the whole" } }
    }
}

/// A button that copies a document, for those who have scripts; not of one that is too much for a page.
pub fn copy_of(value: &Value) -> Markup {
    // As it is seen: what is unseen gets into nobody's clipboard.
    let whole = json(serde_json::to_string_pretty(value).unwrap_or_default());
    html! { @if whole.len() <= MOST_SHOWN / 2 { button.copy type="button" data-copy=(whole) hidden { "copy" } } }
}

pub fn hidden(token: &str) -> Markup {
    html! { input type="hidden" name=(session::FIELD) value=(token); }
}

/// What a form is sent under, so that sent twice it does what it does once.
pub fn fresh_key() -> String {
    format!("console-{}", uuid::Uuid::now_v7().simple())
}

/// A button with a word why, behind a click.
pub fn button_with_reason(call: &Call, action: &str, label: &str) -> Markup {
    act(call, action, label, &html! { (reason(false)) button.primary type="submit" { (label) } })
}

/// What opens over a page closes what was open: browsers see to it for those of one name.
pub const ONE_OPEN: &str = "over";

/// A form behind a click: what it does is said before it is done.
pub fn act(call: &Call, action: &str, label: &str, fields: &Markup) -> Markup {
    html! {
        details.act name=(ONE_OPEN) {
            summary.button { (label) }
            form method="post" action=(action) {
                (hidden(&session::form_token(call)))
                (fields)
            }
        }
    }
}

/// A button that does nothing now, and says why to whoever presses it.
pub fn closed_button(label: &str, why: &str) -> Markup {
    html! {
        details.why-not name=(ONE_OPEN) {
            summary.button { (label) span.unseen { ", not now" } }
            p { (why) }
        }
    }
}

/// Why somebody does it. What must be said is asked for by the browser too.
pub fn reason(is_needed: bool) -> Markup {
    html! {
        label { "Reason" @if !is_needed { " (optional)" }
            input name="reason" maxlength="1024" required[is_needed] placeholder="why, for the log"; }
    }
}

/// One of many: several are sent together by the form with this id.
pub fn pick(form: &str, name: &str, value: &str, label: &str) -> Markup {
    html! { input type="checkbox" data-pick form=(form) name=(name) value=(value) aria-label=(label); }
}

/// One figure and what it is.
pub fn figure(label: &str, value: &Markup, is_urgent: bool) -> Markup {
    html! { div.figure.urgent[is_urgent] { dt { (label) } dd { (value) } } }
}

pub fn next_page(path: &str, query: &[(&str, &str)], cursor: Option<&str>) -> Markup {
    let Some(cursor) = cursor else { return html! {} };
    let query = [query, &[("cursor", cursor)]].concat();
    html! { p.pager { a.button rel="next" href={ (path) "?" (ask::written(&query)) } { "Older" } } }
}

/// Nothing to show, and what to do about it.
pub fn empty(words: &str, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            p { (words) }
            @if let Some(command) = command { (copied(command)) }
        }
    }
}

/// A text with a button that copies it, for those who have scripts. What is unseen gets into nobody's clipboard.
pub fn copied(text: &str) -> Markup {
    let seen = shown(text);
    html! {
        span.copied {
            code { (seen) }
            @if seen == text { button.copy type="button" data-copy=(text) hidden { "copy" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut_on_a_character() {
        let page = document(&Value::String("я".repeat(MOST_SHOWN))).into_string();
        assert!(page.contains("cut: ") && page.len() < MOST_SHOWN + 500);
    }

    #[test]
    fn short_ids_keep_their_ends() {
        assert_eq!(short("run_2026"), "run_2026");
        assert_eq!(short("run-01a1e66d-7c41-73e1-8ca9-d660d7a23c15"), "…d660d7a23c15");
    }

    #[test]
    fn nobodys_text_is_markup() {
        let page = badge("<script>\u{202e}x", Phase::Ready, None).into_string();
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
    }
}
