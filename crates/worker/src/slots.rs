//! A worker's slots: runs are begun in them, and a shutdown empties them in order. A slot is free as soon as its handler has
//! ended; the end itself is on its way to the store then, together with those of other slots.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use waypost_store::{Claimed, Held};

use crate::pipeline::{Shared, work};
use crate::report;
use crate::shutdown::{Stage, reached};
use crate::summary::{End, Summary};

/// Ends that are not reported yet, for each slot: a store that takes none gets no more claims either.
const UNREPORTED: usize = 2;

/// For the last writes, once a shutdown has left its graces behind.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// A slot that is taken; free again when it is dropped.
pub(crate) type Slot = OwnedSemaphorePermit;

pub(crate) struct Slots {
    shared: Shared,
    /// Runs under way: executed, or with an end that is not reported yet.
    runs: JoinSet<End>,
    free: Arc<Semaphore>,
    heart: AbortHandle,
    pub summary: Summary,
}

impl Slots {
    pub fn new(shared: Shared) -> Slots {
        let heart = tokio::spawn(shared.leases.clone().run()).abort_handle();
        let free = Arc::new(Semaphore::new(shared.options.slots.max(1)));
        Slots { shared, runs: JoinSet::new(), free, heart, summary: Summary::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many more runs may be begun.
    pub fn room(&self) -> usize {
        let (slots, free) = (self.shared.options.slots.max(1), self.free.available_permits());
        let unreported = self.runs.len() - (slots - free).min(self.runs.len());
        if unreported < slots * UNREPORTED { free } else { 0 }
    }

    pub fn are_taken(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Returns when a slot may be free.
    pub fn freed(&self) -> impl Future<Output = ()> + use<> {
        let free = self.free.clone();
        async move { drop(free.acquire().await) }
    }

    pub fn begin(&mut self, claimed: Claimed, asked_at: Instant) {
        self.summary.claimed += 1;
        let slot = self.free.clone().try_acquire_owned().ok();
        self.runs.spawn(work(self.shared.clone(), claimed, asked_at, slot));
    }

    /// What was claimed and shall not be begun.
    pub fn give_back(&mut self, claimed: &Claimed) {
        self.summary.claimed += 1;
        let held = Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
        let store = self.shared.store.clone();
        self.runs.spawn(async move {
            timeout(LAST_WRITES, report::release(&store, &held)).await.unwrap_or(End::Lost)
        });
    }

    /// The next run that is done with; none while none is under way.
    pub async fn ended(&mut self) -> Option<End> {
        let ended = self.runs.join_next().await?;
        Some(self.count(ended))
    }

    fn count(&mut self, ended: Result<End, JoinError>) -> End {
        // A panic in our own code: the lease runs out and the engine says so.
        let end = ended.unwrap_or(End::Lost);
        self.summary.count(end);
        end
    }

    /// Waits for all runs to end.
    pub async fn empty(&mut self) {
        while self.ended().await.is_some() {}
    }

    /// In this order: runs may end, those that have not are stopped, their output is written and their leases are given
    /// back. A second signal skips the waiting.
    pub async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) {
        let grace = self.shared.options.grace;
        let leases = self.shared.leases.clone();
        tokio::select! {
            biased;
            () = self.empty() => return,
            () = reached(shutdown, Stage::Now) => {}
            () = sleep_until(Instant::now() + grace) => leases.stop_all(Stage::Draining),
        }
        let deadline = Instant::now() + grace + LAST_WRITES;
        tokio::select! {
            biased;
            () = self.empty() => return,
            () = reached(shutdown, Stage::Now) => {}
            () = sleep_until(deadline) => {}
        }
        leases.stop_all(Stage::Now);
        if timeout(LAST_WRITES, self.empty()).await.is_err() {
            tracing::error!("the store took no more writes: leases that are left run out by themselves");
            self.runs.shutdown().await;
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.heart.abort();
    }
}
