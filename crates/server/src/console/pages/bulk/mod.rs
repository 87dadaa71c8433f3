//! What is done about bulk changes afterwards, and who is told when they go badly.

pub mod alerts;
pub mod dead_letters;
pub mod destinations;
pub mod reconciliations;
pub mod report;
