//! A simulated vSphere cluster of Dell servers: enough of `govc` and of Redfish for a rolling update, with what goes
//! wrong in earnest on demand, and a ledger of everything that was done to it.
//!
//! All of it is in one folder: `site.json` (how things are), `ledger.jsonl` (what happened), `faults.json` (what
//! should go wrong) and `scp/` (exported configurations). Whoever looks or acts takes the lock beside them, so that
//! any number of `govc` processes and one server share the site, and any of them may be killed.

mod faults;
mod govc;
mod ledger;
mod passing;
mod redfish;
mod sample;
mod site;
mod world;

use std::io;
use std::path::Path;

pub use faults::{Do, Fault, When};
pub use govc::main as govc;
pub use ledger::Entry;
pub use redfish::Server;
pub use site::{
    Cluster, Datastore, Drs, Firmware, Ha, Host, Installed, Job, JobState, JobType, Login, Maintenance, Site,
    Vm,
};
pub use world::World;

/// Writes a `govc` into a folder for PATH, which is this `waypost` under another name.
pub fn install_govc(bin: &Path, waypost: &Path) -> io::Result<()> {
    std::fs::create_dir_all(bin)?;
    let path = bin.join("govc");
    let quoted = waypost.display().to_string().replace('\'', r"'\''");
    std::fs::write(&path, format!("#!/bin/sh\nexec '{quoted}' simulate govc \"$@\"\n"))?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}
