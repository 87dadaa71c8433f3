//! Agents, and whether they take runs.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::Time;

use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{ago, button_with_reason, empty, list, now, run_link, shown, text, time};
use crate::console::see;
use crate::problem::{NOT_FOUND, Problem};

const COMMANDS: [(&str, &str); 3] =
    [("pause", "pauseAgent"), ("resume", "resumeAgent"), ("reset", "resetAgent")];

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let found = ask(&call, "listAgents", &[], &[]).await?;
    let agents = list(&found, "agents");
    let content = html! {
        h1 { "Agents" }
        div #rows data-part {
            @if agents.is_empty() { (empty("No agent is known. Declare one by [[agent]] in waypost.toml, and start it:", Some("waypost agent run SLUG"))) }
            @else {
                table.list {
                    thead { tr { th scope="col" { "Agent" } th scope="col" { "State" } th.wide.num scope="col" { "At once" } th.wide scope="col" { "Last runs" } th scope="col" { span.unseen { "Actions" } } } }
                    tbody { @for agent in agents { (line(&call, agent, now)) } }
                }
            }
        }
    };
    Ok(answered(&call, 200, &Sheet { title: "Agents", nav: Nav::Agents, live: Some(Live::Polled) }, &content))
}

fn line(call: &Call, agent: &Value, now: Time) -> Markup {
    let own = format!("/agents/{}", encoded(text(agent, "slug")));
    let is_paused = agent["paused_at"].is_string();
    html! {
        tr data-row {
            td.main {
                b { (shown(text(agent, "slug"))) }
                @if let Some(playbook) = agent["playbook"].as_str() { " " span.hint { (shown(playbook)) } }
                @if let Some(reason) = agent["pause_reason"].as_str() { span.why { (shown(reason)) } }
            }
            td { span.state-word { (shown(text(agent, "state"))) } @if agent["failures"].as_u64() > Some(0) { " " span.hint { (agent["failures"]) " failures in a row" } } }
            td.wide.num { (agent["concurrency"]) }
            td.wide { @for end in list(agent, "ends").iter().rev().take(3) { div { (run_link(text(end, "run_id"))) " " span.hint { (ago(time(end, "finished_at"), now)) } } } }
            td {
                @if may(call, "pauseAgent") {
                    div.actions {
                        @if is_paused { (button_with_reason(call, &format!("{own}/resume"), "resume")) }
                        @else { (button_with_reason(call, &format!("{own}/pause"), "pause")) }
                        @if agent["failures"].as_u64() > Some(0) { (button_with_reason(call, &format!("{own}/reset"), "reset")) }
                    }
                }
            }
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let command = call.path("command");
    let route = COMMANDS.iter().find(|(name, _)| *name == command).map(|(_, route)| *route);
    let route = route.ok_or_else(|| Problem::new(&NOT_FOUND, "an agent has no such command"))?;
    let mut body: Map<String, Value> = Map::new();
    if let Some(reason) = form.get("reason") {
        body.insert("reason".into(), reason.into());
    }
    tell(&call, route, &[("slug", &call.path("slug"))], body).await?;
    Ok(see("/agents"))
}
