//! Agents, and what their front ends ask for.

pub mod front;
pub mod proposals;
pub mod stream;

use serde_json::{Value, json};
use waypost_store::{AgentChange, AgentRow, AgentWrite, StoreError};

use super::requests::{AgentBody, PausingBody};
use super::shapes::{AGENT, AGENTS};
use super::{GET, Method, POST, Route, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::NOT_FOUND;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/agents",
        name: "listAgents",
        description: "Agents, whether they take runs, and how their last runs ended.",
        responses: &[ok(&AGENTS)],
        ..plain!(GET, list)
    },
    Route {
        path: "/v1/agents/{slug}",
        name: "getAgent",
        description: "One agent.",
        responses: &[ok(&AGENT)],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, show)
    },
    Route {
        method: Method::Put,
        path: "/v1/agents/{slug}",
        name: "putAgent",
        description: "Declares an agent, or changes what it is. One that was archived is there again.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&AGENT)],
        ..takes!(POST, put, AgentBody)
    },
    Route {
        path: "/v1/agents/{slug}/pause",
        name: "pauseAgent",
        description: "It takes no runs, and those that wait go on waiting. What is being worked goes on.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&AGENT)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, |call, body| change(call, body, AgentChange::Pause), PausingBody)
    },
    Route {
        path: "/v1/agents/{slug}/resume",
        name: "resumeAgent",
        description: "It takes runs again.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&AGENT)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, |call, body| change(call, body, AgentChange::Resume), PausingBody)
    },
    Route {
        path: "/v1/agents/{slug}/reset",
        name: "resetAgent",
        description: "Forgets its failures: one in error takes runs again.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&AGENT)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, |call, body| change(call, body, AgentChange::Reset), PausingBody)
    },
    Route {
        path: "/v1/agents/{slug}/archive",
        name: "archiveAgent",
        description: "It takes no runs any more, and is kept for its history.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&AGENT)],
        refuses: &[&NOT_FOUND],
        ..takes!(POST, |call, body| change(call, body, AgentChange::Archive), PausingBody)
    },
];

async fn list(call: Call) -> Result {
    let agents = call.store().agents(call.seen_tenant()).await?;
    let objects: Vec<Value> = agents.iter().map(AgentRow::object).collect();
    Ok(answer::json(200, &json!({ "agents": objects })))
}

async fn show(call: Call) -> Result {
    let slug = call.path("slug");
    let found = of_slug(&call, &slug).await?;
    let row = found.ok_or(StoreError::NotFound { what: "agent", id: slug })?;
    Ok(answer::json(200, &row.object()))
}

async fn of_slug(call: &Call, slug: &str) -> Result<Option<AgentRow>> {
    let agents = call.store().agents(Some(call.caller.tenant.clone())).await?;
    Ok(agents.into_iter().find(|agent| agent.slug() == slug))
}

async fn put(call: Call, body: AgentBody) -> Result {
    let defaults = AgentWrite::default();
    let agent = AgentWrite {
        slug: call.path("slug"),
        playbook: body.playbook,
        concurrency: body.concurrency.unwrap_or(defaults.concurrency),
        enabled: body.enabled.unwrap_or(defaults.enabled),
    };
    let who = call.who(body.by, body.reason);
    let row = call.store().change_agent(AgentChange::Put(agent), who).await?;
    Ok(answer::json(200, &row.object()))
}

async fn change(call: Call, body: PausingBody, of: fn(String) -> AgentChange) -> Result {
    let who = call.who(body.by, body.reason);
    let row = call.store().change_agent(of(call.path("slug")), who).await?;
    Ok(answer::json(200, &row.object()))
}
