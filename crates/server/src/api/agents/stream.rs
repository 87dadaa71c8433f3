//! `GET /events/stream`: what becomes of agents' runs, as seed 001 names it. Nothing is told before it stands in the object store: the
//! log is read up to where the projection has gone, and no further.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_kernel::Outcome;
use waypost_schema::{Kind, optional};
use waypost_store::{EventRow, StoreError};

use super::front::projection;
use crate::answer::{self, Result};
use crate::api::{Content, EVENT_STREAM, GET, Route, RouteResponse, plain};
use crate::app::App;
use crate::call::Call;
use crate::guard::Caller;
use crate::metrics::Present;
use crate::problem::{BUSY, INVALID_QUERY, Problem, STOPPING, TOKEN_BUSY, UPSTREAM_UNAVAILABLE};
use crate::room::shares::{Share, Use};
use crate::tokens::FRESH;

pub const ROUTES: &[Route] = &[Route {
    path: "/events/stream",
    name: "streamAgentEvents",
    description: "What becomes of agents' runs, never ahead of their status.json (SSE): `data` is `{\"type\":\"run.status.changed\",\"runId\",\"status\"}` \
            or `{\"type\":\"run.step.completed\",\"runId\",\"step\"}`, `proposal.created` and `proposal.status.changed` with `proposalId`, `inbox.new` with `inboxId`. `Last-Event-ID` goes on after it.",
    headers: &[optional("Last-Event-ID", Kind::Text(20), "The id of the last event that was seen.")],
    responses: &[RouteResponse {
        status: 200,
        description: "a stream that does not end",
        body: Content::Events,
    }],
    refuses: &[&UPSTREAM_UNAVAILABLE, &STOPPING, &TOKEN_BUSY],
    is_front: true,
    ..plain!(GET, open)
}];

const STATUS: &str = "run.status.changed";
const STEP: &str = "run.step.completed";
const PROPOSAL_CREATED: &str = "proposal.created";
const PROPOSAL_STATUS: &str = "proposal.status.changed";
const INBOX_NEW: &str = "inbox.new";

const PAGE: usize = 500;
/// Other servers' events come without a word.
const LOOK: Duration = Duration::from_millis(500);
/// Between two looks, however much happens.
const AT_LEAST: Duration = Duration::from_millis(100);
/// Events that wait for their runs' documents; the oldest go, and their readers poll.
const MOST_WITHHELD: usize = 1_000;
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Of a server's connections, at most this part are such streams: the others must get through.
const SHARE: usize = 4;

struct Reader {
    app: Arc<App>,
    caller: Caller,
    /// The projection whose readers these are.
    name: String,
    /// All up to here was looked at.
    at: u64,
    ready: VecDeque<Bytes>,
    /// Events of runs that the projection went past without having written them.
    withheld: VecDeque<EventRow>,
    checked_at: Instant,
    sent_at: Instant,
    _share: Option<Share>,
    _present: Present,
}

async fn open(call: Call) -> Result {
    let app = call.app.clone();
    if app.is_stopping() {
        return Err(Problem::new(&STOPPING, "this server is about to end"));
    }
    if call.is_on_kept_seat || app.metrics.streams.get() as usize >= app.options.connections / SHARE {
        return Err(Problem::new(&BUSY, "as many clients follow events as this server takes"));
    }
    let share = call.caller.token_id().map(|token| app.shares.take(token, Use::Stream)).transpose()?;
    let name = projection(&call)?.reader();
    let written = app.store.cursor(name.clone()).await?.unwrap_or(0);
    // An id of another database, or of one that was restored since, is no reason to be silent until that many events happened.
    let at = seen(&call)?.map_or(written, |seen| seen.min(written));
    let now = Instant::now();
    let reader = Reader {
        caller: call.caller.clone(),
        name,
        at,
        ready: VecDeque::from([Bytes::from_static(b"retry: 1000\n: waypost\n\n")]),
        withheld: VecDeque::new(),
        checked_at: now,
        sent_at: now,
        _share: share,
        _present: app.metrics.streaming(),
        app,
    };
    let chunks = unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), reader))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    Ok(answer::with(response, "x-accel-buffering", "no"))
}

fn seen(call: &Call) -> Result<Option<u64>> {
    let Some(text) = call.header("last-event-id").filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong =
        || Problem::field(&INVALID_QUERY, "Last-Event-ID", "must be the id of an event of this stream");
    text.parse().map(Some).map_err(|_| wrong())
}

impl Reader {
    /// The next bytes; none: the stream ends, and the client comes back by itself.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.checked_at.elapsed() >= FRESH {
                self.caller.check_again(&self.app).await.ok()?;
                self.checked_at = Instant::now();
            }
            if let Some(chunk) = self.ready.pop_front() {
                self.sent_at = Instant::now();
                return Some(chunk);
            }
            if self.app.is_stopping() {
                return None;
            }
            match self.look().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%error, "a stream of agents' events ends");
                    return None;
                }
            }
            if self.sent_at.elapsed() >= HEARTBEAT {
                self.ready.push_back(Bytes::from_static(b": beat\n\n"));
                continue;
            }
            let app = self.app.clone();
            tokio::select! {
                () = async { sleep(AT_LEAST).await; app.store.changed(LOOK).await } => {}
                () = app.stopping() => {}
            }
        }
    }

    /// Whether there was anything to look at.
    async fn look(&mut self) -> waypost_store::Result<bool> {
        let written = self.app.store.cursor(self.name.clone()).await?.unwrap_or(0);
        if written <= self.at && self.withheld.is_empty() {
            return Ok(false);
        }
        // After the cursor: what that has passed is known by then.
        let left: BTreeSet<String> = self
            .app
            .store
            .left_behind(self.name.clone())
            .await?
            .into_iter()
            .map(|left| left.run_id)
            .collect();
        let has_released = self.release(&left).await?;
        if written <= self.at {
            return Ok(has_released);
        }
        let events = self.app.store.feed(Some(self.at), PAGE).await?.events;
        let is_last = events.is_empty();
        for event in events {
            if event.position > written {
                return Ok(true);
            }
            self.at = event.position;
            if event.tenant != self.caller.tenant {
                continue;
            }
            if left.contains(&event.run_id) {
                self.withhold(event);
                continue;
            }
            let told = self.told(&event).await?;
            self.push(event.position, &told);
        }
        if is_last {
            self.at = written;
        }
        Ok(true)
    }

    fn withhold(&mut self, event: EventRow) {
        if self.withheld.len() >= MOST_WITHHELD {
            self.withheld.pop_front();
        }
        self.withheld.push_back(event);
    }

    /// What stands in status.json by now. The last of it has the id of all that was looked at, unless more is withheld.
    async fn release(&mut self, left: &BTreeSet<String>) -> waypost_store::Result<bool> {
        let (still, written): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.withheld).into_iter().partition(|event| left.contains(&event.run_id));
        self.withheld = still;
        let mut told = Vec::new();
        for event in &written {
            told.extend(self.told(event).await?);
        }
        self.push(self.at, &told);
        Ok(!written.is_empty())
    }

    /// What an event of the log is to readers of status.json, in order.
    async fn told(&self, event: &EventRow) -> waypost_store::Result<Vec<Value>> {
        let moves = event.from.as_deref() != Some(&*event.to);
        Ok(match event.lifecycle.as_str() {
            waypost_store::INBOX if event.from.is_none() => {
                vec![json!({ "type": INBOX_NEW, "inboxId": event.run_id })]
            }
            waypost_store::PROPOSAL if event.from.is_none() => {
                vec![json!({ "type": PROPOSAL_CREATED, "proposalId": event.run_id })]
            }
            waypost_store::PROPOSAL if moves => {
                vec![json!({ "type": PROPOSAL_STATUS, "proposalId": event.run_id, "status": event.to })]
            }
            _ => self.told_of_run(event, moves).await?,
        })
    }

    async fn told_of_run(&self, event: &EventRow, moves: bool) -> waypost_store::Result<Vec<Value>> {
        let mut told = Vec::new();
        let catalog = self.app.store.lifecycles().await?;
        let lifecycle = catalog.latest(&event.lifecycle).filter(|lifecycle| lifecycle.projected);
        let Some(lifecycle) = lifecycle else { return Ok(told) };
        let moved = event.payload["items"].as_array().cloned().unwrap_or_default();
        if let Some(kind) = lifecycle.counted_items() {
            let is_done = |item: &&Value| {
                let state = item["to"].as_str().and_then(|name| kind.state_named(name));
                item["kind"] == *kind.name
                    && state.is_some_and(|state| kind.state(state).outcome == Some(Outcome::Succeeded))
            };
            let done: Vec<&str> =
                moved.iter().filter(is_done).filter_map(|item| item["key"].as_str()).collect();
            if !done.is_empty() {
                for step in self.numbers(&event.run_id, &kind.name, &done).await? {
                    told.push(json!({ "type": STEP, "runId": event.run_id, "step": step }));
                }
            }
        }
        if moves {
            told.push(json!({ "type": STATUS, "runId": event.run_id, "status": event.to }));
        }
        Ok(told)
    }

    /// As the step files have them: in the order in which steps were added, cleanups left out.
    async fn numbers(&self, run_id: &str, kind: &str, keys: &[&str]) -> waypost_store::Result<Vec<usize>> {
        let items = match self.app.store.items(run_id.to_owned(), Some(kind.to_owned())).await {
            // It was pruned.
            Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
            found => found?,
        };
        let steps = items.iter().filter(|item| item.role != waypost_kernel::item::Role::Cleanup).enumerate();
        Ok(steps.filter(|(_, item)| keys.contains(&item.key.as_str())).map(|(at, _)| at + 1).collect())
    }

    /// No id goes past an event that is withheld: whoever comes back after it is told of that once it is written, and of the others again.
    fn push(&mut self, position: u64, told: &[Value]) {
        let position = self.withheld.is_empty().then_some(position);
        self.app.metrics.streamed.inc_by(told.len() as u64);
        self.ready.extend(frames(position, told).map(Bytes::from));
    }
}

/// The last of what one event of the log is has its id: whoever was cut off before that is told of all of it again.
fn frames(position: Option<u64>, told: &[Value]) -> Option<String> {
    let (last, others) = told.split_last()?;
    let mut frames: String = others.iter().map(|data| format!("data: {data}\n\n")).collect();
    let id = position.map(|position| format!("id: {position}\n"));
    frames += &format!("{}data: {last}\n\n", id.unwrap_or_default());
    Some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A9
    #[test]
    fn whoever_is_cut_off_within_an_event_is_told_of_all_of_it_again() {
        assert_eq!(frames(Some(7), &[]), None);
        assert_eq!(frames(Some(7), &[json!(1)]).as_deref(), Some("id: 7\ndata: 1\n\n"));
        assert_eq!(frames(None, &[json!(1)]).as_deref(), Some("data: 1\n\n"));
        let many = frames(Some(7), &[json!(1), json!(2), json!(3)]);
        assert_eq!(many.as_deref(), Some("data: 1\n\ndata: 2\n\nid: 7\ndata: 3\n\n"));
    }
}
