//! Connections. Who wants nothing (no request under way), or takes nothing of its answer, makes room for a newcomer once all
//! seats are taken: first those that never showed a token. A few seats are kept for health checks and for requests with a token.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Of every so many seats, one is kept.
const KEPT_OF: usize = 16;
const MOST_KEPT: usize = 64;
/// Who has taken no byte of its answer for so long may lose its seat to somebody else.
const STALLED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Seats {
    most: usize,
    kept: usize,
    taken: Mutex<BTreeMap<u64, Arc<Seat>>>,
    numbers: AtomicU64,
    began: Instant,
}

/// One connection.
#[derive(Debug)]
pub struct Seat {
    /// One of those that are kept: it serves health checks and requests with a token, one each.
    pub is_kept: bool,
    began: Instant,
    /// A request came with a token that counts.
    is_known: AtomicBool,
    /// Requests whose answer is not yet written.
    requests: AtomicUsize,
    /// When it last began to wait for its client, in milliseconds after `began`.
    idle_since: AtomicU64,
    /// When the socket stopped to take bytes; 0: it takes them.
    stalled_since: AtomicU64,
    leave: Notify,
}

/// A seat for as long as this lives.
#[derive(Debug)]
pub struct Taken {
    seats: Arc<Seats>,
    number: u64,
    pub seat: Arc<Seat>,
}

/// A request that is under way for as long as this lives.
#[derive(Debug)]
pub struct UnderWay(Arc<Seat>);

impl Seats {
    pub fn new(most: usize) -> Arc<Seats> {
        let kept = (most / KEPT_OF).clamp(1, MOST_KEPT);
        Arc::new(Seats {
            most,
            kept,
            taken: Mutex::default(),
            numbers: AtomicU64::new(0),
            began: Instant::now(),
        })
    }

    /// None: all are taken, and everybody is at work.
    pub fn take(self: &Arc<Seats>) -> Option<Taken> {
        let mut taken = self.lock();
        let count = taken.len();
        if count >= self.most && !self.make_room(&taken) && count >= self.most + self.kept {
            return None;
        }
        // Whoever is asked to leave needs a moment for it, in which there is one more.
        if count >= self.most + 2 * self.kept {
            return None;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let seat = Arc::new(Seat {
            is_kept: count >= self.most
                && taken.values().filter(|seat| !seat.is_leaving()).count() >= self.most,
            began: self.began,
            is_known: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(ms_since(self.began)),
            stalled_since: AtomicU64::new(0),
            leave: Notify::new(),
        });
        taken.insert(number, seat.clone());
        Some(Taken { seats: self.clone(), number, seat })
    }

    /// Asks the one who can be spared best to leave.
    fn make_room(&self, taken: &BTreeMap<u64, Arc<Seat>>) -> bool {
        let spared = taken.values().filter(|seat| seat.can_be_spared());
        let first = spared.min_by_key(|seat| (seat.is_known.load(Ordering::Relaxed), seat.waits_since()));
        if let Some(seat) = first {
            seat.ask_to_leave();
        }
        first.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In `idle_since`: it was asked to leave.
const LEAVING: u64 = u64::MAX;

fn ms_since(began: Instant) -> u64 {
    // 0 stands for never.
    began.elapsed().as_millis() as u64 + 1
}

impl Seat {
    pub fn begin(self: &Arc<Seat>) -> UnderWay {
        self.requests.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    pub fn has_shown_a_token(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether the socket takes what is written.
    pub fn set_stalled(&self, is_stalled: bool) {
        let since = if is_stalled { ms_since(self.began) } else { 0 };
        self.stalled_since.store(since, Ordering::Relaxed);
    }

    /// Whether its client takes nothing of its answer, and was not asked to leave yet.
    pub fn is_stalled(&self) -> bool {
        self.stalled_since.load(Ordering::Relaxed) != 0 && !self.is_leaving()
    }

    /// Asks it to leave if its client has taken nothing for a while; whether it was asked.
    pub fn make_room(&self) -> bool {
        let can_be_spared = self.is_stalled() && self.can_be_spared();
        if can_be_spared {
            self.ask_to_leave();
        }
        can_be_spared
    }

    fn ask_to_leave(&self) {
        self.idle_since.store(LEAVING, Ordering::Relaxed);
        self.leave.notify_one();
    }

    /// Returns when somebody else needs the seat.
    pub async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    fn is_leaving(&self) -> bool {
        self.idle_since.load(Ordering::Relaxed) == LEAVING
    }

    fn can_be_spared(&self) -> bool {
        let stalled = self.stalled_since.load(Ordering::Relaxed);
        match stalled {
            _ if self.is_leaving() => false,
            0 => self.requests.load(Ordering::Relaxed) == 0,
            since => ms_since(self.began).saturating_sub(since) >= STALLED.as_millis() as u64,
        }
    }

    fn waits_since(&self) -> u64 {
        match self.stalled_since.load(Ordering::Relaxed) {
            0 => self.idle_since.load(Ordering::Relaxed),
            since => since,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Who was asked to leave stays so.
        let _ = self.0.idle_since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |since| {
            (since != LEAVING).then(|| ms_since(self.0.began))
        });
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_wants_nothing_makes_room_and_who_is_at_work_does_not() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take().expect("a seat"), seats.take().expect("a seat"));
        assert!(!first.seat.is_kept && !second.seat.is_kept);
        let working = first.seat.begin();
        let third = seats.take().expect("the second makes room");
        assert!(!third.seat.is_kept);
        second.seat.asked_to_leave().await;
        drop(second);
        let also_working = third.seat.begin();
        let kept = seats.take().expect("one is kept");
        assert!(kept.seat.is_kept);
        let in_vain = kept.seat.begin();
        assert!(seats.take().is_none(), "everybody is at work");
        drop((working, also_working, in_vain));
        assert!(seats.take().is_some());
    }

    #[tokio::test]
    async fn who_showed_a_token_leaves_last() {
        let seats = Seats::new(2);
        let (known, stranger) = (seats.take().expect("a seat"), seats.take().expect("a seat"));
        known.seat.has_shown_a_token();
        let _newcomer = seats.take().expect("a seat");
        stranger.seat.asked_to_leave().await;
        assert!(!known.seat.is_leaving());
    }
}
