//! A held run's own events, written in order, each once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::time::sleep;
use waypost_kernel::Code;
use waypost_kernel::request::Level;
use waypost_kernel::text::{MAX_OUTPUT_BYTES_PER_RUN, MAX_REASON_CHARS, clean_chars, clean_line};
use waypost_store::{NoteWrite, Repeat, RunRow, StoreError};

use crate::lease::Lease;
use crate::outage;
use crate::pace;
use crate::report::reporter::Reporter;
use crate::steps::Durable;

pub(crate) struct Journal {
    reporter: Arc<Reporter>,
    lease: Arc<Lease>,
    by: String,
    written: AtomicU64,
    /// Of output, over all tries.
    output_bytes_left: AtomicUsize,
    output_cut: AtomicBool,
    /// The last lines of output.
    last_lines: Mutex<VecDeque<String>>,
}

/// Of a run's output that are kept with it (J7); a line of theirs is cut to this.
const LAST_LINES: usize = 100;
const MAX_LAST_LINE_BYTES: usize = 512;

impl Journal {
    pub fn new(reporter: Arc<Reporter>, lease: Arc<Lease>, by: &str) -> Arc<Journal> {
        Arc::new(Journal {
            reporter,
            lease,
            by: by.to_owned(),
            written: AtomicU64::new(0),
            output_bytes_left: AtomicUsize::new(MAX_OUTPUT_BYTES_PER_RUN),
            output_cut: AtomicBool::new(false),
            last_lines: Mutex::default(),
        })
    }

    /// False: the lease is lost and nothing was written. A store that is away is asked again until then, and
    /// the key makes an event that arrived after all known as the same.
    pub async fn note(&self, level: Level, message: &str, payload: Value) -> bool {
        self.tell(level, message, payload, Map::new()).await
    }

    /// The same, with what is merged into the run's details.
    pub async fn tell(
        &self,
        level: Level,
        message: &str,
        payload: Value,
        details: Map<String, Value>,
    ) -> bool {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let write = NoteWrite {
            held: self.lease.held.clone(),
            by: self.by.clone(),
            level,
            message: clean_chars(message, MAX_REASON_CHARS).text,
            payload,
            repeat: Repeat::Key(format!("{}:{number}", self.lease.fence)),
            metadata: Map::new(),
            details,
        };
        tokio::select! {
            biased;
            () = self.lease.lost() => false,
            written = self.write(&write) => written,
        }
    }

    async fn write(&self, write: &NoteWrite) -> bool {
        let run_id = &self.lease.held.run_id;
        for retry in 1.. {
            match self.reporter.note(write.clone()).await {
                Ok(_) => return true,
                Err(error) if is_lost(&error) => break,
                Err(error @ StoreError::Unavailable(_)) => {
                    outage::met(&format!("an event of {run_id} was not accepted"), &error);
                    sleep(pace::store_away(retry)).await;
                }
                Err(error) => {
                    // The work matters more than its log.
                    tracing::error!(run_id, %error, "an event was not accepted and is left out");
                    return true;
                }
            }
        }
        self.lease.lose();
        false
    }

    /// The steps of a handler in Rust, written by the same hand.
    pub fn durable(&self, row: &RunRow) -> Durable {
        Durable::new(self.reporter.store.clone(), self.lease.clone(), &self.by, row)
    }

    pub fn remember(&self, line: &str) {
        let mut lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(clean_line(line.as_bytes(), MAX_LAST_LINE_BYTES).text);
    }

    /// What this holder's commands printed last, after what earlier ones did.
    pub fn last_lines(&self, earlier: Option<&Value>) -> Vec<Value> {
        let lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = earlier.and_then(Value::as_array).into_iter().flatten().cloned();
        let all: Vec<Value> = earlier.chain(lines.iter().map(|line| Value::from(line.as_str()))).collect();
        all[all.len().saturating_sub(LAST_LINES)..].to_vec()
    }

    /// Takes from what the run may still put out; false when this is too much, and ever after.
    pub fn spend_output(&self, bytes: usize) -> bool {
        if self.is_output_cut() {
            return false;
        }
        let take = |left: usize| left.checked_sub(bytes);
        self.output_bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub fn is_output_cut(&self) -> bool {
        self.output_cut.load(Ordering::Relaxed)
    }

    /// True once: the first to say so tells the reader of the log.
    pub fn cut_output(&self) -> bool {
        !self.output_cut.swap(true, Ordering::Relaxed)
    }
}

/// The run is no longer this worker's.
pub(crate) fn is_lost(error: &StoreError) -> bool {
    match error {
        StoreError::Refused(refusal) => refusal.code == Code::LeaseLost,
        StoreError::NotFound { .. } => true,
        _ => false,
    }
}
