//! Steps of a handler in Rust: done once, whoever takes the run over.

use std::future::Future;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Mutex;
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_store::{RunRow, Store};

use super::idempotency_key;
use super::sheet::{Gone, Mark, Sheet};
use super::words::Standing;
use crate::lease::Lease;
use crate::outcome::{Outcome, Word};

pub(crate) struct Durable {
    store: Arc<dyn Store>,
    lease: Arc<Lease>,
    by: String,
    row: RunRow,
    /// Read when the first step begins.
    sheet: Mutex<Option<Sheet>>,
}

impl Durable {
    pub fn new(store: Arc<dyn Store>, lease: Arc<Lease>, by: &str, row: &RunRow) -> Durable {
        Durable { store, lease, by: by.to_owned(), row: row.clone(), sheet: Mutex::new(None) }
    }

    /// What the step answers, or answered before. The error is what the handler should end with.
    pub async fn step<F, Work>(&self, key: &str, work: F) -> Result<Value, Outcome>
    where
        F: FnOnce(String) -> Work,
        Work: Future<Output = Outcome>,
    {
        let mut guard = self.sheet.lock().await;
        if guard.is_none() {
            *guard = Sheet::open(&self.store, &self.lease, &self.by, &self.row).await.map_err(gone)?;
        }
        let Some(sheet) = guard.as_mut() else {
            let message = format!("a {} run has no steps", self.row.lifecycle.name);
            return Err(Outcome::fail("UNFIT", &message));
        };
        let known = sheet.row(key);
        match sheet.standing(key) {
            Standing::Done | Standing::Skipped => {
                return Ok(known.map(|row| row.output.clone()).unwrap_or_default());
            }
            Standing::Failed => {
                let failure = known.and_then(|row| row.failure.clone());
                let failure = failure.unwrap_or_else(|| Failure::new("STEP_FAILED", "it failed before"));
                return Err(Outcome { permanent: true, ..Outcome::fail(&failure.code, &failure.message) });
            }
            Standing::Open | Standing::Held | Standing::Parked => {}
        }
        // What a failed step means is for the handler to say.
        let begun = Mark { role: Role::Optional, ..Mark::default() };
        sheet.put(key, Standing::Held, begun).await.map_err(gone)?;
        let try_no = sheet.row(key).map_or(1, |row| row.try_no);
        let outcome = work(idempotency_key(self.row.id(), key, try_no)).await.cleaned();
        match outcome.word.unwrap_or(Word::Done) {
            Word::Done | Word::Skip | Word::Finish => {
                let output = outcome.output.clone();
                let mark = Mark { answered: true, output: Some(output.clone()), ..Mark::default() };
                sheet.put_later(key, Standing::Done, mark);
                if outcome.word == Some(Word::Finish) { Err(outcome) } else { Ok(output) }
            }
            Word::Fail => {
                let code = outcome.code.as_deref().unwrap_or("STEP_FAILED");
                let failure = Failure::new(code, outcome.message.as_deref().unwrap_or("it did not say why"));
                sheet.put_later(key, Standing::Failed, Mark { answered: true, ..Mark::failed(failure) });
                Err(outcome)
            }
            // The whole handler is asked again, and this step with it.
            Word::Retry | Word::Pause => Err(outcome),
        }
    }

    /// What is not written yet.
    pub async fn flush(&self) {
        if let Some(sheet) = self.sheet.lock().await.as_mut() {
            let _ = sheet.flush().await;
        }
    }
}

/// What the handler should end with. Nobody reads it if the run is another's by now.
fn gone(gone: Gone) -> Outcome {
    match gone {
        Gone::Lost => Outcome::fail("LEASE_LOST", "the run is not this worker's any more"),
        Gone::Failing => Outcome::fail("FAILURE_RECORDED", "the run is failing already"),
        Gone::Refused(failure) => {
            Outcome { permanent: true, ..Outcome::fail(&failure.code, &failure.message) }
        }
    }
}
