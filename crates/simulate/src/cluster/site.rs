//! How things are: hosts, machines on them, the cluster's settings, firmware and the jobs of each iDRAC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Custom attributes of an object, by name.
pub type Notes = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    pub datacenter: String,
    pub vcenter: Login,
    pub idrac: Login,
    pub cluster: Cluster,
    pub hosts: Vec<Host>,
    pub vms: Vec<Vm>,
    pub datastores: Vec<Datastore>,
    pub catalogue: Vec<Firmware>,
    /// Names of the custom attributes that there are.
    pub fields: Vec<String>,
    /// How long a download, an export, an installation, a start and an evacuation take, each.
    pub pace_ms: u64,
    pub jobs_made: u64,
    pub tasks_made: u64,
    /// How much of the ledger counts: what a killed process added without finishing is cut off by the next one.
    pub ledger_bytes: u64,
    /// How often each fault was looked at and fitted, by its id.
    pub faults_met: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    pub user: String,
    pub password: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub name: String,
    pub ha: Ha,
    pub drs: Drs,
    pub notes: Notes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ha {
    pub enabled: bool,
    pub admission_control_enabled: bool,
    pub failover_level: u32,
    pub host_monitoring: String,
    pub vm_monitoring: String,
    pub restart_priority: String,
    pub isolation_response: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drs {
    pub enabled: bool,
    /// `manual`, `partiallyAutomated` or `fullyAutomated`; only the last moves machines by itself.
    pub mode: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub model: String,
    pub service_tag: String,
    pub maintenance: Maintenance,
    /// While it starts: when vCenter will see it again.
    pub back_at_ms: Option<u64>,
    pub starts: u32,
    pub firmware: Vec<Installed>,
    pub jobs: Vec<Job>,
    pub notes: Notes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Maintenance {
    Out,
    /// For as long as machines run on it that cannot be moved away.
    Entering {
        task: u64,
        not_before_ms: u64,
        gives_up_at_ms: Option<u64>,
    },
    In,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    pub software_id: String,
    pub name: String,
    pub version: String,
}

/// One line of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firmware {
    pub software_id: String,
    pub name: String,
    pub version: String,
    pub image: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub kind: JobType,
    pub name: String,
    pub state: JobState,
    pub message: String,
    /// When it goes on by itself.
    pub due_at_ms: u64,
    /// What it installs, or the name of the file that it writes.
    pub installs: Option<Installed>,
    pub file: Option<String>,
    pub will_fail: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobType {
    FirmwareUpdate,
    ExportConfiguration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    Downloading,
    /// Waits for the next start of the server.
    Scheduled,
    Running,
    Completed,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    pub name: String,
    pub host: String,
    pub powered_on: bool,
    /// Whether its guest shuts down when asked to.
    pub has_tools: bool,
    pub datastore: String,
    pub usb: Option<String>,
    pub fault_tolerance: bool,
    pub vgpu: Option<String>,
    /// `[datastore] file.iso`, or the path of a drive of the host.
    pub cdrom: Option<String>,
    pub notes: Notes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datastore {
    pub name: String,
    /// Of one host only if not.
    pub shared: bool,
}

impl Host {
    pub fn is_connected(&self) -> bool {
        self.back_at_ms.is_none()
    }

    pub fn can_take_machines(&self) -> bool {
        self.is_connected() && self.maintenance == Maintenance::Out
    }

    pub fn version_of(&self, software_id: &str) -> Option<&str> {
        let installed = self.firmware.iter().find(|installed| installed.software_id == software_id);
        installed.map(|installed| installed.version.as_str())
    }
}

impl Job {
    pub fn is_over(&self) -> bool {
        matches!(self.state, JobState::Completed | JobState::Failed)
    }
}

impl Site {
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    pub fn host_mut(&mut self, name: &str) -> Option<&mut Host> {
        self.hosts.iter_mut().find(|host| host.name == name)
    }

    pub fn vm(&self, name: &str) -> Option<&Vm> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    pub fn vm_mut(&mut self, name: &str) -> Option<&mut Vm> {
        self.vms.iter_mut().find(|vm| vm.name == name)
    }

    /// Whether DRS could move it away while it runs.
    pub fn can_move(&self, vm: &Vm) -> bool {
        vm.usb.is_none()
            && !vm.fault_tolerance
            && vm.vgpu.is_none()
            && self.is_shared(&vm.datastore)
            && vm.cdrom.as_deref().is_none_or(|medium| self.is_on_shared_storage(medium))
    }

    fn is_shared(&self, datastore: &str) -> bool {
        self.datastores.iter().any(|known| known.name == datastore && known.shared)
    }

    fn is_on_shared_storage(&self, medium: &str) -> bool {
        let datastore = medium.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        datastore.is_some_and(|(name, _)| self.is_shared(name))
    }

    pub fn moves_by_itself(&self) -> bool {
        self.cluster.drs.enabled && self.cluster.drs.mode == "fullyAutomated"
    }
}
