//! Settled runs leave when their time is over, and their events with them.

use waypost_kernel::{Phase, Time};
use waypost_store::{Pruned, RunRow};

use super::state::State;

impl State {
    pub fn prune(&mut self, limit: usize) -> Pruned {
        let now = self.now;
        let mut over: Vec<(Time, u64)> = self
            .runs
            .iter()
            .filter(|(_, entry)| is_over(&entry.row, now))
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

/// Never while a rollback or reconciliation of it is under way.
fn is_over(row: &RunRow, now: Time) -> bool {
    let keep = row.lifecycle.state(row.run.state).keep;
    let until = row.run.finished_at.zip(keep).map(|(finished, keep)| finished + keep);
    row.phase() == Phase::Settled && !row.run.operating && until.is_some_and(|until| until < now)
}
