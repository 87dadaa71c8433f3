//! When a schedule fires, and what becomes of the times that were missed. Pure: the instant is an argument, and
//! the time zones are compiled in, so that every server computes the same plan times and the unique key alone
//! decides who runs one.

mod cron;
mod fires;
mod jitter;
mod planner;
mod timing;
mod words;
mod zone;

pub use cron::{Cron, CronProblem};
pub use jitter::jitter;
pub use planner::{CatchUp, First, Overlap, Plans, Policy, Running, Skipped};
pub use timing::{MAX_COUNTED, Timing};
pub use words::{clock_change, in_words};
pub use zone::Zone;
