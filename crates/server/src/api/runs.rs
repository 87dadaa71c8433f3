//! Runs: start them, look at them, and ask things of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_kernel::Span;
use waypost_kernel::text::MAX_PAGE;
use waypost_schema::{Field, Kind, Shape, optional};
use waypost_store::{
    Enqueued, EnqueuedClaim, Filter, ItemFilter, NewItem, NewRun, Page, Parts, RunRow, StoreError, Take,
};
use waypost_worker::bulk::give;
use waypost_worker::playbook::Playbook;
use waypost_worker::playbook::known::{self, LeftOpen};
use waypost_worker::targets::{asked_about, is_bulk, operation_of, with_origin};

use super::claims::lease_object;
use super::commands::command_write;
use super::executions::{encoded, linked};
use super::kinds::KEY;
use super::playbooks::by_name;
use super::request_keys::request_key;
use super::requests::{
    CommandBody, EventsQuery, ItemsQuery, KnownRunBody, NewClaimedRunBody, NewItemBody, NewRunBody,
    NewRunsBody, RunsQuery, filter_of,
};
use super::shapes::{ALL_MADE, DRY_RUN, EVENTS, ITEM_PAGE, MADE_CLAIMED, RUN, RUNS};
use super::{BATCH_BYTES, BODY_BYTES, Content, GET, POST, Route, RouteResponse, asks, ok, plain, takes};
use crate::answer::{self, Answer, Pieces, Result};
use crate::call::{Call, Turn, WAITS_TAG};
use crate::guard::{Caller, RequiredRole, Role};
use crate::problem::{
    CONCURRENT_MODIFICATION, FORBIDDEN, IDEMPOTENCY_KEY_REUSED, INVALID_INPUT, INVALID_QUERY, NOT_FOUND,
    PRECONDITION_FAILED, Problem,
};
use crate::wait;

pub const KEY_HEADER: Field = optional(
    "Idempotency-Key",
    KEY,
    "The same key and body make one run, however often they are sent. The key is the run's for as long as the run is kept.",
);
const TRACE: Field =
    optional("traceparent", Kind::Any, "Kept in the run's `details.traceparent`, if it is one.");
pub const IF_MATCH: Field = optional(
    "If-Match",
    Kind::Text(64),
    "The ETag that the run must still have, or 412; a command that is sent again is answered.",
);
const IF_NONE_MATCH: Field = optional(
    "If-None-Match",
    Kind::Text(1_024),
    "The ETag that the caller has, or `*`: 304 if it is still that.",
);

/// Of requests that make a run, and may have a key.
pub const fn made(shape: &'static Shape) -> [RouteResponse; 2] {
    let body = Content::Json(shape);
    let replayed = "the key was known: the run that it made, with `Idempotency-Replayed: true`";
    [
        RouteResponse { status: 201, description: "it is stored", body },
        RouteResponse { status: 200, description: replayed, body: Content::Json(shape) },
    ]
}

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/runs",
        name: "startRun",
        description: "Starts a run.",
        required_role: RequiredRole::Operate,
        headers: &[KEY_HEADER, TRACE],
        body_bytes: BODY_BYTES,
        responses: &made(&RUN),
        refuses: &[&IDEMPOTENCY_KEY_REUSED],
        may_conflict: true,
        ..takes!(POST, start, NewRunBody)
    },
    Route {
        path: "/v1/runs/dry-run",
        name: "previewRun",
        description: "What would become of `POST /v1/runs` with this body: where the run would wait, with which input, and what its steps would \
                do, as far as that is known. Nothing is written.",
        required_role: RequiredRole::Operate,
        headers: &[KEY_HEADER],
        body_bytes: BODY_BYTES,
        responses: &[ok(&DRY_RUN)],
        refuses: &[&IDEMPOTENCY_KEY_REUSED],
        may_conflict: true,
        ..takes!(POST, dry_run, NewRunBody)
    },
    Route {
        path: "/v1/runs/claimed",
        name: "startClaimedRun",
        description: "Starts a run that nobody but the named worker can take first: it is stored and claimed in one transaction. One that cannot \
                be claimed now, because it is not due or its queue or its key is full, is stored without a lease and waits like any other. Sent \
                again with its key, it gives the same worker the same lease, as long as that lasts.",
        required_role: RequiredRole::Admin,
        headers: &[KEY_HEADER, TRACE],
        body_bytes: BODY_BYTES,
        responses: &made(&MADE_CLAIMED),
        refuses: &[&IDEMPOTENCY_KEY_REUSED],
        may_conflict: true,
        ..takes!(POST, start_claimed, NewClaimedRunBody)
    },
    Route {
        path: "/v1/runs/known",
        name: "findKnownRun",
        description: "The run that an idempotency key has made for a request with this `asked`, or 404. For clients that fill in by themselves what \
                a playbook says: they know a run again after the playbook has changed.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&RUN)],
        refuses: &[&NOT_FOUND, &IDEMPOTENCY_KEY_REUSED],
        ..takes!(POST, known, KnownRunBody)
    },
    Route {
        path: "/v1/runs/batch",
        name: "startRuns",
        description: "Starts many runs. Each is answered by itself: a refused one leaves its neighbours alone. Each has its own \
                `idempotency_key`: the header is for a batch of one.",
        required_role: RequiredRole::Operate,
        headers: &[KEY_HEADER],
        body_bytes: BATCH_BYTES,
        responses: &[ok(&ALL_MADE)],
        ..takes!(POST, start_many, NewRunsBody)
    },
    Route {
        path: "/v1/runs",
        name: "listRuns",
        description: "Runs, newest first, page by page: `Link: <…>; rel=\"next\"` leads to the next one. Input, metadata, details and carried \
                are there only if `include` asks for them; a page has at most 4 MiB.",
        responses: &[ok(&RUNS)],
        ..asks!(GET, list, RunsQuery)
    },
    Route {
        path: "/v1/runs/{run_id}",
        name: "getRun",
        description: "One run, by its id or a part of it that no other has: its beginning, with or without `run-`, or its end.",
        headers: &[IF_NONE_MATCH],
        responses: &[
            ok(&RUN),
            RouteResponse {
                status: 304,
                description: "it is still what the ETag says",
                body: Content::Nothing,
            },
        ],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, show)
    },
    Route {
        path: "/v1/runs/{run_id}/events",
        name: "listEvents",
        description: "What happened to a run, in order.",
        responses: &[ok(&EVENTS)],
        refuses: &[&NOT_FOUND],
        ..asks!(GET, events, EventsQuery)
    },
    Route {
        path: "/v1/runs/{run_id}/items",
        name: "listItems",
        description: "A run's steps, tasks or targets, page by page.",
        responses: &[ok(&ITEM_PAGE)],
        refuses: &[&NOT_FOUND],
        ..asks!(GET, items, ItemsQuery)
    },
    Route {
        path: "/v1/runs/{run_id}/{command}",
        name: "commandRun",
        description: "A command of the run's lifecycle by its name: `cancel`, `pause`, `resume`, `retry`, or whatever it declares. \
                `allowed` of the run object lists those that may be given now. The same command again, by the same person for the same reason, \
                is answered as the first, wherever the run has gone since.",
        required_role: RequiredRole::Operate,
        headers: &[IF_MATCH],
        body_bytes: BODY_BYTES,
        responses: &[ok(&RUN)],
        refuses: &[&NOT_FOUND, &PRECONDITION_FAILED, &CONCURRENT_MODIFICATION],
        may_conflict: true,
        ..takes!(POST, command, CommandBody)
    },
];

async fn start(call: Call, body: NewRunBody) -> Result {
    let (new, playbook) = requested(&call, body).await?;
    let made = call.store().enqueue(vec![new]).await?.remove(0)?;
    by_name::gathered(&call, &made.run, playbook.as_deref()).await?;
    Ok(answer_made(&call, &made, |status| call.json_of(status, &made.run)))
}

async fn start_claimed(call: Call, body: NewClaimedRunBody) -> Result {
    let take = Take { worker: body.worker, lease: body.lease_ms.map(Span::from_ms), start: body.start };
    let (new, playbook) = requested(&call, body.run).await?;
    let EnqueuedClaim { enqueued: made, claimed } = call.store().enqueue_claimed(new, take).await?;
    by_name::gathered(&call, &made.run, playbook.as_deref()).await?;
    call.app.metrics.claimed.inc_by(u64::from(claimed.is_some()));
    let lease = claimed.as_ref().map(lease_object);
    let object = json!({ "run": call.show(&made.run), "replayed": made.replayed, "lease": lease });
    Ok(answer_made(&call, &made, |status| answer::json(status, &object)))
}

async fn known(call: Call, body: KnownRunBody) -> Result {
    let tenant = call.caller.tenant.clone();
    let found = call.store().made_by(tenant, body.idempotency_key.clone(), body.asked).await?;
    let row = found.ok_or(StoreError::NotFound { what: "run with the key", id: body.idempotency_key })?;
    Ok(tagged(call.json_of(200, &row), &row))
}

async fn dry_run(call: Call, body: NewRunBody) -> Result {
    let (new, playbook) = requested(&call, body).await?;
    Ok(answer::json(200, &by_name::preview(&call, &new, playbook.as_deref()).await?))
}

/// What a request for one run asks for, with its key and what its playbook says.
async fn requested(call: &Call, mut body: NewRunBody) -> Result<(NewRun, Option<Arc<Playbook>>)> {
    let asked_at = Instant::now();
    body.idempotency_key = request_key(call, body.idempotency_key.take())?;
    new_run(call, asked_at, body).await
}

/// A run that was made, or that its key had made before; `body` writes it with the status that this has.
pub fn answer_made(call: &Call, made: &Enqueued, body: impl FnOnce(u16) -> Answer) -> Answer {
    call.app.metrics.enqueued.inc_by(u64::from(!made.replayed));
    let answer = tagged(body(if made.replayed { 200 } else { 201 }), &made.run);
    let answer = answer::with(answer, "location", &format!("/v1/runs/{}", made.run.id()));
    if made.replayed { answer::with(answer, "idempotency-replayed", "true") } else { answer }
}

/// With what its playbook says. A request that cannot be made any more is still answered by the run that its key has made.
async fn new_run(
    call: &Call,
    asked_at: Instant,
    body: NewRunBody,
) -> Result<(NewRun, Option<Arc<Playbook>>)> {
    let may_be_unknown = body.unknown_playbook;
    let (new, open) = read(call, body)?;
    let refused = NewRun {
        tenant: new.tenant.clone(),
        idempotency_key: new.idempotency_key.clone(),
        asked: new.asked.clone(),
        by: new.by.clone(),
        ..NewRun::default()
    };
    match filled(call, asked_at, new, open, may_be_unknown).await {
        Ok(filled) => Ok(filled),
        Err(problem) => match known::known_again(call.store(), &refused).await? {
            Some(again) => Ok((again, None)),
            None => Err(problem),
        },
    }
}

async fn filled(
    call: &Call,
    asked_at: Instant,
    new: NewRun,
    open: LeftOpen,
    may_be_unknown: bool,
) -> Result<(NewRun, Option<Arc<Playbook>>)> {
    let (mut new, playbook) = by_name::filled(call, asked_at, new, open, may_be_unknown).await?;
    check_relatives(call, &mut new).await?;
    // What it brings along was looked up nowhere.
    if new.carried.as_ref().is_some_and(|carried| carried.get("playbook").is_some()) {
        let catalog = call.store().lifecycles().await?.of_tenant(&new.tenant);
        let is_bulk = catalog.latest(&new.lifecycle).is_some_and(|lifecycle| is_bulk(lifecycle));
        new = with_origin(new, is_bulk, "api");
    }
    Ok((new, playbook))
}

/// What the body says, and what it leaves open.
fn read(call: &Call, body: NewRunBody) -> Result<(NewRun, LeftOpen)> {
    let embedded = renamed("embedded", body.embedded, "carried", body.carried)?;
    check_embedded(&call.caller, embedded.as_ref())?;
    if let Some(Err(message)) = embedded.as_ref().map(waypost_worker::check_command) {
        return Err(Problem::field(&INVALID_INPUT, "embedded", &message));
    }
    let mut details = body.details;
    if let Some(trace) = call.header("traceparent").filter(|trace| is_traceparent(trace)) {
        details.insert("traceparent".into(), trace.into());
    }
    let default = NewRun::default();
    // Of an embedded command: a lost worker costs one of these, and not the run.
    let retries = embedded.as_ref().and_then(|embedded| embedded["retries"].as_u64());
    let retries = retries.and_then(|retries| u32::try_from(retries).ok()).unwrap_or_default().min(100);
    let open = LeftOpen {
        queue: body.queue.is_none(),
        priority: body.priority.is_none(),
        lifecycle: body.lifecycle.is_none(),
    };
    let mut new = NewRun {
        tenant: call.caller.tenant.clone(),
        lifecycle: body.lifecycle.unwrap_or_default(),
        version: body.version,
        status: body.status,
        queue: body.queue.unwrap_or(default.queue),
        priority: body.priority.unwrap_or_default(),
        schedule_at: body.schedule_at,
        ttl: body.ttl_ms.map(Span::from_ms),
        concurrency_key: body.concurrency_key,
        correlation_id: body.correlation_id,
        idempotency_key: body.idempotency_key,
        parent_run_id: body.parent_run_id,
        retry_of: body.retry_of,
        title: body.title,
        playbook: body.playbook,
        carried: embedded,
        max_attempts: body.max_attempts.unwrap_or(1 + retries),
        reentrant: body.reentrant,
        by: call.caller.by(body.by),
        input: body.input.unwrap_or(default.input),
        metadata: body.metadata,
        items: body.items.into_iter().map(new_item).collect(),
        asked: body.asked,
        details,
        ..default
    };
    // An operation on a run has that run's playbook, and nothing is filled in of it.
    let is_by_name = new.playbook.is_some() && new.carried.is_none() && asked_about(&new).is_none();
    if is_by_name && new.idempotency_key.is_some() && new.asked.is_none() {
        new.asked = Some(known::asked(&new, open));
    }
    Ok((new, open))
}

/// A run of another tenant is no parent, and nothing that can be repeated: what becomes of it would be seen, and felt, here. One that
/// is not there is refused in the same words: else they would tell which ids others have.
async fn check_relatives(call: &Call, new: &mut NewRun) -> Result<()> {
    for (field, id) in [("parent_run_id", &new.parent_run_id), ("retry_of", &new.retry_of)] {
        let Some(id) = id.as_ref().filter(|id| waypost_kernel::id::check_id(id).is_ok()) else { continue };
        match call.tenant_of(id).await? {
            Some(tenant) if tenant == new.tenant => call.app.remember_tenant(id, &tenant),
            _ => return Err(Problem::field(&INVALID_INPUT, field, &format!("there is no run {id:?} here"))),
        }
    }
    by_name::with_parts(call, new).await
}

/// A field under its name or, for clients of before, under its old one.
pub fn renamed<T>(name: &str, given: Option<T>, old_name: &str, old: Option<T>) -> Result<Option<T>> {
    if given.is_some() && old.is_some() {
        let message = format!("is the old name of `{name}`, which is there too: leave it out");
        return Err(Problem::field(&INVALID_INPUT, old_name, &message));
    }
    Ok(given.or(old))
}

/// Enqueuing must not be a way to execute code.
pub fn check_embedded(caller: &Caller, embedded: Option<&Value>) -> Result<()> {
    if embedded.is_none() || caller.role == Role::Admin {
        return Ok(());
    }
    let message = "embedded: a command that the run brings along needs a token with the role admin; name a playbook instead";
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

fn new_item(item: NewItemBody) -> NewItem {
    NewItem {
        kind: item.kind,
        name: item.name.unwrap_or_else(|| item.key.clone()),
        key: item.key,
        status: item.status,
        max_retries: item.max_retries.unwrap_or(3),
        reruns: item.reruns,
        role: item.role,
        details: item.details,
        copied: item.copied,
    }
}

async fn start_many(call: Call, mut body: NewRunsBody) -> Result {
    let asked_at = Instant::now();
    match &mut body.runs[..] {
        [one] => one.idempotency_key = request_key(&call, one.idempotency_key.take())?,
        _ if call.headers.contains_key("idempotency-key") => {
            let message = "is the key of one run, and these are several: send `idempotency_key` with each";
            return Err(Problem::field(&INVALID_QUERY, "Idempotency-Key", message));
        }
        _ => {}
    }
    let mut answers: Vec<Option<Value>> = Vec::new();
    let mut runs = Vec::new();
    let mut playbooks = Vec::new();
    for body in body.runs {
        match new_run(&call, asked_at, body).await {
            Ok((new, playbook)) => {
                runs.push(new);
                playbooks.push(playbook);
                answers.push(None);
            }
            Err(problem) => answers.push(Some(json!({ "error": problem.object() }))),
        }
    }
    let mut made = call.store().enqueue(runs).await?.into_iter();
    let mut playbooks = playbooks.into_iter();
    for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
        let Some(made) = made.next() else { break };
        if let (Ok(made), Some(Some(playbook))) = (&made, playbooks.next()) {
            by_name::gathered(&call, &made.run, Some(&playbook)).await?;
        }
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

async fn list(call: Call, query: RunsQuery) -> Result {
    let (turn, include, page) = listed(&call, query).await?;
    let with_engine = call.shows_engine();
    let write = |text: &mut Pieces, row: &RunRow| text.value(&row.written(include, with_engine));
    let answer = answer::list(200, "runs", page.runs, write, ("next_cursor", &page.next));
    Ok(turn.lasting_with(linked(&call, answer, "/v1/runs", page.next.as_deref())))
}

/// A page of runs, each with why it waits, and what is asked for of each.
pub async fn listed(call: &Call, query: RunsQuery) -> Result<(Turn, Parts, Page)> {
    let include = include(query.include.as_deref().unwrap_or_default())?;
    let filter = Filter {
        limit: query.limit.0,
        cursor: query.cursor,
        include,
        parent: query.parent_run_id,
        ..filter_of!(call, query)
    };
    check_filter(call, &filter).await?;
    let turn = call.page_turn().await;
    let mut page = call.store().runs(filter).await?;
    page.runs = call.store().explain(page.runs).await?;
    Ok((turn, include, page))
}

/// A word that was typed wrongly must not look like an empty list.
pub async fn check_filter(call: &Call, filter: &Filter) -> Result<()> {
    if filter.lifecycle.is_none() && filter.status.is_none() {
        return Ok(());
    }
    match filter.check(&call.store().lifecycles().await?) {
        Err(StoreError::Invalid { field, message }) => {
            Err(Problem::field(&INVALID_QUERY, &field, &message).with("field", field))
        }
        checked => Ok(checked?),
    }
}

fn include(asked: &str) -> Result<Parts> {
    Parts::read(asked).map_err(|unknown| {
        let message = format!("{unknown:?} cannot be included; allowed: {}", Parts::NAMES.join(", "));
        Problem::field(&INVALID_QUERY, "include", &message)
    })
}

async fn show(call: Call) -> Result {
    let row = call.run().await?;
    let row = call.store().explain(vec![row]).await?.remove(0);
    let tag = etag(&row);
    let known = call.header("if-none-match").unwrap_or_default();
    // `*` is whatever the run is like, as long as it is there.
    let is_tag = |one: &str| one.trim_start_matches("W/") == tag;
    let is_known = known.trim() == "*" || known.split(',').any(|one| is_tag(one.trim()));
    if is_known {
        return Ok(tagged(answer::empty(304), &row));
    }
    Ok(tagged(call.json_of(200, &row), &row))
}

/// What a run waits for changes without an event of its own, so it is part of the tag.
fn etag(row: &RunRow) -> String {
    let waits = row.waiting().map(|waiting| {
        let mut hasher = DefaultHasher::new();
        (waiting.reason, &waiting.text, &waiting.hint).hash(&mut hasher);
        format!("{WAITS_TAG}{:016x}", hasher.finish())
    });
    let place = row.queue_position.map(|place| format!(".{place}"));
    format!("\"{}{}{}\"", row.run.seq, waits.unwrap_or_default(), place.unwrap_or_default())
}

pub fn tagged(answer: Answer, row: &RunRow) -> Answer {
    let answer = answer::with(answer, "etag", &etag(row));
    match row.details.get("traceparent").and_then(Value::as_str) {
        Some(trace) => answer::with(answer, "traceparent", trace),
        None => answer,
    }
}

async fn events(call: Call, query: EventsQuery) -> Result {
    let run_id = call.run_of_any().await?.id().to_owned();
    let (after, limit) = (query.after.unwrap_or_default(), query.limit.0);
    let look = || {
        let (call, run_id) = (&call, run_id.clone());
        async move {
            let turn = call.page_turn().await;
            let found = call.store().events(run_id, after, limit).await?;
            Ok(Some((found, turn)).filter(|(found, _)| !found.is_empty()))
        }
    };
    let same = ("events", &run_id, after, limit);
    let found = wait::until_found(&call, query.wait_ms, same, pin!(std::future::pending()), look).await?;
    let Some((found, turn)) = found else { return Ok(answer::json(200, &json!({ "events": [] }))) };
    let mut text = Pieces::default();
    text.entries("events", found, |text, event| text.value(&event.written()));
    text.raw(b"}");
    Ok(turn.lasting_with(text.answer(200)))
}

async fn items(call: Call, query: ItemsQuery) -> Result {
    let run_id = call.run_of_any().await?.id().to_owned();
    let turn = call.page_turn().await;
    let filter = ItemFilter {
        run_id: run_id.clone(),
        kind: query.kind,
        key: query.key,
        status: query.status,
        code: query.error_code,
        limit: query.limit.map_or(MAX_PAGE, |limit| limit.0),
        cursor: query.cursor,
    };
    let page = call.store().item_page(filter).await?;
    let write = |text: &mut Pieces, item: &waypost_store::ItemRow| text.value(&item.written());
    let answer = answer::list(200, "items", page.items, write, ("next_cursor", &page.next));
    let path = format!("/v1/runs/{}/items", encoded(&run_id));
    Ok(turn.lasting_with(linked(&call, answer, &path, page.next.as_deref())))
}

async fn command(call: Call, body: CommandBody) -> Result {
    let command = command_write(&call, body).await?;
    let row = give(call.store(), command).await?;
    let answer = tagged(call.json_of(200, &row), &row);
    if !row.lifecycle.operations.iter().any(|(name, _)| **name == *call.path("command")) {
        return Ok(answer);
    }
    // What was begun is a run of its own.
    Ok(match operation_of(call.store(), &row).await? {
        Some(operation) => answer::with(answer, "location", &format!("/v1/runs/{}", operation.id())),
        None => answer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
