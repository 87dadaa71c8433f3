//! A site to begin with: four hosts that need firmware, and machines of which some cannot be moved.

use std::collections::BTreeMap;

use super::site::{Cluster, Datastore, Drs, Firmware, Ha, Host, Installed, Login, Maintenance, Site, Vm};

pub const BIOS: &str = "159";
pub const IDRAC: &str = "25227";

impl Site {
    /// Hosts esx1 to esx4, each with an old BIOS and iDRAC, and a few machines that move. vCenter itself runs on esx1.
    /// Nothing blocks.
    pub fn sample() -> Site {
        let names = ["esx1", "esx2", "esx3", "esx4"];
        let mut datastores = vec![Datastore { name: "shared".to_owned(), shared: true }];
        datastores.extend(names.map(|host| Datastore { name: format!("local-{host}"), shared: false }));
        Site {
            datacenter: "DC".to_owned(),
            vcenter: login("administrator@vsphere.local", "vcenter-password"),
            idrac: login("root", "idrac-password"),
            cluster: cluster(),
            hosts: names.iter().zip(1..).map(|(name, number)| host(name, number)).collect(),
            vms: vec![
                Vm::on("esx1", "vcenter"),
                Vm::on("esx1", "web1"),
                Vm::on("esx2", "web2"),
                Vm::on("esx3", "db1"),
                Vm::on("esx4", "db2"),
            ],
            datastores,
            catalogue: vec![
                firmware(BIOS, "BIOS", "2.21.2"),
                firmware(IDRAC, "Integrated Dell Remote Access Controller", "7.00.00.173"),
            ],
            fields: Vec::new(),
            pace_ms: 0,
            jobs_made: 0,
            tasks_made: 0,
            ledger_bytes: 0,
            faults_met: BTreeMap::new(),
        }
    }

    /// The sample with one machine of each sort that blocks maintenance: USB on esx2; a vGPU, a machine with fault
    /// tolerance and a CD of the host on esx3; local disks on esx4.
    pub fn with_blockers() -> Site {
        let mut site = Site::sample();
        site.vms.extend([
            Vm { usb: Some("Aladdin HASP".to_owned()), ..Vm::on("esx2", "licence") },
            Vm { vgpu: Some("grid_t4-8q".to_owned()), ..Vm::on("esx3", "cad") },
            Vm { fault_tolerance: true, ..Vm::on("esx3", "ledger") },
            Vm { cdrom: Some("/dev/cdrom".to_owned()), ..Vm::on("esx3", "installer") },
            Vm { datastore: "local-esx4".to_owned(), ..Vm::on("esx4", "scratch") },
        ]);
        site
    }
}

impl Vm {
    /// Running, and free to move.
    pub fn on(host: &str, name: &str) -> Vm {
        Vm {
            name: name.to_owned(),
            host: host.to_owned(),
            powered_on: true,
            has_tools: true,
            datastore: "shared".to_owned(),
            usb: None,
            fault_tolerance: false,
            vgpu: None,
            cdrom: None,
            notes: BTreeMap::new(),
        }
    }
}

fn login(user: &str, password: &str) -> Login {
    Login { user: user.to_owned(), password: password.to_owned() }
}

fn cluster() -> Cluster {
    Cluster {
        name: "Prod".to_owned(),
        ha: Ha {
            enabled: true,
            admission_control_enabled: true,
            failover_level: 1,
            host_monitoring: "enabled".to_owned(),
            vm_monitoring: "vmMonitoringDisabled".to_owned(),
            restart_priority: "medium".to_owned(),
            isolation_response: "none".to_owned(),
        },
        drs: Drs { enabled: true, mode: "fullyAutomated".to_owned() },
        notes: BTreeMap::new(),
    }
}

fn host(name: &str, number: u32) -> Host {
    let installed = |software_id: &str, name: &str, version: &str| Installed {
        software_id: software_id.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
    };
    Host {
        name: name.to_owned(),
        model: "PowerEdge R740".to_owned(),
        service_tag: format!("WAYP0S{number}"),
        maintenance: Maintenance::Out,
        back_at_ms: None,
        starts: 0,
        firmware: vec![
            installed(BIOS, "BIOS", "2.19.1"),
            installed(IDRAC, "Integrated Dell Remote Access Controller", "6.10.80.00"),
        ],
        jobs: Vec::new(),
        notes: BTreeMap::new(),
    }
}

fn firmware(software_id: &str, name: &str, version: &str) -> Firmware {
    Firmware {
        software_id: software_id.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
        image: format!("https://downloads.example/{software_id}_{version}.EXE"),
    }
}
