//! Handlers written in Rust, for programs that embed a worker.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::request::Level;

use crate::lease::Lease;
use crate::outcome::Outcome;
use crate::report::journal::Journal;
use crate::steps::Durable;

/// Does the work of a run. Any `Fn(Context) -> impl Future<Output = Outcome>` is one.
pub trait Handler: Send + Sync {
    fn handle(&self, context: Context) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;
}

impl<F, Answer> Handler for F
where
    F: Fn(Context) -> Answer + Send + Sync,
    Answer: Future<Output = Outcome> + Send + 'static,
{
    fn handle(&self, context: Context) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        Box::pin(self(context))
    }
}

/// What a handler is given.
#[derive(Clone)]
pub struct Context {
    pub run_id: String,
    pub input: Value,
    pub metadata: Map<String, Value>,
    /// Counted by claims.
    pub attempt: u32,
    /// Counted within a claim, from 1.
    pub try_no: u32,
    /// Rises with every new holder of the run: for outside systems that can refuse an older one.
    pub fence: u64,
    /// The same when a try is repeated because its result was lost.
    pub idempotency_key: String,
    pub(crate) journal: Arc<Journal>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) durable: Arc<Durable>,
}

impl Context {
    /// Adds an event to the run's log.
    pub async fn note(&self, level: Level, message: &str, payload: Value) {
        self.journal.note(level, message, payload).await;
    }

    /// A part of the work that is done once: its result is stored before the next one begins, and a worker that takes
    /// the run over gets it from there. `work` is given its own idempotency key, which is the same when it is asked
    /// again because its result was lost. Steps follow each other; the error is what the handler should return.
    ///
    /// What a handler does between its steps may happen again.
    pub async fn step<F, Work>(&self, name: &str, work: F) -> Result<Value, Outcome>
    where
        F: FnOnce(String) -> Work,
        Work: Future<Output = Outcome>,
    {
        self.durable.step(name, work).await
    }

    /// Returns when the handler should end: the run was cancelled, its lease is lost, or the worker shuts
    /// down. Whoever has not ended after the worker's grace is dropped at its next await.
    pub async fn stopped(&self) {
        self.lease.stopped().await;
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("run_id", &self.run_id)
            .field("try_no", &self.try_no)
            .finish_non_exhaustive()
    }
}

/// The handlers of a worker, by the name of the playbook that a run asks for.
#[derive(Clone, Default)]
pub struct Handlers(HashMap<String, Arc<dyn Handler>>);

impl Handlers {
    #[must_use]
    pub fn with(mut self, playbook: &str, handler: impl Handler + 'static) -> Handlers {
        self.0.insert(playbook.to_owned(), Arc::new(handler));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.0.keys().cloned()
    }

    pub(crate) fn get(&self, playbook: &str) -> Option<&Arc<dyn Handler>> {
        self.0.get(playbook)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Changes one target of a bulk change, or reads it. Any `Fn(TargetCall) -> impl Future<Output = Outcome>` is one.
pub trait TargetHandler: Send + Sync {
    fn call(&self, target: TargetCall) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;
}

impl<F, Answer> TargetHandler for F
where
    F: Fn(TargetCall) -> Answer + Send + Sync,
    Answer: Future<Output = Outcome> + Send + 'static,
{
    fn call(&self, target: TargetCall) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        Box::pin(self(target))
    }
}

/// What a handler of targets is given.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetCall {
    pub run_id: String,
    /// As templates see it: `id`, `before`, `after`, and what else its row said.
    pub target: Value,
    /// Of the run.
    pub input: Value,
    /// The same when a try is repeated because its answer was lost.
    pub idempotency_key: String,
}

/// The handlers of targets that a worker has, by the name that `handler = "…"` of a playbook gives.
#[derive(Clone, Default)]
pub struct TargetHandlers(HashMap<String, Arc<dyn TargetHandler>>);

impl TargetHandlers {
    #[must_use]
    pub fn with(mut self, name: &str, handler: impl TargetHandler + 'static) -> TargetHandlers {
        self.0.insert(name.to_owned(), Arc::new(handler));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn TargetHandler>> {
        self.0.get(name)
    }
}

impl fmt::Debug for TargetHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
