//! Settled runs that are past their time, with their events.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use waypost_store::{Pruned, Result, Store};

use crate::pace;
use crate::shutdown::{Stage, reached};

const EVERY: Duration = Duration::from_secs(60);

/// Small, so that nobody waits long for the write lock.
const BATCH: usize = 500;

pub struct Pruner {
    store: Arc<dyn Store>,
}

impl Pruner {
    pub fn new(store: Arc<dyn Store>) -> Pruner {
        Pruner { store }
    }

    /// One batch at a time, with a breath in between while there is more.
    pub async fn run(self, mut shutdown: watch::Receiver<Stage>) {
        loop {
            let wait = match self.run_once().await {
                Ok(Pruned { more: true, .. }) => EVERY / 1_000,
                Ok(_) => EVERY,
                Err(error) => {
                    tracing::warn!(%error, "nothing could be pruned; trying again");
                    EVERY
                }
            };
            tokio::select! {
                () = reached(&mut shutdown, Stage::Draining) => return,
                () = sleep(pace::about(wait)) => {}
            }
        }
    }

    /// One batch.
    pub async fn run_once(&self) -> Result<Pruned> {
        let pruned = self.store.prune(BATCH).await?;
        if pruned.runs > 0 {
            tracing::info!(
                runs = pruned.runs,
                events = pruned.events,
                "pruned runs that were past their time"
            );
        }
        Ok(pruned)
    }
}

impl std::fmt::Debug for Pruner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pruner").finish_non_exhaustive()
    }
}
