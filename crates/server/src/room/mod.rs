//! What one client may take of the server: connections, patience, requests at once, bytes. Whatever one of them does, the
//! others are answered.

pub mod bytes;
pub mod kept;
pub mod seats;
pub mod shares;
pub mod socket;
