//! Runs that could not be written while others could: the log is followed past them, and they are tried again by themselves. They are
//! kept in the database before the cursor passes them, so that whoever comes next knows of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use waypost_store::{Housekeeping, LeftRun, Result};

use crate::pace;

/// Until one is tried again: 1 s, 2 s and so on up to a minute.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Left {
    tenant: String,
    /// It moved up to here, at most.
    position: u64,
    /// What the database says of that.
    kept: u64,
    tries: u32,
    due: Instant,
}

#[derive(Debug, Default)]
pub(super) struct LeftRuns(BTreeMap<String, Left>);

impl LeftRuns {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that somebody left before, each due at once.
    pub fn know(&mut self, runs: Vec<LeftRun>) {
        for LeftRun { tenant, run_id } in runs {
            let left = Left { tenant, position: 0, kept: 0, tries: 0, due: Instant::now() };
            self.0.entry(run_id).or_insert(left);
        }
    }

    pub fn leave(&mut self, tenant: &str, run_id: &str, position: u64) {
        let left =
            Left { tenant: tenant.to_owned(), position, kept: 0, tries: 0, due: Instant::now() + wait(0) };
        self.0.insert(run_id.to_owned(), left);
    }

    /// Gives whether it is one of them: it moved again.
    pub fn moved(&mut self, run_id: &str, position: u64) -> bool {
        let known = self.0.get_mut(run_id);
        known.map(|left| left.position = left.position.max(position)).is_some()
    }

    pub fn due(&self, most: usize) -> Vec<LeftRun> {
        let now = Instant::now();
        let due = self.0.iter().filter(|(_, left)| left.due <= now).take(most);
        due.map(|(run_id, left)| LeftRun { tenant: left.tenant.clone(), run_id: run_id.clone() }).collect()
    }

    pub fn failed(&mut self, run_id: &str) {
        if let Some(left) = self.0.get_mut(run_id) {
            left.tries = left.tries.saturating_add(1);
            left.due = Instant::now() + wait(left.tries);
        }
    }

    pub fn written(&mut self, run_id: &str) {
        self.0.remove(run_id);
    }

    /// Before the cursor passes them.
    pub async fn keep(&mut self, database: &dyn Housekeeping, reader: &str) -> Result<()> {
        for (run_id, left) in self.0.iter_mut().filter(|(_, left)| left.kept < left.position) {
            database.leave_behind(reader.to_owned(), run_id.clone(), left.position).await?;
            left.kept = left.position;
        }
        Ok(())
    }
}

fn wait(tries: u32) -> Duration {
    pace::about(Duration::from_secs(1 << tries.min(6)).min(LONGEST))
}
