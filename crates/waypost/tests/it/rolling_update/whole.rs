//! Whole runs of the playbook: a database, a worker and the simulated cluster.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_simulate::{Do, Entry, Fault, Site, Vm, When};
use waypost_store::ItemRow;

use super::stage::{LONG, PASSWORDS, Stage, is_as_it_was, playbook};
use crate::support::{Running, Shop, eventually};

/// A worker that is killed keeps its lease for so long, by the database's clock.
const LEASE: Span = Span::from_seconds(60);
const WHOLE: Duration = Duration::from_secs(300);
pub const DECISIONS: [&str; 4] = ["--resolve", "esx2=power_off", "--resolve", "esx3=skip"];

/// esx1 with vCenter on it, esx2 and esx3 with a machine that blocks each; one component to update.
pub fn site() -> Site {
    let mut site = Site { pace_ms: 10, ..Site::with_blockers() };
    site.hosts.retain(|host| host.name != "esx4");
    site.vms.retain(|vm| ["vcenter", "web2", "licence", "cad"].contains(&vm.name.as_str()));
    site.catalogue.truncate(1);
    site
}

pub struct Whole {
    pub shop: Shop,
    pub stage: Stage,
    pub before: Site,
}

impl Whole {
    pub fn of(shop: Shop, site: &Site) -> Whole {
        // The database is there before a worker and a client want it at once.
        shop.ok(&["run", "list"]);
        Whole { shop, stage: Stage::of(site), before: site.clone() }
    }

    /// Queues a run of a playbook file; gives its id.
    #[track_caller]
    pub fn queue(&self, file: &str, flags: &[&str]) -> String {
        let inputs: Vec<String> =
            self.stage.input().as_object().unwrap().iter().map(|(name, value)| pair(name, value)).collect();
        let mut args = vec!["run", "start", file];
        for input in &inputs {
            args.extend(["--input", input]);
        }
        args.extend(flags);
        self.shop.ok(&args).trim().to_owned()
    }

    #[track_caller]
    pub fn start(&self) -> String {
        self.queue(playbook().join("playbook.toml").to_str().unwrap(), &[])
    }

    pub fn worker(&self) -> Running {
        let mut command =
            self.shop.command(&["worker", "--allow-commands", "--lease", "60s", "--grace", "5s"]);
        command.env("PATH", self.stage.path());
        command.env("GOVC_PASSWORD", PASSWORDS[0]).env("IDRAC_PASSWORD", PASSWORDS[1]);
        let log = fs::File::options().create(true).append(true).open(self.shop.path("worker.log")).unwrap();
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// SIGKILL; what it started is gone; its lease has run out.
    pub async fn kill(&self, worker: &mut Running) {
        worker.kill();
        let own = format!("GOVC_URL={}", self.stage.world.folder().display());
        eventually("the scripts of a killed worker are gone", LONG, || !environments().contains(&own));
        self.shop.store().await.advance_clock(LEASE).await.unwrap();
    }

    /// Until the run is in that state; gives its object.
    pub async fn until(&self, run_id: &str, status: &str) -> Value {
        let store = self.shop.store().await;
        let ends_at = Instant::now() + WHOLE;
        loop {
            let run = store.run("default".to_owned(), run_id.to_owned()).await.unwrap().object();
            if run["status"] == status {
                return run;
            }
            assert!(run["phase"] != "settled", "{} and not {status}: {}", run["status"], run["error_msg"]);
            assert!(Instant::now() < ends_at, "{} and not yet {status}", run["status"]);
            store.changed(Duration::from_millis(100)).await;
        }
    }

    #[track_caller]
    pub fn resume(&self, run_id: &str) {
        self.shop.ok(&[&["run", "resume", run_id, "--reason", "agreed"], &DECISIONS[..]].concat());
    }

    /// Somebody will hang because of it; gives how many have hung before.
    pub fn arm(&self, fault: &Fault) -> usize {
        let before = self.stage.hanging();
        self.stage.world.set_faults(std::slice::from_ref(fault)).unwrap();
        before
    }

    #[track_caller]
    pub fn until_hanging(&self, fault: &Fault, before: usize) {
        eventually(&format!("{fault:?} is met"), LONG, || self.stage.hanging() > before);
    }

    pub fn release(&self) {
        self.stage.world.set_faults(&[]).unwrap();
    }

    /// Steps as people see them.
    pub async fn steps(&self, run_id: &str) -> Vec<String> {
        let mut rows =
            self.shop.store().await.items(run_id.to_owned(), Some("step".to_owned())).await.unwrap();
        let place = |row: &ItemRow| {
            (row.details["order"].as_u64(), row.details.get("number").and_then(Value::as_u64))
        };
        rows.sort_by_key(place);
        rows.iter().map(|row| format!("{}: {}", row.name, row.status)).collect()
    }

    pub async fn tasks(&self, run_id: &str) -> Vec<String> {
        let rows = self.shop.store().await.items(run_id.to_owned(), Some("task".to_owned())).await.unwrap();
        rows.iter().map(|row| format!("{} {} {}", row.name, row.status, row.progress)).collect()
    }

    /// Everything is as before but for the firmware, which each of these hosts got once, and nobody else.
    #[track_caller]
    pub fn is_updated(&self, hosts: &[&str]) {
        let site = self.stage.site();
        is_as_it_was(&site, &self.before);
        for host in &site.hosts {
            let is_meant = hosts.contains(&host.name.as_str());
            let version = if is_meant { "2.21.2" } else { "2.19.1" };
            assert_eq!(
                (host.version_of("159"), host.starts),
                (Some(version), u32::from(is_meant)),
                "{}",
                host.name
            );
            let times = usize::from(is_meant);
            assert_eq!(self.stage.count("UpdateService.SimpleUpdate", &host.name), times, "{}", host.name);
            assert_eq!(self.stage.count("firmware.applied", &host.name), times, "{}", host.name);
        }
        self.nothing_crashed();
        self.shop.verifies();
    }

    #[track_caller]
    pub fn nothing_crashed(&self) {
        let ledger = self.stage.world.ledger().unwrap();
        let crashed: Vec<&Entry> = ledger.iter().filter(|entry| entry.what == "vm.crashed").collect();
        assert!(crashed.is_empty(), "{crashed:?}");
    }
}

fn pair(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    }
}

fn environments() -> String {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let variables = |process: fs::DirEntry| fs::read(process.path().join("environ")).ok();
    processes.filter_map(variables).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

/// A place in a run: before the first thing that a step asks for, or after a change that it made.
#[derive(Clone, Debug)]
pub struct Point {
    pub fault: Fault,
    pub step: String,
}

/// All places that a part of a ledger shows.
pub fn points(run_id: &str, ledger: &[Entry]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    let mut current = String::new();
    for entry in ledger {
        let Some(step) = entry.by.as_deref().and_then(|by| step_of(by, run_id)) else { continue };
        if step != current {
            points.push(point(entry, run_id, &step, When::Before));
            current.clone_from(&step);
        }
        if entry.changed {
            points.push(point(entry, run_id, &step, When::After));
        }
    }
    points
}

/// The first, and those after changes: between two changes a cancel finds the same.
pub fn changes(points: Vec<Point>) -> Vec<Point> {
    let is_kept = |(at, point): &(usize, Point)| *at == 0 || point.fault.does == Do::Hang(When::After);
    points.into_iter().enumerate().filter(is_kept).map(|(_, point)| point).collect()
}

/// The step of `run:step:try`.
fn step_of(by: &str, run_id: &str) -> Option<String> {
    let rest = by.strip_prefix(run_id)?.strip_prefix(':')?;
    rest.rsplit_once(':').map(|(step, _)| step.to_owned())
}

/// What it is asked with tells a note that is made from one that is taken away.
fn point(entry: &Entry, run_id: &str, step: &str, when: When) -> Point {
    let mut containing = vec![format!(":{step}:")];
    containing.extend(entry.with.to_string().split(run_id).map(str::to_owned));
    let fault = Fault::new(&entry.what, Do::Hang(when)).on(&entry.on).containing(containing).nth(1);
    Point { fault, step: step.to_owned() }
}

/// Where the run pauses, and where it goes on after that.
pub struct Ways {
    pub to_the_pause: Vec<Point>,
    pub to_the_end: Vec<Point>,
    /// As people see them at the end.
    pub steps: Vec<String>,
}

/// From a run that nobody disturbs.
pub async fn ways(shop: Shop) -> Ways {
    let whole = Whole::of(shop, &site());
    let run_id = whole.start();
    let _worker = whole.worker();
    whole.until(&run_id, "paused").await;
    assert_eq!(whole.stage.site().cluster.ha, whole.before.cluster.ha, "while it is paused");
    let first = whole.stage.world.ledger().unwrap();
    whole.resume(&run_id);
    whole.until(&run_id, "completed").await;
    whole.is_updated(&["esx2", "esx1"]);
    let second = whole.stage.world.ledger().unwrap().split_off(first.len());
    let steps = whole.steps(&run_id).await;
    Ways { to_the_pause: points(&run_id, &first), to_the_end: points(&run_id, &second), steps }
}

/// A machine that appears on a host.
pub fn newcomer(host: &str) -> Vm {
    Vm { usb: Some("key".to_owned()), ..Vm::on(host, "newcomer") }
}

pub fn blockers_of(run: &Value) -> Vec<&String> {
    run["details"]["current_blockers"].as_object().unwrap().keys().collect()
}

pub fn decisions(run: &Value) -> Value {
    let saved = run["details"]["maintenance_blocker_resolutions"].as_object().unwrap();
    saved.iter().map(|(host, about)| (host.clone(), json!([about["decision"], about["reason"]]))).collect()
}
