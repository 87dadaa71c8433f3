//! What a worker has done so far, for its metrics: counted as it happens, with a bounded number of series.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use waypost_store::{RunRow, Tried, WorkTargets, Worked};

use crate::summary::End;

/// Series of ends; what comes beyond them is counted together.
const MOST: usize = 300;
const OTHERS: &str = "(others)";

/// What runs are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    pub lifecycle: String,
    pub queue: String,
    /// Without its hash; empty of a run that names none.
    pub playbook: String,
}

impl Labels {
    pub(crate) fn of(row: &RunRow) -> Labels {
        let playbook = row.playbook.as_deref().unwrap_or_default();
        Labels {
            lifecycle: row.lifecycle.name.to_string(),
            queue: row.queue.clone(),
            playbook: playbook.split('@').next().unwrap_or_default().to_owned(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Counts {
    claimed: AtomicU64,
    /// By what they were and how they ended.
    ended: Mutex<BTreeMap<(Labels, &'static str), u64>>,
    /// Of bulk changes.
    pub applies: Applies,
    observer: Observed,
}

/// Whoever counts together with others.
#[derive(Default)]
struct Observed(OnceLock<(Claims, Ends)>);

type Claims = Box<dyn Fn() + Send + Sync>;
type Ends = Box<dyn Fn(&RunRow) + Send + Sync>;

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observed").finish_non_exhaustive()
    }
}

/// Milliseconds up to which the durations of bulk changes are counted together.
pub const APPLY_BUCKETS_MS: [u64; 9] =
    [100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000];

/// What one write of targets' results said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Tries that failed and are repeated.
    pub retries: u64,
    /// The bulk change has ended: after so long, from when it was first taken.
    pub took_ms: Option<u64>,
}

impl Applied {
    /// The keys of targets whose try failed and is repeated.
    pub fn retried(write: &WorkTargets) -> Vec<String> {
        let retried = write.results.iter().filter(|result| matches!(result.tried, Tried::Retry { .. }));
        retried.map(|result| result.key.clone()).collect()
    }

    /// Reports that came late were counted when they came first.
    pub fn of(retried: &[String], worked: &Worked) -> Applied {
        let retries = retried.iter().filter(|key| !worked.ignored.contains(key)).count() as u64;
        let took = |run: &RunRow| {
            let (from, to) = (run.run.started_at?, run.run.finished_at?);
            Some((to - from).ms().unsigned_abs())
        };
        Applied { retries, took_ms: worked.ended.as_ref().and_then(took) }
    }
}

type Observer = Box<dyn Fn(Applied) + Send + Sync>;

/// How bulk changes went here.
#[derive(Default)]
pub struct Applies {
    retries: AtomicU64,
    /// One for each bucket, and one for what took longer.
    took: [AtomicU64; APPLY_BUCKETS_MS.len() + 1],
    took_ms: AtomicU64,
    observer: OnceLock<Observer>,
}

impl std::fmt::Debug for Applies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applies")
            .field("retries", &self.retries)
            .field("took", &self.took)
            .finish_non_exhaustive()
    }
}

impl Applies {
    /// Whoever counts with others' is told, too.
    pub fn observe(&self, observer: impl Fn(Applied) + Send + Sync + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }

    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// How many took how long; the last took longer than all buckets.
    pub fn took(&self) -> Vec<u64> {
        self.took.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub fn took_ms(&self) -> u64 {
        self.took_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, applied: Applied) {
        self.retries.fetch_add(applied.retries, Ordering::Relaxed);
        if let Some(ms) = applied.took_ms {
            let bucket = APPLY_BUCKETS_MS.iter().position(|most| ms <= *most);
            self.took[bucket.unwrap_or(APPLY_BUCKETS_MS.len())].fetch_add(1, Ordering::Relaxed);
            self.took_ms.fetch_add(ms, Ordering::Relaxed);
        }
        if let Some(observer) = self.observer.get() {
            observer(applied);
        }
    }
}

impl Counts {
    /// Whoever counts with others' is told of each run that is begun here, and of each that has ended, as it is stored then.
    pub fn observe(
        &self,
        begun: impl Fn() + Send + Sync + 'static,
        ended: impl Fn(&RunRow) + Send + Sync + 'static,
    ) {
        let _ = self.observer.0.set((Box::new(begun), Box::new(ended)));
    }

    pub(crate) fn finished(&self, row: &RunRow) {
        if let Some((_, ended)) = self.observer.0.get() {
            ended(row);
        }
    }

    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    pub fn ended(&self) -> Vec<((Labels, &'static str), u64)> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().map(|(key, count)| (key.clone(), *count)).collect()
    }

    /// Runs that are worked now, or whose end is not written yet.
    pub fn busy(&self) -> u64 {
        self.claimed().saturating_sub(self.ended().iter().map(|(_, count)| count).sum())
    }

    pub(crate) fn begin(&self) {
        self.claimed.fetch_add(1, Ordering::Relaxed);
        if let Some((begun, _)) = self.observer.0.get() {
            begun();
        }
    }

    pub(crate) fn end(&self, labels: Labels, end: End) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (labels, end.name());
        if ended.len() >= MOST && !ended.contains_key(&key) {
            key.0 = Labels { queue: OTHERS.into(), playbook: OTHERS.into(), lifecycle: OTHERS.into() };
        }
        *ended.entry(key).or_default() += 1;
    }
}
