//! What is done about bulk changes afterwards: dead letters, and reconciliations.

use serde_json::{Value, json};
use waypost_store::{DeadLetterFilter, Filter, Parts, RunRow, StoreError, iso};
use waypost_worker::targets::dead_letters::{self, Acted, Chosen};
use waypost_worker::targets::{is_reconciliation, reconciled};

use super::wire::target_requests::{
    ALL_ACTED, DEAD_LETTERS, DeadLettersQuery, DiscardDeadLettersBody, RECONCILIATIONS, ReconciliationsQuery,
    RetryDeadLettersBody,
};
use super::{BODY_BYTES, GET, POST, Route, asks, ok, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::NOT_FOUND;

/// Of operations, whatever they are.
const LIFECYCLE: &str = "operation";
/// Runs that are looked through for one page: operations that are no reconciliations stand between.
const LOOKED_THROUGH: usize = 2_000;

const ACT: Route = Route {
    required_role: RequiredRole::Operate,
    refuses: &[&NOT_FOUND],
    body_bytes: BODY_BYTES,
    responses: &[ok(&ALL_ACTED)],
    ..POST
};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/dlq",
        name: "listDeadLetters",
        description: "Failed targets that were not discarded, by code, with the oldest of each and what to do about it.",
        responses: &[ok(&DEAD_LETTERS)],
        ..asks!(GET, report, DeadLettersQuery)
    },
    Route {
        path: "/v1/dlq/retry",
        name: "retryDeadLetters",
        description: "Retries failed targets of one run or of all, each run as by its command `retry`. A run that refuses is told of. Targets that a cancel ended are left out unless their run is named.",
        ..takes!(ACT, retry, RetryDeadLettersBody)
    },
    Route {
        path: "/v1/dlq/discard",
        name: "discardDeadLetters",
        description: "Gives failed targets up, of one run or of all. They stay failed, and no retry takes them along.",
        ..takes!(ACT, discard, DiscardDeadLettersBody)
    },
    Route {
        path: "/v1/reconciliations",
        name: "listReconciliations",
        description: "What reconciliations found, newest first. `POST /v1/runs/{run_id}/reconcile` begins one.",
        responses: &[ok(&RECONCILIATIONS)],
        ..asks!(GET, reconciliations, ReconciliationsQuery)
    },
];

async fn report(call: Call, query: DeadLettersQuery) -> Result {
    let filter =
        DeadLetterFilter { tenant: call.caller.tenant.clone(), run_id: query.run_id, code: query.error_code };
    Ok(answer::json(200, &dead_letters::report(call.store(), filter).await?))
}

fn chosen(
    call: &Call,
    run_id: Option<String>,
    code: Option<String>,
    keys: Option<Vec<String>>,
) -> std::result::Result<Chosen, StoreError> {
    if keys.is_some() && run_id.is_none() {
        return Err(StoreError::invalid("targets", "are of one run: give its run_id too"));
    }
    Ok(Chosen { tenant: call.caller.tenant.clone(), run_id, code, keys })
}

fn told(acted: &[Acted]) -> Value {
    let done = acted.iter().filter(|it| it.refused.is_none());
    let targets: u64 = done.map(|it| it.targets).sum();
    json!({ "targets": targets, "runs": acted.iter().map(Acted::object).collect::<Vec<_>>() })
}

async fn retry(call: Call, body: RetryDeadLettersBody) -> Result {
    let chosen = chosen(&call, body.run_id, body.error_code, body.targets)?;
    let by = call.caller.by(body.by);
    let acted = dead_letters::retry(call.store(), &chosen, &by, body.reason.as_deref()).await?;
    Ok(answer::json(200, &told(&acted)))
}

async fn discard(call: Call, body: DiscardDeadLettersBody) -> Result {
    let chosen = chosen(&call, body.run_id, body.error_code, body.targets)?;
    let by = call.caller.by(body.by);
    let acted = dead_letters::discard(call.store(), &chosen, &by, &body.reason).await?;
    Ok(answer::json(200, &told(&acted)))
}

async fn reconciliations(call: Call, query: ReconciliationsQuery) -> Result {
    let limit = query.limit.0;
    let mut filter = Filter {
        tenant: call.caller.tenant.clone(),
        lifecycle: Some(LIFECYCLE.to_owned()),
        limit,
        cursor: query.cursor,
        include: Parts { input: true, details: true, ..Parts::NONE },
        ..Filter::default()
    };
    let (mut found, mut looked) = (Vec::new(), 0);
    loop {
        filter.limit = limit - found.len();
        let page = call.store().runs(filter.clone()).await?;
        looked += page.runs.len();
        let is_meant = |run: &&RunRow| query.run_id.as_deref().is_none_or(|id| about(run) == Some(id));
        found.extend(page.runs.iter().filter(|run| is_reconciliation(run)).filter(is_meant).map(object));
        filter.cursor = page.next;
        if found.len() >= limit || filter.cursor.is_none() || looked >= LOOKED_THROUGH {
            break;
        }
    }
    Ok(answer::json(200, &json!({ "reconciliations": found, "next_cursor": filter.cursor })))
}

/// The run that an operation is about.
fn about(run: &RunRow) -> Option<&str> {
    run.parent_run_id.as_deref().or_else(|| run.input["run_id"].as_str())
}

fn object(run: &RunRow) -> Value {
    let mut object = json!({
        "operation_id": run.id(),
        "run_id": about(run),
        "status": run.status(),
        "due_at": run.schedule_at.map(iso),
        "finished_at": run.run.finished_at.map(iso),
    });
    if let (Some(object), Some(Value::Object(report))) = (object.as_object_mut(), reconciled(run)) {
        object.extend(report);
    }
    object
}
