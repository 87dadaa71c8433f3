//! What the seeds' systems write beside a move, in their words.

use serde_json::{Map, Value, json};
use waypost_kernel::Run;
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::{Outcome, Phase};

use crate::run::{RunRow, iso};

/// What the seed writes into the metadata of a run whose worker never began.
pub(crate) fn cancelled_by_system(before: &RunRow, change: &Change) -> Map<String, Value> {
    let after: &Run = &change.after;
    let cancelled = before.lifecycle.state(after.state).outcome == Some(Outcome::Cancelled);
    let lost = change.events.iter().all(|event| matches!(&*event.command, "expire" | "lose"));
    if before.phase() != Phase::Held || !cancelled || !lost {
        return Map::new();
    }
    let worker = before.run.lease.as_ref().and_then(|lease| lease.worker.as_deref());
    let patch = json!({
        "cancelled_by": "system",
        "reason": after.failure.as_ref().map(|failure| &*failure.message),
        "original_worker": worker,
        "claimed_at": before.run.started_at.map(iso),
    });
    patch.as_object().cloned().unwrap_or_default()
}
