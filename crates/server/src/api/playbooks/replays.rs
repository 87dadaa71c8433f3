//! Repeating a run: all of it, or from a step.

use serde_json::Value;
use waypost_worker::playbook::Playbook;
use waypost_worker::replay::{CannotReplay, Edit, ReplayFrom, replay as replayed};

use super::by_name::cannot_start;
use crate::answer::Result;
use crate::api::requests::ReplayBody;
use crate::api::runs::{KEY_HEADER, answer_made, check_embedded, request_key};
use crate::api::shapes::RUN;
use crate::api::{BODY_BYTES, Content, POST, Route, RouteResponse, takes};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{IDEMPOTENCY_KEY_REUSED, INVALID_INPUT, NOT_FOUND, Problem};

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/runs/{run_id}/replay",
    name: "replayRun",
    description: "Starts a new run like this one, which stays as it is; `retry_of` of the new one names it. With `from` or `failed` the steps \
            before are done from the beginning, with their outputs and what was decided. A run that brought a command or playbook along needs \
            the role admin.",
    required_role: RequiredRole::Operate,
    body_bytes: BODY_BYTES,
    headers: &[KEY_HEADER],
    responses: &[
        RouteResponse { status: 201, description: "the new run", body: Content::Json(&RUN) },
        RouteResponse {
            status: 200,
            description: "the key was known: the run that it made, with `Idempotency-Replayed: true`",
            body: Content::Json(&RUN),
        },
    ],
    refuses: &[&NOT_FOUND, &IDEMPOTENCY_KEY_REUSED],
    may_conflict: true,
    ..takes!(POST, replay, ReplayBody)
}];

async fn replay(call: Call, body: ReplayBody) -> Result {
    let key = request_key(&call, body.idempotency_key)?;
    let old = call.run().await?;
    check_embedded(&call.caller, old.carried.as_ref())?;
    let from = match (body.from, body.failed) {
        (Some(_), true) => {
            return Err(Problem::field(&INVALID_INPUT, "from", "is there beside `failed`: send one of them"));
        }
        (Some(step), false) => ReplayFrom::Step(step),
        (None, true) => ReplayFrom::Failed,
        (None, false) => ReplayFrom::Beginning,
    };
    let given = body.input;
    let is_edited = given.is_some();
    let edit = move |_: Option<&Playbook>, input: &mut Value| match input {
        Value::Object(members) => members.extend(given.clone().unwrap_or_default()),
        other => *other = Value::Object(given.clone().unwrap_or_default()),
    };
    let catalog = call.store().lifecycles().await?.of_tenant(&old.tenant);
    let edited = is_edited.then_some(&edit as &Edit<'_>);
    let mut new =
        replayed(call.store(), &catalog, &old, &from, edited).await.map_err(|error| match error {
            CannotReplay::Field(field, message) => Problem::field(&INVALID_INPUT, field, &message),
            CannotReplay::Start(error) => cannot_start(error),
            CannotReplay::Store(error) => error.into(),
        })?;
    new.by = call.caller.by(body.by);
    new.idempotency_key = key;
    let made = call.store().enqueue(vec![new]).await?.remove(0)?;
    Ok(answer_made(&call, &made, |status| call.json_of(status, &made.run)))
}
