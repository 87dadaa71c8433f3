//! What all requests share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use waypost_store::{Database, RunRow};
use waypost_worker::Stage;
use waypost_worker::alerts::Alerts;
use waypost_worker::projection::Projection;
use waypost_worker::webhooks::Github;

use crate::api::playbooks::by_name::Lookups;
use crate::metrics::Metrics;
use crate::room::bytes::Budget;
use crate::room::shares::Shares;
use crate::stream::hub::Hub;
use crate::tokens::{Known, Rate};
use crate::wait::Lines;

/// Each takes memory of its own, and a processor.
const PARSERS: usize = 2;
const PAGES: usize = 2;
/// Runs that are remembered, so that a heartbeat need not look up their tenant.
const REMEMBERED: usize = 20_000;

#[derive(Clone, Debug)]
pub struct Options {
    /// Without: whoever reaches the server may do everything. Only on loopback.
    pub needs_tokens: bool,
    /// What `/webhooks/github` takes.
    pub github: Option<Arc<Github>>,
    /// Where agents' runs are written to, and read from.
    pub projection: Option<Arc<Projection>>,
    /// Whom `POST /v1/alerts/test` tells.
    pub alerts: Alerts,
    /// Connections at once.
    pub connections: usize,
    /// Of each token.
    pub rate: Rate,
    /// Names of the schedules of the server's own file: nobody else changes them.
    pub own_schedules: Vec<String>,
    /// How long a client may take no byte of its answer.
    pub write_within: Duration,
    /// Memory for bodies that are read and worked on.
    pub body_bytes: usize,
    /// Memory for answers that their clients have not taken yet.
    pub answer_bytes: usize,
    /// Runs that are read at most for figures and charts: of more, some stand for all.
    pub sampled_runs: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            needs_tokens: false,
            github: None,
            projection: None,
            alerts: Alerts::default(),
            connections: 1_024,
            rate: Rate::default(),
            own_schedules: Vec::new(),
            write_within: Duration::from_secs(20),
            body_bytes: 64 * 1024 * 1024,
            answer_bytes: 48 * 1024 * 1024,
            sampled_runs: 1_000,
        }
    }
}

pub struct App {
    pub store: Arc<dyn Database>,
    pub options: Options,
    pub metrics: Metrics,
    pub(crate) tokens: Known,
    pub(crate) hub: Hub,
    pub(crate) shares: Arc<Shares>,
    pub(crate) bodies: Arc<Budget>,
    pub(crate) answers: Arc<Budget>,
    /// Large bodies that are parsed at once.
    pub(crate) parsers: Semaphore,
    /// Pages that are put together at once.
    pub(crate) pages: Arc<Semaphore>,
    pub(crate) queues: Lines,
    /// Playbooks that runs were started by.
    pub(crate) lookups: Lookups,
    /// Whose signs of life were stored lately.
    pub(crate) seen_workers: Mutex<HashMap<crate::api::workers::WorkerKey, SeenWorker>>,
    /// Runs that were claimed here.
    runs: Mutex<[HashMap<String, KnownRun>; 2]>,
    pub shutdown: watch::Receiver<Stage>,
}

#[derive(Clone, Debug)]
pub(crate) struct SeenWorker {
    pub at: Instant,
    /// The worker said it itself; else its claims told.
    pub is_declared: bool,
    /// Of what it takes: another one is stored at once.
    pub kind: u64,
}

#[derive(Clone, Debug)]
struct KnownRun {
    tenant: String,
    bytes: Option<usize>,
}

impl App {
    pub fn new(store: Arc<dyn Database>, options: Options, shutdown: watch::Receiver<Stage>) -> Arc<App> {
        Arc::new(App {
            store,
            tokens: Known::new(options.rate),
            hub: Hub::default(),
            shares: Shares::new(options.connections),
            bodies: Budget::new("bodies", options.body_bytes),
            answers: Budget::new("answers", options.answer_bytes),
            parsers: Semaphore::new(PARSERS),
            pages: Arc::new(Semaphore::new(PAGES)),
            queues: Lines::default(),
            lookups: Lookups::default(),
            options,
            metrics: Metrics::default(),
            seen_workers: Mutex::default(),
            runs: Mutex::default(),
            shutdown,
        })
    }

    pub fn is_stopping(&self) -> bool {
        *self.shutdown.borrow() >= Stage::Draining
    }

    /// Returns when the server should end.
    pub async fn stopping(&self) {
        let mut shutdown = self.shutdown.clone();
        if shutdown.wait_for(|stage| *stage >= Stage::Draining).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn remember_tenant(&self, run_id: &str, tenant: &str) {
        let known = self.known(run_id).and_then(|known| known.bytes);
        self.remember(run_id, KnownRun { tenant: tenant.to_owned(), bytes: known });
    }

    /// What a claim gave: with how large it is.
    pub fn remember_run(&self, row: &RunRow) {
        self.remember(row.id(), KnownRun { tenant: row.tenant.clone(), bytes: Some(row.weight()) });
    }

    /// A run gets larger by this.
    pub fn has_grown(&self, run_id: &str, bytes: usize) {
        if let Some(KnownRun { tenant, bytes: Some(had) }) = self.known(run_id).filter(|_| bytes > 0) {
            self.remember(run_id, KnownRun { tenant, bytes: Some(had + bytes) });
        }
    }

    pub fn tenant_of(&self, run_id: &str) -> Option<String> {
        self.known(run_id).map(|known| known.tenant)
    }

    /// What a run's JSON takes in memory, as far as it went through this server.
    pub fn bytes_of(&self, run_id: &str) -> Option<usize> {
        self.known(run_id)?.bytes
    }

    fn remember(&self, run_id: &str, known: KnownRun) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs[0].len() >= REMEMBERED {
            runs[1] = std::mem::take(&mut runs[0]);
        }
        runs[0].insert(run_id.to_owned(), known);
    }

    fn known(&self, run_id: &str) -> Option<KnownRun> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().find_map(|known| known.get(run_id).cloned())
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("options", &self.options).finish_non_exhaustive()
    }
}
