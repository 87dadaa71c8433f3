//! Settled runs leave when their time is over, and their events with them.

use waypost_kernel::lifecycle::Outcome;
use waypost_kernel::{Phase, Time};
use waypost_store::{Pruned, RunRow};

use super::state::State;

impl State {
    pub fn prune(&mut self, limit: usize) -> Pruned {
        let now = self.now;
        let mut over: Vec<(Time, u64)> = self
            .runs
            .iter()
            .filter(|(_, entry)| self.is_over(&entry.row, now))
            .filter_map(|(number, entry)| Some((entry.row.run.finished_at?, *number)))
            .collect();
        over.sort();
        let mut pruned = Pruned { more: over.len() > limit, ..Pruned::default() };
        for (_, number) in over.into_iter().take(limit) {
            if let Some(entry) = self.runs.remove(&number) {
                self.writes += 1;
                self.executions.retain(|execution| execution.run_id.as_deref() != Some(entry.row.id()));
                pruned.runs += 1;
                pruned.events += entry.events.len() as u64;
            }
        }
        pruned
    }
}

impl State {
    /// Never while a rollback or reconciliation of it is under way.
    fn is_over(&self, row: &RunRow, now: Time) -> bool {
        let state = row.lifecycle.state(row.run.state);
        let said = self.retention.get(&*row.lifecycle.name);
        let said = match state.outcome == Some(Outcome::Succeeded) {
            true => said.and_then(|said| said.success),
            false => said.and_then(|said| said.failure),
        };
        let until = row.run.finished_at.zip(said.or(state.keep)).map(|(finished, keep)| finished + keep);
        row.phase() == Phase::Settled && !row.run.operating && until.is_some_and(|until| until < now)
    }
}
