//! One execution from its claim to its end: heartbeats beside it, its time bounded, its end in the words of seed 002.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use waypost_kernel::text::{MAX_ERROR_CHARS, MAX_RESULT_BYTES, clean_chars, clean_json};
use waypost_kernel::{Code, Failure, Span};
use waypost_store::{Claimed, FinishWrite, StoreError};

use super::schedule::{Schedule, What};
use super::scheduler::Shared;
use crate::actions::{Action, find};
use crate::execute::{Answer, Exit, Try, command};
use crate::interpret::{Goal, Tries, Verdict, interpret};
use crate::journal::{Journal, is_lost};
use crate::lease::Lease;
use crate::options::Options;
use crate::pace;
use crate::playbook::{Playbook, Scope, Secrets};
use crate::report::{self, status_for};
use crate::reporter::Reporter;
use crate::resolve::Plan;
use crate::shutdown::Stage;
use crate::summary::End;

/// What people want of an execution is asked for with each sign of life, and is due within a second (X8).
const LONGEST_BEAT: Duration = Duration::from_millis(750);
/// A request is stopped by the limit of its execution. Its own timeout, which the client asks for, comes so much later
/// that the two never race: what takes too long is a `run_timeout` whatever it was doing.
const AFTER_THE_LIMIT: Duration = Duration::from_secs(3_600);

/// How an execution ends, before it is written.
struct Ending {
    goal: Goal,
    failure: Option<Failure>,
    /// False: whatever the schedule says.
    may_retry: bool,
    metadata: Map<String, Value>,
}

impl Ending {
    fn failed(code: &str, message: &str) -> Ending {
        let failure = Failure::new(code, &clean_chars(message, MAX_ERROR_CHARS).text);
        Ending { goal: Goal::Fail, failure: Some(failure), may_retry: true, metadata: Map::new() }
    }
}

/// `asked_at`: when the claim was sent, since the lease may count from then.
pub(super) async fn work(
    shared: Arc<Shared>,
    schedule: Arc<Schedule>,
    claimed: Claimed,
    asked_at: Instant,
) -> End {
    let options = Options { lease: pace::duration(schedule.stale_timeout), ..Options::default() };
    let lease = Lease::new(&claimed, asked_at, &options);
    let every = pace::duration(schedule.heartbeat).min(LONGEST_BEAT);
    let beats = shared.hearts.hold(&lease, every);
    let began = Instant::now();
    let ending = perform(&shared, &schedule, &claimed, &lease).await;
    drop(beats);
    let end = match ending {
        _ if lease.is_lost() => End::Lost,
        None => report::release(&shared.store, &lease.held).await,
        Some(mut ending) => {
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            ending.metadata.insert("duration_ms".into(), json!(ms));
            finish(&shared, &schedule, &claimed, &lease, ending).await
        }
    };
    shared.hearts.notice(&lease.held.run_id);
    end
}

/// Nothing: it was stopped before it had an end, by a shutdown or because the lease is lost.
async fn perform(
    shared: &Arc<Shared>,
    schedule: &Schedule,
    claimed: &Claimed,
    lease: &Arc<Lease>,
) -> Option<Ending> {
    let journal = Journal::new(Reporter::new(shared.store.clone()), lease.clone(), &shared.options.name);
    let row = &claimed.run;
    let it = Try::of_run(row, lease, &journal, shared.options.grace, 1);
    let limit = pace::duration(schedule.run_timeout);
    let mut work = std::pin::pin!(execute(shared, schedule, &it));
    let mut timed_out = false;
    let answer = tokio::select! {
        biased;
        answer = &mut work => answer,
        () = sleep(limit) => {
            timed_out = true;
            lease.stop(Stage::Draining);
            work.await
        }
    };
    if timed_out {
        return Some(Ending::failed("run_timeout", &format!("not done within {}", schedule.run_timeout)));
    }
    match answer {
        // What was told to end because the process does has not failed.
        Some(answer) => Some(ending_of(&answer))
            .filter(|ending| ending.goal == Goal::Succeed || !shared.is_stopping.load(Ordering::Relaxed)),
        None if lease.want().is_some() => {
            Some(Ending { goal: Goal::Cancel, failure: None, may_retry: false, metadata: Map::new() })
        }
        None => None,
    }
}

async fn execute(shared: &Arc<Shared>, schedule: &Schedule, it: &Try<'_>) -> Option<Answer> {
    match &schedule.what {
        What::Handler(name) => match shared.handler(name) {
            Some(handler) => it.execute(&Plan::Handler(handler), None).await,
            None => Some(not_started(format!("this process has no handler {name}"))),
        },
        What::Action(playbook) => act(shared, playbook, it, pace::duration(schedule.run_timeout)).await,
        What::Run(_) => Some(not_started("a run is queued, not executed here".to_owned())),
    }
}

async fn act(shared: &Arc<Shared>, playbook: &Playbook, it: &Try<'_>, limit: Duration) -> Option<Answer> {
    let rendered = match rendered(playbook, it.row.input.as_object()) {
        Ok(rendered) => rendered,
        Err(problem) => return Some(not_started(problem)),
    };
    let call = it.call(&playbook.name, it.row.idempotency_key.clone().unwrap_or_default());
    match &rendered.action {
        Action::Exec(exec) => {
            command::execute(it, exec, &call, &rendered.mask, shared.options.guardian.as_deref()).await
        }
        Action::Http(request) => {
            let Some(client) = &shared.client else {
                return Some(not_started("there is no HTTP client".to_owned()));
            };
            let timeout = limit.saturating_add(AFTER_THE_LIMIT);
            tokio::select! {
                biased;
                () = it.lease.stopped() => None,
                reply = client.send(request, &call, Some(timeout), &rendered.mask) => Some(reply.into()),
            }
        }
    }
}

/// The one action of a playbook, with its secrets.
pub(super) fn rendered(
    playbook: &Playbook,
    inputs: Option<&Map<String, Value>>,
) -> Result<crate::actions::Rendered, String> {
    let step = playbook.steps.first().ok_or("there is nothing to do")?;
    let scope = Scope { inputs: inputs.cloned().unwrap_or_default(), ..Scope::default() };
    let context = playbook.context(&scope);
    let needs = playbook.needs(&step.action, &context).map_err(|error| error.to_string())?;
    let secrets = Secrets::resolve(&needs, find)?;
    playbook.render(&step.action, &context, &secrets).map_err(|error| error.to_string())
}

fn not_started(problem: String) -> Answer {
    Answer { exit: Some(Exit::NotStarted(problem)), ..Answer::default() }
}

fn ending_of(answer: &Answer) -> Ending {
    let outcome = answer.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
    let Verdict::Settle(settled) =
        interpret(answer, Tries { made: 1, retries: 0 }, &waypost_kernel::backoff::Backoff::step(), 0)
    else {
        return Ending::failed("handler_error", "it asked for another try");
    };
    let mut ending = match settled.goal {
        Goal::Succeed | Goal::Skip => {
            Ending { goal: Goal::Succeed, failure: None, may_retry: false, metadata: Map::new() }
        }
        Goal::Park => Ending::failed("handler_error", "it asked for a pause, and nobody is there"),
        Goal::Fail | Goal::Cancel => {
            let failure = settled.failure.unwrap_or_else(|| Failure::new("HANDLER_FAILED", "it failed"));
            let is_panic = &*failure.code == "HANDLER_PANIC";
            let code = if is_panic { "handler_panic" } else { "handler_error" };
            Ending::failed(code, &format!("{}: {}", failure.code, failure.message))
        }
    };
    ending.may_retry &= !outcome.is_some_and(|outcome| outcome.permanent);
    if let Some(outcome) = outcome {
        let mut result = outcome.output.clone();
        if let Some(rows) = result.get("rows_affected").and_then(Value::as_i64) {
            ending.metadata.insert("rows_affected".into(), json!(rows));
        }
        if let Some(reason) = outcome.reason.as_ref().filter(|_| settled.goal == Goal::Skip) {
            result = json!({ "skipped_reason": reason });
        }
        if !result.is_null() {
            ending.metadata.insert("result".into(), clean_json(result, MAX_RESULT_BYTES).0);
        }
    }
    ending
}

/// Until the store has it: a finish is never lost because of what it carries.
async fn finish(
    shared: &Shared,
    schedule: &Schedule,
    claimed: &Claimed,
    lease: &Lease,
    mut ending: Ending,
) -> End {
    let row = &claimed.run;
    let mut refusals = 0;
    for retry in 1.. {
        let Some(status) = status_for(&row.lifecycle, row.run.state, ending.goal) else { break };
        let retry_in: Option<Span> = schedule.retry_in(row.run.attempt).filter(|_| ending.may_retry);
        let write = FinishWrite {
            run_id: lease.held.run_id.clone(),
            token: Some(lease.held.token),
            by: shared.options.name.clone(),
            status,
            failure: ending.failure.clone(),
            retry_in: retry_in.filter(|_| ending.goal == Goal::Fail),
            metadata: ending.metadata.clone(),
            ..FinishWrite::default()
        };
        match shared.hearts.finish(write).await {
            Ok(_) => {
                return match ending.goal {
                    Goal::Succeed => End::Succeeded,
                    Goal::Cancel => End::Cancelled,
                    _ => End::Failed,
                };
            }
            Err(error) if is_lost(&error) => return End::Lost,
            Err(error @ StoreError::Unavailable(_)) => {
                tracing::warn!(run_id = lease.held.run_id, %error, "result not accepted; trying again");
                sleep(pace::store_away(retry)).await;
            }
            Err(error) => {
                refusals += 1;
                let cancelled = matches!(&error, StoreError::Refused(it) if it.code == Code::CancelRequested);
                if cancelled && refusals < 3 {
                    ending = Ending { goal: Goal::Cancel, failure: None, may_retry: false, ..ending };
                } else if !ending.metadata.is_empty() && refusals < 4 {
                    ending.metadata = Map::new();
                } else {
                    tracing::error!(run_id = lease.held.run_id, %error, "no result is accepted: giving it back");
                    break;
                }
            }
        }
    }
    report::release(&shared.store, &lease.held).await
}
