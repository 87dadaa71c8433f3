//! What tests need around them. No test is skipped for want of it: what is missing is an error
//! that says how to install it.

#[cfg(feature = "postgres")]
mod certificates;
#[cfg(feature = "postgres")]
mod cluster;
#[cfg(feature = "objects")]
pub mod documents;
#[cfg(feature = "lifecycles")]
pub mod lifecycles;
#[cfg(feature = "oracle")]
pub mod oracle;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "objects")]
pub mod s3;
#[cfg(feature = "postgres")]
mod server;
#[cfg(feature = "oracle")]
mod shorthand;

#[cfg(feature = "postgres")]
pub use certificates::{Certificate, Issuer};
#[cfg(feature = "postgres")]
pub use cluster::Cluster;
#[cfg(feature = "postgres")]
pub use pooler::Pooler;
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
#[cfg(feature = "oracle")]
pub use shorthand::Shorthand;

/// Texts that somebody might write into any field to break out of a page, a terminal or a layout: one JSON string per line. One that is executed
/// sets `window.pwned`.
pub const HOSTILE: &str = include_str!("hostile.jsonl");
