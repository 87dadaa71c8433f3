//! The playbook `rolling_cluster_update` and a simulated cluster.

mod killed;
mod scripts;
mod stage;
mod templates;
