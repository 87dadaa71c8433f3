//! Workers: they claim runs, execute what those ask for, and report what came of it.
//!
//! One run goes through the files in this order: `claim` takes it, `resolve` finds what executes it, `execute`
//! does that, `interpret` says what the result means, `report` writes it. Beside them `heartbeat` keeps the
//! leases and delivers what people want of a held run, and `lease` is what all of them ask whether to go on.
//!
//! A worker knows `dyn Store` and no database, and takes the names of states from the run's lifecycle.

pub mod actions;
mod batch;
mod claim;
mod execute;
pub mod guardian;
mod handler;
mod heartbeat;
mod interpret;
mod journal;
mod lease;
pub mod loops;
mod options;
mod outcome;
mod pace;
mod pipeline;
pub mod playbook;
mod report;
mod reporter;
mod resolve;
pub mod schedules;
mod shutdown;
mod slots;
mod steps;
mod summary;
mod worker;

pub use handler::{Context, Handler, Handlers};
pub use options::Options;
pub use outcome::{Outcome, Word};
pub use shutdown::Stage;
pub use steps::first_steps;
pub use summary::{End, Summary};
pub use waypost_store::{Result, StoreError};
pub use worker::Worker;
