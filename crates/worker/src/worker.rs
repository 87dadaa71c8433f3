//! A worker, for whoever starts one.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use waypost_store::{Claimed, Result, Store};

use crate::claim::slots::Slots;
use crate::claim::{Claims, claim};
use crate::counts::Counts;
use crate::options::Options;
use crate::pipeline::Shared;
use crate::playbook::known;
use crate::registration::registered;
use crate::shutdown::Stage;
use crate::summary::Summary;

#[derive(Clone)]
pub struct Worker {
    shared: Shared,
    /// A run that it holds already, and when that was asked for.
    first: Option<(Claimed, Instant)>,
}

impl Worker {
    pub fn new(store: Arc<dyn Store>, options: Options) -> Worker {
        Worker { shared: Shared::new(store, options), first: None }
    }

    /// The same for a run that was claimed under its name, after `asked_at`. It works that before it claims others.
    #[must_use]
    pub fn holding(self, claimed: Claimed, asked_at: Instant) -> Worker {
        Worker { first: Some((claimed, asked_at)), ..self }
    }

    pub fn name(&self) -> &str {
        &self.shared.options.name
    }

    /// What it has done so far.
    pub fn counts(&self) -> Arc<Counts> {
        self.shared.counts.clone()
    }

    /// Works until it is told to stop, or until the one run that it is for is done with.
    pub async fn run(self, mut shutdown: watch::Receiver<Stage>) -> Result<Summary> {
        let mut slots = Slots::new(self.shared.clone());
        let mut claims = Claims::new(self.shared.clone());
        if let Some((claimed, asked_at)) = self.first.clone() {
            claims.has_taken(claimed, asked_at, &mut slots);
        }
        if !self.shared.options.may_execute_anything() {
            tracing::warn!("this worker has no handlers and may not run commands: it claims nothing");
        }
        self.offer().await;
        registered(&self.shared, async move {
            let ended = claims.fill(&mut slots, &mut shutdown).await;
            claims.give_back(&mut slots).await;
            slots.close(&mut shutdown).await;
            ended.map(|()| slots.summary)
        })
        .await
    }

    /// So that runs can be started by the names of what it has. It works without: others may have offered the same.
    async fn offer(&self) {
        let Options { playbooks, handlers, tenant, name, only, .. } = &*self.shared.options;
        if only.is_some() {
            return;
        }
        let store = &*self.shared.store;
        if let Err(error) = known::offer(store, playbooks, handlers.names(), tenant.as_deref(), name).await {
            tracing::warn!(%error, "its playbooks are not known by name to others");
        }
    }

    /// Claims once, at most one run per slot, and works those to their ends.
    pub async fn run_once(&self) -> Result<Summary> {
        let mut slots = Slots::new(self.shared.clone());
        let taken = claim(self.shared.clone(), self.shared.options.slots, self.shared.next_claim()).await?;
        taken.claims.into_iter().for_each(|claimed| slots.claimed(claimed, taken.asked_at));
        slots.empty(&mut Vec::new()).await;
        Ok(slots.summary)
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("options", &self.shared.options).finish_non_exhaustive()
    }
}
