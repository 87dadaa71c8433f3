//! Taking runs that may be executed here, and when to ask for more.

pub(crate) mod slots;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use waypost_kernel::Phase;
use waypost_store::{Claim, Claimed, DEFAULT_TENANT, PAGE_BYTES, Result, Store, StoreError, Take};

use crate::claim::slots::Slots;
use crate::pipeline::Shared;
use crate::shutdown::{Stage, reached};
use crate::summary::End;
use crate::{outage, pace};

/// Away from runs that only others may execute: they would be taken and given back all the time.
const LONGEST_DETOUR: Duration = Duration::from_secs(30);

/// Claims in a row that may find nothing before the next one waits, and how long that waits at most: a store where much
/// happens that is nothing for this worker is not asked each time.
const IN_VAIN: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// The store says earlier that something may have changed.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Taken {
    pub claims: Vec<Claimed>,
    /// Before the request was sent: a lease counts from its commit, which may be that early.
    pub asked_at: Instant,
    /// The one run that this worker is for cannot be taken any more.
    pub is_over: bool,
    /// As many as were asked for: there may be more.
    pub is_full: bool,
}

/// `number` tells the claim from others of this worker: sent again after an answer that was lost, it brings the same runs.
pub(crate) async fn claim(shared: Shared, limit: usize, number: u64) -> Result<Taken> {
    let options = &shared.options;
    let asked_at = Instant::now();
    let none = Taken { claims: Vec::new(), asked_at, is_over: false, is_full: false };
    if !options.may_execute_anything() {
        return Ok(none);
    }
    let lease = Some(pace::span(options.lease));
    let Some(run_id) = &options.only else {
        let claim = Claim {
            worker: options.name.clone(),
            queues: options.queues.clone(),
            lifecycles: options.lifecycles.clone(),
            tenant: options.tenant.clone(),
            can: Some(options.can()),
            limit,
            bytes: None,
            lease,
            start: true,
            idempotency_key: Some(number.to_string()),
            wait: shared.store.claim_wait().map(pace::span),
        };
        let claims = shared.store.claim(claim).await?;
        // A server gives no more than fits into one answer.
        let bytes = || claims.iter().map(|claimed| claimed.run.weight()).sum::<usize>();
        let is_full = claims.len() >= limit || bytes() >= PAGE_BYTES;
        return Ok(Taken { claims, is_full, ..none });
    };
    let take = Take { worker: options.name.clone(), lease, start: true };
    match shared.store.claim_run(run_id.clone(), take).await {
        Ok(claimed) => Ok(Taken { claims: vec![claimed], is_over: true, ..none }),
        // Not due, or in another worker's hands, may change; settled or parked will not by itself.
        Err(StoreError::Refused(refusal)) => {
            let may_change = refusal.code.is_retryable() || is_on_its_way(&shared, run_id).await;
            Ok(Taken { is_over: !may_change, ..none })
        }
        Err(error) => Err(error),
    }
}

/// Whether it can be taken since then, or the engine takes it on by itself: a draft, or a question that nobody answered in time.
async fn is_on_its_way(shared: &Shared, run_id: &str) -> bool {
    let tenant = shared.options.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    let Ok(row) = shared.store.run(tenant.to_owned(), run_id.to_owned()).await else { return false };
    if row.phase() == Phase::Ready || row.lifecycle.acknowledgement(row.run.state).is_some() {
        return true;
    }
    let Some(until) = row.run.expires_at.filter(|_| row.phase() == Phase::Parked) else { return false };
    shared.store.now().await.is_ok_and(|now| until <= now)
}

/// Claims under way at once while there is more than one brings: the database writes one while the runs of the other are
/// begun. With fewer slots than this each, it is one.
const CLAIMS: usize = 2;
const SMALLEST_SHARE: usize = 32;

/// A claim that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    /// Slots that are kept for what it brings.
    limit: usize,
}

/// Keeps slots filled: claims while some are free and there may be something for them.
pub(crate) struct Claims {
    shared: Shared,
    /// Each waits for a task of its own: a claim that was sent is never dropped, or its runs would be held by nobody.
    under_way: JoinSet<(Sent, Result<Taken>)>,
    changes: Changes,
    /// Something may have changed since the last claim was sent, or that one may have left something.
    is_due: bool,
    not_before: Instant,
    /// Times arrive (a schedule, a retry, a lease that ends) without a word.
    at_latest: Instant,
    in_vain: u32,
    /// Slots that claims without an answer may fill.
    asked: usize,
    /// Without an answer, and to be sent again: it may have taken runs.
    unanswered: Vec<Sent>,
    /// The last claim brought as many as it asked for.
    is_full: bool,
    /// Claims that failed in a row.
    failed: u32,
    detour: Duration,
    /// The one run that this worker is for was taken, or cannot be.
    is_over: bool,
    /// Claims wait by themselves: nobody needs to be told of changes beside them.
    wait: Option<Duration>,
}

impl Claims {
    pub fn new(shared: Shared) -> Claims {
        let now = Instant::now();
        Claims {
            wait: shared.store.claim_wait(),
            changes: Changes::new(shared.store.clone()),
            shared,
            under_way: JoinSet::new(),
            is_due: true,
            not_before: now,
            at_latest: now,
            in_vain: 0,
            asked: 0,
            unanswered: Vec::new(),
            is_full: false,
            failed: 0,
            detour: Duration::ZERO,
            is_over: false,
        }
    }

    /// A run that this worker holds without having claimed it here.
    pub fn has_taken(&mut self, claimed: Claimed, asked_at: Instant, slots: &mut Slots) {
        self.is_over |= self.shared.options.only.as_deref() == Some(claimed.run.id());
        slots.claimed(claimed, asked_at);
    }

    /// Until it is told to stop, or there is nothing more to come.
    pub async fn fill(&mut self, slots: &mut Slots, shutdown: &mut watch::Receiver<Stage>) -> Result<()> {
        while !(self.is_over && slots.is_empty()) {
            let limit = self.next_limit(slots.room());
            let due_at = if self.is_due { self.not_before } else { self.not_before.max(self.at_latest) };
            let (freed, are_taken) = (slots.freed(), slots.are_taken());
            tokio::select! {
                biased;
                () = reached(shutdown, Stage::Finishing) => break,
                Some(ended) = slots.ended() => {
                    self.ended(ended.end);
                    while let Some(ended) = slots.try_ended() {
                        self.ended(ended.end);
                    }
                }
                Some(Ok((sent, taken))) = self.under_way.join_next() => self.answered(sent, taken, slots)?,
                () = self.changes.next(), if !self.is_due && self.wait.is_none() => self.is_due = true,
                () = sleep_until(due_at), if limit > 0 => self.send(limit),
                () = freed, if are_taken => {}
            }
        }
        Ok(())
    }

    /// How many the next claim may bring; 0: it is not time for one.
    fn next_limit(&self, room: usize) -> usize {
        let options = &self.shared.options;
        if self.is_over || !options.may_execute_anything() || self.under_way.len() >= CLAIMS {
            return 0;
        }
        if let Some(again) = self.unanswered.last() {
            return again.limit;
        }
        let free = room.saturating_sub(self.asked);
        match (self.under_way.len(), self.share()) {
            (0, None) => free,
            (0, Some(share)) => free.min(share),
            (_, Some(share)) if free >= share / 2 => free.min(share),
            _ => 0,
        }
    }

    /// What one of several claims asks for, while there is more than one brings.
    fn share(&self) -> Option<usize> {
        let share = self.shared.options.slots.div_ceil(CLAIMS);
        Some(share).filter(|share| self.is_full && *share >= SMALLEST_SHARE)
    }

    fn send(&mut self, limit: usize) {
        self.is_due = self.share().is_some();
        let sent = self.unanswered.pop().unwrap_or_else(|| {
            self.asked += limit;
            Sent { number: self.shared.next_claim(), limit }
        });
        let claiming = tokio::spawn(claim(self.shared.clone(), sent.limit, sent.number));
        let panicked = |_| Err(StoreError::Unavailable("the claim panicked".to_owned()));
        self.under_way.spawn(async move { (sent, claiming.await.unwrap_or_else(panicked)) });
    }

    fn answered(&mut self, sent: Sent, taken: Result<Taken>, slots: &mut Slots) -> Result<()> {
        let now = Instant::now();
        match taken {
            Ok(taken) => {
                outage::answered(taken.asked_at);
                let options = &self.shared.options;
                self.asked -= sent.limit;
                self.failed = 0;
                self.in_vain = if taken.claims.is_empty() { self.in_vain.saturating_add(1) } else { 0 };
                self.is_full = taken.is_full;
                self.is_due |= taken.is_full;
                self.is_over |= taken.is_over;
                self.not_before = now + self.detour.max(pause_after(self.in_vain));
                self.at_latest = now
                    + match (self.wait, &options.only) {
                        (None, _) => pace::between(options.poll_at_least, options.poll_at_most),
                        (Some(_), None) => Duration::ZERO,
                        (Some(_), Some(_)) => options.poll_at_most,
                    };
                for claimed in taken.claims {
                    slots.claimed(claimed, taken.asked_at);
                }
            }
            Err(error @ StoreError::Unavailable(_)) => {
                self.failed += 1;
                outage::met("nothing could be claimed", &error);
                self.unanswered.push(sent);
                self.is_due = true;
                self.not_before = now + pace::store_away(self.failed);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn ended(&mut self, end: End) {
        if end == End::Waits {
            // The one run that this worker is for goes on later.
            self.is_over = false;
        }
        self.detour = match end {
            End::LeftAlone => (self.detour * 2).clamp(Duration::from_secs(1), LONGEST_DETOUR),
            _ => Duration::ZERO,
        };
        self.not_before = self.not_before.max(Instant::now() + self.detour);
    }

    /// Claims that were under way may still bring runs.
    pub async fn give_back(&mut self, slots: &mut Slots) {
        let last = Instant::now() + self.shared.options.grace;
        while let Ok(Some(answer)) = timeout_at(last, self.under_way.join_next()).await {
            let Ok((_, Ok(taken))) = answer else { continue };
            taken.claims.iter().for_each(|claimed| slots.give_back(claimed));
        }
    }
}

fn pause_after(in_vain: u32) -> Duration {
    let step = in_vain.saturating_sub(IN_VAIN).min(16);
    if in_vain < IN_VAIN { Duration::ZERO } else { Duration::from_millis(1 << step).min(LONGEST_PAUSE) }
}

/// What the store says of changes, without a gap between two of its answers.
struct Changes {
    store: Arc<dyn Store>,
    next: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Changes {
    fn new(store: Arc<dyn Store>) -> Changes {
        Changes { next: changed(store.clone()), store }
    }

    /// May be dropped and asked again.
    async fn next(&mut self) {
        self.next.as_mut().await;
        self.next = changed(self.store.clone());
        // It listens from its first poll on: what changes while the next claim is under way must not be missed.
        let listens = poll_fn(|context| Poll::Ready(self.next.as_mut().poll(context))).await;
        if listens.is_ready() {
            self.next = changed(self.store.clone());
        }
    }
}

fn changed(store: Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { store.changed(LONGEST_WAIT).await })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_in_vain_wait_a_little_and_no_longer() {
        let pauses: Vec<u128> =
            [0, 1, 2, 3, 4, 5, 8, 1_000, u32::MAX].map(|n| pause_after(n).as_millis()).into();
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 25, 25, 25]);
    }
}
