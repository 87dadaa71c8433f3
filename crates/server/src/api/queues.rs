//! Queues and limits. They are a tenant's: who asks for all tenants and names none changes those of `default`.

use serde_json::{Value, json};
use waypost_store::{KeyFilter, KeyRow, QueueRow, Setting};

use super::executions::linked;
use super::requests::{KeysQuery, LimitingBody, PausingBody};
use super::shapes::{CLOCK, KEYS, QUEUE, QUEUES};
use super::{Content, GET, Method, POST, Route, RouteResponse, asks, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/queues",
        name: "listQueues",
        description: "What waits, what is for later, what is being worked: the tenant's queues. Who is of all tenants and names none \
                sees everybody's.",
        responses: &[ok(&QUEUES)],
        ..plain!(GET, list)
    },
    Route {
        path: "/v1/queues/{queue}/pause",
        name: "pauseQueue",
        description: "Lets no worker take from a queue. What is being worked goes on.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&QUEUE)],
        ..takes!(POST, pause, PausingBody)
    },
    Route {
        path: "/v1/queues/{queue}/resume",
        name: "resumeQueue",
        description: "Lets workers take from it again.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&QUEUE)],
        ..takes!(POST, resume, PausingBody)
    },
    Route {
        method: Method::Put,
        path: "/v1/queues/{queue}/limit",
        name: "limitQueue",
        description: "How many runs of a queue may be held at once.",
        required_role: RequiredRole::Operate,
        responses: &[RouteResponse {
            status: 204,
            description: "it counts from now on",
            body: Content::Nothing,
        }],
        ..takes!(POST, |call, body| limit(call, body, queue_limit), LimitingBody)
    },
    Route {
        path: "/v1/keys",
        name: "listKeys",
        description: "Concurrency keys that runs hold, or whose limit somebody has set: the tenant's, page by page. Who is of all tenants and \
                names none sees everybody's.",
        responses: &[ok(&KEYS)],
        ..asks!(GET, keys, KeysQuery)
    },
    Route {
        method: Method::Put,
        path: "/v1/keys/{key}/limit",
        name: "limitKey",
        description: "How many runs with a concurrency key may be held at once; one, unless this says otherwise.",
        required_role: RequiredRole::Operate,
        responses: &[RouteResponse {
            status: 204,
            description: "it counts from now on",
            body: Content::Nothing,
        }],
        ..takes!(POST, |call, body| limit(call, body, key_limit), LimitingBody)
    },
    Route {
        path: "/v1/clock",
        name: "getClock",
        description: "The database's clock.",
        responses: &[ok(&CLOCK)],
        ..plain!(GET, clock)
    },
];

async fn list(call: Call) -> Result {
    let queues = call.store().queues(call.seen_tenant()).await?;
    let objects: Vec<Value> = queues.iter().map(QueueRow::object).collect();
    Ok(answer::json(200, &json!({ "queues": objects })))
}

async fn keys(call: Call, query: KeysQuery) -> Result {
    let after = query.cursor.map(|after| match after.rsplit_once('/') {
        Some((key, tenant)) => (key.to_owned(), tenant.to_owned()),
        None => (after, String::new()),
    });
    let filter = KeyFilter { tenant: call.seen_tenant(), after, limit: query.limit.0 + 1 };
    let mut rows = call.store().keys(filter).await?;
    let is_cut = rows.len() > query.limit.0;
    rows.truncate(query.limit.0);
    let next = rows.last().filter(|_| is_cut).map(|row| format!("{}/{}", row.key, row.tenant));
    let objects: Vec<Value> = rows.iter().map(KeyRow::object).collect();
    let answer = answer::json(200, &json!({ "keys": objects, "next_cursor": next }));
    Ok(linked(&call, answer, "/v1/keys", next.as_deref()))
}

async fn pause(call: Call, body: PausingBody) -> Result {
    configured(&call, Setting::PauseQueue(call.path("queue")), body).await
}

async fn resume(call: Call, body: PausingBody) -> Result {
    configured(&call, Setting::ResumeQueue(call.path("queue")), body).await
}

/// The queue as it is then.
async fn configured(call: &Call, setting: Setting, body: PausingBody) -> Result {
    call.store().configure(setting, call.who(body.by, body.reason)).await?;
    let queue = call.path("queue");
    let tenant = call.caller.tenant.clone();
    let found = call.store().queues(Some(tenant.clone())).await?.into_iter().find(|row| row.name == queue);
    Ok(answer::json(200, &found.unwrap_or(QueueRow { tenant, name: queue, ..QueueRow::default() }).object()))
}

async fn limit(call: Call, body: LimitingBody, of: fn(&Call, Option<u32>) -> Setting) -> Result {
    let who = call.who(body.by, body.reason);
    call.store().configure(of(&call, body.at_most), who).await?;
    Ok(answer::empty(204))
}

fn queue_limit(call: &Call, at_most: Option<u32>) -> Setting {
    Setting::QueueLimit(call.path("queue"), at_most)
}

fn key_limit(call: &Call, at_most: Option<u32>) -> Setting {
    Setting::KeyLimit(call.path("key"), at_most)
}

async fn clock(call: Call) -> Result {
    let now = call.store().now().await?;
    Ok(answer::json(200, &json!({ "now": waypost_store::iso(now) })))
}
