//! The file's connections: one thread that writes for all, threads that read, and what they keep between transactions.

pub mod cache;
pub mod costs;
pub mod fault;
pub mod hash;
pub mod job_queue;
pub mod notifier;
pub mod open;
pub mod session;
pub mod statements;
