//! One run from its claim to its report.

use std::sync::{Arc, OnceLock};

use serde_json::json;
use tokio::time::{Instant, sleep};
use waypost_kernel::Catalog;
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_store::{Claimed, RunRow, Store};

use crate::actions::http::Client;
use crate::execute::Try;
use crate::heartbeat::Leases;
use crate::interpret::{Ending, Goal, Tries, Verdict, interpret};
use crate::journal::Journal;
use crate::lease::Lease;
use crate::options::Options;
use crate::pace;
use crate::report;
use crate::reporter::Reporter;
use crate::resolve::{Plan, resolve};
use crate::slots::Slot;
use crate::steps;
use crate::summary::End;

/// What all runs of a worker share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub options: Arc<Options>,
    pub leases: Arc<Leases>,
    pub reporter: Arc<Reporter>,
    /// For requests of all steps; made when the first is sent.
    pub http: Arc<OnceLock<Result<Client, String>>>,
}

/// `asked_at`: when the claim was sent, since the lease may count from then. The slot is free when the work has ended, which
/// is before its end is written.
pub(crate) async fn work(shared: Shared, claimed: Claimed, asked_at: Instant, slot: Option<Slot>) -> End {
    let holding = shared.leases.hold(&claimed, asked_at);
    let lease = holding.lease.clone();
    let Some(plan) = plan_of(&shared, &claimed.run).await else {
        drop(holding);
        tracing::warn!(run_id = claimed.run.id(), "nothing here may execute this run: giving it back");
        report::release(&shared.store, &lease.held).await;
        return End::LeftAlone;
    };
    let ending = match &plan {
        Plan::Playbook(playbook) => steps::perform(&shared, &claimed, &lease, asked_at, playbook).await,
        _ => tries(&shared, &claimed, &lease, &plan).await,
    };
    drop(slot);
    // Its finish is sent until the store has it; a heartbeat could only overtake it.
    drop(holding);
    if lease.is_lost() {
        return End::Lost;
    }
    match ending {
        Some(ending) => {
            report::finish(&shared.reporter, &claimed.run, &lease.held, &shared.options.name, ending).await
        }
        None => report::release(&shared.store, &lease.held).await,
    }
}

async fn plan_of(shared: &Shared, row: &RunRow) -> Option<Plan> {
    // A playbook that comes along may be of a lifecycle that is in the store alone.
    let brought = row.carried.as_ref().is_some_and(|carried| carried.get("playbook").is_some());
    let catalog =
        if brought { shared.store.lifecycles().await.unwrap_or_default() } else { Catalog::default() };
    resolve(row, &shared.options, &catalog)
}

/// Executes a run until it has an end, all within the one claim. `None`: it was stopped before it had one.
async fn tries(shared: &Shared, claimed: &Claimed, lease: &Arc<Lease>, plan: &Plan) -> Option<Ending> {
    let options = &shared.options;
    let journal = Journal::new(shared.reporter.clone(), lease.clone(), &options.name);
    let (row, grace) = (&claimed.run, options.grace);
    for number in 1.. {
        let it = Try::of_run(row, lease, &journal, grace, number);
        let Some(answer) = it.execute(plan, options.guardian.as_deref()).await else {
            return wanted(lease);
        };
        let tries = Tries { made: number, retries: plan.retries() };
        match interpret(&answer, tries, &options.backoff, pace::random()) {
            Verdict::Settle(ending) => return Some(ending),
            Verdict::Again { wait, notice, error } => {
                if lease.want().is_some() {
                    return wanted(lease);
                }
                let why = json!({ "code": &*error.code, "message": &*error.message });
                journal.note(Level::Warn, &notice, why).await;
                tokio::select! {
                    () = sleep(wait) => {}
                    () = lease.asked_to_end() => return wanted(lease),
                }
            }
        }
    }
    None
}

/// Where somebody wants the run to go, now that it was stopped for them.
pub(crate) fn wanted(lease: &Lease) -> Option<Ending> {
    let goal = match lease.want()? {
        Want::Cancel => Goal::Cancel,
        Want::Pause => Goal::Park,
        Want::Fail => Goal::Fail,
    };
    Some(Ending::new(goal))
}
