//! Targets of bulk changes, many in one request, and what they are sent to.

use serde_json::{Value, json};
use waypost_kernel::breaker::Settings;
use waypost_kernel::bucket::Reported;
use waypost_kernel::destination::{CallAnswer, Limit};
use waypost_kernel::{Failure, Span};
use waypost_store::{
    AddTargets, Admit, Answered, DestinationRow, DiscardTargets, End, Held, ItemRow, NewTarget, Parts,
    RollBackTargets, TargetResult, Tried, WorkTargets, Worked, iso,
};
use waypost_worker::Applied;

use super::held::{refused, renewed};
use super::runs::tagged;
use super::shapes::RUN;
use super::wire::target_requests::{
    ADMITTED, AddTargetsBody, AdmitBody, AnswersBody, CallAnswerBody, DESTINATION, DESTINATIONS, DISCARDED,
    DiscardTargetsBody, NewTargetBody, PREVIEW, PaceBody, RollBackTargetsBody, TargetResultBody, WORKED,
    WorkTargetsBody,
};
use super::{BATCH_BYTES, BODY_BYTES, GET, POST, Route, ok, plain, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::NOT_FOUND;

/// A failure that came without a code.
const UNSPECIFIED: &str = "UNSPECIFIED";
const GIVE_UP_AFTER: Span = Span::from_seconds(3_600);

const WORK: Route = Route {
    required_role: RequiredRole::Work,
    refuses: &[&NOT_FOUND],
    may_conflict: true,
    body_bytes: BATCH_BYTES,
    ..POST
};
const OPERATE: Route = Route { required_role: RequiredRole::Operate, ..WORK };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/runs/{run_id}/targets",
        name: "addTargets",
        description: "Adds the next batch of targets to a run that is gathered, and how far the gathering is: all or none. A batch that is \
                known is not written again. Queueing the run is refused until the last batch has come.",
        responses: &[ok(&PREVIEW)],
        ..takes!(OPERATE, add, AddTargetsBody)
    },
    Route {
        path: "/v1/runs/{run_id}/targets/work",
        name: "workTargets",
        description: "What came of tries, which targets are tried next, and the run's end if that was the last: all or none. Whoever does \
                not get the answer releases the run: what was taken comes back.",
        responses: &[ok(&WORKED)],
        is_lenient: true,
        ..takes!(WORK, work, WorkTargetsBody)
    },
    Route {
        path: "/v1/runs/{run_id}/targets/discard",
        name: "discardTargets",
        description: "Failed targets that are not to be retried with the others. They stay failed.",
        responses: &[ok(&DISCARDED)],
        ..takes!(OPERATE, discard, DiscardTargetsBody)
    },
    Route {
        path: "/v1/runs/{run_id}/targets/roll-back",
        name: "rollBackTargets",
        description: "Targets of this operation's parent are as they were before, outside. The parent follows with its last one.",
        responses: &[ok(&RUN)],
        ..takes!(WORK, roll_back, RollBackTargetsBody)
    },
    Route {
        path: "/v1/destinations",
        name: "listDestinations",
        description: "What runs call outside: the rate limit and the breaker that all workers share. Who is of all tenants and names none \
                sees everybody's.",
        responses: &[ok(&DESTINATIONS)],
        ..plain!(GET, destinations)
    },
    Route {
        path: "/v1/destinations/{destination}/admit",
        name: "admit",
        description: "Permits for calls to a destination: as many as there are now, or when to ask again.",
        required_role: RequiredRole::Work,
        responses: &[ok(&ADMITTED)],
        ..takes!(POST, admit, AdmitBody)
    },
    Route {
        path: "/v1/destinations/{destination}/answers",
        name: "tellAnswers",
        description: "What calls to a destination were answered: its breaker and its rate follow, for all workers.",
        required_role: RequiredRole::Work,
        body_bytes: BODY_BYTES,
        responses: &[ok(&DESTINATION)],
        ..takes!(POST, answers, AnswersBody)
    },
    Route {
        path: "/v1/destinations/{destination}/pace",
        name: "paceDestination",
        description: "One evaluation of whether throttled answers come in a burst.",
        required_role: RequiredRole::Operate,
        responses: &[ok(&DESTINATION)],
        ..takes!(POST, pace, PaceBody)
    },
];

fn failure(code: Option<&str>, message: Option<&str>) -> Failure {
    Failure::new(code.unwrap_or(UNSPECIFIED), message.unwrap_or_default())
}

fn new_target(body: NewTargetBody) -> NewTarget {
    let is_stopped = body.violation_code.is_some() || body.violation_msg.is_some();
    NewTarget {
        key: body.key,
        name: body.name,
        before: body.before,
        after: body.after,
        destination: body.destination,
        violation: is_stopped.then(|| failure(body.violation_code.as_deref(), body.violation_msg.as_deref())),
        max_retries: body.max_retries,
        details: body.details,
    }
}

async fn add(call: Call, body: AddTargetsBody) -> Result {
    let write = AddTargets {
        tenant: call.caller.tenant.clone(),
        run_id: call.path("run_id"),
        by: call.caller.by(body.by),
        at: body.at,
        rows: body.rows,
        targets: body.targets.into_iter().map(new_target).collect(),
        unchanged: body.unchanged.unwrap_or_default(),
        cursor: body.cursor.filter(|cursor| !cursor.is_null()),
        totals: body.totals,
        last: body.last,
    };
    Ok(answer::json(200, &call.store().add_targets(write).await?.object()))
}

fn tried(body: TargetResultBody) -> TargetResult {
    let wait = Span::from_ms(body.wait_ms.unwrap_or_default());
    let failure = failure(body.error_code.as_deref(), body.error_msg.as_deref());
    let tried = match body.tried.as_str() {
        "applied" => Tried::Applied,
        "retry" => Tried::Retry { failure, wait, answered: body.answered.unwrap_or(true) },
        "throttled" => Tried::Throttled { failure, wait, answered: body.answered.unwrap_or(true) },
        "refused" => Tried::Refused { failure },
        "unsent" => Tried::Unsent { wait },
        _ => Tried::Failed { failure },
    };
    TargetResult { key: body.key, try_no: body.try_no, tried, output: body.output }
}

async fn work(call: Call, body: WorkTargetsBody) -> Result {
    call.check_tenant().await?;
    let end = match body.end.as_deref() {
        Some("when-done") => End::WhenDone,
        Some("stop") => End::Stop(failure(body.error_code.as_deref(), body.error_msg.as_deref())),
        _ => End::Later,
    };
    let write = WorkTargets {
        held: Held { run_id: call.path("run_id"), token: body.lease_token.0 },
        by: call.caller.by(body.by),
        results: body.results.into_iter().map(tried).collect(),
        take: body.take.unwrap_or_default(),
        give_up_after: body.give_up_after_ms.map_or(GIVE_UP_AFTER, Span::from_ms),
        end,
    };
    let retried = Applied::retried(&write);
    let worked = call.store().work_targets(write).await.map_err(|error| refused(&call, error))?;
    call.app.metrics.applied(Applied::of(&retried, &worked));
    if let Some(row) = &worked.ended {
        call.app.metrics.finished.count(row);
    }
    Ok(answer::json(200, &object(&call, &worked)))
}

fn object(call: &Call, worked: &Worked) -> Value {
    let run = worked.ended.as_ref().map(|row| json!(row.written(Parts::ALL, call.shows_engine())));
    json!({
        "taken": worked.taken.iter().map(ItemRow::object).collect::<Vec<_>>(),
        "ignored": worked.ignored,
        "next_due": worked.next_due.map(iso),
        "counts": worked.counts,
        "open": worked.open,
        "run": run,
        "lease": worked.renewed.as_ref().map(renewed),
        "now": iso(worked.now),
    })
}

async fn discard(call: Call, body: DiscardTargetsBody) -> Result {
    let write = DiscardTargets {
        tenant: call.caller.tenant.clone(),
        run_id: call.path("run_id"),
        by: call.caller.by(body.by),
        reason: body.reason,
        keys: body.keys,
        code: body.error_code,
    };
    Ok(answer::json(200, &json!({ "discarded": call.store().discard_targets(write).await? })))
}

async fn roll_back(call: Call, body: RollBackTargetsBody) -> Result {
    call.check_tenant().await?;
    let held = Held { run_id: call.path("run_id"), token: body.lease_token.0 };
    let write = RollBackTargets { held, by: call.caller.by(body.by), keys: body.keys };
    let row = call.store().roll_back_targets(write).await.map_err(|error| refused(&call, error))?;
    Ok(tagged(call.json_of(200, &row), &row))
}

async fn destinations(call: Call) -> Result {
    let rows = call.store().destinations(call.seen_tenant()).await?;
    let objects: Vec<Value> = rows.iter().map(DestinationRow::object).collect();
    Ok(answer::json(200, &json!({ "destinations": objects })))
}

async fn admit(call: Call, body: AdmitBody) -> Result {
    let usual = Settings::default();
    let limit = Limit {
        capacity_milli: body.capacity_milli,
        rate_milli_per_s: body.rate_milli_per_s,
        breaker: Settings {
            after: body.breaker_after.unwrap_or(usual.after),
            pause: body.pause_ms.map_or(usual.pause, Span::from_ms),
            probe_timeout: body.probe_timeout_ms.map_or(usual.probe_timeout, Span::from_ms),
        },
    };
    let ask = Admit {
        tenant: call.caller.tenant.clone(),
        destination: call.path("destination"),
        limit,
        calls: body.calls.unwrap_or(1),
        cost_milli: body.cost_milli.unwrap_or(waypost_kernel::bucket::MILLI_PER_UNIT),
    };
    let admitted = call.store().admit(ask).await?;
    let object = json!({
        "granted": admitted.granted,
        "is_probe": admitted.is_probe,
        "until_us": admitted.until.map(waypost_kernel::Time::micros),
        "now_us": admitted.now.micros(),
    });
    Ok(answer::json(200, &object))
}

fn call_answer(body: &CallAnswerBody) -> CallAnswer {
    let reported = body.available_milli.map(|available_milli| Reported {
        available_milli,
        rate_milli_per_s: body.rate_milli_per_s,
        capacity_milli: body.capacity_milli,
    });
    let retry_after = body.retry_after_ms.map(Span::from_ms);
    CallAnswer { throttled: body.throttled, retry_after, reported }
}

async fn answers(call: Call, body: AnswersBody) -> Result {
    let report = Answered {
        tenant: call.caller.tenant.clone(),
        destination: call.path("destination"),
        answers: body.answers.iter().map(call_answer).collect(),
        unused_milli: body.unused_milli.unwrap_or_default(),
    };
    Ok(answer::json(200, &call.store().answered(report).await?.object()))
}

async fn pace(call: Call, body: PaceBody) -> Result {
    let (tenant, name) = (call.caller.tenant.clone(), call.path("destination"));
    Ok(answer::json(200, &call.store().pace_destination(tenant, name, body.burst).await?.object()))
}
