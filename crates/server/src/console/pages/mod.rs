//! The pages, one file each.

pub mod agents;
pub mod audit;
pub mod bulk;
pub mod export;
pub mod lifecycles;
pub mod many;
pub mod overview;
pub mod people;
pub mod playbooks;
pub mod queues;
pub mod reference;
pub mod replay;
pub mod run;
pub mod runs;
pub mod schedules;
pub mod start;
pub mod workers;
