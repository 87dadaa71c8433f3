//! One run from its claim to its report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use waypost_kernel::lifecycle::OnStale;
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_kernel::{Catalog, Span};
use waypost_store::{Claimed, HOUSEKEEPING, RunRow, Store, Wait};

use crate::actions::Mask;
use crate::actions::http::Client;
use crate::claim::slots::Slot;
use crate::counts::{Counts, Labels};
use crate::execute::{Answer, Try, environment};
use crate::interpret::{EndNames, Ending, Goal, Parting, Tries, Verdict, all_lost, execution, interpret};
use crate::lease::heartbeat::Leases;
use crate::lease::{Keeping, Lease};
use crate::options::Options;
use crate::projection::promise::promised;
use crate::report;
use crate::report::journal::Journal;
use crate::report::reporter::Reporter;
use crate::resolve::{Plan, Work, resolve};
use crate::steps::{self, NOT_BEGUN, WORTH_GIVING_BACK};
use crate::summary::End;
use crate::{bulk, outage, pace, targets};

/// What all runs of a worker share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub options: Arc<Options>,
    pub leases: Arc<Leases>,
    pub reporter: Arc<Reporter>,
    /// For requests of all steps; made when the first is sent.
    pub http: Arc<OnceLock<Result<Client, String>>>,
    /// Of this process's environment, hidden in whatever comes of a command or request.
    pub own_secrets: Arc<Mask>,
    pub counts: Arc<Counts>,
    /// How many claims were numbered.
    claims: Arc<AtomicU64>,
}

impl Shared {
    pub fn new(store: Arc<dyn Store>, options: Options) -> Shared {
        let counts: Arc<Counts> = Arc::default();
        let (leases, reporter) = (Leases::new(store.clone()), Reporter::new(store.clone(), counts.clone()));
        Shared {
            store,
            options: Arc::new(options),
            leases,
            reporter,
            http: Arc::default(),
            own_secrets: Arc::new(Mask::new(environment::own_secrets().iter().map(String::as_str))),
            counts,
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

/// Works a run to its end: a line in the log for its claim, and one for its end.
pub(crate) async fn work(shared: Shared, job: Job, slot: Option<Slot>) -> End {
    let (row, began) = (&job.claimed.run, Instant::now());
    let (labels, what, run_id) = (Labels::of(row), what(row), row.run.id.clone());
    let (run_id, queue) = (&*run_id, labels.queue.clone());
    // What the engine does for itself is told only if it fails.
    let is_own = queue == HOUSEKEEPING;
    if !is_own {
        tracing::info!(run_id, what, queue, "claimed a run");
    }
    shared.counts.begin();
    let counts = shared.counts.clone();
    let (end, why) = work_to_end(shared, job, slot).await;
    counts.end(labels, end);
    let took_s = began.elapsed().as_millis() as f64 / 1_000.0;
    match why.filter(|_| end == End::Failed) {
        Some(why) => tracing::warn!(run_id, what, queue, took_s, why, "ended: failed"),
        None if is_own => {}
        None => tracing::info!(run_id, what, queue, took_s, "ended: {}", end.name()),
    }
    end
}

/// What a run is, for people.
fn what(row: &RunRow) -> String {
    let command = || {
        let words = row.carried.as_ref()?.get("command")?.as_array()?;
        Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
    };
    // Of an execution.
    let schedule = || row.input.get("job_name")?.as_str().map(str::to_owned);
    let named = row.title.clone().or_else(|| row.playbook.clone()).or_else(command).or_else(schedule);
    let text = named.unwrap_or_else(|| row.lifecycle.name.to_string());
    let plain = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    plain.take(MAX_WHAT).collect()
}

/// Of a line in the log.
const MAX_WHAT: usize = 120;

/// The slot is free when the work has ended, which is before its end is written. Gives why it failed, too.
async fn work_to_end(shared: Shared, job: Job, slot: Option<Slot>) -> (End, Option<String>) {
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
        report::release(&shared.store, &lease.held, None).await;
        return (End::LeftAlone, None);
    };
    let parting = match &plan.work {
        Work::Playbook(playbook) => match &playbook.rule {
            Some(rule) => targets::perform(&shared, &claimed, (&lease, asked_at), playbook, rule).await,
            None => steps::perform(&shared, &claimed, &lease, asked_at, playbook).await,
        },
        Work::Bulk => bulk::perform(&shared, &claimed, &lease).await,
        _ => tries(&shared, &claimed, &lease, asked_at, &plan).await,
    };
    let until = match &plan.work {
        Work::Playbook(playbook) => steps::deadline(&claimed, asked_at, playbook),
        _ => plan.timeout.map(|limit| asked_at + pace::duration(limit)),
    };
    let parting = match parting {
        Parting::End(ending) => given(promised(&shared, &claimed, &lease, until, ending).await),
        given_back => given_back,
    };
    drop(slot);
    // Its finish is sent until the store has it; a heartbeat could only overtake it.
    drop(holding);
    if lease.is_lost() {
        return (End::Lost, None);
    }
    let why = match &parting {
        Parting::End(ending) => ending.failure.as_ref(),
        Parting::GiveBack(_) | Parting::Ended(_) => None,
    };
    let why = why.map(|failure| format!("{}: {}", failure.code, failure.message));
    let end = match parting {
        Parting::End(ending) => {
            report::finish(&shared.reporter, &claimed.run, &lease.held, &shared.options.name, ending).await
        }
        Parting::GiveBack(wait) => report::release(&shared.store, &lease.held, wait).await,
        Parting::Ended(end) => end,
    };
    (end, why)
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
                outage::met("the lifecycles could not be read", &error);
                sleep(pace::store_away(failed)).await;
            }
        }
    }
    None
}

/// Executes a run until it has an end, or waits for long. How many tries were made is stored, so that whoever takes the run over goes on
/// counting.
async fn tries(
    shared: &Shared,
    claimed: &Claimed,
    lease: &Arc<Lease>,
    asked_at: Instant,
    plan: &Plan,
) -> Parting {
    let options = &shared.options;
    let journal = Journal::new(shared.reporter.clone(), lease.clone(), &options.name);
    let (row, grace, began) = (&claimed.run, options.grace, Instant::now());
    let until = plan.timeout.map(|limit| began + pace::duration(limit));
    for number in made_before(row) + 1.. {
        if number > plan.retries + 1 && number > 1 {
            return Parting::End(all_lost(Tries { made: number - 1, retries: plan.retries }));
        }
        let own = plan.try_timeout.map(|limit| Instant::now() + pace::duration(limit));
        let until = own.into_iter().chain(until).min();
        let it = Try { until, ..Try::of_run(row, lease, &journal, grace, number) };
        let executed = it.execute(shared, plan).await;
        let is_late =
            own.is_some_and(|own| own <= Instant::now()) && !lease.is_leaving() && lease.want().is_none();
        let too_late = || plan.try_timeout.filter(|_| is_late).map(Answer::too_late);
        let Some(answer) = executed.or_else(too_late) else {
            return given(stopped(lease, plan, began));
        };
        let tries = Tries { made: number, retries: plan.retries };
        match interpret(&answer, tries, &options.backoff, pace::random()) {
            // What was told to end because the process does has not failed.
            Verdict::Settle(ending) if ending.goal == Goal::Fail && lease.is_leaving() => break,
            // Nor has what was not begun since something else is wanted of its run.
            Verdict::Settle(ending) if ending.has_failed_by(NOT_BEGUN) && lease.want().is_some() => {
                return given(wanted(lease));
            }
            Verdict::Settle(_) if plan.end_names == EndNames::OfExecution => {
                return Parting::End(execution::timed(execution::ending_of(&answer, plan.retry_in), began));
            }
            Verdict::Settle(ending) => return Parting::End(ending),
            Verdict::Again { wait, notice, error } => {
                if lease.want().is_some() {
                    return given(wanted(lease));
                }
                let why = json!({ "code": &*error.code, "message": &*error.message, "try": number + 1, "wait_ms": pace::span(wait).ms() });
                let made = json!({ "attempt": row.run.attempt, "made": number });
                journal.tell(Level::Warn, &notice, why, Map::from_iter([(TRIES.to_owned(), made)])).await;
                // What a time limit is counted from is known to this holder alone.
                if wait > WORTH_GIVING_BACK && plan.timeout.is_none() {
                    let now = claimed.now + pace::span(asked_at.elapsed());
                    let wait = Wait { until: now + pace::span(wait), reason: Wait::RETRY.to_owned() };
                    return Parting::GiveBack(Some(wait));
                }
                tokio::select! {
                    () = sleep(wait) => {}
                    () = lease.asked_to_end() => return given(wanted(lease)),
                }
            }
        }
    }
    Parting::GiveBack(None)
}

/// In the run's details: how many tries its present attempt has had.
const TRIES: &str = "tries";

/// By earlier holders of this attempt. Where a lost worker costs a try, that is one too: what became of it nobody knows.
fn made_before(row: &RunRow) -> u32 {
    let costs = row.lifecycle.state(row.run.state).on_stale == Some(OnStale::Lose);
    let lost = if costs { row.run.take_overs } else { 0 };
    let made =
        row.details.get(TRIES).filter(|tries| tries["attempt"].as_u64() == Some(row.run.attempt.into()));
    let made = made.and_then(|tries| tries["made"].as_u64()).unwrap_or_default();
    u32::try_from(made).unwrap_or(u32::MAX / 2).saturating_add(lost).min(u32::MAX - 1)
}

fn given(ending: Option<Ending>) -> Parting {
    ending.map_or(Parting::GiveBack(None), Parting::End)
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
    Some(Ending::new(goal_of(lease.want()?)))
}

pub(crate) fn goal_of(want: Want) -> Goal {
    match want {
        Want::Cancel => Goal::Cancel,
        Want::Pause => Goal::Park,
        Want::Fail => Goal::Fail,
    }
}
