//! Bulk changes: where targets come from, and what a worker makes of them against a simulated shop.

mod apply;
mod dead_letters;
pub mod kit;
mod later_runs;
mod operations;
mod preview;
mod sources;
