//! Bulk changes: where targets come from, and what a worker makes of them against a simulated shop.

mod apply;
pub mod kit;
mod operations;
mod preview;
mod sources;
