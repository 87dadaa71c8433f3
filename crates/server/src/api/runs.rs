//! Runs: start them, look at them, and ask things of them.

use std::pin::pin;

use serde_json::{Map, Value, json};
use waypost_kernel::Actor;
use waypost_store::codec::actor_named;
use waypost_store::{CommandWrite, Filter, NewItem, NewRun, RunRow};

use super::claims::waiting;
use super::held::role;
use super::shapes::{ALL_MADE, COMMAND, EVENTS, ITEMS, KEY, LIMIT, NAME, NEW_RUN, NEW_RUNS, RUN, RUNS};
use super::{BATCH_BYTES, BODY_BYTES, Content, GET, Gives, POST, Route, ok};
use crate::answer::{self, Answer, Result};
use crate::call::Call;
use crate::guard::{Caller, Needs, Role};
use crate::problem::{
    FORBIDDEN, IDEMPOTENCY_KEY_REUSED, INVALID_QUERY, NOT_FOUND, PRECONDITION_FAILED, Problem,
};
use crate::shape::{Field, Fields, Kind, optional};

const KEY_HEADER: Field = optional(
    "Idempotency-Key",
    KEY,
    "The same key and body make one run, however often they are sent. The key is the run's for as long as the run is kept.",
);
const TRACE: Field =
    optional("traceparent", Kind::Any, "Kept in the run's `details.traceparent`, if it is one.");
const IF_MATCH: Field =
    optional("If-Match", Kind::Text(64), "The ETag that the run must still have, or 412.");
const IF_NONE_MATCH: Field =
    optional("If-None-Match", Kind::Text(1_024), "The ETag that the caller has: 304 if it is still that.");

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/runs",
        name: "startRun",
        about: "Starts a run.",
        needs: Needs::Operate,
        headers: &[KEY_HEADER, TRACE],
        body: Some(&NEW_RUN),
        body_bytes: BODY_BYTES,
        gives: &[
            Gives { status: 201, about: "it is stored", body: Content::Json(&RUN) },
            Gives {
                status: 200,
                about: "the key was known: the run that it made, with `Idempotency-Replayed: true`",
                body: Content::Json(&RUN),
            },
        ],
        refuses: &[&IDEMPOTENCY_KEY_REUSED],
        may_conflict: true,
        run: |call| Box::pin(start(call)),
        ..POST
    },
    Route {
        path: "/v1/runs/batch",
        name: "startRuns",
        about: "Starts many runs. Each is answered by itself: a refused one leaves its neighbours alone.",
        needs: Needs::Operate,
        body: Some(&NEW_RUNS),
        body_bytes: BATCH_BYTES,
        gives: &[ok(&ALL_MADE)],
        run: |call| Box::pin(start_many(call)),
        ..POST
    },
    Route {
        path: "/v1/runs",
        name: "listRuns",
        about: "Runs, newest first, page by page: `Link: <…>; rel=\"next\"` leads to the next one.",
        query: &[
            optional("lifecycle", NAME, "Of this lifecycle."),
            optional("status", NAME, "In this state."),
            optional("queue", NAME, "In this queue."),
            optional("q", NAME, "With this in its id, correlation id or metadata."),
            LIMIT,
            optional("cursor", NAME, "From `next_cursor` of the page before."),
        ],
        gives: &[ok(&RUNS)],
        run: |call| Box::pin(list(call)),
        ..GET
    },
    Route {
        path: "/v1/runs/{run_id}",
        name: "getRun",
        about: "One run, by its id or a unique beginning of it.",
        headers: &[IF_NONE_MATCH],
        gives: &[
            ok(&RUN),
            Gives { status: 304, about: "it is still what the ETag says", body: Content::Nothing },
        ],
        refuses: &[&NOT_FOUND],
        run: |call| Box::pin(show(call)),
        ..GET
    },
    Route {
        path: "/v1/runs/{run_id}/events",
        name: "listEvents",
        about: "What happened to a run, in order.",
        query: &[
            optional("after", super::shapes::COUNT, "Only those after this seq."),
            optional("wait_ms", Kind::Integer(0, 60_000), "If there is none yet, how long to wait for one."),
            LIMIT,
        ],
        gives: &[ok(&EVENTS)],
        refuses: &[&NOT_FOUND],
        run: |call| Box::pin(events(call)),
        ..GET
    },
    Route {
        path: "/v1/runs/{run_id}/items",
        name: "listItems",
        about: "A run's steps, tasks or targets.",
        query: &[optional("kind", NAME, "Only these.")],
        gives: &[ok(&ITEMS)],
        refuses: &[&NOT_FOUND],
        run: |call| Box::pin(items(call)),
        ..GET
    },
    Route {
        path: "/v1/runs/{run_id}/{command}",
        name: "commandRun",
        about: "A command of the run's lifecycle by its name: `cancel`, `pause`, `resume`, `retry`, or whatever it declares. \
                `allowed` of the run object lists those that may be given now. The same command again is answered as the first.",
        needs: Needs::Operate,
        headers: &[IF_MATCH],
        body: Some(&COMMAND),
        body_bytes: BODY_BYTES,
        gives: &[ok(&RUN)],
        refuses: &[&NOT_FOUND, &PRECONDITION_FAILED],
        may_conflict: true,
        run: |call| Box::pin(command(call)),
        ..POST
    },
];

async fn start(mut call: Call) -> Result {
    let mut body = std::mem::take(&mut call.body);
    if let Some(key) = call.headers.get("idempotency-key") {
        body.0.insert("idempotency_key".into(), key_of(key.to_str().ok())?.into());
    }
    let new = new_run(&call, body)?;
    let made = call.store().enqueue(vec![new]).await?.remove(0)?;
    call.app.metrics.enqueued.inc_by(u64::from(!made.replayed));
    let answer = answer::json(if made.replayed { 200 } else { 201 }, &call.show(&made.run));
    let answer = answer::with(tagged(answer, &made.run), "location", &format!("/v1/runs/{}", made.run.id()));
    Ok(if made.replayed { answer::with(answer, "idempotency-replayed", "true") } else { answer })
}

/// A structured-field string (`"key"`), or the key alone.
fn key_of(text: Option<&str>) -> Result<String> {
    let wrong = |message: &str| Problem::field(&INVALID_QUERY, "Idempotency-Key", message);
    let text = text.ok_or_else(|| wrong("must be visible ASCII characters"))?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').ok_or_else(|| wrong("has a quote at one end only"))?,
        None => text,
    };
    if key.is_empty() || key.len() > waypost_kernel::text::MAX_KEY_BYTES {
        return Err(wrong("must have 1 to 255 characters"));
    }
    Ok(key.replace("\\\"", "\"").replace("\\\\", "\\"))
}

fn new_run(call: &Call, mut body: Fields) -> Result<NewRun> {
    let carried = body.take_value("carried");
    check_carried(&call.caller, carried.as_ref())?;
    let mut details = body.take_object("details").unwrap_or_default();
    if let Some(trace) = call.header("traceparent").filter(|trace| is_traceparent(trace)) {
        details.insert("traceparent".into(), trace.into());
    }
    let default = NewRun::default();
    let number = |name: &str| body.integer(name).and_then(|number| u32::try_from(number).ok());
    Ok(NewRun {
        tenant: call.caller.tenant.clone(),
        lifecycle: body.words("lifecycle"),
        version: number("version"),
        status: body.text("status"),
        queue: body.text("queue").unwrap_or(default.queue),
        priority: body.integer("priority").unwrap_or_default() as i16,
        schedule_at: body.time("schedule_at"),
        ttl: body.span_ms("ttl_ms"),
        concurrency_key: body.text("concurrency_key"),
        correlation_id: body.text("correlation_id"),
        idempotency_key: body.text("idempotency_key"),
        parent_run_id: body.text("parent_run_id"),
        retry_of: body.text("retry_of"),
        playbook: body.text("playbook"),
        carried,
        max_attempts: number("max_attempts").unwrap_or(default.max_attempts),
        reentrant: body.is("reentrant"),
        by: call.caller.by(body.text("by")),
        actor: Actor::Client,
        input: body.0.remove("input").unwrap_or(default.input),
        metadata: body.take_object("metadata").unwrap_or_default(),
        items: body.take_list("items").into_iter().map(new_item).collect(),
        details,
    })
}

/// Enqueuing must not be a way to execute code.
fn check_carried(caller: &Caller, carried: Option<&Value>) -> Result<()> {
    if carried.is_none() || caller.role == Role::Admin {
        return Ok(());
    }
    let message = "carried: a command that the run brings along needs a token with the role admin; name a playbook instead";
    Err(Problem::new(&FORBIDDEN, message).with("role", caller.role.name()))
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; what is not one is ignored, as the standard asks.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let fits = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    matches!(parts[..], [version, trace, span, flags]
        if fits(version, 2) && version != "ff" && fits(trace, 32) && !is_zero(trace)
            && fits(span, 16) && !is_zero(span) && fits(flags, 2))
}

fn new_item(mut item: Fields) -> NewItem {
    let key = item.words("key");
    NewItem {
        kind: item.words("kind"),
        name: item.text("name").unwrap_or_else(|| key.clone()),
        key,
        status: item.text("status"),
        max_retries: item.integer("max_retries").unwrap_or(3) as u32,
        reruns: item.is("reruns"),
        role: role(&item),
        details: item.take_object("details").unwrap_or_default(),
    }
}

async fn start_many(mut call: Call) -> Result {
    let asked = call.body.take_list("runs");
    let mut answers: Vec<Option<Value>> = Vec::new();
    let mut runs = Vec::new();
    for body in asked {
        match new_run(&call, body) {
            Ok(new) => {
                runs.push(new);
                answers.push(None);
            }
            Err(problem) => answers.push(Some(json!({ "error": problem.object() }))),
        }
    }
    let mut made = call.store().enqueue(runs).await?.into_iter();
    for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
        let Some(made) = made.next() else { break };
        *answer = Some(match made {
            Ok(made) => {
                call.app.metrics.enqueued.inc_by(u64::from(!made.replayed));
                let is_own = call.header("waypost-detail").is_some();
                json!({
                    "run_id": made.run.id(),
                    "status": made.run.status(),
                    "replayed": made.replayed,
                    "run": is_own.then(|| call.show(&made.run)),
                })
            }
            Err(error) => json!({ "error": Problem::from(error).object() }),
        });
    }
    Ok(answer::json(200, &json!({ "runs": answers })))
}

async fn list(call: Call) -> Result {
    let query = &call.query;
    let limit = query.integer("limit").unwrap_or(50) as usize;
    let filter = Filter {
        tenant: call.caller.tenant.clone(),
        lifecycle: query.text("lifecycle"),
        status: query.text("status"),
        queue: query.text("queue"),
        text: query.text("q"),
        limit,
        cursor: query.text("cursor"),
    };
    let page = call.store().runs(filter).await?;
    let runs: Vec<Value> = page.runs.iter().map(|row| call.show(row)).collect();
    let answer = answer::json(200, &json!({ "runs": runs, "next_cursor": page.next }));
    Ok(match &page.next {
        Some(next) => answer::with(answer, "link", &format!("<{}>; rel=\"next\"", next_page(query, next))),
        None => answer,
    })
}

/// The same list, from the cursor on.
fn next_page(query: &Fields, cursor: &str) -> String {
    let mut pairs: Map<String, Value> = query.0.clone();
    pairs.insert("cursor".into(), cursor.into());
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs = pairs.iter().map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encode(&text))
    });
    format!("/v1/runs?{}", pairs.collect::<Vec<_>>().join("&"))
}

async fn show(call: Call) -> Result {
    let row = call.run().await?;
    let tag = etag(&row);
    let known = call.header("if-none-match").unwrap_or_default();
    if known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag) {
        return Ok(tagged(answer::empty(304), &row));
    }
    Ok(tagged(answer::json(200, &call.show(&row)), &row))
}

fn etag(row: &RunRow) -> String {
    format!("\"{}\"", row.run.seq)
}

pub fn tagged(answer: Answer, row: &RunRow) -> Answer {
    let answer = answer::with(answer, "etag", &etag(row));
    match row.details.get("traceparent").and_then(Value::as_str) {
        Some(trace) => answer::with(answer, "traceparent", trace),
        None => answer,
    }
}

async fn events(call: Call) -> Result {
    let run_id = call.run().await?.id().to_owned();
    let after = call.query.integer("after").unwrap_or_default().unsigned_abs();
    let limit = call.query.integer("limit").unwrap_or(50) as usize;
    let look = || {
        let read = call.store().events(run_id.clone(), after, limit);
        async move { Ok(Some(read.await?).filter(|events| !events.is_empty())) }
    };
    let found = waiting(&call, pin!(std::future::pending()), look).await?.unwrap_or_default();
    let objects: Vec<Value> = found.iter().map(waypost_store::EventRow::object).collect();
    Ok(answer::json(200, &json!({ "events": objects })))
}

async fn items(call: Call) -> Result {
    let run_id = call.run().await?.id().to_owned();
    let items = call.store().items(run_id, call.query.text("kind")).await?;
    let objects: Vec<Value> = items.iter().map(waypost_store::ItemRow::object).collect();
    Ok(answer::json(200, &json!({ "items": objects })))
}

async fn command(mut call: Call) -> Result {
    let resolutions = call.body.take_object("resolutions").unwrap_or_default();
    let body = &call.body;
    let command = CommandWrite {
        tenant: call.caller.tenant.clone(),
        run_id: call.path("run_id"),
        name: call.path("command"),
        by: call.caller.by(body.text("by")),
        reason: body.text("reason"),
        force: body.is("force"),
        resolved: body.is("resolved"),
        graceful: body.is("graceful"),
        items: body.texts("targets"),
        resolutions,
        if_seq: call.if_match()?,
        actor: body.text("as").and_then(|name| actor_named(&name)),
    };
    let row = call.store().order(command).await?;
    Ok(tagged(answer::json(200, &call.show(&row)), &row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_are_quoted_or_bare() {
        for (text, key) in [("k1", "k1"), ("\"k1\"", "k1"), (" \"a b\" ", "a b"), (r#""a\"b""#, "a\"b")] {
            assert_eq!(key_of(Some(text)).ok().as_deref(), Some(key), "{text}");
        }
        let long = "k".repeat(256);
        for text in [None, Some(""), Some("\"\""), Some("\"k"), Some(long.as_str())] {
            assert!(key_of(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_traceparent_is_one_or_ignored() {
        assert!(is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        ] {
            assert!(!is_traceparent(text), "{text}");
        }
    }
}
