//! The playbook `rolling_cluster_update` and a simulated cluster.

mod cancelled;
mod killed;
mod killed_workers;
mod scripts;
mod stage;
mod stories;
mod templates;
mod whole;
