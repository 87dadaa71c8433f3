//! What the holder of a run may do with it. Every write needs the lease's token.

use serde_json::{Value, json};
use waypost_kernel::item::Role;
use waypost_kernel::request::Level;
use waypost_kernel::{Failure, Token};
use waypost_store::codec::token_from;
use waypost_store::{
    FinishWrite, Held, ItemWrite, ItemsWrite, NoteWrite, Noted, OweWrite, Renewed, Repeat, StoreError, iso,
};

use super::runs::tagged;
use super::shapes::{FINISH, HEARTBEAT, ITEM_WRITES, ITEMS, NEW_EVENT, NOTED, OWE, RENEWED, RUN};
use super::{BATCH_BYTES, Content, Gives, POST, Route, ok};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::Needs;
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};
use crate::shape::Fields;

/// A failure that came without a code.
const UNSPECIFIED: &str = "UNSPECIFIED";

const HELD: Route = Route {
    needs: Needs::Work,
    refuses: &[&NOT_FOUND],
    may_conflict: true,
    body_bytes: BATCH_BYTES,
    is_lenient: true,
    ..POST
};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/runs/{run_id}/heartbeat",
        name: "heartbeat",
        about: "Extends the lease, and tells what people want of the run. A third of the lease's length is a good pace; once a \
                second tells of a cancel in time.",
        body: Some(&HEARTBEAT),
        gives: &[ok(&RENEWED)],
        run: |call| Box::pin(heartbeat(call)),
        ..HELD
    },
    Route {
        path: "/v1/runs/{run_id}/events",
        name: "addEvent",
        about: "Adds an event to the run's log. The first one begins the work, where the lifecycle says so.",
        body: Some(&NEW_EVENT),
        gives: &[Gives { status: 201, about: "it is in the log", body: Content::Json(&NOTED) }],
        run: |call| Box::pin(event(call)),
        ..HELD
    },
    Route {
        path: "/v1/runs/{run_id}/items",
        name: "putItems",
        about: "Adds or moves items, all or none.",
        body: Some(&ITEM_WRITES),
        gives: &[ok(&ITEMS)],
        run: |call| Box::pin(items(call)),
        ..HELD
    },
    Route {
        path: "/v1/runs/{run_id}/finish",
        name: "finish",
        about: "Moves the run where it ends. The same finish sent again is answered as the first time.",
        body: Some(&FINISH),
        gives: &[ok(&RUN)],
        run: |call| Box::pin(finish(call)),
        ..HELD
    },
    Route {
        path: "/v1/runs/{run_id}/release",
        name: "release",
        about: "Gives the run back unharmed: any worker may take it over, and no attempt is burnt.",
        body: Some(&HEARTBEAT),
        gives: &[ok(&RUN)],
        run: |call| Box::pin(release(call)),
        ..HELD
    },
    Route {
        path: "/v1/runs/{run_id}/owe",
        name: "owe",
        about: "From now on the run owes its cleanup and ends only after it, or no longer does.",
        body: Some(&OWE),
        gives: &[ok(&RUN)],
        run: |call| Box::pin(owe(call)),
        ..HELD
    },
];

pub fn token_of(fields: &Fields) -> Result<Token> {
    let wrong = || {
        Problem::field(&INVALID_INPUT, "lease_token", "must be the 32 hexadecimal digits that the claim gave")
    };
    token_from(&fields.words("lease_token")).ok_or_else(wrong)
}

/// The run and the token; whose run it is was looked at.
async fn held(call: &Call) -> Result<Held> {
    let token = token_of(&call.body)?;
    call.check_tenant().await?;
    Ok(Held { run_id: call.path("run_id"), token })
}

fn by(call: &Call) -> String {
    call.body.text("by").unwrap_or_else(|| call.caller.by(None))
}

/// Counts what was refused because another has the lease.
pub fn refused(call: &Call, error: StoreError) -> Problem {
    let problem = Problem::from(error);
    call.app.metrics.leases_lost.inc_by(u64::from(problem.code == "LEASE_LOST"));
    problem
}

fn failure(fields: &Fields) -> Option<Failure> {
    let (code, message) = (fields.text("error_code"), fields.text("error_msg"));
    if code.is_none() && message.is_none() {
        return None;
    }
    Some(Failure::new(code.as_deref().unwrap_or(UNSPECIFIED), message.as_deref().unwrap_or_default()))
}

async fn heartbeat(call: Call) -> Result {
    let held = held(&call).await?;
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

async fn event(mut call: Call) -> Result {
    let held = held(&call).await?;
    let note = note_of(held, by(&call), &mut call.body);
    let noted = call.store().note(vec![note]).await?.remove(0).map_err(|error| refused(&call, error))?;
    Ok(answer::json(201, &self::noted(&noted)))
}

pub fn noted(noted: &Noted) -> Value {
    json!({ "event_id": noted.event_id, "seq": noted.seq, "repeated": noted.repeated })
}

pub fn note_of(held: Held, by: String, body: &mut Fields) -> NoteWrite {
    let level = body.text("level");
    let level = Level::ALL.into_iter().find(|known| Some(known.name()) == level.as_deref());
    let repeat = match (body.text("key"), body.text("once").as_deref()) {
        (Some(key), _) => Repeat::Key(key),
        (None, Some("never")) => Repeat::Never,
        (None, _) => Repeat::Window,
    };
    NoteWrite {
        held,
        by,
        level: level.unwrap_or(Level::Info),
        message: body.words("message"),
        payload: body.take_value("payload").unwrap_or_else(|| json!({})),
        repeat,
        metadata: body.take_object("metadata").unwrap_or_default(),
        details: body.take_object("details").unwrap_or_default(),
    }
}

async fn items(mut call: Call) -> Result {
    let held = held(&call).await?;
    let by = by(&call);
    let items = call.body.take_list("items").into_iter().enumerate().map(item).collect::<Result<_>>()?;
    let moved = call.store().put_items(ItemsWrite { held, by, items }).await;
    let moved = moved.map_err(|error| refused(&call, error))?;
    let objects: Vec<Value> = moved.iter().map(waypost_store::ItemRow::object).collect();
    Ok(answer::json(200, &json!({ "items": objects })))
}

/// What its failure means to the run; the shape knows the words.
pub fn role(fields: &Fields) -> Role {
    fields.text("role").and_then(|name| Role::named(&name)).unwrap_or_default()
}

fn item((place, mut fields): (usize, Fields)) -> Result<ItemWrite> {
    let name = fields.text("name");
    let missing =
        || Problem::field(&INVALID_INPUT, &format!("items/{place}/key"), "is missing; give a key or a name");
    Ok(ItemWrite {
        kind: fields.words("kind"),
        key: fields.text("key").or_else(|| name.clone()).ok_or_else(missing)?,
        name,
        max_retries: fields.integer("max_retries").and_then(|number| number.try_into().ok()),
        reruns: fields.is("reruns"),
        role: role(&fields),
        status: fields.words("status"),
        command: fields.text("command"),
        progress: fields.integer("progress").map(|percent| percent as u8),
        failure: failure(&fields),
        retry_in: fields.span_ms("retry_in_ms"),
        answered: fields.is("answered"),
        try_no: fields.integer("try_no").and_then(|number| number.try_into().ok()),
        output: fields.0.remove("output"),
        details: fields.take_object("details").unwrap_or_default(),
    })
}

async fn finish(mut call: Call) -> Result {
    let held = held(&call).await?;
    let finish = finish_of(held, by(&call), &mut call.body)?;
    let row = call.store().finish(vec![finish]).await?.remove(0).map_err(|error| refused(&call, error))?;
    call.app.metrics.finished.inc();
    Ok(tagged(answer::json(200, &call.show(&row)), &row))
}

pub fn finish_of(held: Held, by: String, body: &mut Fields) -> Result<FinishWrite> {
    let items = body.take_list("items").into_iter().enumerate().map(item).collect::<Result<_>>()?;
    Ok(FinishWrite {
        run_id: held.run_id,
        token: Some(held.token),
        by,
        status: body.words("status"),
        failure: failure(body),
        reason: body.text("reason"),
        retry_in: body.span_ms("retry_in_ms"),
        metadata: body.take_object("metadata").unwrap_or_default(),
        details: body.take_object("details").unwrap_or_default(),
        items,
    })
}

async fn release(call: Call) -> Result {
    let held = held(&call).await?;
    let row = call.store().release(vec![held]).await?.remove(0).map_err(|error| refused(&call, error))?;
    Ok(tagged(answer::json(200, &call.show(&row)), &row))
}

async fn owe(call: Call) -> Result {
    let held = held(&call).await?;
    let failing = call.body.text("failing_status").map(|status| {
        let failure = failure(&call.body).unwrap_or_else(|| Failure::new(UNSPECIFIED, ""));
        (status, failure)
    });
    let owe = OweWrite { held, by: by(&call), owes: call.body.is("owes"), failing };
    let row = call.store().owe(owe).await.map_err(|error| refused(&call, error))?;
    Ok(tagged(answer::json(200, &call.show(&row)), &row))
}
