//! Runs of projected lifecycles as documents of an object store: `runs/<id>/status.json`, `runs/<id>/steps/<n>.json` and
//! `runs/<id>/manifest.json`, for those who read them there. Decision 20 has the order of the writes, and what a crash between
//! any two of them leaves.
//!
//! `document` says what stands in them, `objects` where they are kept and when a document may take another one's place.
//! [`Projection`] writes what a run is now; the projector (`loops/projector.rs`) calls it for whatever moved, and `promise`
//! before a run may be told as completed.

mod document;
pub mod objects;
pub(crate) mod promise;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use waypost_kernel::Outcome;
use waypost_store::{ItemRow, Result, RunRow, Store, StoreError};

use objects::{Content, Objects, Put, put};

/// How often a run that is written all the time is read again.
const LOOKS: usize = 20;
/// Keys of step files that are remembered. Beyond that all are forgotten, which costs a read each.
const MOST_KNOWN: usize = 10_000;

/// Writes what becomes of runs into an object store.
#[derive(Debug)]
pub struct Projection {
    objects: Arc<dyn Objects>,
    /// What this process saw in step files: a step that has ended does not change, and is not looked at again with every
    /// other one.
    known: Mutex<HashMap<String, Vec<u8>>>,
}

/// What came of a look at a run.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The run as it was read; none if it was pruned. Its objects stay then.
    pub run: Option<RunRow>,
    /// How many objects were written.
    pub written: usize,
}

impl Projection {
    pub fn new(objects: Arc<dyn Objects>) -> Projection {
        Projection { objects, known: Mutex::default() }
    }

    /// The object store's name, which is that of the projection too.
    pub fn name(&self) -> &str {
        self.objects.name()
    }

    /// Writes what is new of a run. Done twice, or by several at once, it is done once.
    pub async fn show(&self, store: &dyn Store, tenant: &str, run_id: &str) -> Result<Shown> {
        self.write(store, tenant, run_id, false).await
    }

    /// Writes whatever is missing or behind, even of a run that has ended.
    pub async fn rebuild(&self, store: &dyn Store, tenant: &str, run_id: &str) -> Result<Shown> {
        self.forget();
        self.write(store, tenant, run_id, true).await
    }

    async fn write(&self, store: &dyn Store, tenant: &str, run_id: &str, is_rebuild: bool) -> Result<Shown> {
        let Some((row, steps)) = read(store, tenant, run_id).await? else { return Ok(Shown::default()) };
        let seq = row.run.seq;
        let status_key = key(&row, "status.json");
        // Whoever wrote it had written the others before: after the last one nothing is.
        let was = self.objects.read(&status_key).await?;
        if !is_rebuild && was.is_some_and(|was| was.is_last || was.version >= seq) {
            return Ok(Shown { run: Some(row), written: 0 });
        }
        let mut written = 0;
        for (number, bytes) in document::ended_steps(&row, &steps) {
            written += self.put_step(&key(&row, &format!("steps/{number}.json")), bytes, seq).await?;
        }
        let is_last = row.lifecycle.is_terminal(row.run.state);
        let put = async |name: &str, bytes: Vec<u8>| {
            let content = Content { bytes, version: seq, is_last };
            let put = put(&*self.objects, &key(&row, name), &content).await?;
            Ok::<_, StoreError>(usize::from(put == Put::Written))
        };
        if row.outcome() == Some(Outcome::Succeeded) {
            written += put("manifest.json", document::manifest(&row, &steps)).await?;
        }
        written += put("status.json", document::status(&row, &steps)).await?;
        Ok(Shown { run: Some(row), written })
    }

    /// The manifest of a run whose steps are done and that has not ended yet.
    async fn put_manifest(&self, store: &dyn Store, tenant: &str, run_id: &str) -> Result<()> {
        let Some((row, steps)) = read(store, tenant, run_id).await? else { return Ok(()) };
        let bytes = document::manifest(&row, &steps);
        let content = Content { bytes, version: row.run.seq, is_last: false };
        put(&*self.objects, &key(&row, "manifest.json"), &content).await.map(drop)
    }

    async fn put_step(&self, key: &str, bytes: Vec<u8>, version: u64) -> Result<usize> {
        if self.known().get(key) == Some(&bytes) {
            return Ok(0);
        }
        let content = Content { bytes, version, is_last: false };
        let put = put(&*self.objects, key, &content).await?;
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key.to_owned(), content.bytes);
        Ok(usize::from(put == Put::Written))
    }

    fn forget(&self) {
        self.known().clear();
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(row: &RunRow, name: &str) -> String {
    format!("runs/{}/{name}", row.id())
}

/// A run and its steps of one moment: whatever moves a step gives the run a new seq, and a document of one seq with the steps of
/// a later one would be older than what it replaces.
async fn read(store: &dyn Store, tenant: &str, run_id: &str) -> Result<Option<(RunRow, Vec<ItemRow>)>> {
    let find = async || match store.run(tenant.to_owned(), run_id.to_owned()).await {
        Err(StoreError::NotFound { .. }) => Ok(None),
        found => found.map(Some),
    };
    for _ in 0..LOOKS {
        let Some(row) = find().await? else { return Ok(None) };
        let steps = match row.lifecycle.counted_items() {
            Some(kind) => match store.items(run_id.to_owned(), Some(kind.name.to_string())).await {
                Err(StoreError::NotFound { .. }) => return Ok(None),
                found => found?,
            },
            None => Vec::new(),
        };
        let is_same = |again: &RunRow| again.run.seq == row.run.seq;
        if find().await?.as_ref().is_none_or(is_same) {
            return Ok(Some((row, steps)));
        }
    }
    Err(StoreError::Unavailable(format!("{run_id} changed each time that it was read")))
}
