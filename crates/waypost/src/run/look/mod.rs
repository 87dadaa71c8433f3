//! What there is to see of runs: a list of them, one in full, its log, its events.

pub mod events;
pub mod list;
pub mod logs;
pub mod operations;
pub mod show;
mod steps;
pub mod targets;
pub mod waits;
pub mod worked;
