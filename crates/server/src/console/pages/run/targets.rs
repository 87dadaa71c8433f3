//! The targets of a bulk change: what becomes of each, and what people do about them.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::{Outcome, Time, allowed};
use waypost_store::{ItemFilter, ItemRow, RunRow};
use waypost_worker::targets::row::{difference, in_words};

use super::actions::closed;
use super::items::counts;
use super::operations;
use super::timeline::state_of;
use crate::answer::Result;
use crate::call::Call;
use crate::console::form::Form;
use crate::console::pages::bulk::report::signed;
use crate::console::parts::{
    ONE_OPEN, act, ago, asked, badge, closed_button, hidden, next_page, pick, reason, run_path, shown, text,
};
use crate::console::{ask, see, session};
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

const LIMIT: usize = 100;
const CHOSEN: &str = "chosen";
const RETRY: &str = "retry";
const ROLLBACK: &str = "rollback";
const RECONCILE: &str = "reconcile";

/// What may be done now, by whoever looks.
struct Open<'c> {
    call: &'c Call,
    may_act: bool,
    commands: Vec<String>,
}

impl Open<'_> {
    fn has(&self, command: &str) -> bool {
        self.may_act && self.commands.iter().any(|open| open == command)
    }

    /// What may be done about one target.
    fn about(&self, outcome: Option<Outcome>, item: &ItemRow) -> bool {
        match outcome {
            Some(Outcome::Failed) => !item.discarded && self.may_act,
            Some(Outcome::Succeeded) => self.has(ROLLBACK),
            _ => false,
        }
    }
}

pub async fn tab(call: &Call, row: &RunRow, now: Time) -> Result<Markup> {
    let kind = row.lifecycle.items.first().map_or("", |kind| &kind.name);
    let (status, class) =
        (asked(call, "status").unwrap_or_default(), asked(call, "class").unwrap_or_default());
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let filter = ItemFilter {
        run_id: row.id().to_owned(),
        kind: given(kind),
        status: given(status),
        code: given(class),
        limit: LIMIT,
        cursor: asked(call, "cursor").map(str::to_owned),
        ..ItemFilter::default()
    };
    let turn = call.page_turn().await;
    let page = call.store().item_page(filter).await?;
    drop(turn);
    let commands = allowed(&row.lifecycle, &row.run).iter().map(ToString::to_string).collect();
    let open = Open { call, may_act: ask::may(call, "commandRun"), commands };
    let path = run_path(row.id());
    let operations = operations::section(call, row, now).await?;
    Ok(html! {
        (operations)
        (counts(row, &path, kind, status))
        @if !class.is_empty() {
            p.chips { span.chip aria-current="true" { "only " code { (shown(class)) } }
                a.chip href={ (path) "?tab=items&kind=" (ask::encoded(kind)) "&status=" (ask::encoded(status)) "#tab" } { "all classes" } }
        }
        @if open.may_act { (bar(&open, row, class, &path)) }
        @if page.items.is_empty() { p.empty { "There are none." } }
        @else { (table(&open, row, &page.items, &path, now)) }
        (next_page(&path, &[("tab", "items"), ("kind", kind), ("status", status), ("class", class)], page.next.as_deref()))
    })
}

fn bar(open: &Open<'_>, row: &RunRow, class: &str, path: &str) -> Markup {
    let call = open.call;
    let (failed, applied) = (count(row, Outcome::Failed), count(row, Outcome::Succeeded));
    html! {
        div.actions role="group" aria-label="About targets" {
            @if failed + applied > 0 { (with_chosen(open, path)) }
            @if failed > 0 && !class.is_empty() {
                @let fields = html! {
                    input type="hidden" name="class" value=(class);
                    p { "All targets that failed with " code { (shown(class)) } " are tried again." }
                    (reason(false))
                    button.primary type="submit" name="act" value="retry-class" { "Retry them" }
                };
                (either(open, row, RETRY, &format!("Retry all {}", shown(class)), act(call, &format!("{path}/targets"), &format!("Retry all {}", shown(class)), &fields)))
            } @else if failed > 0 {
                (whole(open, row, (RETRY, &all_of(failed, "Retry the one that failed", &format!("Retry all {failed} failed"))), path, "Every target that failed and was not given up is tried again."))
            }
            @if applied > 0 {
                (whole(open, row, (ROLLBACK, &all_of(applied, "Roll back the one that was applied", &format!("Roll back all {applied} applied"))), path, "Each is set back to what it was before, outside."))
                (whole(open, row, (RECONCILE, "Reconcile now"), path, "What was applied is compared with what is there."))
            }
        }
    }
}

fn all_of(count: u32, one: &str, all: &str) -> String {
    if count == 1 { one.to_owned() } else { all.to_owned() }
}

/// A command of the run, about all of its targets.
fn whole(open: &Open<'_>, row: &RunRow, (command, label): (&str, &str), path: &str, words: &str) -> Markup {
    let fields = html! { p { (words) } (reason(false)) button.primary type="submit" { (label) } };
    either(open, row, command, label, act(open.call, &format!("{path}/{command}"), label, &fields))
}

/// The form, or a button that says why there is none.
fn either(open: &Open<'_>, row: &RunRow, command: &str, label: &str, form: Markup) -> Markup {
    if open.has(command) {
        return form;
    }
    closed_button(label, &closed(row, command))
}

fn with_chosen(open: &Open<'_>, path: &str) -> Markup {
    html! {
        details.act name=(ONE_OPEN) {
            summary.button { "With the chosen" }
            form #(CHOSEN) method="post" action={ (path) "/targets" } {
                (hidden(&session::form_token(open.call)))
                (reason(false))
                p.hint { "Who gives targets up says why." }
                div.actions {
                    @if open.has(RETRY) { button.primary type="submit" name="act" value=(RETRY) { "Retry" } }
                    @if open.has(ROLLBACK) { button type="submit" name="act" value=(ROLLBACK) { "Roll back" } }
                    button type="submit" name="act" value="discard" { "Discard" }
                }
            }
        }
    }
}

fn table(open: &Open<'_>, row: &RunRow, items: &[ItemRow], path: &str, now: Time) -> Markup {
    html! {
        table.list.targets {
            thead { tr {
                @if open.may_act { th scope="col" { span.unseen { "Choose" } } }
                th scope="col" { "State" } th scope="col" { "Target" } th.num scope="col" { "Before" } th.num scope="col" { "After" }
                th.num scope="col" { "Difference" } th.num scope="col" { "Tries" }
            } }
            @let decimals = decimals(items);
            tbody { @for item in items { (line(open, row, item, (path, decimals), now)) } }
        }
    }
}

/// How many places the most exact value has: all of them have as many, so that they stand below each other.
fn decimals(items: &[ItemRow]) -> usize {
    let values = items.iter().flat_map(|item| ["before", "after"].map(|name| item.details.get(name)));
    let places = |value: &Value| in_words(value).split_once('.').map_or(0, |(_, places)| places.len());
    values.flatten().filter(|value| is_number(value)).map(places).max().unwrap_or_default()
}

fn is_number(value: &Value) -> bool {
    let text = in_words(value);
    let is_figure = |byte: u8| byte.is_ascii_digit() || b".-".contains(&byte);
    text.bytes().any(|byte| byte.is_ascii_digit()) && text.bytes().all(is_figure)
}

fn with_decimals(text: String, decimals: usize) -> String {
    match text.split_once('.') {
        _ if decimals == 0 || text.is_empty() => text,
        Some((whole, places)) => format!("{whole}.{places:0<decimals$}"),
        None => format!("{text}.{:0<decimals$}", ""),
    }
}

fn line(open: &Open<'_>, row: &RunRow, item: &ItemRow, (path, decimals): (&str, usize), now: Time) -> Markup {
    let state = state_of(row, item).map(|(lifecycle, id)| lifecycle.state(id));
    let (before, after) = (item.details.get("before"), item.details.get("after"));
    let by = before.zip(after).and_then(|(before, after)| difference(before, after));
    let value = |value: Option<&Value>| match value {
        Some(value) if is_number(value) => with_decimals(in_words(value), decimals),
        value => shown(&value.map(in_words).unwrap_or_default()),
    };
    html! {
        tr {
            @if open.may_act {
                td { @if open.about(state.and_then(|state| state.outcome), item) { (pick(CHOSEN, "target", &item.key, &format!("choose {}", shown(&item.name)))) } }
            }
            td { @if let Some(state) = state { (badge(&item.status, state.phase, state.outcome)) } }
            td.main { b { (shown(&item.name)) } @if item.name != item.key { " " span.hint { (shown(&item.key)) } } (why(item, path, now)) }
            td.num data-label="before" { (value(before)) }
            td.num data-label="after" { (value(after)) }
            td.num data-label="difference" { @if let Some(by) = by { (signed(&with_decimals(by.to_string(), decimals))) } }
            td.num data-label="tries" { (tries(item)) }
        }
    }
}

fn tries(item: &ItemRow) -> Markup {
    html! {
        @if item.started_at.is_none() { span.none { "–" } }
        @else { (item.attempts + 1) " of " (item.max_retries + 1) }
        @if item.throttled > 0 { span.why { (item.throttled) "× told to wait" } }
    }
}

/// Why it is not changed: its failure, or what stops it.
fn why(item: &ItemRow, path: &str, now: Time) -> Markup {
    let failure = item.failure.as_ref().filter(|failure| !failure.code.is_empty());
    let violation = item.details.get("violation").filter(|_| failure.is_none());
    html! {
        @if let Some(failure) = failure {
            span.why { a href={ (path) "?tab=items&status=" (ask::encoded(&item.status)) "&kind=" (ask::encoded(&item.kind)) "&class=" (ask::encoded(&failure.code)) "#tab" } { code { (shown(&failure.code)) } } " " (shown(&failure.message)) }
        }
        @if let Some(violation) = violation { span.warn { code { (shown(text(violation, "code"))) } " " (shown(text(violation, "message"))) } }
        @if item.discarded { span.why { "given up" @if let Some(reason) = item.details.get("discard_reason").and_then(Value::as_str) { ": " (shown(reason)) } } }
        @if let Some(at) = item.not_before.filter(|at| *at > now) { span.why { "next try " (ago(Some(at), now)) } }
    }
}

/// How many targets ended so.
pub fn count(row: &RunRow, outcome: Outcome) -> u32 {
    let counted = row.lifecycle.items.first().zip(row.run.tallies.first());
    let Some((kind, tally)) = counted else { return 0 };
    let states = kind.states.iter().zip(&tally.by_state);
    states.filter(|(state, _)| state.outcome == Some(outcome)).map(|(_, count)| count).sum()
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let row = call.run().await?;
    let (id, path) = (row.id(), run_path(row.id()));
    let mut body: Map<String, Value> = Map::new();
    body.extend(form.get("reason").map(|reason| ("reason".to_owned(), reason.into())));
    let chosen = || match form.all("target") {
        keys if keys.is_empty() => Err(Problem::field(&INVALID_INPUT, "target", "choose at least one")),
        keys => Ok(Value::from(keys)),
    };
    match form.get("act") {
        Some(command @ (RETRY | ROLLBACK)) => {
            body.insert("targets".into(), chosen()?);
            ask::tell(&call, "commandRun", &[("run_id", id), ("command", command)], body).await?;
        }
        Some("discard") => {
            body.insert("run_id".into(), id.into());
            body.insert("targets".into(), chosen()?);
            ask::tell(&call, "discardDeadLetters", &[], body).await?;
        }
        Some("retry-class") => {
            body.insert("run_id".into(), id.into());
            body.insert("error_code".into(), form.get("class").unwrap_or_default().into());
            ask::tell(&call, "retryDeadLetters", &[], body).await?;
        }
        _ => return Err(Problem::new(&NOT_FOUND, "targets have no such command")),
    }
    Ok(see(&format!("{path}?tab=items#tab")))
}
