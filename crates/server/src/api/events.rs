//! What happens to all runs of a tenant.

use serde_json::{Value, json};
use waypost_store::EventRow;

use super::shapes::{COUNT, FEED, LAST, LIMIT};
use super::{GET, Route, ok};
use crate::answer::{self, Result};
use crate::call::Call;
use crate::shape::optional;

/// Pages that are looked through for a tenant's own before an answer without any is given.
const MOST_PAGES: usize = 20;
const PAGE: usize = 500;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/v1/events",
        name: "readFeed",
        about: "Events of all runs of the tenant, in the order of their commits. Never skips a late one.",
        query: &[optional("after", COUNT, "Only those after this position."), LIMIT],
        gives: &[ok(&FEED)],
        run: |call| Box::pin(feed(call)),
        ..GET
    },
    Route {
        path: "/v1/events/last",
        name: "getLastPosition",
        about: "Where the feed ends now.",
        gives: &[ok(&LAST)],
        run: |call| Box::pin(last(call)),
        ..GET
    },
];

async fn feed(call: Call) -> Result {
    let mut after = call.query.integer("after").unwrap_or_default().unsigned_abs();
    let limit = call.query.integer("limit").unwrap_or(50) as usize;
    let mut found: Vec<Value> = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = call.store().feed(after, PAGE).await?;
        let is_last = page.len() < PAGE;
        for event in page {
            if found.len() == limit {
                break;
            }
            after = event.position;
            found.extend(
                Some(event)
                    .filter(|event| event.tenant == call.caller.tenant)
                    .map(|it| EventRow::object(&it)),
            );
        }
        if is_last || !found.is_empty() {
            break;
        }
    }
    Ok(answer::json(200, &json!({ "events": found, "next_after": after })))
}

async fn last(call: Call) -> Result {
    let position = call.store().last_position().await?;
    Ok(answer::json(200, &json!({ "last_position": position })))
}
