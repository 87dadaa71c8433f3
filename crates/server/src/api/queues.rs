//! Queues and limits. They are the installation's, not a tenant's.

use serde_json::{Value, json};
use waypost_store::LimitOf;

use super::requests::{LimitingBody, PausingBody};
use super::shapes::{CLOCK, QUEUE, QUEUES};
use super::{Content, GET, Method, POST, Route, RouteResponse, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/queues",
        name: "listQueues",
        description: "What waits, what is for later, what is being worked.",
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
        ..takes!(POST, |call, body| limit(call, body, LimitOf::Queue), LimitingBody)
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
        ..takes!(POST, |call, body| limit(call, body, LimitOf::Key), LimitingBody)
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
    let queues = call.store().queues().await?;
    let objects: Vec<Value> = queues.iter().map(waypost_store::QueueRow::object).collect();
    Ok(answer::json(200, &json!({ "queues": objects })))
}

async fn pause(call: Call, body: PausingBody) -> Result {
    let who = call.who(body.by, body.reason);
    let queue = call.store().close_queue(call.path("queue"), who).await?;
    Ok(answer::json(200, &queue.object()))
}

async fn resume(call: Call, body: PausingBody) -> Result {
    let who = call.who(body.by, body.reason);
    let queue = call.store().open_queue(call.path("queue"), who).await?;
    Ok(answer::json(200, &queue.object()))
}

async fn limit(call: Call, body: LimitingBody, what: LimitOf) -> Result {
    let name = call.path(if what == LimitOf::Queue { "queue" } else { "key" });
    let who = call.who(body.by, body.reason);
    call.store().set_limit(what, name, body.at_most, who).await?;
    Ok(answer::empty(204))
}

async fn clock(call: Call) -> Result {
    let now = call.store().now().await?;
    Ok(answer::json(200, &json!({ "now": waypost_store::iso(now) })))
}
