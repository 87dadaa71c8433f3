//! Schedules: what fires when, read from files; the loop that fires, and executes what fires.

mod file;
mod format;
mod schedule;

use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::{Kind, Phase};

pub use file::{load, parse, stored};
pub use format::{RULES, json_schema, reference};
pub use schedule::{QueuedRun, Schedule, Scopes, What};

/// The lifecycle of executions.
pub const LIFECYCLE: &str = "cron";

/// Runs of it wait for a worker.
fn is_queueable(lifecycle: &Lifecycle) -> bool {
    let starts = lifecycle.initial.iter().map(|state| lifecycle.phase(*state));
    lifecycle.kind == Kind::Run && starts.into_iter().all(|phase| phase != Phase::Held)
}
