//! What front ends of agents ask for, as seed 001 has it: they know of runs what `status.json` says of them, and nothing else.
//! What goes wrong is told in the seed's envelope.

use std::pin::pin;
use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::{Outcome, Phase};
use waypost_schema::{Field, Kind, optional};
use waypost_store::{CommandWrite, Enqueued, RunRow, StoreError};
use waypost_worker::agents::{AgentRun, Asked, CannotRun, TRIGGERS, known_or_new, was_never_shown};
use waypost_worker::playbook::known::NotKnown;
use waypost_worker::projection::objects::Stored;
use waypost_worker::projection::{Projection, Shown, errors};

use crate::answer::{self, Answer, Result};
use crate::api::playbooks::by_name;
use crate::api::requests::AgentRunBody;
use crate::api::shapes::{AGENT_STARTED, RUN_STATUS};
use crate::api::{BODY_BYTES, Content, GET, POST, Route, RouteResponse, ok, plain, takes};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{
    AGENT_CANCELLED, AGENT_NOT_ACTIVE, AGENT_NOT_FOUND, AGENT_TIMEOUT, IDEMPOTENCY_KEY_REUSED,
    INTERNAL_ERROR, INVALID_INPUT, INVALID_QUERY, MODEL_UNAVAILABLE, NOT_FOUND, Problem, Reason,
    UPSTREAM_UNAVAILABLE,
};
use crate::wait;

const PREFER: Field = optional(
    "Prefer",
    Kind::Text(200),
    "`wait=N`: answers when the run has ended, or after N seconds, at most 600.",
);
const IF_NONE_MATCH: Field =
    optional("If-None-Match", Kind::Text(1_024), "The ETag that the caller has: 304 if it is still that.");

pub const ROUTES: &[Route] = &[
    Route {
        path: "/agents/run",
        name: "runAgent",
        description: "Starts a run of an agent, and answers once `requested` stands in its status.json. The same `correlationId` again is \
                the same run. With `Prefer: wait=N` it answers at the run's end: with its status, or with the error that it failed by.",
        required_role: RequiredRole::Operate,
        headers: &[PREFER],
        body_bytes: BODY_BYTES,
        responses: &[
            RouteResponse {
                status: 202,
                description: "it is asked for",
                body: Content::Json(&AGENT_STARTED),
            },
            RouteResponse {
                status: 200,
                description: "it was waited for, and has completed",
                body: Content::Json(&RUN_STATUS),
            },
        ],
        refuses: &[
            &AGENT_NOT_FOUND,
            &AGENT_NOT_ACTIVE,
            &AGENT_CANCELLED,
            &IDEMPOTENCY_KEY_REUSED,
            &UPSTREAM_UNAVAILABLE,
            &MODEL_UNAVAILABLE,
            &AGENT_TIMEOUT,
        ],
        is_front: true,
        ..takes!(POST, run, AgentRunBody)
    },
    Route {
        path: "/runs/{run_id}/status",
        name: "getRunStatus",
        description: "The run's status.json, as it stands in the object store.",
        headers: &[IF_NONE_MATCH],
        responses: &[
            ok(&RUN_STATUS),
            RouteResponse {
                status: 304,
                description: "it is still what the ETag says",
                body: Content::Nothing,
            },
        ],
        refuses: &[&NOT_FOUND, &UPSTREAM_UNAVAILABLE],
        is_front: true,
        ..plain!(GET, status)
    },
];

/// Who takes runs on, in their logs.
const ACKNOWLEDGED_BY: &str = "server";
/// Longer than any run of an agent takes by itself.
const LONGEST_WAIT_S: u64 = 600;

async fn run(call: Call, body: AgentRunBody) -> Result {
    let correlation_id = body.correlation_id.clone();
    let of_caller = |problem: Problem| match &correlation_id {
        Some(id) => problem.with(CORRELATION_ID, id.as_str()),
        None => problem,
    };
    begin(&call, body).await.map_err(of_caller)
}

/// The member of a problem that stands beside the error in the envelope.
const CORRELATION_ID: &str = crate::problem::CORRELATION_ID;

async fn begin(call: &Call, body: AgentRunBody) -> Result {
    let wait_s = wait_of(call)?;
    if body.correlation_id.as_deref() == Some("") {
        return Err(Problem::field(&INVALID_INPUT, "correlationId", "is empty: leave it out instead"));
    }
    let asked = AgentRun {
        tenant: call.caller.tenant.clone(),
        slug: body.agent_slug,
        trigger: body.trigger.unwrap_or_else(|| TRIGGERS[0].to_owned()),
        input: body.input.unwrap_or_else(|| json!({})),
        correlation_id: body.correlation_id,
        by: call.caller.by(None),
    };
    let run = made(call, &asked).await?;
    let projection = projection(call)?;
    match projection.show(call.store(), &run.tenant, run.id()).await {
        Ok(Shown { run: Some(shown), .. }) if shown.phase() == Phase::Draft => {
            acknowledge(call, &run).await?;
        }
        Ok(_) => {}
        Err(error) => {
            give_up(call, &run, &error).await;
            return Err(upstream(&error));
        }
    }
    if let Some(wait_s) = wait_s
        && let Some(answer) = ended(call, projection, &run, wait_s).await?
    {
        return Ok(answer::with(answer, "preference-applied", &format!("wait={wait_s}")));
    }
    let status = if wait_s.is_some() { shown_status(projection, &run).await } else { None };
    let started = json!({ "run_id": run.id(), "status": status.as_deref().unwrap_or(run.status()) });
    Ok(answer::with(answer::json(202, &started), "location", &format!("/runs/{}/status", run.id())))
}

/// Before anybody is told of it: a run that ends without having been acknowledged gives its correlation id back.
async fn acknowledge(call: &Call, run: &RunRow) -> Result<()> {
    let (tenant, id) = (run.tenant.clone(), run.id().to_owned());
    match call.app.store.acknowledge(tenant.clone(), id.clone(), ACKNOWLEDGED_BY.to_owned()).await {
        Ok(()) => Ok(()),
        // Others do it at the same time.
        Err(error) => match call.store().run(tenant, id).await?.phase() {
            Phase::Draft => Err(error.into()),
            _ => Ok(()),
        },
    }
}

/// `Prefer: respond-async, wait=30`.
fn wait_of(call: &Call) -> Result<Option<u64>> {
    let preferences = call.header("prefer").unwrap_or_default().split([',', ';']);
    let Some(wait) = preferences.filter_map(|it| it.trim().strip_prefix("wait=")).next() else {
        return Ok(None);
    };
    let wrong = || Problem::field(&INVALID_QUERY, "Prefer", "wait is no number of seconds, like wait=30");
    wait.trim().parse::<u64>().map(|seconds| Some(seconds.min(LONGEST_WAIT_S))).map_err(|_| wrong())
}

pub(super) fn projection(call: &Call) -> Result<&Arc<Projection>> {
    let missing = "this server has no object store: start it with --object-store";
    call.app.options.projection.as_ref().ok_or_else(|| Problem::new(&UPSTREAM_UNAVAILABLE, missing))
}

/// Where the object store is, and what it said, is for the log.
fn upstream(error: &StoreError) -> Problem {
    match error {
        StoreError::Unavailable(why) => {
            tracing::warn!(%why, "a front end was told that the object store cannot be reached");
            Problem::new(
                &UPSTREAM_UNAVAILABLE,
                "the object store cannot be reached now; the same request may work later",
            )
        }
        error => Problem::new(&UPSTREAM_UNAVAILABLE, error.to_string()),
    }
}

fn cannot_run(error: CannotRun) -> Problem {
    let words = error.to_string();
    match error {
        CannotRun::UnknownAgent(slug) => Problem::new(&AGENT_NOT_FOUND, words).with("agent_slug", slug),
        CannotRun::NotActive(agent) => Problem::new(&AGENT_NOT_ACTIVE, words)
            .with("agent_slug", agent.slug())
            .with("state", agent.state().name()),
        CannotRun::NoPlaybook(NotKnown::Store(error)) | CannotRun::Store(error) => error.into(),
        // What executes agents' runs is away.
        CannotRun::NoPlaybook(_) => Problem::new(&UPSTREAM_UNAVAILABLE, words),
        CannotRun::Start(error) => by_name::cannot_start(error),
    }
}

/// The run that the request's correlation id has made, or a new one.
async fn made(call: &Call, asked: &AgentRun) -> Result<RunRow> {
    let catalog = call.store().lifecycles().await?.of_tenant(&asked.tenant);
    loop {
        let new = match known_or_new(call.store(), &catalog, asked.clone()).await.map_err(cannot_run)? {
            Asked::Known(run) => return Ok(*run),
            Asked::New { run, is_again } => {
                // Each run that comes to nothing is one more to be passed over, the next time.
                if is_again {
                    projection(call)?.probe().await.map_err(|error| upstream(&error))?;
                }
                *run
            }
        };
        projection(call)?;
        let Enqueued { run, replayed } = call.store().enqueue(vec![new]).await?.remove(0)?;
        call.app.metrics.enqueued.inc_by(u64::from(!replayed));
        if !(replayed && was_never_shown(&run)) {
            return Ok(run);
        }
    }
}

/// Its readers could not be told of it: nobody is to work it. Whoever cannot be reached now finds it later, as a draft that expires.
async fn give_up(call: &Call, run: &RunRow, error: &StoreError) {
    let cancel = CommandWrite {
        tenant: run.tenant.clone(),
        run_id: run.id().to_owned(),
        name: waypost_kernel::run::Want::Cancel.command().to_owned(),
        by: call.caller.by(None),
        reason: Some(errors::NEVER_SHOWN.to_owned()),
        if_seq: Some(1),
        ..CommandWrite::default()
    };
    if let Err(refused) = call.store().command(cancel).await {
        tracing::debug!(run_id = run.id(), %error, %refused, "not taken back");
    }
}

/// The answer at the run's end, once its readers know of it.
async fn ended(
    call: &Call,
    projection: &Arc<Projection>,
    run: &RunRow,
    wait_s: u64,
) -> Result<Option<Answer>> {
    let look = || async move {
        // An object store that is away for a moment is no end of the run, which goes on.
        let found = projection.status(run.id()).await.unwrap_or_else(|error| {
            tracing::debug!(run_id = run.id(), %error, "waiting for a run whose status.json cannot be read");
            None
        });
        Ok(found.filter(|stored| stored.is_last))
    };
    let wait_ms = Some(i64::try_from(wait_s * 1_000).unwrap_or(i64::MAX));
    let same = ("agent", run.id());
    let found = wait::until_found(call, wait_ms, same, pin!(std::future::pending()), look).await?;
    let Some(stored) = found else { return Ok(None) };
    let row = call.store().run(run.tenant.clone(), run.id().to_owned()).await?;
    match row.run.failure.as_ref().filter(|_| row.outcome() != Some(Outcome::Succeeded)) {
        None => Ok(Some(shown(stored))),
        Some(failure) => {
            let (code, words, _) = errors::told(failure);
            let status: Value = serde_json::from_slice(&stored.bytes).unwrap_or_default();
            Err(Problem::new(reason_of(code), words).with("run", status))
        }
    }
}

/// Where it is after a wait that ran out, as far as its readers know.
async fn shown_status(projection: &Projection, run: &RunRow) -> Option<String> {
    let stored = projection.status(run.id()).await.ok().flatten()?;
    let status: Value = serde_json::from_slice(&stored.bytes).ok()?;
    status["status"].as_str().map(str::to_owned)
}

fn reason_of(code: &str) -> &'static Reason {
    match code {
        errors::MODEL => &MODEL_UNAVAILABLE,
        errors::UPSTREAM => &UPSTREAM_UNAVAILABLE,
        errors::TIMEOUT => &AGENT_TIMEOUT,
        errors::CANCELLED => &AGENT_CANCELLED,
        _ => &INTERNAL_ERROR,
    }
}

async fn status(call: Call) -> Result {
    let run_id = call.path("run_id");
    let row = call.run().await?;
    if row.id() != run_id || !row.lifecycle.projected {
        return Err(StoreError::no_run(&run_id).into());
    }
    let projection = projection(&call)?;
    let read = async || projection.status(row.id()).await.map_err(|error| upstream(&error));
    let stored = match read().await? {
        Some(stored) => stored,
        // Nobody has come to it yet.
        None => {
            let shown = projection.show(call.store(), &row.tenant, row.id()).await;
            shown.map_err(|error| upstream(&error))?;
            let missing = || Problem::new(&UPSTREAM_UNAVAILABLE, "the run's status.json is not there");
            read().await?.ok_or_else(missing)?
        }
    };
    let tag = etag(&stored);
    let known = call.header("if-none-match").unwrap_or_default();
    // `*` is whatever it is, as long as it is there.
    match known.trim() == "*" || known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag) {
        true => Ok(answer::with(answer::empty(304), "etag", &tag)),
        false => Ok(shown(stored)),
    }
}

fn etag(stored: &Stored) -> String {
    format!("\"{}\"", stored.version)
}

fn shown(stored: Stored) -> Answer {
    let tag = etag(&stored);
    answer::with(answer::shared(200, "application/json", stored.bytes.into()), "etag", &tag)
}
