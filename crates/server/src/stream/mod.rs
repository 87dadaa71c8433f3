//! `GET /v1/events/stream`: events as they are committed (SSE). The id of each is its position in the feed, so a client
//! that comes back goes on where it was; one for whom that cannot be promised is told to fetch anew.

pub mod hub;
mod reader;

use std::borrow::Cow;

use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use futures_util::stream::unfold;
use waypost_kernel::tenant::meanings;
use waypost_schema::{Kind, optional};

use crate::answer::{self, Result};
use crate::api::requests::StreamQuery;
use crate::api::{Content, EVENT_STREAM, GET, Route, RouteResponse, asks};
use crate::call::Call;
use crate::problem::{BUSY, INVALID_QUERY, NOT_FOUND, Problem, STOPPING, TOKEN_BUSY};
use crate::room::shares::Use;
use hub::TOPICS;
use reader::{Reader, Want};

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/events/stream",
    name: "streamEvents",
    description: "Events as they are committed: `id` is the feed position, `event` the topic, `data` the event. `Last-Event-ID` goes on \
            after it. `event: reset` says that what lies between cannot be shown: fetch anew, and go on from `data.position`.",
    headers: &[optional("Last-Event-ID", Kind::Text(20), "The id of the last event that was seen.")],
    responses: &[RouteResponse {
        status: 200,
        description: "a stream that does not end",
        body: Content::Events,
    }],
    refuses: &[&NOT_FOUND, &STOPPING, &TOKEN_BUSY],
    ..asks!(GET, open, StreamQuery)
}];

/// Of a server's connections, at most this part are streams: the others must get through.
const SHARE: usize = 2;

async fn open(call: Call, query: StreamQuery) -> Result {
    if call.app.is_stopping() {
        return Err(Problem::new(&STOPPING, "this server is about to end"));
    }
    let streams = call.app.metrics.streams.get() as usize;
    if call.is_on_kept_seat || streams >= call.app.options.connections / SHARE {
        return Err(Problem::new(&BUSY, "as many clients follow events as this server takes"));
    }
    let share = call.caller.token_id().map(|token| call.app.shares.take(token, Use::Stream)).transpose()?;
    let seen = seen(&call, &query)?;
    let after = query.after;
    let want = want(&call, query).await?;
    let reader = Reader::begin(call.app.clone(), (call.caller.clone(), share), want, seen, after).await?;
    let chunks = unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), reader))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, axum::http::HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, axum::http::HeaderValue::from_static("no-store"));
    Ok(answer::with(response, "x-accel-buffering", "no"))
}

async fn want(call: &Call, query: StreamQuery) -> Result<Want> {
    let run_id = match query.run {
        Some(id) => Some(call.store().run(call.caller.tenant.clone(), id).await?.id().to_owned()),
        None => None,
    };
    let topics: Option<Vec<String>> =
        query.topics.map(|list| list.split(',').map(|name| name.trim().to_owned()).collect());
    if let Some(unknown) = topics.iter().flatten().find(|name| !TOPICS.contains(&name.as_str())) {
        let message = format!("{unknown:?} is no topic; allowed: {}", TOPICS.join(", "));
        return Err(Problem::field(&INVALID_QUERY, "topics", &message));
    }
    let tenant = call.caller.tenant.clone();
    let stored = |name: String| meanings(&tenant, &name).into_iter().map(Cow::into_owned).collect();
    let lifecycles = query.lifecycle.map(stored);
    Ok(Want { tenant, run_id, lifecycles, topics })
}

fn seen(call: &Call, query: &StreamQuery) -> Result<Option<u64>> {
    let Some(text) = call.header("last-event-id").filter(|text| !text.is_empty()) else {
        return Ok(query.last_event_id);
    };
    let wrong =
        || Problem::field(&INVALID_QUERY, "Last-Event-ID", "must be the id of an event of this stream");
    // What is beyond all that a position can be is no id of anybody's, and reset as such.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().or(if is_number { Ok(u64::MAX) } else { Err(wrong()) }).map(Some)
}
