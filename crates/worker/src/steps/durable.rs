//! Steps of a handler in Rust: done once, whoever takes the run over.

use std::future::Future;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Mutex;
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_store::{RunRow, Store};

use super::idempotency_key;
use super::state_names::StepState;
use super::step_log::{Halt, StepLog, StepResult};
use crate::lease::Lease;
use crate::outcome::{Outcome, Word};

/// The code of a step that was not begun because something else is wanted of its run.
pub(crate) const NOT_BEGUN: &str = "NOT_BEGUN";

pub(crate) struct Durable {
    store: Arc<dyn Store>,
    lease: Arc<Lease>,
    by: String,
    row: RunRow,
    /// Read when the first step begins.
    step_log: Mutex<Option<StepLog>>,
}

impl Durable {
    pub fn new(store: Arc<dyn Store>, lease: Arc<Lease>, by: &str, row: &RunRow) -> Durable {
        Durable { store, lease, by: by.to_owned(), row: row.clone(), step_log: Mutex::new(None) }
    }

    /// What the step answers, or answered before. The error is what the handler should end with.
    pub async fn step<F, Work>(&self, key: &str, work: F) -> Result<Value, Outcome>
    where
        F: FnOnce(String) -> Work,
        Work: Future<Output = Outcome>,
    {
        let mut guard = self.step_log.lock().await;
        if guard.is_none() {
            *guard = StepLog::open(&self.store, &self.lease, &self.by, &self.row).await.map_err(halt)?;
        }
        let Some(step_log) = guard.as_mut() else {
            let message = format!("a {} run has no steps", self.row.lifecycle.name);
            return Err(Outcome::fail("UNFIT", &message));
        };
        let known = step_log.row(key);
        match step_log.state(key) {
            StepState::Done | StepState::Skipped => {
                return Ok(known.map(|row| row.output.clone()).unwrap_or_default());
            }
            StepState::Failed => {
                let failure = known.and_then(|row| row.failure.clone());
                let failure = failure.unwrap_or_else(|| Failure::new("STEP_FAILED", "it failed before"));
                return Err(Outcome { permanent: true, ..Outcome::fail(&failure.code, &failure.message) });
            }
            StepState::Open | StepState::Held | StepState::Parked => {}
        }
        // What a failed step means is for the handler to say.
        let begun = StepResult { role: Role::Optional, ..StepResult::default() };
        step_log.put(key, StepState::Held, begun).await.map_err(halt)?;
        let try_no = step_log.row(key).map_or(1, |row| row.try_no);
        let outcome = work(idempotency_key(self.row.id(), key, try_no)).await.cleaned();
        match outcome.word.unwrap_or(Word::Done) {
            Word::Done | Word::Skip | Word::Finish => {
                let output = outcome.output.clone();
                let result =
                    StepResult { answered: true, output: Some(output.clone()), ..StepResult::default() };
                step_log.put_later(key, StepState::Done, result);
                if outcome.word == Some(Word::Finish) { Err(outcome) } else { Ok(output) }
            }
            Word::Fail => {
                let code = outcome.code.as_deref().unwrap_or("STEP_FAILED");
                let failure = Failure::new(code, outcome.message.as_deref().unwrap_or("it did not say why"));
                step_log.put_later(
                    key,
                    StepState::Failed,
                    StepResult { answered: true, ..StepResult::failed(failure) },
                );
                Err(outcome)
            }
            // The whole handler is asked again, and this step with it.
            Word::Retry | Word::Pause => Err(outcome),
        }
    }

    /// What is not written yet.
    pub async fn flush(&self) {
        if let Some(step_log) = self.step_log.lock().await.as_mut() {
            let _ = step_log.flush().await;
        }
    }
}

/// What the handler should end with. Nobody reads it if the run is another's by now.
fn halt(halt: Halt) -> Outcome {
    match halt {
        Halt::Lost => Outcome::fail("LEASE_LOST", "the run is not this worker's any more"),
        Halt::Wanted(want) => {
            let message = format!("{} was asked of the run: no step begins", want.command());
            Outcome { permanent: true, ..Outcome::fail(NOT_BEGUN, &message) }
        }
        Halt::Refused(failure) => {
            Outcome { permanent: true, ..Outcome::fail(&failure.code, &failure.message) }
        }
    }
}
