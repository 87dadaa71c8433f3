//! What happens to all runs of a tenant.

use serde_json::json;
use waypost_store::EventRow;

use super::requests::FeedQuery;
use super::shapes::{FEED, LAST};
use super::{GET, Route, asks, ok, plain};
use crate::answer::{self, Pieces, Result};
use crate::call::Call;

/// Pages that are looked through for a tenant's own before an answer without any is given.
const MOST_PAGES: usize = 20;
const PAGE: usize = 500;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/events",
        name: "readFeed",
        description: "Events of all runs of the tenant, in the order of their commits. Never skips a late one.",
        responses: &[ok(&FEED)],
        ..asks!(GET, feed, FeedQuery)
    },
    Route {
        path: "/v1/events/last",
        name: "getLastPosition",
        description: "Where the feed ends now.",
        responses: &[ok(&LAST)],
        ..plain!(GET, last)
    },
];

async fn feed(call: Call, query: FeedQuery) -> Result {
    let mut after = query.after.unwrap_or_default();
    let mut found: Vec<EventRow> = Vec::new();
    let turn = call.page_turn().await;
    for _ in 0..MOST_PAGES {
        let page = call.store().feed(Some(after), PAGE).await?.events;
        let is_last = page.is_empty();
        for event in page {
            if found.len() == query.limit.0 {
                break;
            }
            after = event.position;
            found.extend(Some(event).filter(|event| event.tenant == call.caller.tenant));
        }
        if is_last || !found.is_empty() {
            break;
        }
    }
    let write = |text: &mut Pieces, event: &EventRow| text.value(&event.written());
    Ok(turn.lasting_with(answer::list(200, "events", found, write, ("next_after", &after))))
}

async fn last(call: Call) -> Result {
    let position = call.store().feed(None, 0).await?.position;
    Ok(answer::json(200, &json!({ "last_position": position })))
}
