//! Signs of life for all held runs in one request, and what people want of them in its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use waypost_store::{Claimed, Held, Store, StoreError};

use crate::lease::Lease;
use crate::options::Options;
use crate::shutdown::Stage;

/// Keeps a lease alive until it is dropped: a panic must not leave a run held for ever by nobody.
pub(crate) struct Holding {
    leases: Arc<Leases>,
    pub lease: Arc<Lease>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.leases.let_go(&self.lease);
    }
}

/// The leases that this worker holds.
pub(crate) struct Leases {
    store: Arc<dyn Store>,
    options: Arc<Options>,
    held: Mutex<HashMap<String, Arc<Lease>>>,
}

impl Leases {
    pub fn new(store: Arc<dyn Store>, options: Arc<Options>) -> Arc<Leases> {
        Arc::new(Leases { store, options, held: Mutex::default() })
    }

    /// From now on the lease is kept alive. `asked_at` is when the claim was sent.
    pub fn hold(self: &Arc<Leases>, claimed: &Claimed, asked_at: Instant) -> Holding {
        let lease = Lease::new(claimed, asked_at, &self.options);
        self.held().insert(lease.held.run_id.clone(), lease.clone());
        Holding { leases: self.clone(), lease }
    }

    fn let_go(&self, lease: &Arc<Lease>) {
        let mut held = self.held();
        // A later claim of the same run may be there already.
        if held.get(&lease.held.run_id).is_some_and(|known| Arc::ptr_eq(known, lease)) {
            held.remove(&lease.held.run_id);
        }
    }

    pub fn stop_all(&self, stage: Stage) {
        self.held().values().for_each(|lease| lease.stop(stage));
    }

    /// A request that hangs does not hold up the next one: each beat is a task of its own, and what it brings
    /// counts from when it was sent, however late. Leases that are not confirmed end by themselves.
    pub async fn run(self: Arc<Leases>) {
        let mut beats = interval(self.options.beat());
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            let leases = self.clone();
            let beat = tokio::spawn(async move { leases.run_once().await });
            let _ = timeout(self.options.lease / 3, beat).await;
        }
    }

    pub async fn run_once(&self) {
        let leases: Vec<Arc<Lease>> = self.held().values().filter(|it| !it.is_lost()).cloned().collect();
        if leases.is_empty() {
            return;
        }
        renew(&*self.store, &leases, |run_id| self.held().contains_key(run_id)).await;
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Arc<Lease>>> {
        // Every change is one insertion or removal, so that a panic elsewhere leaves nothing half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request for all of them; each counts from when it was sent. `is_held`: nobody has ended the run meanwhile.
pub(crate) async fn renew(store: &dyn Store, leases: &[Arc<Lease>], is_held: impl Fn(&str) -> bool) {
    let asked: Vec<Held> = leases.iter().map(|lease| lease.held.clone()).collect();
    let asked_at = Instant::now();
    let answers = match store.renew(asked).await {
        Ok(answers) => answers,
        Err(error) => return tracing::warn!(%error, "heartbeat not accepted; trying again"),
    };
    for (lease, answer) in leases.iter().zip(answers) {
        let run_id = &lease.held.run_id;
        match answer {
            Ok(renewed) => lease.renewed(asked_at, &renewed),
            Err(StoreError::Refused(_) | StoreError::NotFound { .. }) => {
                // Its finish may have overtaken the beat: then it is no longer ours to lose.
                if is_held(run_id) {
                    tracing::warn!(run_id, "the lease is lost: stopping the run");
                }
                lease.lose();
            }
            Err(error) => tracing::warn!(run_id, %error, "heartbeat not accepted; trying again"),
        }
    }
}
