//! What the holder of many runs tells of them in one request. Each entry is answered by itself, in the order of the request:
//! what is refused of one leaves its neighbours alone.

use serde_json::{Value, json};
use waypost_store::{Each, Held, Reply, Store};

use super::held::{finish_of, note_of, noted, refused, renewed};
use super::kinds::LeaseToken;
use super::requests::{
    EventsOfRunsBody, FinishBody, FinishesBody, HeartbeatsBody, LeaseBody, NewEventBody, OfRun,
};
use super::shapes::{ALL_ENDED, ALL_NOTED, ALL_RENEWED};
use super::{BATCH_BYTES, POST, Route, ok, takes};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::RequiredRole;

const BATCH: Route =
    Route { required_role: RequiredRole::Work, body_bytes: BATCH_BYTES, is_lenient: true, ..POST };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/heartbeats",
        name: "heartbeats",
        description: "Extends many leases. Each is answered by itself.",
        responses: &[ok(&ALL_RENEWED)],
        ..takes!(BATCH, heartbeats, HeartbeatsBody)
    },
    Route {
        path: "/v1/events",
        name: "addEvents",
        description: "Adds events to the logs of many runs, in the order of the request. Each is answered by itself.",
        responses: &[ok(&ALL_NOTED)],
        ..takes!(BATCH, events, EventsOfRunsBody)
    },
    Route {
        path: "/v1/finishes",
        name: "finishes",
        description: "Ends many runs. Each is answered by itself; the same finish sent again is answered as the first time.",
        responses: &[ok(&ALL_ENDED)],
        ..takes!(BATCH, finishes, FinishesBody)
    },
];

/// A body that proves who holds its run.
trait Leased {
    fn token(&self) -> LeaseToken;
}

macro_rules! leased {
    ($($type:ty),+) => {$(
        impl Leased for $type {
            fn token(&self) -> LeaseToken {
                self.lease_token
            }
        }
    )+};
}

leased!(LeaseBody, NewEventBody, FinishBody);

async fn heartbeats(call: Call, body: HeartbeatsBody) -> Result {
    let write = |held, _: LeaseBody| Ok(held);
    let answers =
        each(&call, body.leases, write, |store, leases| store.renew(leases), |it| renewed(&it)).await?;
    let kept = answers.iter().filter(|answer| answer.get("error").is_none()).count();
    call.app.metrics.heartbeats.inc_by(kept as u64);
    Ok(answer::json(200, &json!({ "leases": answers })))
}

async fn events(call: Call, body: EventsOfRunsBody) -> Result {
    let write = |held, entry: NewEventBody| Ok(note_of(&call, held, entry));
    let answers = each(&call, body.events, write, |store, notes| store.note(notes), |it| noted(&it)).await?;
    Ok(answer::json(200, &json!({ "events": answers })))
}

async fn finishes(call: Call, body: FinishesBody) -> Result {
    let write = |held, entry: FinishBody| finish_of(&call, held, entry);
    let show = |row| {
        call.app.metrics.finished.inc();
        json!({ "run": call.show(&row) })
    };
    let answers = each(&call, body.finishes, write, |store, finishes| store.finish(finishes), show).await?;
    Ok(answer::json(200, &json!({ "runs": answers })))
}

/// One request of the store for all that can be asked; an answer for each entry, in its place.
async fn each<'c, T: Leased, W, A>(
    call: &'c Call,
    entries: Vec<OfRun<T>>,
    write: impl Fn(Held, T) -> Result<W>,
    send: impl FnOnce(&'c dyn Store, Vec<W>) -> Reply<'c, Each<A>>,
    show: impl Fn(A) -> Value,
) -> Result<Vec<Value>> {
    let mut answers = Vec::with_capacity(entries.len());
    let mut writes = Vec::with_capacity(entries.len());
    for OfRun { run_id, body } in entries {
        let checked = call.check_tenant_of(&run_id).await;
        let held = Held { run_id, token: body.token().0 };
        match checked.and_then(|()| write(held, body)) {
            Ok(write) => {
                writes.push(write);
                answers.push(None);
            }
            Err(problem) => answers.push(Some(json!({ "error": problem.object() }))),
        }
    }
    let mut sent = send(call.store(), writes).await?.into_iter();
    let answer = |known: Option<Value>| {
        known.or_else(|| {
            Some(match sent.next()? {
                Ok(answer) => show(answer),
                Err(error) => json!({ "error": refused(call, error).object() }),
            })
        })
    };
    Ok(answers.into_iter().filter_map(answer).collect())
}
