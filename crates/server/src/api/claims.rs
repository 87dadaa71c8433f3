//! Taking runs. A worker that asks may wait here until there is work.

use std::pin::{Pin, pin};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use waypost_store::codec::token_text;
use waypost_store::{Can, Claim, Claimed, Held, Take, iso};

use super::shapes::{CLAIM, CLAIM_ONE, CLAIMED, CLAIMS};
use super::{Content, GET, Gives, POST, Route, SMALL_BYTES, ok};
use crate::answer::{self, Result};
use crate::app::Claimer;
use crate::call::Call;
use crate::guard::Needs;
use crate::problem::{INTERNAL_ERROR, NOT_FOUND, Problem, STOPPING};
use crate::shape::{Fields, Kind, optional};

/// Between two looks while somebody waits: times arrive (a schedule, a retry, a lease that ends) without a word.
const LOOK: Duration = Duration::from_millis(500);
/// However much changes meanwhile.
const SHORTEST: Duration = Duration::from_millis(20);

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/claims",
        name: "claim",
        about: "Takes the best due runs of the queues, at most `limit`. With `wait_ms` it answers when there is one, or after \
                that time with none.",
        needs: Needs::Work,
        body: Some(&CLAIM),
        body_bytes: SMALL_BYTES,
        gives: &[ok(&CLAIMS)],
        refuses: &[&STOPPING],
        run: |call| Box::pin(claim(call)),
        ..POST
    },
    Route {
        path: "/v1/runs/{run_id}/claim",
        name: "claimRun",
        about: "Takes one run by its id, under the rules of claims.",
        needs: Needs::Work,
        body: Some(&CLAIM_ONE),
        gives: &[ok(&CLAIMED)],
        refuses: &[&NOT_FOUND],
        may_conflict: true,
        run: |call| Box::pin(claim_run(call)),
        ..POST
    },
    Route {
        path: "/v1/changes",
        name: "awaitChange",
        about: "Answers when something may have changed, or after `wait_ms`.",
        query: &[optional("wait_ms", Kind::Integer(0, 60_000), "1000 if left out.")],
        gives: &[Gives { status: 204, about: "look again", body: Content::Nothing }],
        run: |call| Box::pin(changed(call)),
        ..GET
    },
];

async fn changed(call: Call) -> Result {
    let at_most = Duration::from_millis(call.query.integer("wait_ms").unwrap_or(1_000).unsigned_abs());
    tokio::select! {
        () = call.store().changed(at_most) => {}
        () = call.app.stopping() => {}
    }
    Ok(answer::empty(204))
}

/// Asks until there is something, the time is over, the asker is gone or the server ends. What was asked of the store
/// is always waited for.
pub async fn waiting<T, Look, Looked>(
    call: &Call,
    mut gone: Pin<&mut (dyn Future<Output = ()> + Send)>,
    look: Look,
) -> Result<Option<T>>
where
    Look: Fn() -> Looked,
    Looked: Future<Output = Result<Option<T>>>,
{
    let wait_ms = call.query.integer("wait_ms").or_else(|| call.body.integer("wait_ms")).unwrap_or_default();
    let until = Instant::now() + Duration::from_millis(wait_ms.unsigned_abs());
    loop {
        let looked_at = Instant::now();
        let found = look().await?;
        let left = until.saturating_duration_since(Instant::now());
        if found.is_some() || left.is_zero() || call.app.is_stopping() {
            return Ok(found);
        }
        tokio::select! {
            () = call.store().changed(left.min(LOOK)) => {}
            () = call.app.stopping() => {}
            () = gone.as_mut() => return Ok(None),
        }
        tokio::time::sleep_until((looked_at + SHORTEST).min(until)).await;
    }
}

/// In a task of its own: a client that hangs up must not leave runs in the hands of nobody.
async fn claim(call: Call) -> Result {
    if call.app.is_stopping() {
        return Err(Problem::new(&STOPPING, "this server gives out no more work"));
    }
    let (mut send, receive) = oneshot::channel();
    tokio::spawn(async move {
        let claims = take(&call, pin!(send.closed())).await;
        let answer = claims.map(|claims| {
            let objects: Vec<Value> = claims.iter().map(|claimed| object(&call, claimed)).collect();
            (answer::json(200, &json!({ "claims": objects })), claims)
        });
        if let Err(Ok((_, claims))) = send.send(answer) {
            let held = |claimed: &Claimed| Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
            let _ = call.store().release(claims.iter().map(held).collect()).await;
        }
    });
    let lost = |_| Problem::new(&INTERNAL_ERROR, "the claim did not end");
    receive.await.map_err(lost)?.map(|(answer, _)| answer)
}

/// A worker that says neither takes whatever there is.
fn can(body: &Fields) -> Option<Can> {
    let playbooks = body.texts("playbooks");
    let says = playbooks.is_some() || body.0.get("carried").is_some_and(Value::is_boolean);
    says.then(|| Can { playbooks: playbooks.unwrap_or_default(), carried: body.is("carried") })
}

async fn take(call: &Call, gone: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<Vec<Claimed>> {
    let body = &call.body;
    let claim = Claim {
        worker: body.words("worker"),
        queues: body.texts("queues").unwrap_or_else(|| vec!["default".to_owned()]),
        lifecycles: body.texts("lifecycles").unwrap_or_default(),
        can: can(body),
        tenant: Some(call.caller.tenant.clone()).filter(|_| !call.caller.is_everybodys),
        limit: body.integer("limit").unwrap_or(1) as usize,
        lease: body.span_ms("lease_ms"),
        start: body.is("start"),
    };
    call.app.metrics.claims.inc();
    see(call, &claim);
    let look = || {
        let claim = call.store().claim(claim.clone());
        async move {
            let begun = Instant::now();
            let claims = claim.await?;
            call.app.metrics.claim_took.observe(begun.elapsed().as_secs_f64());
            Ok(Some(claims).filter(|claims| !claims.is_empty()))
        }
    };
    let claims = waiting(call, gone, look).await?.unwrap_or_default();
    call.app.metrics.claimed.inc_by(claims.len() as u64);
    for claimed in &claims {
        call.app.remember_tenant(claimed.run.id(), &claimed.run.tenant);
    }
    Ok(claims)
}

fn see(call: &Call, claim: &Claim) {
    let claimer = Claimer {
        at: Instant::now(),
        tenant: call.caller.tenant.clone(),
        queues: claim.queues.clone(),
        free: claim.limit,
    };
    super::workers::see(&call.app, claim.worker.clone(), claimer);
}

fn object(call: &Call, claimed: &Claimed) -> Value {
    json!({
        "run": call.show(&claimed.run),
        "lease": {
            "token": token_text(claimed.token),
            "fence": claimed.fence,
            "expires_at": iso(claimed.expires_at),
            "now": iso(claimed.now),
        },
    })
}

async fn claim_run(call: Call) -> Result {
    call.check_tenant().await?;
    let body = &call.body;
    let take =
        Take { worker: body.words("worker"), lease: body.span_ms("lease_ms"), start: body.is("start") };
    let claimed = call.store().claim_run(call.path("run_id"), take).await?;
    call.app.metrics.claimed.inc();
    Ok(answer::json(200, &object(&call, &claimed)))
}
