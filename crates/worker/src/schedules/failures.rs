//! What one tick could not do, so that it costs nobody else anything: it is put off in the store, for all processes, and
//! told once for each schedule and problem.

use std::collections::BTreeMap;

use waypost_store::{Database, DueExecution, DueScope, Failed, Failing, Result};

#[derive(Default)]
pub(super) struct Failures {
    failed: Vec<Failed>,
    /// How many, by schedule and problem.
    told: BTreeMap<(String, String), usize>,
    /// Hashes of the schedules.
    pub hashes: Vec<String>,
}

impl Failures {
    pub fn planning(&mut self, scope: &DueScope, problem: String) {
        let what = Failing::Scope { kind: scope.kind.clone(), id: scope.id.clone() };
        self.hashes.push(scope.hash.clone());
        self.add(Failed { schedule: scope.schedule.clone(), what, wake_at: scope.wake_at }, problem);
    }

    pub fn beginning(&mut self, due: &DueExecution, problem: String) {
        let what = Failing::Execution { kind: due.kind.clone(), id: due.id.clone(), plan: due.plan };
        self.hashes.push(due.hash.clone());
        self.add(Failed { schedule: due.schedule.clone(), what, wake_at: due.wake_at }, problem);
    }

    fn add(&mut self, failed: Failed, problem: String) {
        *self.told.entry((failed.schedule.clone(), problem)).or_default() += 1;
        self.failed.push(failed);
    }

    /// Told after it is put off: a store that is away is not a schedule's problem.
    pub async fn put_off(self, store: &dyn Database) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        store.put_off(self.failed).await?;
        for ((schedule, problem), plans) in self.told {
            tracing::error!(
                schedule,
                plans,
                problem,
                "could not be begun; tried again later, after longer each time"
            );
        }
        Ok(())
    }
}
