//! A worker's slots: runs are begun in them, and a shutdown empties them in order. A slot is free as soon as its handler has
//! ended; the end itself is on its way to the store then, together with those of other slots.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use waypost_store::{Claimed, Held};

use crate::pipeline::{Job, Shared, work};
use crate::report;
use crate::shutdown::{Stage, reached};
use crate::summary::{End, Summary};

/// Ends that are not reported yet, for each slot: a store that takes none gets no more claims either.
const UNREPORTED: usize = 2;

/// For the last writes, once a shutdown has left its graces behind.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// A slot that is taken; free again when it is dropped.
pub(crate) type Slot = OwnedSemaphorePermit;

/// A run that is done with.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// None if our own code panicked.
    pub run_id: Option<String>,
    pub end: End,
}

pub(crate) struct Slots {
    shared: Shared,
    /// Runs under way: executed, or with an end that is not reported yet.
    runs: JoinSet<Ended>,
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

    /// A run of this worker's queues.
    pub fn claimed(&mut self, claimed: Claimed, asked_at: Instant) {
        let keeping = self.shared.options.keeping();
        self.begin(Job { claimed, asked_at, keeping, plan: None });
    }

    pub fn begin(&mut self, job: Job) {
        self.summary.claimed += 1;
        let slot = self.free.clone().try_acquire_owned().ok();
        let run_id = Some(job.claimed.run.id().to_owned());
        let work = work(self.shared.clone(), job, slot);
        self.runs.spawn(async move { Ended { run_id, end: work.await } });
    }

    /// What was claimed and shall not be begun.
    pub fn give_back(&mut self, claimed: &Claimed) {
        self.summary.claimed += 1;
        let held = Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
        let store = self.shared.store.clone();
        self.runs.spawn(async move {
            let end = timeout(LAST_WRITES, report::release(&store, &held, None)).await.unwrap_or(End::Lost);
            Ended { run_id: Some(held.run_id), end }
        });
    }

    /// The next run that is done with; none while none is under way.
    pub async fn ended(&mut self) -> Option<Ended> {
        let ended = self.runs.join_next().await?;
        Some(self.count(ended))
    }

    /// The same, of those that have ended already.
    pub fn try_ended(&mut self) -> Option<Ended> {
        let ended = self.runs.try_join_next()?;
        Some(self.count(ended))
    }

    fn count(&mut self, ended: Result<Ended, JoinError>) -> Ended {
        // A panic in our own code: the lease runs out and the engine says so.
        let ended = ended.unwrap_or(Ended { run_id: None, end: End::Lost });
        self.summary.count(ended.end);
        ended
    }

    /// Waits for all runs to end, and tells which did.
    pub async fn empty(&mut self, ended: &mut Vec<String>) {
        while let Some(one) = self.ended().await {
            ended.extend(one.run_id);
        }
    }

    /// In this order: runs may end, those that have not are stopped, their output is written and their leases are given
    /// back. A second signal skips the waiting. Gives those that ended.
    pub async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) -> Vec<String> {
        let mut ended = Vec::new();
        let grace = self.shared.options.grace;
        let leases = self.shared.leases.clone();
        tokio::select! {
            biased;
            () = self.empty(&mut ended) => return ended,
            () = reached(shutdown, Stage::Draining) => {}
        }
        tokio::select! {
            biased;
            () = self.empty(&mut ended) => return ended,
            () = reached(shutdown, Stage::Now) => {}
            () = sleep_until(Instant::now() + grace) => leases.stop_all(Stage::Draining),
        }
        let deadline = Instant::now() + grace + LAST_WRITES;
        tokio::select! {
            biased;
            () = self.empty(&mut ended) => return ended,
            () = reached(shutdown, Stage::Now) => {}
            () = sleep_until(deadline) => {}
        }
        leases.stop_all(Stage::Now);
        if timeout(LAST_WRITES, self.empty(&mut ended)).await.is_err() {
            tracing::error!("the store took no more writes: leases that are left run out by themselves");
            self.runs.shutdown().await;
        }
        ended
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.heart.abort();
    }
}
