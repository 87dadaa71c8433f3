//! Queues and concurrency keys: what waits for each, how many are worked at once, which runs these are, and whether workers take any.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use waypost_kernel::Time;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{
    ONE_OPEN, act, ago, asked, button_with_reason, copied, empty, hidden, list, next_page, now, reason,
    run_link, shown, text, time,
};
use crate::console::{filter, see, session};
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

/// The member of a queue or schedule that says why it rests.
pub const PAUSE: &str = "paused";

/// Whoever names a queue in a run makes it: there may be any number.
const MOST: usize = 100;

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let found = ask(&call, "listQueues", &[], &[]).await?;
    let mut all = list(&found, "queues").to_vec();
    all.extend(taken_from(&call, &all).await?);
    let queues = &all[..all.len().min(MOST)];
    let cursor = asked(&call, "cursor").unwrap_or_default();
    let keys = ask(&call, "listKeys", &[], &[("cursor", cursor), ("limit", "100")]).await?;
    let content = html! {
        h1 { "Queues and keys" }
        div #rows data-part {
            @if queues.is_empty() { (empty("No queue has runs, a limit, a pause or a worker. A run makes the queue that it names:", Some("waypost run start --queue builds -- echo hi"))) }
            @else {
                table.list {
                    thead { tr {
                        th scope="col" { "Queue" } th.num scope="col" { "Ready" } th scope="col" { "Held" } th.wide.num scope="col" { "Scheduled" }
                        th.wide scope="col" { "Oldest" } th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody { @for queue in queues { (line(&call, queue, now)) } }
                }
                @if all.len() > queues.len() { p.hint { "The first " (MOST) " of " (all.len()) "; the others: " (copied("waypost queue stats")) } }
            }
        }
        @if may(&call, "pauseQueue") { (by_name(&call)) }
        h2 { "Concurrency keys" }
        div #keys data-part { (keys_table(&call, list(&keys, "keys"))) }
        (next_page("/queues", &[], keys["next_cursor"].as_str()))
    };
    Ok(answered(&call, 200, &Sheet { title: "Queues", nav: Nav::Queues, live: Some(Live::Polled) }, &content))
}

/// Queues that workers take runs from and that have none now.
async fn taken_from(call: &Call, known: &[Value]) -> Result<Vec<Value>> {
    let workers = ask(call, "listWorkers", &[], &[]).await?;
    let named = list(&workers, "workers").iter().flat_map(|worker| list(worker, "queues"));
    let mut names: Vec<&str> = named.filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !known.iter().any(|queue| text(queue, "queue") == *name));
    let tenant = &call.caller.tenant;
    let row = |name| json!({ "queue": name, "tenant": tenant, "ready": 0, "held": 0, "scheduled": 0 });
    Ok(names.into_iter().map(row).collect())
}

/// One that is not in the list: it may be paused or limited before it has a run.
fn by_name(call: &Call) -> Markup {
    let fields = html! {
        label { "Queue" input name="queue" maxlength="255" required autocomplete="off"; }
        label { "At once, at most" input name="at_most" inputmode="numeric" placeholder="no limit"; }
        (reason(false))
        div.actions {
            button.primary type="submit" name="command" value="limit" { "limit" }
            button type="submit" name="command" value="pause" { "pause" }
        }
    };
    html! { div.actions { (act(call, "/queues", "Another queue…", &fields)) } }
}

fn line(call: &Call, queue: &Value, now: Time) -> Markup {
    let name = text(queue, "queue");
    let pause = &queue[PAUSE];
    html! {
        tr data-row {
            td.main {
                a.title href=(filter::runs_with(&[("queue", name)])) { (shown(name)) }
                @if call.caller.is_everybodys { " " span.hint { (shown(text(queue, "tenant"))) } }
                @if pause.is_object() {
                    span.warn { "paused by " (shown(text(pause, "by"))) @if let Some(reason) = pause["reason"].as_str() { ": " (shown(reason)) } " " (ago(time(pause, "at"), now)) }
                }
                @if queue["orphaned"].as_u64() > Some(0) { span.warn { (queue["orphaned"]) " orphaned" } }
            }
            td.num { (queue["ready"]) }
            td { span.num { (queue["held"]) @if let Some(most) = queue["at_most"].as_u64() { " of " (most) } } (holders(queue)) }
            td.wide.num { (queue["scheduled"]) }
            td.wide { (ago(time(queue, "oldest_ready_at"), now)) }
            td { @if may(call, "pauseQueue") { (actions(call, queue, name)) } }
        }
    }
}

/// Some of the runs that hold it.
fn holders(of: &Value) -> Markup {
    let (held, named) = (of["held"].as_u64().unwrap_or_default(), list(of, "held_by"));
    html! {
        @if !named.is_empty() {
            span.why { "by " @for (at, run) in named.iter().filter_map(Value::as_str).enumerate() { @if at > 0 { ", " } (run_link(run)) }
                @if let Some(more) = held.checked_sub(named.len() as u64).filter(|more| *more > 0) { " and " (more) " more" } }
        }
    }
}

fn keys_table(call: &Call, keys: &[Value]) -> Markup {
    html! {
        @if keys.is_empty() { p.empty { "No key is held, and none has a limit of its own. Runs with the same concurrency key are worked one at a time." } }
        @else {
            table.list {
                thead { tr { th scope="col" { "Key" } th scope="col" { "Held" } th.num scope="col" { "Wait" } th scope="col" { span.unseen { "Actions" } } } }
                tbody { @for key in keys { (key_line(call, key)) } }
            }
        }
    }
}

fn key_line(call: &Call, key: &Value) -> Markup {
    let name = text(key, "key");
    html! {
        tr data-row {
            td.main { b { (shown(name)) } @if call.caller.is_everybodys { " " span.hint { (shown(text(key, "tenant"))) } } }
            td { span.num { (key["held"]) " of " (key["at_most"]) } (holders(key)) }
            td.num { (key["waiting"]) }
            td { @if may(call, "limitKey") { div.actions { (limit(call, &format!("/keys/{}/limit", encoded(name)), &key["at_most"], "1")) } } }
        }
    }
}

/// How many may be held at once.
fn limit(call: &Call, action: &str, at_most: &Value, otherwise: &str) -> Markup {
    html! {
        details.act name=(ONE_OPEN) {
            summary.button { "limit" }
            form method="post" action=(action) {
                (hidden(&session::form_token(call)))
                label { "At once, at most" input name="at_most" inputmode="numeric" value=[at_most.as_u64()] placeholder=(otherwise); }
                label { "Reason" input name="reason" maxlength="1024"; }
                button.primary type="submit" { "limit" }
            }
        }
    }
}

fn actions(call: &Call, queue: &Value, name: &str) -> Markup {
    let own = format!("/queues/{}", encoded(name));
    html! {
        div.actions {
            @if queue[PAUSE].is_object() { (button_with_reason(call, &format!("{own}/resume"), "resume")) }
            @else { (button_with_reason(call, &format!("{own}/pause"), "pause")) }
            (limit(call, &format!("{own}/limit"), &queue["at_most"], "no limit"))
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    told(&call, &form, &call.path("queue"), &call.path("command")).await
}

pub async fn post_named(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let missing = || Problem::field(&INVALID_INPUT, "queue", "is missing: which one is meant?");
    let queue = form.get("queue").map(str::trim).ok_or_else(missing)?;
    told(&call, &form, queue, form.get("command").unwrap_or_default()).await
}

async fn told(call: &Call, form: &Form, queue: &str, command: &str) -> Result {
    let mut body: Map<String, Value> = Map::new();
    if let Some(reason) = form.get("reason") {
        body.insert("reason".into(), reason.into());
    }
    let route = match command {
        "pause" => "pauseQueue",
        "resume" => "resumeQueue",
        "limit" => {
            body.insert("at_most".into(), at_most(form)?);
            "limitQueue"
        }
        _ => return Err(Problem::new(&NOT_FOUND, "a queue has no such command")),
    };
    tell(call, route, &[("queue", queue)], body).await?;
    Ok(see("/queues"))
}

/// Null if it is left to the default.
fn at_most(form: &Form) -> Result<Value> {
    let wrong = |_| Problem::field(&INVALID_INPUT, "at_most", "must be a whole number, or empty for none");
    let most = form.get("at_most").map(|text| text.trim().parse::<u32>().map_err(wrong)).transpose()?;
    Ok(most.map_or(Value::Null, Value::from))
}

pub async fn limit_key(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let mut body = Map::from_iter([("at_most".to_owned(), at_most(&form)?)]);
    if let Some(reason) = form.get("reason") {
        body.insert("reason".into(), reason.into());
    }
    tell(&call, "limitKey", &[("key", &call.path("key"))], body).await?;
    Ok(see("/queues"))
}
