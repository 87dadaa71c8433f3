//! What is merged into the metadata of a run that the engine cancels because its lease ran out. The lifecycle says which
//! members there are.

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::{CancelFact, Outcome, Phase};

use crate::seam::run::{RunRow, iso};

pub(crate) fn cancelled_metadata(before: &RunRow, change: &Change) -> Map<String, Value> {
    let (lifecycle, after) = (&before.lifecycle, &change.after);
    let cancelled = lifecycle.state(after.state).outcome == Some(Outcome::Cancelled);
    let lost = change.events.iter().all(|event| matches!(&*event.command, "expire" | "lose"));
    if before.phase() != Phase::Held || !cancelled || !lost {
        return Map::new();
    }
    let worker = before.run.lease.as_ref().and_then(|lease| lease.worker.as_deref());
    let value = |fact: CancelFact| match fact {
        CancelFact::By => json!("system"),
        CancelFact::Reason => json!(after.failure.as_ref().map(|failure| &*failure.message)),
        CancelFact::Worker => json!(worker),
        CancelFact::ClaimedAt => json!(before.run.started_at.map(iso)),
    };
    let members = lifecycle.cancelled_metadata.iter();
    members.map(|(member, fact)| (member.to_string(), value(*fact))).collect()
}
