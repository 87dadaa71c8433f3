//! The storage seam in the simplest way: ordered maps and linear scans behind one lock. It says what the verbs mean, and
//! the differential test holds the databases to its answers.
//!
//! It shares the kernel and the seam's data types with the stores, and none of their rules: an oracle that runs the code
//! under test agrees with it about everything. What a verb asks for beyond the kernel is written a second time, in `rules`.
//!
//! Its clock stands still and moves only when it is told to.

mod access;
mod admin;
mod agents;
mod alerts;
mod children;
mod claim;
mod command;
mod destinations;
mod enqueue;
mod items;
mod leases;
mod log;
mod lookup;
mod messages;
mod playbooks;
mod prune;
mod rules;
mod schedules;
mod seam;
mod state;
mod sweep;
mod targets;
mod verify;
mod waiting;
mod workers;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;
use waypost_kernel::{Actor, Catalog, Time, Token, Who};
use waypost_store::{Reply, Result};

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

fn fresh_token() -> Token {
    Token(Uuid::new_v4().as_u128())
}

/// Who asks the kernel, with a token for a lease that is granted or left vacant.
fn who(actor: Actor, by: &str) -> Who<'_> {
    Who { actor, by, fresh: fresh_token() }
}
