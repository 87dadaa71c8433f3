//! What is kept and sent as JSON: events and details in the databases, objects on the wire, and the fingerprint of a request.

pub mod codec;
pub(crate) mod fingerprint;
pub mod log;
mod schedule_wire;
pub mod wire;
