//! Care that any process may take, at any time, beside any number of others: no leader.

mod pruner;
mod sweeper;

pub use pruner::Pruner;
pub use sweeper::Sweeper;
