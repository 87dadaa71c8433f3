//! Repeating a run: all of it, or from a step.

use serde_json::{Value, json};
use waypost_kernel::Phase;
use waypost_store::RunRow;
use waypost_worker::playbook::Playbook;
use waypost_worker::replay::{CannotReplay, Edit, ReplayFrom, replay as replayed};
use waypost_worker::targets::{has_targets, preview_of, with_origin};

use super::by_name::cannot_start;
use crate::answer::Result;
use crate::api::request_keys::request_key;
use crate::api::requests::ReplayBody;
use crate::api::runs::{KEY_HEADER, answer_made, check_embedded, made};
use crate::api::shapes::RUN;
use crate::api::{BODY_BYTES, POST, Route, takes};
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
    responses: &made(&RUN),
    refuses: &[&NOT_FOUND, &IDEMPOTENCY_KEY_REUSED],
    may_conflict: true,
    ..takes!(POST, replay, ReplayBody)
}];

async fn replay(call: Call, body: ReplayBody) -> Result {
    let key = request_key(&call, body.idempotency_key)?;
    let old = call.run().await?;
    let asked = json!(["replay", old.id(), body.from, body.failed, body.input]).to_string();
    let names_a_step = body.from.is_some();
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
            // It is about no field that was sent.
            CannotReplay::Field("from", message) if !names_a_step => Problem::new(&INVALID_INPUT, message),
            CannotReplay::Field(field, message) => Problem::field(&INVALID_INPUT, field, &message),
            CannotReplay::Start(error) => cannot_start(error),
            CannotReplay::Store(error) => error.into(),
        })?;
    new.by = call.caller.by(body.by);
    new.idempotency_key = key;
    new.asked = Some(asked);
    let new = with_origin(new, has_targets(&old), "api");
    let made = call.store().enqueue(vec![new]).await?.remove(0)?;
    gathered_again(&call, &made.run).await?;
    Ok(answer_made(&call, &made, |status| call.json_of(status, &made.run)))
}

/// The targets of a bulk change are those that its source has now: a run of its own gathers them.
async fn gathered_again(call: &Call, run: &RunRow) -> Result<()> {
    if run.phase() == Phase::Draft && has_targets(run) {
        call.store().enqueue(vec![preview_of(run, &call.caller.by(None))]).await?.remove(0)?;
    }
    Ok(())
}
