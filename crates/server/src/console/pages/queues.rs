//! Queues: what waits in each, how many are worked at once, and whether workers take any.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::Time;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{ago, button_with_reason, copied, empty, hidden, list, now, shown, text, time};
use crate::console::{see, session};
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

/// The member of a queue or schedule that says why it rests.
pub const PAUSE: &str = "paused";

/// Whoever names a queue in a run makes it: there may be any number.
const MOST: usize = 100;

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let found = ask(&call, "listQueues", &[], &[]).await?;
    let all = list(&found, "queues");
    let queues = &all[..all.len().min(MOST)];
    let content = html! {
        h1 { "Queues" }
        div #rows data-part {
            @if queues.is_empty() { (empty("No queue has runs, a limit or a pause. A run makes the queue that it names:", Some("waypost run start --queue builds -- echo hi"))) }
            @else {
                table.list {
                    thead { tr {
                        th scope="col" { "Queue" } th.num scope="col" { "Ready" } th.num scope="col" { "Held" } th.wide.num scope="col" { "Scheduled" }
                        th.wide scope="col" { "Oldest" } th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody { @for queue in queues { (line(&call, queue, now)) } }
                }
                @if all.len() > queues.len() { p.hint { "The first " (MOST) " of " (all.len()) "; the others: " (copied("waypost queue stats")) } }
            }
        }
    };
    Ok(answered(&call, 200, &Sheet { title: "Queues", nav: Nav::Queues, live: Some(Live::Polled) }, &content))
}

fn line(call: &Call, queue: &Value, now: Time) -> Markup {
    let name = text(queue, "queue");
    let pause = &queue[PAUSE];
    html! {
        tr data-row {
            td.main {
                a.title href={ "/runs?filter=" (encoded(&format!("queue:{name}"))) } { (shown(name)) }
                @if call.caller.is_everybodys { " " span.hint { (shown(text(queue, "tenant"))) } }
                @if pause.is_object() {
                    span.warn { "paused by " (shown(text(pause, "by"))) @if let Some(reason) = pause["reason"].as_str() { ": " (shown(reason)) } " " (ago(time(pause, "at"), now)) }
                }
                @if queue["orphaned"].as_u64() > Some(0) { span.warn { (queue["orphaned"]) " orphaned" } }
            }
            td.num { (queue["ready"]) }
            td.num { (queue["held"]) @if let Some(most) = queue["at_most"].as_u64() { " of " (most) } }
            td.wide.num { (queue["scheduled"]) }
            td.wide { (ago(time(queue, "oldest_ready_at"), now)) }
            td { @if may(call, "pauseQueue") { (actions(call, queue, name)) } }
        }
    }
}

fn actions(call: &Call, queue: &Value, name: &str) -> Markup {
    let own = format!("/queues/{}", encoded(name));
    html! {
        div.actions {
            @if queue[PAUSE].is_object() { (button_with_reason(call, &format!("{own}/resume"), "resume")) }
            @else { (button_with_reason(call, &format!("{own}/pause"), "pause")) }
            details.act {
                summary.button { "limit" }
                form method="post" action={ (own) "/limit" } {
                    (hidden(&session::form_token(call)))
                    label { "At once, at most" input name="at_most" inputmode="numeric" value=[queue["at_most"].as_u64()] placeholder="no limit"; }
                    label { "Reason" input name="reason" maxlength="1024"; }
                    button.primary type="submit" { "limit" }
                }
            }
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let mut body: Map<String, Value> = Map::new();
    if let Some(reason) = form.get("reason") {
        body.insert("reason".into(), reason.into());
    }
    let route = match call.path("command").as_str() {
        "pause" => "pauseQueue",
        "resume" => "resumeQueue",
        "limit" => {
            let wrong = |_| {
                Problem::field(&INVALID_INPUT, "at_most", "must be a whole number, or empty for no limit")
            };
            let most =
                form.get("at_most").map(|text| text.trim().parse::<u32>().map_err(wrong)).transpose()?;
            body.insert("at_most".into(), most.map_or(Value::Null, Value::from));
            "limitQueue"
        }
        _ => return Err(Problem::new(&NOT_FOUND, "a queue has no such command")),
    };
    tell(&call, route, &[("queue", &call.path("queue"))], body).await?;
    Ok(see("/queues"))
}
