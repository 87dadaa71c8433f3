//! One run from its claim to its report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::json;
use tokio::time::{Instant, sleep};
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_kernel::{Catalog, Span};
use waypost_store::{Claimed, RunRow, Store};

use crate::actions::http::Client;
use crate::claim::slots::Slot;
use crate::execute::Try;
use crate::interpret::{EndNames, Ending, Goal, Tries, Verdict, execution, interpret};
use crate::lease::heartbeat::Leases;
use crate::lease::{Keeping, Lease};
use crate::options::Options;
use crate::pace;
use crate::projection::promise::promised;
use crate::report;
use crate::report::journal::Journal;
use crate::report::reporter::Reporter;
use crate::resolve::{Plan, Work, resolve};
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
    /// How many claims were numbered.
    claims: Arc<AtomicU64>,
}

impl Shared {
    pub fn new(store: Arc<dyn Store>, options: Options) -> Shared {
        let (leases, reporter) = (Leases::new(store.clone()), Reporter::new(store.clone()));
        Shared {
            store,
            options: Arc::new(options),
            leases,
            reporter,
            http: Arc::default(),
            claims: Arc::default(),
        }
    }

    /// Tells a claim from all others of this worker.
    pub fn next_claim(&self) -> u64 {
        self.claims.fetch_add(1, Ordering::Relaxed)
    }

    pub fn client(&self) -> Result<&Client, &str> {
        let client = self.http.get_or_init(|| Client::new(self.options.allow_private));
        client.as_ref().map_err(String::as_str)
    }
}

/// A run that was claimed, to be worked to its end.
pub(crate) struct Job {
    pub claimed: Claimed,
    /// When the claim was sent, since the lease may count from then.
    pub asked_at: Instant,
    pub keeping: Keeping,
    /// None: it is found by what the run says.
    pub plan: Option<Plan>,
}

/// The slot is free when the work has ended, which is before its end is written.
pub(crate) async fn work(shared: Shared, job: Job, slot: Option<Slot>) -> End {
    let Job { claimed, asked_at, keeping, plan } = job;
    let holding = shared.leases.hold(&claimed, asked_at, keeping);
    let lease = holding.lease.clone();
    let plan = match plan {
        Some(plan) => Some(plan),
        None => plan_of(&shared, &claimed.run, &lease).await,
    };
    let Some(plan) = plan else {
        drop(holding);
        tracing::warn!(run_id = claimed.run.id(), "nothing here may execute this run: giving it back");
        report::release(&shared.store, &lease.held).await;
        return End::LeftAlone;
    };
    let ending = match &plan.work {
        Work::Playbook(playbook) => steps::perform(&shared, &claimed, &lease, asked_at, playbook).await,
        _ => tries(&shared, &claimed, &lease, &plan).await,
    };
    let until = match &plan.work {
        Work::Playbook(playbook) => steps::deadline(&claimed, asked_at, playbook),
        _ => plan.timeout.map(|limit| asked_at + pace::duration(limit)),
    };
    let ending = match ending {
        Some(ending) => promised(&shared, &claimed, &lease, until, ending).await,
        None => None,
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

async fn plan_of(shared: &Shared, row: &RunRow, lease: &Lease) -> Option<Plan> {
    // A playbook that comes along may be of a lifecycle that is in the store alone.
    let brought = row.carried.as_ref().is_some_and(|carried| carried.get("playbook").is_some());
    let catalog = if brought { lifecycles(shared, lease, &row.tenant).await? } else { Catalog::default() };
    resolve(row, &shared.options, &catalog).map(Plan::from)
}

/// What the run's tenant sees. A store that is away is asked again while the lease lasts: a run does not fail for it.
async fn lifecycles(shared: &Shared, lease: &Lease, tenant: &str) -> Option<Catalog> {
    for failed in 1.. {
        match shared.store.lifecycles().await {
            Ok(catalog) => return Some(catalog.of_tenant(tenant)),
            Err(_) if lease.is_lost() => break,
            Err(error) => {
                tracing::warn!(%error, "the lifecycles could not be read; trying again");
                sleep(pace::store_away(failed)).await;
            }
        }
    }
    None
}

/// Executes a run until it has an end, all within the one claim. `None`: it was stopped before it had one.
async fn tries(shared: &Shared, claimed: &Claimed, lease: &Arc<Lease>, plan: &Plan) -> Option<Ending> {
    let options = &shared.options;
    let journal = Journal::new(shared.reporter.clone(), lease.clone(), &options.name);
    let (row, grace, began) = (&claimed.run, options.grace, Instant::now());
    let until = plan.timeout.map(|limit| began + pace::duration(limit));
    for number in 1.. {
        let it = Try { until, ..Try::of_run(row, lease, &journal, grace, number) };
        let Some(answer) = it.execute(shared, plan).await else { return stopped(lease, plan, began) };
        let tries = Tries { made: number, retries: plan.retries };
        match interpret(&answer, tries, &options.backoff, pace::random()) {
            // What was told to end because the process does has not failed.
            Verdict::Settle(ending) if ending.goal == Goal::Fail && lease.is_leaving() => return None,
            Verdict::Settle(_) if plan.end_names == EndNames::OfExecution => {
                return Some(execution::timed(execution::ending_of(&answer, plan.retry_in), began));
            }
            Verdict::Settle(ending) => return Some(ending),
            Verdict::Again { wait, notice, error } => {
                if lease.want().is_some() {
                    return wanted(lease);
                }
                let why = json!({ "code": &*error.code, "message": &*error.message, "try": number + 1 });
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

/// What comes of a run whose work was stopped: its time is over, or something else is wanted of it.
fn stopped(lease: &Lease, plan: &Plan, began: Instant) -> Option<Ending> {
    let is_over = |limit: &Span| began + pace::duration(*limit) <= Instant::now() && !lease.is_leaving();
    let ending = match plan.timeout.filter(is_over) {
        Some(limit) => execution::timed_out(limit, plan.retry_in),
        None => wanted(lease)?,
    };
    Some(if plan.end_names == EndNames::OfExecution { execution::timed(ending, began) } else { ending })
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
