//! Taking runs that may be executed here.

use tokio::time::Instant;
use waypost_store::{Claim, Claimed, Result, StoreError, Take};

use crate::pace;
use crate::pipeline::Shared;

#[derive(Debug)]
pub(crate) struct Taken {
    pub claims: Vec<Claimed>,
    /// Before the request was sent: a lease counts from its commit, which may be that early.
    pub asked_at: Instant,
    /// The one run that this worker is for cannot be taken any more.
    pub is_over: bool,
}

pub(crate) async fn claim(shared: Shared, limit: usize) -> Result<Taken> {
    let options = &shared.options;
    let asked_at = Instant::now();
    if !options.may_execute_anything() {
        return Ok(Taken { claims: Vec::new(), asked_at, is_over: false });
    }
    let lease = Some(pace::span(options.lease));
    let Some(run_id) = &options.only else {
        let claim = Claim {
            worker: options.name.clone(),
            queues: options.queues.clone(),
            lifecycles: options.lifecycles.clone(),
            tenant: None,
            can: Some(options.can()),
            limit,
            lease,
            start: true,
        };
        return Ok(Taken { claims: shared.store.claim(claim).await?, asked_at, is_over: false });
    };
    let take = Take { worker: options.name.clone(), lease, start: true };
    match shared.store.claim_run(run_id.clone(), take).await {
        Ok(claimed) => Ok(Taken { claims: vec![claimed], asked_at, is_over: true }),
        Err(StoreError::Refused(refusal)) => {
            // Not due, or in another worker's hands, may change; settled or parked will not by itself.
            Ok(Taken { claims: Vec::new(), asked_at, is_over: !refusal.code.is_retryable() })
        }
        Err(error) => Err(error),
    }
}
