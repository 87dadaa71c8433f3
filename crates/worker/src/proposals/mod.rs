//! What agents propose: how it becomes a row that people decide on (`make`), what a decision is (`decide`), and how it is shown
//! (`show`). Decision 30 has the order of the writes.

mod decide;
mod entry;
mod make;
mod show;

pub use decide::{Decision, MOST_AT_ONCE, NotDecided, Verdict, decide};
pub(crate) use entry::check_entry;
pub use entry::follows_proposal;
pub(crate) use make::{Making, made};
pub use show::{decided, inbox_stats, object, of_status};
