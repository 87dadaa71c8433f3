//! What all requests share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost_store::Database;
use waypost_worker::Stage;
use waypost_worker::webhooks::Github;

use crate::metrics::Metrics;
use crate::stream::hub::Hub;
use crate::tokens::{Known, Rate};

/// Runs whose tenant is remembered, so that a heartbeat need not look it up.
const REMEMBERED: usize = 20_000;

#[derive(Clone, Debug)]
pub struct Options {
    /// Without: whoever reaches the server may do everything. Only on loopback.
    pub needs_tokens: bool,
    /// What the server's own folder has, as `GET /v1/playbooks` lists it.
    pub playbooks: Vec<Playbook>,
    /// What `/webhooks/github` takes.
    pub github: Option<Arc<Github>>,
    /// Connections at once.
    pub connections: usize,
    /// Of each token.
    pub rate: Rate,
}

/// A playbook that workers with this folder can execute.
#[derive(Clone, Debug)]
pub struct Playbook {
    pub name: String,
    pub lifecycle: String,
    pub hash: String,
    pub description: Option<String>,
    pub inputs: Value,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            needs_tokens: false,
            playbooks: Vec::new(),
            github: None,
            connections: 1_024,
            rate: Rate::default(),
        }
    }
}

pub struct App {
    pub store: Arc<dyn Database>,
    pub options: Options,
    pub metrics: Metrics,
    pub(crate) tokens: Known,
    pub(crate) hub: Hub,
    /// Who asked for work lately, by name.
    pub(crate) claimers: Mutex<HashMap<String, Claimer>>,
    /// The tenants of runs that were claimed here.
    tenants: Mutex<[HashMap<String, String>; 2]>,
    pub shutdown: watch::Receiver<Stage>,
}

#[derive(Clone, Debug)]
pub(crate) struct Claimer {
    pub at: Instant,
    pub tenant: String,
    pub queues: Vec<String>,
    /// How many it asked for: what it has free.
    pub free: usize,
}

impl App {
    pub fn new(store: Arc<dyn Database>, options: Options, shutdown: watch::Receiver<Stage>) -> Arc<App> {
        Arc::new(App {
            store,
            tokens: Known::new(options.rate),
            hub: Hub::default(),
            options,
            metrics: Metrics::default(),
            claimers: Mutex::default(),
            tenants: Mutex::default(),
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
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants[0].len() >= REMEMBERED {
            tenants[1] = std::mem::take(&mut tenants[0]);
        }
        tenants[0].insert(run_id.to_owned(), tenant.to_owned());
    }

    pub fn tenant_of(&self, run_id: &str) -> Option<String> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.iter().find_map(|known| known.get(run_id).cloned())
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("options", &self.options).finish_non_exhaustive()
    }
}
