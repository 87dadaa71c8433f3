//! A run that is told as completed has its manifest: it is written before the end is. As long as the object store does not take
//! it the run waits, held, until its time is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use waypost_kernel::Failure;
use waypost_store::{Claimed, ItemsWrite, Result, StoreError};

use crate::interpret::{Ending, Goal};
use crate::lease::Lease;
use crate::pace;
use crate::pipeline::{Shared, wanted};
use crate::projection::errors::UPSTREAM;

/// How long a run without a timeout of its own waits.
const LONGEST: Duration = Duration::from_secs(600);

/// The end as it may be told: the same, once the manifest is there. `None`: the run is left to others.
pub(crate) async fn promised(
    shared: &Shared,
    claimed: &Claimed,
    lease: &Arc<Lease>,
    until: Option<Instant>,
    mut ending: Ending,
) -> Option<Ending> {
    let projection = shared.options.projection.as_ref().filter(|_| claimed.run.lifecycle.projected);
    let Some(projection) = projection.filter(|_| ending.goal == Goal::Succeed) else { return Some(ending) };
    let run = &claimed.run;
    let until = until.unwrap_or_else(|| Instant::now() + LONGEST);
    for tries in 1.. {
        let error = match flush(shared, lease, &mut ending).await {
            Ok(()) => match projection.put_manifest(&*shared.store, claimed).await {
                Ok(()) => return Some(ending),
                Err(error) => error,
            },
            Err(error @ StoreError::Unavailable(_)) => error,
            // It is refused with the end too, and dealt with there.
            Err(_) => return Some(ending),
        };
        if Instant::now() >= until {
            let message = format!("the run is done, and its manifest could not be written in time: {error}");
            let failure = Failure::new(UPSTREAM, &message);
            return Some(Ending { goal: Goal::Fail, failure: Some(failure), ..ending });
        }
        tracing::warn!(run_id = run.id(), %error, "the manifest is not written; trying again");
        tokio::select! {
            () = sleep_until((Instant::now() + pace::store_away(tries)).min(until)) => {}
            () = lease.asked_to_end() => return wanted(lease),
        }
    }
    None
}

/// The last results of its steps: they are in the manifest.
async fn flush(shared: &Shared, lease: &Lease, ending: &mut Ending) -> Result<()> {
    if ending.items.is_empty() {
        return Ok(());
    }
    let by = shared.options.name.clone();
    let write = ItemsWrite { held: lease.held.clone(), by, items: ending.items.clone() };
    shared.store.put_items(write).await?;
    ending.items.clear();
    Ok(())
}
