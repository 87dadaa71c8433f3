//! The simplest store that there is: ordered maps and linear scans behind one lock. It is the executable
//! definition of what the verbs mean; the databases are held to its answers.
//!
//! Its clock stands still and moves only when it is told to.

mod access;
mod admin;
mod children;
mod claim;
mod command;
mod enqueue;
mod firing;
mod items;
mod leases;
mod log;
mod looks;
mod lookup;
mod prune;
mod schedule_looks;
mod schedules;
mod state;
mod sweep;
mod verify;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use waypost_kernel::{Catalog, Time};

use crate::error::Result;
use crate::verbs::Reply;
use state::State;

/// 2026-02-14T08:00:00Z.
const CLOCK_STARTS_AT: Time = Time::from_ms(1_771_056_000_000);

/// A handle; clones share what is stored.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl MemoryStore {
    pub fn new(catalog: Catalog) -> MemoryStore {
        let state = State::new(catalog, CLOCK_STARTS_AT);
        MemoryStore { state: Arc::new(Mutex::new(state)), changed: Arc::new(Notify::new()) }
    }

    /// One verb: alone with the state from beginning to end.
    fn verb<'a, T>(&'a self, work: impl FnOnce(&mut State) -> Result<T> + Send + 'a) -> Reply<'a, T> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let before = state.writes;
            let answer = work(&mut state);
            // Readers wake nobody: two idle workers would keep each other busy.
            if state.writes != before {
                self.changed.notify_waiters();
            }
            answer
        })
    }

    async fn wait_for_change(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.changed.notified()).await;
    }
}
