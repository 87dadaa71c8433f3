//! A simulated cluster that is being served, and the playbook's scripts as a worker runs them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use waypost_simulate::{Do, Entry, Fault, Maintenance, Site, When, World};

use crate::support::{Running, WAYPOST, eventually};

pub const LONG: Duration = Duration::from_secs(120);
pub const PASSWORDS: [&str; 2] = ["vcenter-password", "idrac-password"];

pub fn playbook() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../playbooks/rolling_cluster_update");
    folder.canonicalize().unwrap()
}

pub struct Stage {
    folder: TempDir,
    pub world: World,
    /// What `simulate cluster` printed.
    pub told: Value,
    _server: Running,
}

/// What a script is told besides the input.
#[derive(Clone)]
pub struct Call {
    pub resolutions: Value,
    pub unattended: Value,
    pub item: Value,
    pub hosts: Value,
    pub was: Value,
}

impl Default for Call {
    fn default() -> Call {
        Call {
            resolutions: json!({}),
            unattended: Value::Null,
            item: Value::Null,
            hosts: json!([]),
            was: json!({}),
        }
    }
}

/// A script that ended.
pub struct Scripted {
    pub code: Option<i32>,
    pub outcome: Value,
    pub text: String,
}

impl Stage {
    pub fn of(site: &Site) -> Stage {
        let folder = tempfile::Builder::new().prefix("waypost-cluster-").tempdir().unwrap();
        let world = World::create(&folder.path().join("site"), site).unwrap();
        let mut server = Running(
            Command::new(WAYPOST)
                .args(["simulate", "cluster", "--dir"])
                .arg(world.folder())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Stage { told: serde_json::from_str(&line).unwrap(), folder, world, _server: server }
    }

    /// As a run of the playbook is given it.
    pub fn input(&self) -> Value {
        json!({
            "cluster": self.told["cluster"],
            "vcenter": self.told["dir"],
            "vcenter_user": "administrator@vsphere.local",
            "vcenter_vm": "vcenter",
            "idracs": self.told["idracs"],
            "idrac_user": "root",
            "catalogue": self.told["catalogue"],
            "backup_share": { "type": "NFS", "address": "192.0.2.9", "name": "/scp" },
            "poll_seconds": 0.02,
            "evacuation_seconds": 20,
            "shutdown_seconds": 5,
        })
    }

    /// The call for one host's turn: all of the catalogue is wanted.
    pub fn turn_of(&self, host: &str) -> Call {
        let site = self.site();
        let path = format!("/{}/host/{}/{host}", site.datacenter, site.cluster.name);
        let idrac = &self.told["idracs"][host];
        let item = json!({ "name": host, "path": path, "idrac": idrac, "updates": site.catalogue });
        Call { item, ..Call::default() }
    }

    pub fn path(&self) -> String {
        format!("{}:{}", self.told["bin"].as_str().unwrap(), std::env::var("PATH").unwrap())
    }

    fn command(&self, script: &[&str], call: &Call) -> Command {
        let mut command = Command::new(playbook().join(script[0]));
        command.args(&script[1..]).current_dir(self.folder.path()).process_group(0);
        command.env("PATH", self.path());
        command.env("GOVC_URL", self.world.folder()).env("GOVC_USERNAME", "administrator@vsphere.local");
        command.env("GOVC_PASSWORD", PASSWORDS[0]).env("IDRAC_PASSWORD", PASSWORDS[1]);
        command.env("WAYPOST_OUTPUT", self.outcome_path()).env("WAYPOST_IDEMPOTENCY_KEY", "run-1:update:1");
        command.env("HOSTS", call.hosts.to_string()).env("WAS", call.was.to_string());
        command
    }

    fn outcome_path(&self) -> PathBuf {
        self.folder.path().join("outcome.json")
    }

    fn spawn(&self, script: &[&str], call: &Call) -> Running {
        let _ = fs::remove_file(self.outcome_path());
        let told = json!({
            "run_id": "run-1", "step": script[0], "attempt": 1, "try": 1, "idempotency_key": "run-1:update:1",
            "input": self.input(), "metadata": {}, "item": call.item, "resolutions": call.resolutions,
            "unattended": call.unattended,
        });
        let output = fs::File::create(self.folder.path().join("output")).unwrap();
        let mut command = self.command(script, call);
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut running = Running(command.spawn().unwrap());
        running.0.stdin.take().unwrap().write_all(told.to_string().as_bytes()).unwrap();
        running
    }

    pub fn run(&self, script: &[&str], call: &Call) -> Scripted {
        let code = self.spawn(script, call).end();
        let outcome = fs::read(self.outcome_path()).ok();
        let outcome = outcome.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
        Scripted { code, outcome, text: fs::read_to_string(self.folder.path().join("output")).unwrap() }
    }

    /// Runs it and expects that outcome; gives the outcome.
    #[track_caller]
    pub fn ran(&self, script: &[&str], call: &Call, word: &str) -> Value {
        let ran = self.run(script, call);
        assert_eq!((ran.code, &ran.outcome["outcome"]), (Some(0), &word.into()), "{script:?}: {}", ran.text);
        ran.outcome
    }

    /// Runs it to where the fault lets it hang, kills the whole group there, and takes the fault away.
    #[track_caller]
    pub fn killed_at(&self, fault: &Fault, script: &[&str], call: &Call) {
        let before = self.hanging();
        self.world.set_faults(std::slice::from_ref(fault)).unwrap();
        let mut running = self.spawn(script, call);
        eventually(&format!("{fault:?} is met"), LONG, || {
            let ended = running.0.try_wait().unwrap();
            assert_eq!(ended, None, "{script:?} ended before {fault:?}");
            self.hanging() > before
        });
        for password in PASSWORDS {
            assert!(!command_lines().contains(password), "a password in the process list");
        }
        let kill = format!("kill -KILL -{}", running.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        running.end();
        self.world.set_faults(&[]).unwrap();
    }

    pub fn hanging(&self) -> usize {
        let ledger = self.world.ledger().unwrap();
        ledger.iter().filter(|entry| entry.answer.starts_with("hangs")).count()
    }

    pub fn site(&self) -> Site {
        self.world.site().unwrap()
    }

    pub fn changes(&self) -> Vec<Entry> {
        let ledger = self.world.ledger().unwrap();
        ledger.into_iter().filter(|entry| entry.changed && entry.via != "site").collect()
    }

    pub fn count(&self, what: &str, on: &str) -> usize {
        let ledger = self.world.ledger().unwrap();
        ledger.iter().filter(|entry| entry.what == what && entry.on == on && entry.changed).count()
    }
}

fn command_lines() -> String {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let line = |process: fs::DirEntry| fs::read(process.path().join("cmdline")).ok();
    processes.filter_map(line).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

/// One fault for each change that was made: it hangs when that is done, as if the world stopped there.
pub fn after_each(changes: &[Entry]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for entry in changes {
        let alike = |fault: &&Fault| fault.what == entry.what && fault.on.as_deref() == Some(&entry.on);
        let nth = 1 + faults.iter().filter(alike).count() as u64;
        faults.push(Fault::new(&entry.what, Do::Hang(When::After)).on(&entry.on).nth(nth));
    }
    faults
}

/// Nobody would know that anything was ever done, but for the firmware.
#[track_caller]
pub fn is_as_it_was(site: &Site, before: &Site) {
    assert_eq!(site.cluster.ha, before.cluster.ha);
    let noted =
        |notes: &std::collections::BTreeMap<String, String>| notes.values().any(|text| !text.is_empty());
    assert!(!noted(&site.cluster.notes), "{:?}", site.cluster.notes);
    for host in &site.hosts {
        let was = before.host(&host.name).unwrap();
        assert_eq!((host.maintenance, noted(&host.notes)), (was.maintenance, false), "{host:?}");
        assert!(host.is_connected() && host.jobs.iter().all(waypost_simulate::Job::is_over), "{host:?}");
    }
    for vm in &site.vms {
        let was = before.vm(&vm.name).unwrap();
        assert_eq!((vm.powered_on, noted(&vm.notes)), (was.powered_on, false), "{vm:?}");
    }
    assert!(before.hosts.iter().all(|host| !matches!(host.maintenance, Maintenance::Entering { .. })));
}
