//! What tests need around them. No test is skipped for want of it: what is missing is an error that says how to
//! install it.

mod cluster;
mod postgres;
mod server;

pub use cluster::Cluster;
pub use postgres::Postgres;
