//! What Waypost works on, simulated, for tests, demonstrations and tutorials: a vSphere cluster of Dell servers
//! ([`cluster`], a folder and many processes), a shop whose prices change in bulk ([`shop`]) and a server of a language
//! model ([`model`]). Each does what goes wrong in earnest on demand, and keeps a record of what was asked of it.

pub mod cluster;
pub mod model;
mod serving;
pub mod shop;

pub use cluster::{
    Cluster, Datastore, Do, Drs, Entry, Fault, Firmware, Ha, Host, Installed, Job, JobState, JobType, Login,
    Maintenance, Server, Site, Vm, When, World, govc, install_govc,
};
pub use serving::{Chance, FaultKind, Faults, RetryAfter, Running, Shown, Subject, share_of};
