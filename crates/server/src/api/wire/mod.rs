//! What requests and answers look like: described once, for reading them, for OpenAPI and for the reference.

pub(super) mod kinds;
pub mod requests;
pub(super) mod schedule_shapes;
pub mod shapes;
