//! Taking runs. A worker that asks may wait here until there is work.

use std::pin::{Pin, pin};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use waypost_kernel::Span;
use waypost_store::codec::token_text;
use waypost_store::{Can, Claim, Claimed, CommandedClaim, Held, PAGE_BYTES, Parts, Take, iso};

use super::commands::command_write;
use super::requests::{ChangesQuery, ClaimBody, ClaimOneBody, ClaimingCommandBody};
use super::runs::{IF_MATCH, renamed};
use super::shapes::{CLAIMED, CLAIMS, COMMANDED_CLAIM};
use super::{BODY_BYTES, Content, GET, POST, Route, RouteResponse, SMALL_BYTES, asks, ok, takes};
use crate::answer::{self, Pieces, Result};
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{INTERNAL_ERROR, NOT_FOUND, PRECONDITION_FAILED, Problem, STOPPING, TOKEN_BUSY};
use crate::wait;

/// What runs of one claim may take in memory.
const CLAIM_BYTES: usize = 2 * PAGE_BYTES;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/claims",
        name: "claim",
        description: "Takes the best due runs of the queues, at most `limit`. With `wait_ms` it answers when there is one, or after \
                that time with none.",
        required_role: RequiredRole::Work,
        body_bytes: SMALL_BYTES,
        responses: &[ok(&CLAIMS)],
        refuses: &[&STOPPING, &TOKEN_BUSY],
        ..takes!(POST, claim, ClaimBody)
    },
    Route {
        path: "/v1/runs/{run_id}/claim",
        name: "claimRun",
        description: "Takes one run by its id, under the rules of claims.",
        required_role: RequiredRole::Work,
        responses: &[ok(&CLAIMED)],
        refuses: &[&NOT_FOUND],
        may_conflict: true,
        ..takes!(POST, claim_run, ClaimOneBody)
    },
    Route {
        path: "/v1/runs/{run_id}/{command}/claimed",
        name: "commandClaimedRun",
        description: "Gives a command, and claims the run in the same transaction: nobody but the named worker can take it first. A run that the \
                command leaves where it cannot be claimed now is answered without a lease. Sent again, it gives the same worker the same lease, as \
                long as that lasts.",
        required_role: RequiredRole::Admin,
        headers: &[IF_MATCH],
        body_bytes: BODY_BYTES,
        responses: &[ok(&COMMANDED_CLAIM)],
        refuses: &[&NOT_FOUND, &PRECONDITION_FAILED],
        may_conflict: true,
        ..takes!(POST, command_claimed, ClaimingCommandBody)
    },
    Route {
        path: "/v1/changes",
        name: "awaitChange",
        description: "Answers when something may have changed, or after `wait_ms`.",
        responses: &[RouteResponse { status: 204, description: "look again", body: Content::Nothing }],
        ..asks!(GET, changed, ChangesQuery)
    },
];

async fn changed(call: Call, query: ChangesQuery) -> Result {
    let at_most = Duration::from_millis(query.wait_ms.unwrap_or(1_000).unsigned_abs());
    if call.is_on_kept_seat {
        return Ok(answer::empty(204));
    }
    let _share = wait::share(&call)?;
    tokio::select! {
        () = call.store().changed(at_most) => Ok(answer::empty(204)),
        () = call.app.stopping() => Ok(answer::empty(204)),
        problem = wait::revoked(&call) => Err(problem),
    }
}

/// In a task of its own: a client that hangs up must not leave runs in the hands of nobody.
async fn claim(call: Call, body: ClaimBody) -> Result {
    if call.app.is_stopping() {
        return Err(Problem::new(&STOPPING, "this server gives out no more work"));
    }
    let (mut send, receive) = oneshot::channel();
    tokio::spawn(async move {
        let claims = take(&call, body, pin!(send.closed())).await;
        let answer = claims.map(|claims| {
            let held = |claimed: &Claimed| Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
            let held: Vec<Held> = claims.iter().map(held).collect();
            let mut text = Pieces::default();
            text.entries("claims", claims, |text, claimed| write(text, &call, claimed));
            text.raw(b"}");
            (text.answer(200), held)
        });
        if let Err(Ok((_, held))) = send.send(answer) {
            let _ = call.store().release(held.into_iter().map(Into::into).collect()).await;
        }
    });
    let lost = |_| Problem::new(&INTERNAL_ERROR, "the claim did not end");
    receive.await.map_err(lost)?.map(|(answer, _)| answer)
}

/// A worker that says neither takes whatever there is.
fn can(playbooks: Option<Vec<String>>, embedded: Option<bool>) -> Option<Can> {
    let says = playbooks.is_some() || embedded.is_some();
    says.then(|| Can { playbooks: playbooks.unwrap_or_default(), carried: embedded.unwrap_or_default() })
}

async fn take(
    call: &Call,
    body: ClaimBody,
    gone: Pin<&mut (dyn Future<Output = ()> + Send)>,
) -> Result<Vec<Claimed>> {
    let claim = Claim {
        worker: body.worker,
        queues: body.queues.unwrap_or_else(|| vec!["default".to_owned()]),
        lifecycles: body.lifecycles,
        can: can(body.playbooks, renamed("embedded", body.embedded, "carried", body.carried)?),
        tenant: Some(call.caller.tenant.clone()).filter(|_| !call.caller.is_everybodys),
        limit: body.limit.unwrap_or(1),
        bytes: Some(body.max_bytes.map_or(CLAIM_BYTES, |most| most.min(CLAIM_BYTES))),
        lease: body.lease_ms.map(Span::from_ms),
        start: body.start,
        idempotency_key: body.idempotency_key,
        wait: None,
    };
    call.app.metrics.claims.inc();
    super::workers::see(call, &claim).await;
    let look = || {
        let claim = claim.clone();
        async move {
            let begun = Instant::now();
            let claims = call.store().claim(claim).await?;
            call.app.metrics.claim_took.observe(begun.elapsed().as_secs_f64());
            Ok(Some(claims).filter(|claims| !claims.is_empty()))
        }
    };
    let same = ("claim", &claim.tenant, &claim.queues, &claim.lifecycles, format!("{:?}", claim.can));
    let claims = wait::until_found(call, body.wait_ms, same, gone, look).await?.unwrap_or_default();
    call.app.metrics.claimed.inc_by(claims.len() as u64);
    for claimed in &claims {
        call.app.remember_run(&claimed.run);
    }
    Ok(claims)
}

pub fn lease_object(claimed: &Claimed) -> Value {
    json!({
        "token": token_text(claimed.token),
        "fence": claimed.fence,
        "expires_at": iso(claimed.expires_at),
        "now": iso(claimed.now),
    })
}

fn write(text: &mut Pieces, call: &Call, claimed: &Claimed) {
    text.raw(b"{\"lease\":");
    text.value(&lease_object(claimed));
    text.raw(b",\"run\":");
    text.value(&claimed.run.written(Parts::ALL, call.shows_engine()));
    text.raw(b"}");
}

async fn claim_run(call: Call, body: ClaimOneBody) -> Result {
    call.check_tenant().await?;
    let take = Take { worker: body.worker, lease: body.lease_ms.map(Span::from_ms), start: body.start };
    let claimed = call.store().claim_run(call.path("run_id"), take).await?;
    call.app.metrics.claimed.inc();
    let mut text = Pieces::default();
    write(&mut text, &call, &claimed);
    Ok(text.answer(200))
}

async fn command_claimed(call: Call, body: ClaimingCommandBody) -> Result {
    let take = Take { worker: body.worker, lease: body.lease_ms.map(Span::from_ms), start: body.start };
    let command = command_write(&call, body.command).await?;
    let CommandedClaim { run, claimed } = call.store().command_claimed(command, take).await?;
    call.app.metrics.claimed.inc_by(u64::from(claimed.is_some()));
    let lease = claimed.as_ref().map(lease_object);
    Ok(answer::json(200, &json!({ "run": call.show(&run), "lease": lease })))
}
