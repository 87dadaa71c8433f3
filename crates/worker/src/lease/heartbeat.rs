//! Signs of life for all held runs in one request, and what people want of them in its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use waypost_store::{Claimed, Held, Store, StoreError};

use crate::lease::{Asked, Keeping, LONGEST_BEAT, Lease};
use crate::outage;
use crate::shutdown::Stage;

/// While none is held.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

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
    held: Mutex<HashMap<String, Kept>>,
    /// There is one that needs signs of life more often than those before.
    sooner: Notify,
}

struct Kept {
    lease: Arc<Lease>,
    keeping: Keeping,
}

impl Leases {
    pub fn new(store: Arc<dyn Store>) -> Arc<Leases> {
        Arc::new(Leases { store, held: Mutex::default(), sooner: Notify::new() })
    }

    /// From now on the lease is kept alive. `asked_at` is when the claim was sent.
    pub fn hold(self: &Arc<Leases>, claimed: &Claimed, asked_at: Instant, keeping: Keeping) -> Holding {
        let lease = Lease::new(claimed, asked_at, keeping);
        let pace = self.pace();
        self.held().insert(lease.held.run_id.clone(), Kept { lease: lease.clone(), keeping });
        if keeping.every < pace.every {
            self.sooner.notify_one();
        }
        Holding { leases: self.clone(), lease }
    }

    /// That of the most demanding one counts for all, so that they are one request.
    fn pace(&self) -> Keeping {
        let longest = Keeping::new(LONGEST_LEASE, LONGEST_BEAT);
        self.held().values().fold(longest, |pace, kept| Keeping {
            length: pace.length.min(kept.keeping.length),
            every: pace.every.min(kept.keeping.every),
        })
    }

    fn let_go(&self, lease: &Arc<Lease>) {
        let mut held = self.held();
        // A later claim of the same run may be there already.
        if held.get(&lease.held.run_id).is_some_and(|known| Arc::ptr_eq(&known.lease, lease)) {
            held.remove(&lease.held.run_id);
        }
    }

    pub fn stop_all(&self, stage: Stage) {
        self.held().values().for_each(|kept| kept.lease.stop(stage));
    }

    /// A request that hangs does not hold up the next one: each beat is a task of its own, and what it brings
    /// counts from when it was sent, however late. Leases that are not confirmed end by themselves.
    pub async fn run(self: Arc<Leases>) {
        loop {
            tokio::select! {
                () = self.sooner.notified() => continue,
                () = sleep(self.pace().every) => {}
            }
            let leases = self.clone();
            let beat = tokio::spawn(async move { leases.run_once().await });
            let _ = timeout(self.pace().length / 3, beat).await;
        }
    }

    pub async fn run_once(&self) {
        let leases: Vec<Arc<Lease>> =
            self.held().values().map(|kept| kept.lease.clone()).filter(|lease| !lease.is_lost()).collect();
        if leases.is_empty() {
            return;
        }
        self.renew(&leases).await;
    }

    /// One request for all of them; each counts from when it was sent.
    async fn renew(&self, leases: &[Arc<Lease>]) {
        let held: Vec<Held> = leases.iter().map(|lease| lease.held.clone()).collect();
        let asked = Asked::now();
        let answers = match self.store.renew(held).await {
            Ok(answers) => {
                outage::answered(asked.at);
                answers
            }
            Err(error) => return outage::met("heartbeat not accepted", &error),
        };
        for (lease, answer) in leases.iter().zip(answers) {
            let run_id = &lease.held.run_id;
            match answer {
                Ok(renewed) => lease.renewed(asked, &renewed),
                Err(StoreError::Refused(_) | StoreError::NotFound { .. }) => {
                    // Its finish may have overtaken the beat: then it is no longer ours to lose.
                    if self.held().contains_key(run_id) {
                        tracing::warn!(run_id, "the lease is lost: stopping the run");
                    }
                    lease.lose();
                }
                Err(error) => outage::met(&format!("heartbeat of {run_id} not accepted"), &error),
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        // Every change is one insertion or removal, so that a panic elsewhere leaves nothing half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
