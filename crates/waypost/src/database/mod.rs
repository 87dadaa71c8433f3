//! What is done to a whole database: its schema, its copies, and what is wrong with it.

pub mod backup;
pub mod doctor;
pub mod migrate;
pub mod verify;
