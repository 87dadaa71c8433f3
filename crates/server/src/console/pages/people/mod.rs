//! What people decide.

pub mod decisions;
pub mod proposals;
pub mod waiting;
