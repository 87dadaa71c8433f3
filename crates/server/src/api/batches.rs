//! What the holder of many runs tells of them in one request. Each entry is answered by itself, in the order of the request:
//! what is refused of one leaves its neighbours alone.

use serde_json::json;
use waypost_store::{Each, Held, PAGE_BYTES, Parts, Reply, RunRow, Store, StoreError};

use super::held::{finish_of, note_of, noted, refused, renewed};
use super::kinds::LeaseToken;
use super::requests::{
    EventsOfRunsBody, FinishBody, FinishesBody, HeartbeatsBody, LeaseBody, NewEventBody, OfRun,
};
use super::shapes::{ALL_ENDED, ALL_NOTED, ALL_RENEWED};
use super::{BATCH_BYTES, POST, Route, ok, takes};
use crate::answer::{Pieces, Result};
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
        description: "Ends many runs. Each is answered by itself; the same finish sent again is answered as the first time. Runs are shown with their \
                input, metadata, details and carried as far as 4 MiB have room for them.",
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
    let mut kept = 0;
    let show = |text: &mut Pieces, it| {
        kept += 1;
        text.value(&renewed(&it));
    };
    let answer = each(&call, "leases", body.leases, write, |store, leases| store.renew(leases), show).await?;
    call.app.metrics.heartbeats.inc_by(kept);
    Ok(answer)
}

async fn events(call: Call, body: EventsOfRunsBody) -> Result {
    let write = |held, entry: NewEventBody| Ok(note_of(&call, held, entry));
    let show = |text: &mut Pieces, it| text.value(&noted(&it));
    each(&call, "events", body.events, write, |store, notes| store.note(notes), show).await
}

async fn finishes(call: Call, body: FinishesBody) -> Result {
    let write = |held, entry: FinishBody| finish_of(&call, held, entry);
    let show = |text: &mut Pieces, row: RunRow| {
        call.app.metrics.finished.count(&row);
        let parts = if text.byte_count() + row.weight() <= PAGE_BYTES { Parts::ALL } else { Parts::NONE };
        text.raw(b"{\"run\":");
        text.value(&row.written(parts, call.shows_engine()));
        text.raw(b"}");
    };
    each(&call, "runs", body.finishes, write, |store, finishes| store.finish(finishes), show).await
}

/// Runs of which it is not known that they are small: so many of them are read at a time.
const MOST_LARGE: usize = 16;
const SMALL_RUN: usize = 64 * 1024;

/// One request of the store for all that can be asked, or a few if runs may be large; an answer for each entry, in its place.
async fn each<'c, T: Leased, W, A>(
    call: &'c Call,
    name: &str,
    entries: Vec<OfRun<T>>,
    write: impl Fn(Held, T) -> Result<W>,
    send: impl Fn(&'c dyn Store, Vec<W>) -> Reply<'c, Each<A>>,
    mut show: impl FnMut(&mut Pieces, A),
) -> Result {
    let mut text = Pieces::default();
    text.raw(format!("{{\"{name}\":[").as_bytes());
    let mut entries = entries.into_iter().peekable();
    let mut is_first = true;
    while entries.peek().is_some() {
        let (mut refusals, mut writes) = (Vec::new(), Vec::new());
        let mut large = 0;
        while let Some(OfRun { run_id, body }) = entries.next_if(|_| large < MOST_LARGE) {
            large += usize::from(call.app.bytes_of(&run_id).is_none_or(|bytes| bytes > SMALL_RUN));
            let checked = call.check_tenant_of(&run_id).await;
            let held = Held { run_id, token: body.token().0 };
            let write = checked.and_then(|()| write(held, body));
            refusals.push(write.map(|write| writes.push(write)).err());
        }
        let count = writes.len();
        let mut sent = match send(call.store(), writes).await {
            // What was done before is told.
            Err(error) if !is_first => std::iter::repeat_with(|| Err(error.clone())).take(count).collect(),
            sent => sent?,
        }
        .into_iter();
        for refusal in refusals {
            if !std::mem::take(&mut is_first) {
                text.raw(b",");
            }
            let answer = match refusal {
                Some(problem) => Err(problem),
                None => {
                    let lost = || Err(StoreError::Unavailable("the entry was not answered".into()));
                    sent.next().unwrap_or_else(lost).map_err(|error| refused(call, error))
                }
            };
            match answer {
                Ok(answer) => show(&mut text, answer),
                Err(problem) => text.value(&json!({ "error": problem.object() })),
            }
        }
    }
    text.raw(b"]}");
    Ok(text.answer(200))
}
