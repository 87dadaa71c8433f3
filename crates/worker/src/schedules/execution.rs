//! An execution as the worker's own pipeline takes it: what to do, for how long, and what comes after a failure.

use std::sync::Arc;

use tokio::time::Instant;
use waypost_store::Claimed;

use super::schedule::{Schedule, What};
use crate::handler::Handler;
use crate::interpret::EndNames;
use crate::lease::Keeping;
use crate::pace;
use crate::pipeline::Job;
use crate::resolve::{Plan, Work};

/// `handler` is what this process has under the name that the schedule gives, if it gives one.
pub(super) fn job(
    schedule: &Schedule,
    claimed: Claimed,
    asked_at: Instant,
    handler: Option<Arc<dyn Handler>>,
) -> Job {
    let work = match &schedule.what {
        What::Action(playbook) => Work::Action(playbook.clone()),
        What::Handler(name) => match handler {
            Some(handler) => Work::Handler(handler),
            None => Work::Unfit(format!("this process has no handler {name}")),
        },
        What::Run(_) => Work::Unfit("a run is queued, not executed here".to_owned()),
    };
    let plan = Plan {
        timeout: Some(schedule.run_timeout),
        retry_in: schedule.retry_in(claimed.run.run.attempt),
        end_names: EndNames::OfExecution,
        ..Plan::from(work)
    };
    let keeping = Keeping::new(pace::duration(schedule.stale_timeout), pace::duration(schedule.heartbeat));
    Job { claimed, asked_at, keeping, plan: Some(plan) }
}
