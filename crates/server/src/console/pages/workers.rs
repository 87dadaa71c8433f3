//! Who works.

use maud::{Markup, html};
use serde_json::Value;
use waypost_kernel::Time;
use waypost_store::LIVE;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::ask;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{ago, asked, counted, empty, list, next_page, now, shown, text, time};

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let cursor = asked(&call, "cursor").unwrap_or_default();
    let found = ask(&call, "listWorkers", &[], &[("cursor", cursor), ("limit", "100")]).await?;
    // Of those on the page: who was seen last stands first, and who never gave a sign of life last.
    let mut workers: Vec<&Value> = list(&found, "workers").iter().collect();
    workers.sort_by_key(|worker| std::cmp::Reverse(time(worker, "seen_at")));
    let content = html! {
        h1 { "Workers" }
        div #rows data-part {
            (shared(&found["shared"]))
            @if workers.is_empty() && found["shared"]["workers"].as_u64() > Some(0) { p.empty { "None is this tenant's alone, and none of the others holds a run of it now." } }
            @else if workers.is_empty() { (empty("No worker is up. Start one:", Some("waypost worker --playbooks DIR"))) }
            @else {
                table.list {
                    thead { tr { th scope="col" { "Worker" } th.num scope="col" { "Busy" } th scope="col" { "Last sign of life" } th.wide scope="col" { "Queues" } th.wide scope="col" { "Takes" } th.wide scope="col" { "Version" } } }
                    tbody { @for worker in workers { (line(worker, now)) } }
                }
            }
        }
        (next_page("/workers", &[], found["next_cursor"].as_str()))
    };
    Ok(answered(
        &call,
        200,
        &Sheet { title: "Workers", nav: Nav::Workers, live: Some(Live::Polled) },
        &content,
    ))
}

/// Those of all tenants: that they are there, to who is not told their names.
fn shared(shared: &Value) -> Markup {
    let count = |name: &str| shared[name].as_u64().unwrap_or_default();
    html! {
        @if count("workers") > 0 {
            p { b { (counted(count("workers"), "worker")) } " of all tenants with " b { (counted(count("slots"), "slot")) } @if count("workers") == 1 { " takes" } @else { " take" } " runs of this one too." }
        }
    }
}

fn line(worker: &Value, now: Time) -> Markup {
    let names = |name: &str| {
        list(worker, name).iter().filter_map(Value::as_str).map(shown).collect::<Vec<_>>().join(", ")
    };
    html! {
        tr data-row {
            td.main { b { (shown(text(worker, "name"))) } @if let Some(run) = worker["only"].as_str() { span.why { "for the run " (shown(run)) } } }
            td.num {
                (worker["busy"]) @if let Some(slots) = worker["slots"].as_u64() { " of " (slots) " " meter min="0" max=(slots) value=(worker["busy"].as_u64().unwrap_or(0)) {} }
            }
            td { (sign_of_life(worker, now)) }
            td.wide { (names("queues")) }
            td.wide { (takes(worker, &names("playbooks"))) }
            td.wide { (shown(text(worker, "version"))) }
        }
    }
}

/// By the rule that says whether a run has a worker to wait for: one that was silent for longer does not count.
fn sign_of_life(worker: &Value, now: Time) -> Markup {
    let seen = time(worker, "seen_at");
    html! {
        @match seen {
            Some(at) if now - at <= LIVE => (ago(seen, now)),
            Some(_) => { span class="badge outcome-failed" { span aria-hidden="true" { "✕" } " gone" } " since " (ago(seen, now)) },
            None => span.none { "never" },
        }
        @if let Some(until) = time(worker, "stale_after").filter(|until| *until < now) { span.warn { "its lease ran out " (ago(Some(until), now)) } }
    }
}

fn takes(worker: &Value, playbooks: &str) -> Markup {
    html! {
        @if worker["playbooks"].is_null() { "any run" }
        @else { (playbooks) @if worker["embedded"] == true { @if !playbooks.is_empty() { ", " } "commands" } }
    }
}
