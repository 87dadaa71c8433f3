//! Schedules: what fires when, read from files; the loop that fires, and executes what fires.
//!
//! `file` makes schedules of a file, `scheduler` is the loop, `planning` says what a scope that is due makes of its
//! schedule, `execution` what the worker's pipeline makes of it, `definitions` are read once, `failures` are put off, `providers` list scopes, `pruning` is built in.

mod by_hand;
mod by_name;
mod definitions;
mod execution;
mod failures;
mod file;
pub(crate) mod format;
mod options;
mod planning;
mod providers;
mod pruning;
mod queued;
mod schedule;
mod scheduler;
mod view;

use waypost_kernel::Lifecycle;
use waypost_kernel::lifecycle::{Kind, Phase};

pub use by_hand::{Asked, add_plans, again, find, typed};
pub use file::{load, parse, stored};
pub use format::{RULES, json_schema, reference};
pub use options::{Provider, SchedulerOptions};
pub use schedule::{QueuedRun, Schedule, Scopes, What};
pub use scheduler::{Scheduler, Tick, apply, write_of};
pub use view::{View, note, shown, upcoming};

/// The lifecycle of executions.
pub const LIFECYCLE: &str = "cron";

/// Runs of it wait for a worker.
fn is_queueable(lifecycle: &Lifecycle) -> bool {
    let mut starts = lifecycle.initial.iter().map(|state| lifecycle.phase(*state));
    lifecycle.kind == Kind::Run && starts.all(|phase| phase != Phase::Held)
}
