//! Processes that stay: servers and workers.

mod crew;
pub mod dev;
mod reload;
pub mod serve;
pub mod worker;
mod worker_metrics;
