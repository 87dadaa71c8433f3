//! How fast one may ask the outside world: waits between tries, a bucket of tokens, a breaker that all workers share, and what
//! `Retry-After` says.

pub mod backoff;
pub mod breaker;
pub mod bucket;
pub mod destination;
pub mod retry_after;
