//! Where a worker's runs are under way: claims fill its slots, and a shutdown empties them in order.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use waypost_store::{Held, Result, StoreError};

use crate::claim::{Taken, claim};
use crate::pace;
use crate::pipeline::{Shared, work};
use crate::report;
use crate::shutdown::{Stage, reached};
use crate::summary::{End, Summary};

/// After a claim that found too little, however much the store says has changed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);

/// Away from runs that only others may execute: they would be taken and given back all the time.
const LONGEST_DETOUR: Duration = Duration::from_secs(30);

/// For the last writes, once a shutdown has left its graces behind.
const LAST_WRITES: Duration = Duration::from_secs(5);

pub(crate) struct Floor {
    shared: Shared,
    slots: JoinSet<End>,
    heart: AbortHandle,
    /// A task of its own: a claim that was sent is never dropped, or its runs would be held by nobody.
    claiming: Option<JoinHandle<Result<Taken>>>,
    next_claim: NextClaim,
    /// Claims that failed in a row.
    failed_claims: u32,
    detour: Duration,
    /// The one run that this worker is for was taken, or cannot be.
    is_over: bool,
    pub summary: Summary,
}

#[derive(Clone, Copy)]
struct NextClaim {
    not_before: Instant,
    /// Or earlier, when the store says that something changed.
    at_latest: Instant,
}

impl NextClaim {
    fn at(instant: Instant) -> NextClaim {
        NextClaim { not_before: instant, at_latest: instant }
    }
}

impl Floor {
    pub fn new(shared: Shared) -> Floor {
        let heart = tokio::spawn(shared.leases.clone().run()).abort_handle();
        Floor {
            shared,
            slots: JoinSet::new(),
            heart,
            claiming: None,
            next_claim: NextClaim::at(Instant::now()),
            failed_claims: 0,
            detour: Duration::ZERO,
            is_over: false,
            summary: Summary::default(),
        }
    }

    /// Claims while slots are free; ends when it is told to, or when there is nothing more to come.
    pub async fn work(&mut self, shutdown: &mut watch::Receiver<Stage>) -> Result<()> {
        while !(self.is_over && self.slots.is_empty()) {
            let may_claim = self.may_claim();
            tokio::select! {
                biased;
                () = reached(shutdown, Stage::Draining) => break,
                Some(ended) = self.slots.join_next() => self.count(ended),
                taken = answer(&mut self.claiming) => self.claimed(taken)?,
                () = pause(&self.shared, self.next_claim), if may_claim => {
                    let free = self.shared.options.slots.max(1) - self.slots.len();
                    self.claiming = Some(tokio::spawn(claim(self.shared.clone(), free)));
                }
            }
        }
        Ok(())
    }

    fn may_claim(&self) -> bool {
        let options = &self.shared.options;
        let is_free = self.slots.len() < options.slots.max(1);
        is_free && self.claiming.is_none() && !self.is_over && options.may_execute_anything()
    }

    fn claimed(&mut self, taken: Result<Taken>) -> Result<()> {
        let options = &self.shared.options;
        let now = Instant::now();
        match taken {
            Ok(taken) => {
                self.failed_claims = 0;
                let found_enough = taken.claims.len() + self.slots.len() >= options.slots;
                let poll = pace::between(options.poll_at_least, options.poll_at_most);
                let not_before = now + self.detour.max(SHORTEST_PAUSE);
                self.next_claim = if found_enough {
                    NextClaim::at(now)
                } else {
                    NextClaim { not_before, at_latest: not_before.max(now + poll) }
                };
                self.begin(taken);
            }
            Err(error @ StoreError::Unavailable(_)) => {
                self.failed_claims += 1;
                tracing::warn!(%error, "nothing could be claimed; trying again");
                self.next_claim = NextClaim::at(now + pace::store_away(self.failed_claims));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn begin(&mut self, taken: Taken) {
        self.is_over |= taken.is_over;
        for claimed in taken.claims {
            self.summary.claimed += 1;
            self.slots.spawn(work(self.shared.clone(), claimed, taken.asked_at));
        }
    }

    fn count(&mut self, ended: Result<End, JoinError>) {
        // A panic in our own code: the lease runs out and the engine says so.
        let end = ended.unwrap_or(End::Lost);
        self.summary.count(end);
        self.detour = match end {
            End::LeftAlone => (self.detour * 2).clamp(Duration::from_secs(1), LONGEST_DETOUR),
            _ => Duration::ZERO,
        };
        // A slot is free, and there may be more where the last one came from.
        let now = Instant::now();
        self.next_claim.at_latest = now;
        self.next_claim.not_before = self.next_claim.not_before.max(now + self.detour);
    }

    /// Waits for all runs to end.
    pub async fn empty(&mut self) {
        while let Some(ended) = self.slots.join_next().await {
            self.count(ended);
        }
    }

    /// In this order: claims stop, runs may end, those that have not are stopped, their output is written and
    /// their leases are given back. A second signal skips the waiting.
    pub async fn close(&mut self, shutdown: &mut watch::Receiver<Stage>) {
        let grace = self.shared.options.grace;
        let leases = self.shared.leases.clone();
        self.give_back_claims(grace).await;
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
            self.slots.shutdown().await;
        }
    }

    /// A claim that was under way may still bring runs.
    async fn give_back_claims(&mut self, at_most: Duration) {
        let Some(claiming) = self.claiming.take() else { return };
        let Ok(Ok(Ok(taken))) = timeout(at_most, claiming).await else { return };
        for claimed in taken.claims {
            self.summary.claimed += 1;
            let held = Held { run_id: claimed.run.id().to_owned(), token: claimed.token };
            let released = timeout(LAST_WRITES, report::release(&self.shared.store, &held)).await;
            self.summary.count(released.unwrap_or(End::Lost));
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

/// The answer to the claim that is under way, if one is. May be dropped and asked again.
async fn answer(claiming: &mut Option<JoinHandle<Result<Taken>>>) -> Result<Taken> {
    let Some(task) = claiming else { return std::future::pending().await };
    let answer = task.await;
    *claiming = None;
    answer.unwrap_or_else(|_| Err(StoreError::Unavailable("the claim panicked".to_owned())))
}

async fn pause(shared: &Shared, next: NextClaim) {
    sleep_until(next.not_before).await;
    let left = next.at_latest.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        shared.store.changed(left).await;
    }
}
