//! Proposals and the inbox: for front ends at the root, as seed 001 has it, and the same under `/v1`.

use serde_json::{Value, json};
use waypost_kernel::text::MAX_KEY_BYTES;
use waypost_store::{PROPOSAL, RunRow, StoreError};
use waypost_worker::proposals::{self, Decision, NotDecided, Verdict};

use crate::answer::{self, Result};
use crate::api::executions::linked;
use crate::api::proposal_wire::{
    ALL_DECIDED, DecisionBody, DecisionOfBody, DecisionsBody, INBOX_STATS, PROPOSAL as PROPOSAL_SHAPE,
    PROPOSALS, PendingQuery, ProposalsQuery,
};
use crate::api::{GET, POST, Route, asks, ok, plain, takes};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{CONCURRENT_MODIFICATION, INVALID_INPUT, INVALID_QUERY, NOT_FOUND, Problem};

const FRONT: Route = Route { is_front: true, ..GET };
const DECIDE: Route = Route {
    required_role: RequiredRole::Operate,
    refuses: &[&NOT_FOUND, &CONCURRENT_MODIFICATION],
    may_conflict: true,
    ..POST
};
const DECIDE_ALL: Route = Route { required_role: RequiredRole::Operate, ..POST };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/inbox/stats",
        name: "getInboxStats",
        description: "How many entries of the inbox wait, and what became of others within seven days; the same of proposals.",
        responses: &[ok(&INBOX_STATS)],
        ..plain!(FRONT, stats)
    },
    Route {
        path: "/proposals/pending",
        name: "listPendingProposals",
        description: "Proposals that wait for a person, newest first.",
        responses: &[ok(&PROPOSALS)],
        ..asks!(FRONT, pending, PendingQuery)
    },
    Route {
        path: "/proposals/batch",
        name: "decideProposals",
        description: "Decides up to 50 proposals. Each is answered by itself: what is refused of one leaves the others alone.",
        is_front: true,
        responses: &[ok(&ALL_DECIDED)],
        ..takes!(DECIDE_ALL, all, DecisionsBody)
    },
    Route {
        path: "/proposals/{proposal_id}/approve",
        name: "approveProposal",
        description: "Approves a proposal; if its playbook has `[apply]`, a worker applies it.",
        is_front: true,
        responses: &[ok(&PROPOSAL_SHAPE)],
        ..takes!(DECIDE, |call, body| one(call, body, Verdict::Approve), DecisionBody)
    },
    Route {
        path: "/proposals/{proposal_id}/reject",
        name: "rejectProposal",
        description: "Rejects a proposal, with a note.",
        is_front: true,
        responses: &[ok(&PROPOSAL_SHAPE)],
        ..takes!(DECIDE, |call, body| one(call, body, Verdict::Reject), DecisionBody)
    },
    Route {
        path: "/v1/proposals",
        name: "listProposals",
        description: "What agents propose, newest first.",
        responses: &[ok(&PROPOSALS)],
        ..asks!(GET, list, ProposalsQuery)
    },
    Route {
        path: "/v1/proposals/batch",
        name: "decideProposalsV1",
        description: "Decides up to 50 proposals. Each is answered by itself.",
        responses: &[ok(&ALL_DECIDED)],
        ..takes!(DECIDE_ALL, all, DecisionsBody)
    },
    Route {
        path: "/v1/proposals/{proposal_id}",
        name: "getProposal",
        description: "One proposal, and who decided on it.",
        responses: &[ok(&PROPOSAL_SHAPE)],
        refuses: &[&NOT_FOUND],
        ..plain!(GET, show)
    },
    Route {
        path: "/v1/proposals/{proposal_id}/approve",
        name: "approveProposalV1",
        description: "Approves a proposal; if its playbook has `[apply]`, a worker applies it.",
        responses: &[ok(&PROPOSAL_SHAPE)],
        ..takes!(DECIDE, |call, body| one(call, body, Verdict::Approve), DecisionBody)
    },
    Route {
        path: "/v1/proposals/{proposal_id}/reject",
        name: "rejectProposalV1",
        description: "Rejects a proposal, with a note.",
        responses: &[ok(&PROPOSAL_SHAPE)],
        ..takes!(DECIDE, |call, body| one(call, body, Verdict::Reject), DecisionBody)
    },
];

async fn stats(call: Call) -> Result {
    let stats = call.store().stats(Some(call.caller.tenant.clone())).await?;
    let catalog = call.store().lifecycles().await?;
    let states = |name: &str| {
        let lifecycle = catalog.latest(name);
        let names = lifecycle.map(|it| it.states.iter().map(|state| state.name.to_string()).collect());
        names.unwrap_or_default()
    };
    Ok(answer::json(200, &proposals::inbox_stats(&stats, states)))
}

async fn pending(call: Call, query: PendingQuery) -> Result {
    let catalog = call.store().lifecycles().await?;
    let first = catalog.latest(PROPOSAL).and_then(|it| Some(it.state(*it.initial.first()?).name.to_string()));
    page(call, first, query.limit.0, query.cursor, "/proposals/pending").await
}

async fn list(call: Call, query: ProposalsQuery) -> Result {
    let catalog = call.store().lifecycles().await?;
    if let Some(status) = &query.status
        && catalog.latest(PROPOSAL).is_none_or(|it| it.state_named(status).is_none())
    {
        return Err(Problem::field(&INVALID_QUERY, "status", "is no state of a proposal"));
    }
    page(call, query.status, query.limit.0, query.cursor, "/v1/proposals").await
}

async fn page(
    call: Call,
    status: Option<String>,
    limit: usize,
    cursor: Option<String>,
    path: &str,
) -> Result {
    let turn = call.page_turn().await;
    let page = proposals::of_status(call.store(), &call.caller.tenant, status, limit, cursor).await?;
    let objects: Vec<Value> = page.runs.iter().map(proposals::object).collect();
    let answer = answer::json(200, &json!({ "proposals": objects, "next_cursor": page.next }));
    Ok(turn.lasting_with(linked(&call, answer, path, page.next.as_deref())))
}

async fn show(call: Call) -> Result {
    let id = call.path("proposal_id");
    let row = call.store().run(call.caller.tenant.clone(), id.clone()).await?;
    if &*row.lifecycle.name != PROPOSAL {
        return Err(StoreError::NotFound { what: "proposal", id }.into());
    }
    shown(&call, &row).await
}

/// With who decided: that is one of its first events.
async fn shown(call: &Call, row: &RunRow) -> Result {
    let events = call.store().events(row.id().to_owned(), 0, 100).await?;
    let answer = answer::json(200, &proposals::decided(row, &events));
    Ok(answer::with(answer, "etag", &format!("\"{}\"", row.run.seq)))
}

async fn one(call: Call, body: DecisionBody, verdict: Verdict) -> Result {
    let decision = Decision {
        tenant: call.caller.tenant.clone(),
        id: call.path("proposal_id"),
        verdict,
        note: body.note,
        base_revision: revision(body.base_revision, "base_revision")?,
        if_seq: call.if_match()?,
        by: call.caller.by(body.by),
    };
    let row = proposals::decide(call.store(), decision).await.map_err(not_decided)?;
    shown(&call, &row).await
}

/// As agents write it: a text, or a number, which is the same as its digits.
fn revision(given: Option<Value>, field: &str) -> Result<Option<String>> {
    match given {
        None => Ok(None),
        Some(Value::String(text)) if text.len() <= MAX_KEY_BYTES => Ok(Some(text)),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => {
            let message = format!("must be a text of at most {MAX_KEY_BYTES} bytes, or a number");
            Err(Problem::field(&INVALID_INPUT, field, &message))
        }
    }
}

async fn all(call: Call, body: DecisionsBody) -> Result {
    let by = call.caller.by(body.by);
    let mut revisions = Vec::with_capacity(body.decisions.len());
    for (at, entry) in body.decisions.iter().enumerate() {
        revisions.push(revision(entry.base_revision.clone(), &format!("decisions/{at}/base_revision"))?);
    }
    let mut results = Vec::with_capacity(body.decisions.len());
    let mut updated = 0;
    for (entry, base_revision) in body.decisions.into_iter().zip(revisions) {
        let DecisionOfBody { proposal_id, decision, note, .. } = entry;
        let verdicts = [Verdict::Approve, Verdict::Reject];
        let Some(verdict) = verdicts.into_iter().find(|verdict| verdict.command() == decision) else {
            continue;
        };
        let decision = Decision {
            tenant: call.caller.tenant.clone(),
            id: proposal_id.clone(),
            verdict,
            note,
            base_revision,
            if_seq: None,
            by: by.clone(),
        };
        results.push(match proposals::decide(call.store(), decision).await {
            Ok(row) => {
                updated += 1;
                json!({ "proposal_id": row.id(), "status": row.status(), "error": null })
            }
            Err(error) => {
                let problem = not_decided(error);
                let error =
                    json!({ "code": problem.code, "message": problem.detail, "details": problem.more });
                json!({ "proposal_id": proposal_id, "status": null, "error": error })
            }
        });
    }
    let errors = results.len() - updated;
    Ok(answer::json(200, &json!({ "results": results, "updated": updated, "errors": errors })))
}

fn not_decided(error: NotDecided) -> Problem {
    match error {
        NotDecided::Unknown(id) => StoreError::NotFound { what: "proposal", id }.into(),
        NotDecided::Store(error) => error.into(),
    }
}
