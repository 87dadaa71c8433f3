//! What time does to runs that nobody looks after.

use serde_json::{Map, Value, json};
use waypost_kernel::Time;
use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::event::Change;
use waypost_kernel::lifecycle::{Actor, Outcome, Phase};
use waypost_kernel::request::Ask;
use waypost_kernel::run::Want;
use waypost_store::{Result, RunRow, Swept};

use super::rules::intake::check_name;
use super::rules::iso;
use super::state::{Patch, State};
use super::who;

impl State {
    pub fn sweep(&mut self, by: &str, limit: usize) -> Result<Swept> {
        check_name("by", by)?;
        self.keep_what_nobody_can_take();
        let mut due: Vec<_> = self
            .runs
            .iter()
            .filter_map(|(number, entry)| Some((due_at(&entry.row, self.now)?, *number)))
            .collect();
        due.sort();
        let mut swept = Swept::default();
        for (_, number) in due {
            // What the next worker may take over, and what no move of the table leads out of, is left alone.
            let Ok(change) = self.decide(number, who(Actor::Engine, by), Ask::Sweep) else { continue };
            let Some(event) = change.events.first() else { continue };
            if swept.moved.len() >= limit {
                swept.more = true;
                break;
            }
            let command = event.command.to_string();
            let metadata = cancelled_metadata(self.row(number)?, &change);
            let details = no_longer_asked(self.row(number)?, &change);
            self.commit_with(number, change, &Patch { metadata, details })?;
            swept.moved.push((self.row(number)?.id().to_owned(), command));
        }
        let (asked, is_all) = self.ask_children(limit.saturating_sub(swept.moved.len()))?;
        swept.moved.extend(asked.into_iter().map(|id| (id, Want::Cancel.command().to_owned())));
        swept.more |= !is_all;
        Ok(swept)
    }

    /// In a paused queue no time passes for what was given back: by and by it begins to wait anew.
    fn keep_what_nobody_can_take(&mut self) {
        let now = self.now;
        for entry in self.runs.values_mut() {
            let queue = self.queues.get(&(entry.row.tenant.clone(), entry.row.queue.clone()));
            let is_paused = queue.is_some_and(|queue| queue.paused.is_some());
            let is_held = entry.row.phase() == Phase::Held;
            let lease = entry.row.run.lease.as_mut().filter(|lease| lease.worker.is_none());
            let long_ago = Time::from_micros(now.micros() - VACANT_FOR_LOST.ms() * 500);
            if let Some(lease) = lease.filter(|lease| is_paused && is_held && lease.until < long_ago) {
                lease.until = now;
            }
        }
    }
}

/// Whether a run's time is up, and its place in the sweep: leases before times to live, each from the longest past.
fn due_at(row: &RunRow, now: Time) -> Option<(u8, Time)> {
    match row.phase() {
        Phase::Draft | Phase::Ready => row.run.expires_at.filter(|at| *at <= now).map(|at| (1, at)),
        Phase::Held => {
            let lease = row.run.lease.as_ref()?;
            let until = if lease.is_vacant() { lease.until + VACANT_FOR_LOST } else { lease.until };
            (until < now).then_some((0, lease.until))
        }
        Phase::Parked => row.run.expires_at.filter(|at| *at <= now).map(|at| (1, at)),
        Phase::Settled => None,
    }
}

/// A run that goes on without an answer waits for none.
fn no_longer_asked(before: &RunRow, change: &Change) -> Map<String, Value> {
    let goes_on =
        before.phase() == Phase::Parked && before.lifecycle.phase(change.after.state) == Phase::Ready;
    let member = before.lifecycle.decisions.as_ref().map(|decisions| decisions.waiting().to_owned());
    let waits = member.filter(|member| goes_on && before.details.get(member) == Some(&json!(true)));
    waits.map(|member| (member, json!(false))).into_iter().collect()
}

/// What is written into the metadata of a run whose worker never began, and which is cancelled therefore.
fn cancelled_metadata(before: &RunRow, change: &Change) -> Map<String, Value> {
    let after = &change.after;
    let is_cancelled = before.lifecycle.state(after.state).outcome == Some(Outcome::Cancelled);
    let is_lost = change.events.iter().all(|event| matches!(&*event.command, "expire" | "lose"));
    if before.phase() != Phase::Held || !is_cancelled || !is_lost {
        return Map::new();
    }
    let worker = before.run.lease.as_ref().and_then(|lease| lease.worker.as_deref());
    let mut patch = Map::new();
    for (member, fact) in &before.lifecycle.cancelled_metadata {
        let value = match fact.name() {
            "by" => json!("system"),
            "reason" => json!(after.failure.as_ref().map(|failure| &*failure.message)),
            "worker" => json!(worker),
            _ => json!(before.run.started_at.map(iso)),
        };
        patch.insert(member.to_string(), value);
    }
    patch
}
