//! Workers: they claim runs, execute what those ask for, and report what came of it.
//!
//! One run goes through the modules in this order: `claim` takes it and gives it a slot, `resolve` finds what executes it,
//! `execute` does that, `interpret` says what the result means, `report` writes it. Beside them `lease` is what all of them
//! ask whether to go on; its `heartbeat` keeps the leases and delivers what people want of a held run.
//!
//! A worker knows `dyn Store` and no database, and takes the names of states from the run's lifecycle.

pub mod actions;
pub mod agents;
pub mod alerts;
pub mod bulk;
mod claim;
mod counts;
mod execute;
pub mod guardian;
mod handler;
mod interpret;
mod lease;
pub mod loops;
mod options;
mod outage;
mod outcome;
mod pace;
mod pipeline;
pub mod playbook;
pub mod projection;
pub mod proposals;
mod registration;
pub mod replay;
mod report;
mod resolve;
pub mod retention;
pub mod schedules;
mod shutdown;
mod steps;
mod summary;
pub mod targets;
pub mod webhooks;
mod worker;

pub use counts::{APPLY_BUCKETS_MS, Applied, Applies, Counts, Labels};
pub use execute::environment::PassedEnv;
pub use handler::{Context, Handler, Handlers, TargetCall, TargetHandler, TargetHandlers};
pub use options::Options;
pub use outcome::{Outcome, Word};
pub use resolve::check_command;
pub use shutdown::Stage;
pub use steps::{blockers_in_words, cleanup_failed_in_words, first_steps, in_order, left_in_words, worked};
pub use summary::{End, Summary};
pub use waypost_store::{Result, StoreError};
pub use worker::Worker;
