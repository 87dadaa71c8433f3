//! The worker's sign of life, for whoever asks which workers there are and why a run waits: one write every 15 seconds.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use waypost_store::{BEAT, WorkerBeat};

use crate::options::Options;
use crate::pace;
use crate::pipeline::Shared;

/// Who works one run and no other mostly ends before anybody asks: it says nothing in its first moment.
const FIRST_OF_ONE: Duration = Duration::from_secs(1);

/// For the last word.
const LAST: Duration = Duration::from_secs(2);

impl Options {
    fn beat(&self) -> WorkerBeat {
        let queues = if self.only.is_some() { Vec::new() } else { self.queues.clone() };
        WorkerBeat {
            name: self.name.clone(),
            tenant: self.tenant.clone(),
            queues,
            lifecycles: self.lifecycles.clone(),
            can: Some(self.can()),
            only: self.only.clone(),
            slots: self.slots.max(1) as u64,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            by_claims: false,
        }
    }
}

/// Signs of life for as long as `work` goes on, and the word that it has stopped after it.
pub(crate) async fn registered<T>(shared: &Shared, work: impl Future<Output = T>) -> T {
    let mut is_known = false;
    let ended = tokio::select! {
        ended = work => ended,
        never = beats(shared, &mut is_known) => never,
    };
    if is_known {
        let Options { name, tenant, .. } = &*shared.options;
        let _ = timeout(LAST, shared.store.remove_worker(name.clone(), tenant.clone())).await;
    }
    ended
}

/// A store that is away is told of by those who need it.
async fn beats<T>(shared: &Shared, is_known: &mut bool) -> T {
    if !shared.options.may_execute_anything() {
        std::future::pending::<()>().await;
    }
    if shared.options.only.is_some() {
        sleep(FIRST_OF_ONE).await;
    }
    loop {
        *is_known = true;
        if let Err(error) = shared.store.beat(shared.options.beat()).await {
            tracing::debug!(%error, "the sign of life was not taken");
        }
        sleep(pace::about(pace::duration(BEAT))).await;
    }
}
