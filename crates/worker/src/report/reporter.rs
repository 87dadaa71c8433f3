//! What all slots of a worker tell the store: ends in batches, and notes in batches.

use std::sync::Arc;

use waypost_store::{FinishWrite, NoteWrite, Noted, Result, RunRow, Store};

use crate::counts::Counts;
use crate::report::batch::Batcher;

/// Of one request. An end is a few hundred bytes.
const ENDS: usize = 1_000;
/// A note may be as large as an event, which is mostly a chunk of output.
const NOTES: usize = 100;

pub(crate) struct Reporter {
    pub store: Arc<dyn Store>,
    ends: Batcher<FinishWrite, RunRow>,
    notes: Batcher<NoteWrite, Noted>,
    counts: Arc<Counts>,
}

impl Reporter {
    pub fn new(store: Arc<dyn Store>, counts: Arc<Counts>) -> Arc<Reporter> {
        let (finishes, noted) = (store.clone(), store.clone());
        let ends = Batcher::new(ENDS, move |writes| {
            let store = finishes.clone();
            Box::pin(async move { store.finish(writes).await })
        });
        let notes = Batcher::new(NOTES, move |writes| {
            let store = noted.clone();
            Box::pin(async move { store.note(writes).await })
        });
        Arc::new(Reporter { store, ends, notes, counts })
    }

    pub async fn finish(&self, write: FinishWrite) -> Result<RunRow> {
        let row = self.ends.write(write).await?;
        self.counts.finished(&row);
        Ok(row)
    }

    pub async fn note(&self, write: NoteWrite) -> Result<Noted> {
        self.notes.write(write).await
    }
}
