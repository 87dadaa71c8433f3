//! What the holder of a run may do with it. Every write needs the lease's token.

use serde_json::{Map, Value, json};
use waypost_kernel::request::Level;
use waypost_kernel::text::MAX_PAYLOAD_BYTES;
use waypost_kernel::{Failure, Span};
use waypost_store::{
    CleanupWrite, FinishWrite, Held, ItemWrite, ItemsWrite, NoteWrite, Noted, ReleaseWrite, Renewed, Repeat,
    StoreError, Wait, iso,
};

use super::kinds::LeaseToken;
use super::requests::{
    FinishBody, ItemWriteBody, ItemWritesBody, LeaseBody, NewEventBody, OweBody, ReleaseBody,
    RequireCleanupBody,
};
use super::runs::tagged;
use super::shapes::{ITEMS, NOTED, RENEWED, RUN};
use super::{BATCH_BYTES, Content, POST, Route, RouteResponse, SMALL_BYTES, ok, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

/// A failure that came without a code.
const UNSPECIFIED: &str = "UNSPECIFIED";

const HELD: Route = Route {
    required_role: RequiredRole::Work,
    refuses: &[&NOT_FOUND],
    may_conflict: true,
    body_bytes: BATCH_BYTES,
    is_lenient: true,
    ..POST
};

/// Of requests that carry a token and a few words.
const BRIEF: Route = Route { body_bytes: SMALL_BYTES, ..HELD };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/runs/{run_id}/heartbeat",
        name: "heartbeat",
        description: "Extends the lease, and tells what people want of the run. A third of the lease's length is a good pace; once a \
                second tells of a cancel in time.",
        responses: &[ok(&RENEWED)],
        ..takes!(BRIEF, heartbeat, LeaseBody)
    },
    Route {
        path: "/v1/runs/{run_id}/events",
        name: "addEvent",
        description: "Adds an event to the run's log. The first one begins the work, where the lifecycle says so. One whose metadata do not \
                fit into the run's 1 MiB is refused.",
        responses: &[RouteResponse {
            status: 201,
            description: "it is in the log",
            body: Content::Json(&NOTED),
        }],
        ..takes!(HELD, event, NewEventBody)
    },
    Route {
        path: "/v1/runs/{run_id}/items",
        name: "putItems",
        description: "Adds or moves items, all or none.",
        responses: &[ok(&ITEMS)],
        ..takes!(HELD, items, ItemWritesBody)
    },
    Route {
        path: "/v1/runs/{run_id}/finish",
        name: "finish",
        description: "Moves the run where it ends. The same finish sent again is answered as the first time; one that brings another error, \
                other metadata, details or items is refused. A run's metadata have 1 MiB: members are laid over those that are there in the \
                order of their names, and those that there is no room for are named in `details.metadata_left_out`; the event has them all.",
        responses: &[ok(&RUN)],
        ..takes!(HELD, finish, FinishBody)
    },
    Route {
        path: "/v1/runs/{run_id}/release",
        name: "release",
        description: "Gives the run back unharmed: any worker may take it over, and no attempt is burnt. With `until`, not before: the run waits and holds no slot of a worker or of its queue meanwhile; its concurrency key it keeps.",
        responses: &[ok(&RUN)],
        ..takes!(BRIEF, release, ReleaseBody)
    },
    Route {
        path: "/v1/runs/{run_id}/require-cleanup",
        name: "requireCleanup",
        description: "From now on the run requires cleanup and ends only after it, or no longer does.",
        responses: &[ok(&RUN)],
        ..takes!(BRIEF, require_cleanup, RequireCleanupBody)
    },
    Route {
        path: "/v1/runs/{run_id}/owe",
        name: "owe",
        description: "The old name of `/v1/runs/{run_id}/require-cleanup`, for clients of before.",
        responses: &[ok(&RUN)],
        is_deprecated: true,
        ..takes!(BRIEF, require_cleanup_by_old_name, OweBody)
    },
];

/// The run of the path and its token, once it is known that the run is one of the caller's tenant.
async fn held(call: &Call, token: LeaseToken) -> Result<Held> {
    call.check_tenant().await?;
    Ok(Held { run_id: call.path("run_id"), token: token.0 })
}

/// Counts what was refused because another has the lease.
pub fn refused(call: &Call, error: StoreError) -> Problem {
    let problem = Problem::from(error);
    call.app.metrics.leases_lost.inc_by(u64::from(problem.code == "LEASE_LOST"));
    problem
}

fn failure(code: Option<&str>, message: Option<&str>) -> Option<Failure> {
    if code.is_none() && message.is_none() {
        return None;
    }
    Some(Failure::new(code.unwrap_or(UNSPECIFIED), message.unwrap_or_default()))
}

async fn heartbeat(call: Call, body: LeaseBody) -> Result {
    let held = held(&call, body.lease_token).await?;
    let renewed = call.store().renew(vec![held]).await?.remove(0).map_err(|error| refused(&call, error))?;
    call.app.metrics.heartbeats.inc();
    Ok(answer::json(200, &self::renewed(&renewed)))
}

pub fn renewed(renewed: &Renewed) -> Value {
    json!({
        "expires_at": iso(renewed.expires_at),
        "now": iso(renewed.now),
        "cancel_requested": renewed.intent == Some("cancel"),
        "intent": renewed.intent,
        "graceful": renewed.graceful,
    })
}

async fn event(call: Call, body: NewEventBody) -> Result {
    let held = held(&call, body.lease_token).await?;
    let note = note_of(&call, held, body);
    let noted = call.store().note(vec![note]).await?.remove(0).map_err(|error| refused(&call, error))?;
    Ok(answer::json(201, &self::noted(&noted)))
}

pub fn noted(noted: &Noted) -> Value {
    json!({ "event_id": noted.event_id, "seq": noted.seq, "repeated": noted.repeated })
}

pub fn note_of(call: &Call, held: Held, body: NewEventBody) -> NoteWrite {
    call.app.has_grown(&held.run_id, json_bytes(&body.metadata) + json_bytes(&body.details));
    let repeat = match (body.key, body.once.as_deref()) {
        (Some(key), _) => Repeat::Key(key),
        (None, Some("never")) => Repeat::Never,
        (None, _) => Repeat::Window,
    };
    NoteWrite {
        held,
        by: call.caller.by(body.by),
        level: body.level.unwrap_or(Level::Info),
        message: body.message,
        payload: body.payload.filter(|payload| !payload.is_null()).unwrap_or_else(|| json!({})),
        repeat,
        metadata: body.metadata,
        details: body.details,
    }
}

/// What no run has room for is not taken: its sender can say it in fewer words.
fn check_size(field: &str, members: &Map<String, Value>) -> Result<()> {
    match json_bytes(members) {
        bytes if bytes > MAX_PAYLOAD_BYTES => {
            let message = format!("is {bytes} bytes long; at most {MAX_PAYLOAD_BYTES} are allowed");
            Err(Problem::field(&INVALID_INPUT, field, &message))
        }
        _ => Ok(()),
    }
}

fn json_bytes(members: &Map<String, Value>) -> usize {
    if members.is_empty() { 0 } else { serde_json::to_string(members).map_or(0, |text| text.len()) }
}

async fn items(call: Call, body: ItemWritesBody) -> Result {
    let held = held(&call, body.lease_token).await?;
    let by = call.caller.by(body.by);
    let items = body.items.into_iter().enumerate().map(item).collect::<Result<_>>()?;
    let moved = call.store().put_items(ItemsWrite { held, by, items }).await;
    let moved = moved.map_err(|error| refused(&call, error))?;
    let objects: Vec<Value> = moved.iter().map(waypost_store::ItemRow::object).collect();
    Ok(answer::json(200, &json!({ "items": objects })))
}

fn item((place, body): (usize, ItemWriteBody)) -> Result<ItemWrite> {
    let missing =
        || Problem::field(&INVALID_INPUT, &format!("items/{place}/key"), "is missing; give a key or a name");
    Ok(ItemWrite {
        kind: body.kind,
        key: body.key.or_else(|| body.name.clone()).ok_or_else(missing)?,
        name: body.name,
        max_retries: body.max_retries,
        reruns: body.reruns,
        role: body.role,
        status: body.status,
        command: body.command,
        progress: body.progress,
        failure: failure(body.error_code.as_deref(), body.error_msg.as_deref()),
        retry_in: body.retry_in_ms.map(Span::from_ms),
        answered: body.answered,
        try_no: body.try_no.and_then(|number| number.try_into().ok()),
        output: body.output,
        details: body.details,
    })
}

async fn finish(call: Call, body: FinishBody) -> Result {
    let held = held(&call, body.lease_token).await?;
    let finish = finish_of(&call, held, body)?;
    let row = call.store().finish(vec![finish]).await?.remove(0).map_err(|error| refused(&call, error))?;
    call.app.metrics.finished.count(&row);
    Ok(tagged(call.json_of(200, &row), &row))
}

pub fn finish_of(call: &Call, held: Held, body: FinishBody) -> Result<FinishWrite> {
    check_size("metadata", &body.metadata)?;
    Ok(FinishWrite {
        run_id: held.run_id,
        token: Some(held.token),
        by: call.caller.by(body.by),
        status: body.status,
        failure: failure(body.error_code.as_deref(), body.error_msg.as_deref()),
        reason: body.reason,
        retry_in: body.retry_in_ms.map(Span::from_ms),
        goes_on_at: body.goes_on_at,
        metadata: body.metadata,
        details: body.details,
        items: body.items.into_iter().enumerate().map(item).collect::<Result<_>>()?,
    })
}

async fn release(call: Call, body: ReleaseBody) -> Result {
    let held = held(&call, body.lease_token).await?;
    let reason = body.reason.unwrap_or_else(|| Wait::RETRY.to_owned());
    let wait = body.until.map(|until| Wait { until, reason });
    let row = call
        .store()
        .release(vec![ReleaseWrite { held, wait }])
        .await?
        .remove(0)
        .map_err(|error| refused(&call, error))?;
    Ok(tagged(call.json_of(200, &row), &row))
}

async fn require_cleanup_by_old_name(call: Call, body: OweBody) -> Result {
    let OweBody { lease_token, owes, failing_status, error_code, error_msg, by } = body;
    let body = RequireCleanupBody { lease_token, required: owes, failing_status, error_code, error_msg, by };
    require_cleanup(call, body).await
}

async fn require_cleanup(call: Call, body: RequireCleanupBody) -> Result {
    let held = held(&call, body.lease_token).await?;
    let failure = failure(body.error_code.as_deref(), body.error_msg.as_deref());
    let failure = failure.unwrap_or_else(|| Failure::new(UNSPECIFIED, ""));
    let failing = body.failing_status.map(|status| (status, failure));
    let write = CleanupWrite { held, by: call.caller.by(body.by), required: body.required, failing };
    let row = call.store().require_cleanup(write).await.map_err(|error| refused(&call, error))?;
    Ok(tagged(call.json_of(200, &row), &row))
}
