//! What requests and answers look like: described once, for reading them, for OpenAPI and for the reference.

pub mod bulk;
pub(super) mod kinds;
pub mod proposals;
pub mod requests;
pub(super) mod schedule_shapes;
pub mod shapes;
pub mod target_requests;
