//! Runs of projected lifecycles as documents of an object store: `runs/<id>/status.json`, `runs/<id>/steps/<n>.json` and
//! `runs/<id>/manifest.json`, for those who read them there. Decision 20 has the order of the writes, and what a crash between
//! any two of them leaves.
//!
//! `document` says what stands in them, `objects` where they are kept and when a document may take another one's place.
//! [`Projection`] writes what a run is now; the projector (`loops/projector.rs`) calls it for whatever moved, and `promise`
//! before a run may be told as completed.

mod document;
pub mod errors;
mod file;
pub mod objects;
pub(crate) mod promise;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use waypost_kernel::{Outcome, Phase};
use waypost_store::codec::hex;
use waypost_store::{Claimed, Database, ItemRow, Result, RunRow, Store, StoreError};

use crate::proposals::{self, Making};
pub(crate) use file::PROJECTION;
pub use file::load;
use objects::{Answer, Content, Objects, Put, Stored, put_or_mend};

/// How often a run that is written all the time is read again.
const LOOKS: usize = 20;
/// Keys of step files that are remembered. Beyond that all are forgotten, which costs a read each.
const MOST_KNOWN: usize = 10_000;
/// What is written to see whether anything can be.
const PROBE: &str = ".waypost/probe.json";
/// Bytes of a reader's name: ids of runs stand behind it, in what the database takes as a name.
const LONGEST_READER: usize = 200;

/// Writes what becomes of runs into an object store.
#[derive(Debug)]
pub struct Projection {
    objects: Arc<dyn Objects>,
    /// What this process saw in step files: a step that has ended does not change, and is not looked at again with every
    /// other one.
    known: Mutex<HashMap<String, Vec<u8>>>,
}

/// What else a look at a run is for, which comes before it is written. It may come again.
pub trait First: Send + Sync {
    fn of<'a>(&'a self, row: &'a RunRow, steps: &'a [ItemRow]) -> Answer<'a, ()>;
}

impl First for () {
    fn of<'a>(&'a self, _: &'a RunRow, _: &'a [ItemRow]) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// What a run is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// It moved.
    Follow,
    /// Its documents are to be whole again. `was_left`: nobody could write them when it moved.
    Rebuild { was_left: bool },
}

impl Aim {
    /// A run whose end stands there has made its proposals, and those that were pruned since do not come back. So has one whose documents
    /// somebody deleted; one that was left, or that is behind, may not have got there.
    fn making(self, was: Option<&Stored>) -> Making {
        match self {
            Aim::Rebuild { was_left: false } if was.is_none_or(|was| was.is_last) => Making::KnownOnly,
            _ => Making::New,
        }
    }
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

    /// Under which name the database keeps how far the log was followed for it. One that is too long for that has a digest instead.
    pub fn reader(&self) -> String {
        match self.name() {
            name if name.len() <= LONGEST_READER => name.to_owned(),
            name => format!("sha256:{}", hex(&Sha256::digest(name))),
        }
    }

    /// Writes what is new of a run. Done twice, or by several at once, it is done once.
    pub async fn show(&self, store: &dyn Store, tenant: &str, run_id: &str) -> Result<Shown> {
        self.write(store, tenant, run_id, Aim::Follow, &()).await
    }

    /// The same, and something else before anybody can read of it.
    pub async fn show_after(
        &self,
        store: &dyn Store,
        tenant: &str,
        run_id: &str,
        first: &dyn First,
    ) -> Result<Shown> {
        self.write(store, tenant, run_id, Aim::Follow, first).await
    }

    /// Writes whatever is missing, behind or damaged, even of a run that has ended.
    pub async fn rebuild(&self, database: &dyn Database, tenant: &str, run_id: &str) -> Result<Shown> {
        self.forget();
        let left = database.left_behind(self.reader()).await?;
        let was_left = left.iter().any(|left| left.run_id == run_id);
        self.write(database, tenant, run_id, Aim::Rebuild { was_left }, &()).await
    }

    async fn write(
        &self,
        store: &dyn Store,
        tenant: &str,
        run_id: &str,
        aim: Aim,
        first: &dyn First,
    ) -> Result<Shown> {
        let Some((row, steps)) = read(store, tenant, run_id).await? else { return Ok(Shown::default()) };
        first.of(&row, &steps).await?;
        let seq = row.run.seq;
        let status_key = key(&row, "status.json");
        // Whoever wrote it had written the others before: after the last one nothing is.
        let was = self.objects.read(&status_key).await?;
        if aim == Aim::Follow && was.as_ref().is_some_and(|was| was.is_last || was.version >= seq) {
            return Ok(Shown { run: Some(row), written: 0 });
        }
        // Somebody deleted them all: what this process saw there is gone.
        let is_bare = was.is_none();
        let making = aim.making(was.as_ref());
        let proposals = proposals::made(store, &row, &steps, making).await?;
        let mut written = 0;
        for (number, bytes) in document::ended_steps(&row, &steps) {
            let (name, content) =
                (format!("steps/{number}.json"), Content { bytes, version: seq, is_last: false });
            if is_bare {
                self.known().remove(&key(&row, &name));
            }
            written += self.put_step(store, &row, &name, content, aim).await?;
        }
        let is_last = row.lifecycle.is_terminal(row.run.state);
        let put = async |name: &str, bytes: Vec<u8>| {
            self.put(store, &row, name, &Content { bytes, version: seq, is_last }, aim).await
        };
        if row.outcome() == Some(Outcome::Succeeded) {
            written += put("manifest.json", document::manifest(&row, &steps, &proposals)).await?;
        }
        written += put("status.json", document::status(&row, &steps, &proposals)).await?;
        Ok(Shown { run: Some(row), written })
    }

    /// The manifest of a run whose steps are done and that has not ended yet. Whoever slept until somebody else took the run, or ended it,
    /// writes nothing.
    async fn put_manifest(&self, store: &dyn Store, claimed: &Claimed) -> Result<()> {
        let Some((row, steps)) = read(store, &claimed.run.tenant, claimed.run.id()).await? else {
            return Ok(());
        };
        if row.phase() != Phase::Held || row.run.fence != claimed.fence {
            return Ok(());
        }
        // Who may only work runs cannot make them: the projector does, before the end can be read.
        let proposals = proposals::made(store, &row, &steps, Making::New).await.unwrap_or_default();
        let bytes = document::manifest(&row, &steps, &proposals);
        let content = Content { bytes, version: row.run.seq, is_last: false };
        self.put(store, &row, "manifest.json", &content, Aim::Follow).await.map(drop)
    }

    async fn put_step(
        &self,
        store: &dyn Store,
        row: &RunRow,
        name: &str,
        content: Content,
        aim: Aim,
    ) -> Result<usize> {
        let key = key(row, name);
        if self.known().get(&key) == Some(&content.bytes) {
            return Ok(0);
        }
        let written = self.put(store, row, name, &content, aim).await?;
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, content.bytes);
        Ok(written)
    }

    /// Gives how many objects were written. What stands there in a version that nobody knows any more is replaced by a rebuild alone, and
    /// only if the run has not moved since: what was read before the run's row cannot be newer than that.
    async fn put(
        &self,
        store: &dyn Store,
        row: &RunRow,
        name: &str,
        content: &Content,
        aim: Aim,
    ) -> Result<usize> {
        let key = key(row, name);
        let was = match put_or_mend(&*self.objects, &key, content, aim != Aim::Follow).await? {
            Put::Written => return Ok(1),
            Put::Kept => return Ok(0),
            Put::Unknown(was) => was,
        };
        let refused = |why: &str| Err(StoreError::Unavailable(format!("{}: {key} {why}", self.name())));
        if aim == Aim::Follow {
            return refused("has lost its version; `waypost projection rebuild` writes it anew");
        }
        let now = store.run(row.tenant.clone(), row.id().to_owned()).await?;
        match now.run.seq == content.version && self.objects.write(&key, content, Some(&was)).await? {
            true => Ok(1),
            false => refused("changed meanwhile: try it again"),
        }
    }

    /// Whether documents can be written now.
    pub async fn probe(&self) -> Result<()> {
        let was = self.objects.read(PROBE).await?;
        let version = was.as_ref().map_or(1, |was| was.version + 1);
        let content = Content { bytes: b"{}\n".to_vec(), version, is_last: false };
        // Whoever was faster has shown it too.
        self.objects.write(PROBE, &content, was.as_ref()).await.map(drop)
    }

    /// What readers see of a run now, with its version; none if nothing is there.
    pub async fn status(&self, run_id: &str) -> Result<Option<Stored>> {
        self.objects.read(&format!("runs/{run_id}/status.json")).await
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
