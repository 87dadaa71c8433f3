//! What all clients of a history share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::plan::Dice;
use super::record::Recorder;

/// Runs of a queue that are enough to keep its workers busy.
const ENOUGH: u64 = 60;
const REMEMBERED: usize = 300;

pub struct Shared {
    pub recorder: Recorder,
    pub seed: u64,
    pub seconds: u64,
    pub addresses: Vec<String>,
    pub database_url: Option<String>,
    pub over: watch::Sender<bool>,
    recent: Mutex<VecDeque<String>>,
    /// How many runs wait, by queue, as a server said last.
    pub waiting: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    pub fn new(seed: u64, seconds: u64, addresses: Vec<String>, database_url: Option<String>) -> Shared {
        Shared {
            recorder: Recorder::new(),
            seed,
            seconds,
            addresses,
            database_url,
            over: watch::channel(false).0,
            recent: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Until the history ends, but for no longer than this: what paces clients and holds runs for a while.
    pub async fn rest(&self, at_most_ms: u64) {
        let mut over = self.over.subscribe();
        let _ = timeout(Duration::from_millis(at_most_ms), over.wait_for(|over| *over)).await;
    }

    /// Between two tries, also after the end of the history.
    pub async fn moment(&self) {
        let _ = timeout(Duration::from_millis(50), std::future::pending::<()>()).await;
    }

    pub fn remember(&self, run_id: &str) {
        let mut recent = self.recent.lock().unwrap();
        recent.push_back(run_id.to_owned());
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    pub fn some_run(&self, dice: &mut Dice) -> Option<String> {
        let recent = self.recent.lock().unwrap();
        let at = dice.below(recent.len().max(1) as u64) as usize;
        recent.get(at).cloned()
    }

    pub fn has_enough(&self, queue: &str) -> bool {
        self.waiting.lock().unwrap().get(queue).is_some_and(|waiting| *waiting > ENOUGH)
    }
}
