//! A store that is away is told of once, and once more when it is back, however many loops and slots meet it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waypost_store::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Away {
    since: Instant,
    last: Instant,
}

/// What a process knows of its store.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Away>>);

static OF_PROCESS: Outage = Outage(Mutex::new(None));

impl Outage {
    /// Whether it is to be told: nobody met it before.
    fn met(&self, now: Instant) -> bool {
        let mut away = self.lock();
        let is_new = away.is_none();
        let since = away.map_or(now, |away| away.since);
        *away = Some(Away { since, last: now });
        is_new
    }

    /// How long it lasted, if what was asked at `asked_at` ends it: an answer to an earlier request does not.
    fn ended(&self, asked_at: Instant, now: Instant) -> Option<Duration> {
        let mut away = self.lock();
        let ended = away.filter(|away| asked_at >= away.last)?;
        *away = None;
        Some(now - ended.since)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Away>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something could not be done, and is tried again.
pub(crate) fn met(what: &str, error: &StoreError) {
    match error {
        StoreError::Unavailable(_) if OF_PROCESS.met(Instant::now()) => {
            tracing::warn!(%error, "{what}; trying again until the store answers");
        }
        StoreError::Unavailable(_) => tracing::debug!(%error, "{what}; trying again"),
        error => tracing::warn!(%error, "{what}; trying again"),
    }
}

/// The store answered what it was asked at this time.
pub(crate) fn answered(asked_at: Instant) {
    if let Some(lasted) = OF_PROCESS.ended(asked_at, Instant::now()) {
        tracing::info!("the store is back after {:.1} s", lasted.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U11
    #[test]
    fn an_outage_is_told_once_and_so_is_its_end() {
        let (outage, start) = (Outage::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(outage.ended(at(0), at(1)), None, "there was none");
        assert!(outage.met(at(10)));
        assert!(!outage.met(at(20)) && !outage.met(at(4_000)), "met again, told already");
        assert_eq!(outage.ended(at(5), at(4_001)), None, "asked before it began");
        assert_eq!(outage.ended(at(4_005), at(4_010)), Some(Duration::from_secs(4)));
        assert_eq!(outage.ended(at(4_020), at(4_030)), None, "told once");
        assert!(outage.met(at(5_000)), "the next one is another");
    }
}
