//! Connections to a PostgreSQL server: where it is, how it is spoken to, what is done when it fails, and how processes hear of each other's
//! changes.

pub mod address;
pub mod batcher;
pub mod fault;
pub mod notifier;
pub mod open;
pub mod pooler;
pub mod scratch;
pub mod session;
pub mod tls;
