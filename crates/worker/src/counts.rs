//! What a worker has done so far, for its metrics: counted as it happens, with a bounded number of series.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use waypost_store::RunRow;

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
}

impl Counts {
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
