//! What time does to runs that nobody looks after.

use serde_json::{Map, Value, json};
use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::{Actor, Outcome, Phase};
use waypost_kernel::request::Ask;
use waypost_kernel::{Run, Time};

use super::state::{Patch, State, asked_by};
use crate::error::Result;
use crate::intake::check_name;
use crate::run::{RunRow, iso};
use crate::verbs::Swept;

impl State {
    pub fn sweep(&mut self, by: &str, limit: usize) -> Result<Swept> {
        check_name("by", by)?;
        let mut due: Vec<_> = self
            .runs
            .iter()
            .filter_map(|(number, entry)| Some((due_at(&entry.row, self.now)?, *number)))
            .collect();
        due.sort();
        let mut swept = Swept::default();
        for (_, number) in due {
            // What the next worker may take over, and what no move of the table leads out of, is left alone.
            let Ok(change) = self.decide(number, asked_by(Actor::Engine, by), Ask::Sweep) else { continue };
            let Some(event) = change.events.first() else { continue };
            if swept.moved.len() >= limit {
                swept.more = true;
                break;
            }
            let command = event.command.to_string();
            let patch = cancelled_by_system(self.row(number)?, &change);
            self.commit_with(number, change, Patch { metadata: patch, ..Patch::default() })?;
            swept.moved.push((self.row(number)?.id().to_owned(), command));
        }
        Ok(swept)
    }
}

/// Since when a run's time is up.
fn due_at(row: &RunRow, now: Time) -> Option<Time> {
    match row.phase() {
        Phase::Draft | Phase::Ready => row.run.expires_at.filter(|at| *at <= now),
        Phase::Held => {
            let lease = row.run.lease.as_ref()?;
            let until = if lease.is_vacant() { lease.until + VACANT_FOR_LOST } else { lease.until };
            Some(until).filter(|until| *until < now)
        }
        Phase::Parked | Phase::Settled => None,
    }
}

/// What the seed writes into the metadata of a run whose worker never began.
fn cancelled_by_system(before: &RunRow, change: &Change) -> Map<String, Value> {
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
