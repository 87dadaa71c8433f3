//! What the holder of many runs tells of them in one request. Each entry is answered by itself, in the order of the request:
//! what is refused of one leaves its neighbours alone.

use serde_json::{Value, json};
use waypost_store::{Each, Held, Reply, Store};

use super::held::{finish_of, note_of, noted, refused, renewed, token_of};
use super::shapes::{ALL_ENDED, ALL_NOTED, ALL_RENEWED, EVENTS_OF_RUNS, FINISHES, HEARTBEATS};
use super::{BATCH_BYTES, POST, Route, ok};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::guard::Needs;
use crate::shape::Fields;

const BATCH: Route = Route { needs: Needs::Work, body_bytes: BATCH_BYTES, is_lenient: true, ..POST };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/heartbeats",
        name: "heartbeats",
        about: "Extends many leases. Each is answered by itself.",
        body: Some(&HEARTBEATS),
        gives: &[ok(&ALL_RENEWED)],
        run: |call| Box::pin(heartbeats(call)),
        ..BATCH
    },
    Route {
        path: "/v1/events",
        name: "addEvents",
        about: "Adds events to the logs of many runs, in the order of the request. Each is answered by itself.",
        body: Some(&EVENTS_OF_RUNS),
        gives: &[ok(&ALL_NOTED)],
        run: |call| Box::pin(events(call)),
        ..BATCH
    },
    Route {
        path: "/v1/finishes",
        name: "finishes",
        about: "Ends many runs. Each is answered by itself; the same finish sent again is answered as the first time.",
        body: Some(&FINISHES),
        gives: &[ok(&ALL_ENDED)],
        run: |call| Box::pin(finishes(call)),
        ..BATCH
    },
];

async fn heartbeats(mut call: Call) -> Result {
    let entries = call.body.take_list("leases");
    let answers =
        each(&call, entries, |held, _| Ok(held), |store, leases| store.renew(leases), |it| renewed(&it));
    let answers = answers.await?;
    call.app
        .metrics
        .heartbeats
        .inc_by(answers.iter().filter(|answer| answer.get("error").is_none()).count() as u64);
    Ok(answer::json(200, &json!({ "leases": answers })))
}

async fn events(mut call: Call) -> Result {
    let entries = call.body.take_list("events");
    let write = |held, mut entry: Fields| {
        let by = by(&call, &entry);
        Ok(note_of(held, by, &mut entry))
    };
    let answers = each(&call, entries, write, |store, notes| store.note(notes), |it| noted(&it)).await?;
    Ok(answer::json(200, &json!({ "events": answers })))
}

async fn finishes(mut call: Call) -> Result {
    let entries = call.body.take_list("finishes");
    let write = |held, mut entry: Fields| {
        let by = by(&call, &entry);
        finish_of(held, by, &mut entry)
    };
    let show = |row| {
        call.app.metrics.finished.inc();
        json!({ "run": call.show(&row) })
    };
    let answers = each(&call, entries, write, |store, finishes| store.finish(finishes), show).await?;
    Ok(answer::json(200, &json!({ "runs": answers })))
}

fn by(call: &Call, entry: &Fields) -> String {
    entry.text("by").unwrap_or_else(|| call.caller.by(None))
}

/// One request of the store for all that can be asked; an answer for each entry, in its place.
async fn each<'c, W, A>(
    call: &'c Call,
    entries: Vec<Fields>,
    write: impl Fn(Held, Fields) -> Result<W>,
    send: impl FnOnce(&'c dyn Store, Vec<W>) -> Reply<'c, Each<A>>,
    show: impl Fn(A) -> Value,
) -> Result<Vec<Value>> {
    let mut answers = Vec::with_capacity(entries.len());
    let mut writes = Vec::with_capacity(entries.len());
    for entry in entries {
        let written = match held(call, &entry).await {
            Ok(held) => write(held, entry),
            Err(problem) => Err(problem),
        };
        match written {
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

async fn held(call: &Call, entry: &Fields) -> Result<Held> {
    let (run_id, token) = (entry.words("run_id"), token_of(entry)?);
    call.check_tenant_of(&run_id).await?;
    Ok(Held { run_id, token })
}
