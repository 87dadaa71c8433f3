//! Leases and times to live that ran out.

use std::sync::Arc;
use std::time::Duration;

use waypost_store::{Database, Result};

use super::{Loop, More};
use crate::pace;

const EVERY: Duration = Duration::from_secs(1);
const BATCH: usize = 200;

/// A run that can never be swept must not keep the loop from its pace.
const MOST_BATCHES: usize = 100;

pub struct Sweeper {
    store: Arc<dyn Database>,
    by: String,
    count: Box<dyn Fn(usize) + Send + Sync>,
}

impl Sweeper {
    /// `by` is who the events name.
    pub fn new(store: Arc<dyn Database>, by: &str) -> Sweeper {
        Sweeper { store, by: by.to_owned(), count: Box::new(|_| {}) }
    }

    /// Tells how many runs time moved, each time that it moved some.
    #[must_use]
    pub fn counted(mut self, count: impl Fn(usize) + Send + Sync + 'static) -> Sweeper {
        self.count = Box::new(count);
        self
    }

    /// Everything that is due now; gives the runs that were moved, each with the command that moved it.
    pub async fn sweep(&self) -> Result<Vec<(String, String)>> {
        let mut moved = Vec::new();
        for _ in 0..MOST_BATCHES {
            let swept = self.store.sweep(self.by.clone(), BATCH).await?;
            for (run_id, command) in &swept.moved {
                tracing::info!(run_id, command, "time moved a run");
            }
            (self.count)(swept.moved.len());
            moved.extend(swept.moved);
            if !swept.more {
                break;
            }
        }
        Ok(moved)
    }
}

impl Loop for Sweeper {
    const WORK: &'static str = "sweeping";

    fn every(&self) -> Duration {
        pace::about(EVERY)
    }

    async fn run_once(&mut self) -> Result<More> {
        self.sweep().await.map(|_| More::Later)
    }
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").field("by", &self.by).finish_non_exhaustive()
    }
}
