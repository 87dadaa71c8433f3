#![allow(clippy::unwrap_used)]
//! What the stand-in answers, and what becomes of the site.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::Session;
use crate::{Do, Fault, Maintenance, Site, Vm, When, World};

struct Bench {
    _folder: TempDir,
    session: Session,
}

impl Bench {
    fn of(site: &Site) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let world = World::create(folder.path(), site).unwrap();
        Bench { _folder: folder, session: Session { world, by: Some("key-1".to_owned()) } }
    }

    fn world(&self) -> &World {
        &self.session.world
    }

    fn govc(&self, line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        self.session.run(&words)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.govc(line).unwrap()).unwrap()
    }

    fn changes(&self) -> Vec<(String, String)> {
        let ledger = self.world().ledger().unwrap();
        ledger.into_iter().filter(|entry| entry.changed).map(|entry| (entry.what, entry.on)).collect()
    }
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let ends_at = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < ends_at, "not within 20 s");
        thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn things_are_found_by_path_name_kind_and_property() {
    let bench = Bench::of(&Site::with_blockers());
    assert_eq!(bench.govc("find / -type c -name Prod").as_deref(), Ok("/DC/host/Prod\n"));
    assert_eq!(bench.govc("find -type h /DC/host/Prod").unwrap().lines().count(), 4);
    assert_eq!(bench.govc("find / -type c -name Nothing").as_deref(), Ok(""));
    let host = bench.json("host.info -json /DC/host/Prod/esx2");
    assert_eq!(host["hostSystems"][0]["runtime"]["connectionState"], "connected");
    let on = format!("HostSystem:{}", host["hostSystems"][0]["self"]["value"].as_str().unwrap());
    let found = bench.govc(&format!("find / -type m -runtime.host {on} -runtime.powerState poweredOn"));
    assert_eq!(found.as_deref(), Ok("/DC/vm/web2\n/DC/vm/licence\n"));
    let types = bench.json("device.info -json -vm /DC/vm/licence");
    let types: Vec<&str> =
        types["devices"].as_array().unwrap().iter().map(|device| device["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["VirtualDisk", "VirtualCdrom", "VirtualUSB"]);
    assert!(bench.changes().is_empty());
}

#[test]
fn what_is_unknown_is_refused_in_govcs_words() {
    let bench = Bench::of(&Site::sample());
    for (line, words) in [
        ("vm.clone x", "unknown command \"vm.clone\""),
        ("find -nonsense x /", "flag provided but not defined: -nonsense"),
        ("vm.info -json nobody", "vm 'nobody' not found"),
        ("cluster.change -ha-enabled=maybe Prod", "invalid boolean value \"maybe\""),
        ("vm.power web1", "specify one of -on, -off, -s"),
        ("vm.power -on web1", "not allowed in the current state"),
        ("host.maintenance.exit esx1", "not allowed in the current state"),
        ("fields.set owner me /DC/vm/web1", "field 'owner' not found"),
    ] {
        let error = bench.govc(line).expect_err(line);
        assert!(error.contains(words), "{line}: {error}");
    }
    let wrong = bench.session.log_in(Some("root"), None);
    assert!(wrong.unwrap_err().contains("incorrect user name or password"));
}

#[test]
fn a_host_is_emptied_before_it_is_in_maintenance() {
    let bench = Bench::of(&Site::sample());
    bench.govc("host.maintenance.enter /DC/host/Prod/esx2").unwrap();
    let site = bench.world().site().unwrap();
    assert_eq!(site.host("esx2").unwrap().maintenance, Maintenance::In);
    assert_ne!(site.vm("web2").unwrap().host, "esx2");
    assert!(bench.govc("host.maintenance.enter esx2").is_err());
    bench.govc("host.maintenance.exit esx2").unwrap();
    assert_eq!(bench.world().site().unwrap().host("esx2").unwrap().maintenance, Maintenance::Out);
}

#[test]
fn each_sort_of_blocker_keeps_a_host_from_maintenance_until_it_gives_up() {
    let plain = || Vm::on("esx2", "blocker");
    let blockers = [
        Vm { usb: Some("key".to_owned()), ..plain() },
        Vm { fault_tolerance: true, ..plain() },
        Vm { vgpu: Some("grid".to_owned()), ..plain() },
        Vm { datastore: "local-esx2".to_owned(), ..plain() },
        Vm { cdrom: Some("/dev/cdrom".to_owned()), ..plain() },
        Vm { cdrom: Some("[local-esx2] a.iso".to_owned()), ..plain() },
    ];
    let is_kept_out = |blocker: &Vm| {
        let bench = Bench::of(&Site { vms: vec![blocker.clone()], ..Site::sample() });
        let error = bench.govc("host.maintenance.enter -timeout 1 esx2").unwrap_err();
        assert_eq!(error, "Operation timed out.");
        assert_eq!(bench.world().site().unwrap().host("esx2").unwrap().maintenance, Maintenance::Out);
    };
    thread::scope(|scope| {
        for blocker in &blockers {
            scope.spawn(|| is_kept_out(blocker));
        }
    });
    let moves = Vm { cdrom: Some("[shared] a.iso".to_owned()), ..plain() };
    let bench = Bench::of(&Site { vms: vec![moves], ..Site::sample() });
    bench.govc("host.maintenance.enter -timeout 5 esx2").unwrap();
}

#[test]
fn vcenter_goes_on_entering_when_nobody_waits_and_a_power_off_lets_it() {
    let bench = Bench::of(&Site::with_blockers());
    thread::scope(|scope| {
        let entering = scope.spawn(|| bench.govc("host.maintenance.enter esx2"));
        let state = || bench.world().site().unwrap().host("esx2").unwrap().maintenance;
        eventually(|| matches!(state(), Maintenance::Entering { .. }));
        assert_eq!(
            bench.govc("host.maintenance.enter esx2").unwrap_err(),
            "Another task is already in progress."
        );
        assert!(bench.govc("host.maintenance.exit esx2").is_err());
        bench.govc("vm.power -s /DC/vm/licence").unwrap();
        eventually(|| state() == Maintenance::In);
        entering.join().unwrap().unwrap();
    });
    let error = bench.govc("vm.power -on licence").unwrap_err();
    assert!(error.contains("its host is in maintenance mode"), "{error}");
}

#[test]
fn entering_is_a_task_that_can_be_cancelled() {
    let bench = Bench::of(&Site::with_blockers());
    let recent = "object.collect -json -s /DC/host/Prod/esx2 recentTask";
    assert_eq!(bench.json(recent), Value::Null);
    thread::scope(|scope| {
        let entering = scope.spawn(|| bench.govc("host.maintenance.enter esx2"));
        eventually(|| !bench.json(recent).is_null());
        let info = bench.json("object.collect -json -s Task:task-1 info");
        assert_eq!(
            (&info["descriptionId"], &info["state"]),
            (&"HostSystem.enterMaintenanceMode".into(), &"running".into())
        );
        bench.govc("task.cancel task-1").unwrap();
        assert!(entering.join().unwrap().is_err());
    });
    assert!(bench.govc("task.cancel task-1").unwrap_err().contains("not found"));
    assert_eq!(bench.world().site().unwrap().host("esx2").unwrap().maintenance, Maintenance::Out);
}

#[test]
fn only_the_settings_that_are_named_change() {
    let bench = Bench::of(&Site::sample());
    bench.govc("cluster.change -ha-enabled=false /DC/host/Prod").unwrap();
    let settings = bench.json("object.collect -json -s /DC/host/Prod configurationEx");
    assert_eq!(settings["dasConfig"]["enabled"], false);
    assert_eq!(settings["dasConfig"]["admissionControlEnabled"], true);
    assert_eq!(settings["drsConfig"]["defaultVmBehavior"], "fullyAutomated");
    bench.govc("cluster.change -ha-enabled=false Prod").unwrap();
    assert_eq!(bench.changes(), [("cluster.change".to_owned(), "Prod".to_owned())]);
}

#[test]
fn notes_are_kept_on_objects() {
    let bench = Bench::of(&Site::sample());
    let info = "fields.info -json -n waypost /DC/vm/web1 /DC/host/Prod/esx1";
    assert_eq!(bench.govc(info).as_deref(), Ok(""));
    bench.govc("fields.set -add waypost off-by-run-1 /DC/vm/web1").unwrap();
    let rows = bench.json(info);
    assert_eq!(
        (&rows["info"][0]["path"], &rows["info"][0]["value"]),
        (&"/DC/vm/web1".into(), &"off-by-run-1".into())
    );
    assert_eq!(rows["info"].as_array().unwrap().len(), 1);
}

#[test]
fn faults_come_when_they_are_told_to() {
    let bench = Bench::of(&Site::sample());
    let refuse = Do::Fail { status: 503, message: "busy".to_owned() };
    bench.world().set_faults(&[Fault::new("vm.power", refuse).on("web2").nth(2)]).unwrap();
    bench.govc("vm.power -off web1").unwrap();
    bench.govc("vm.power -off web2").unwrap();
    assert_eq!(bench.govc("vm.power -on web2").unwrap_err(), "busy");
    bench.govc("vm.power -on web2").unwrap();
    bench.world().set_faults(&[Fault::new("cluster.change", Do::LoseAnswer)]).unwrap();
    assert!(bench.govc("cluster.change -ha-enabled=false Prod").unwrap_err().contains("EOF"));
    assert!(!bench.world().site().unwrap().cluster.ha.enabled);
    let last = bench.world().ledger().unwrap().pop().unwrap();
    assert_eq!((last.answer.as_str(), last.changed), ("done, and nobody is told", true));
    assert_eq!(last.by.as_deref(), Some("key-1"));
}

#[test]
fn what_hangs_goes_on_when_it_is_told_to() {
    for (when, is_done) in [(When::Before, false), (When::After, true)] {
        let bench = Bench::of(&Site::sample());
        bench.world().set_faults(&[Fault::new("cluster.change", Do::Hang(when))]).unwrap();
        thread::scope(|scope| {
            let hanging = scope.spawn(|| bench.govc("cluster.change -ha-enabled=false Prod"));
            let ledger = || bench.world().ledger().unwrap();
            eventually(|| ledger().iter().any(|entry| entry.answer.starts_with("hangs")));
            assert!(!hanging.is_finished());
            bench.world().set_faults(&[]).unwrap();
            assert!(hanging.join().unwrap().is_err());
        });
        assert_eq!(!bench.world().site().unwrap().cluster.ha.enabled, is_done);
    }
}

#[test]
fn what_a_killed_process_added_to_the_ledger_does_not_count() {
    let bench = Bench::of(&Site::sample());
    bench.govc("vm.power -off web1").unwrap();
    let path = bench.world().folder().join("ledger.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"at_ms\":1,\"half");
    std::fs::write(&path, text).unwrap();
    assert_eq!(bench.world().ledger().unwrap().len(), 1);
    bench.govc("vm.power -on web1").unwrap();
    assert_eq!(bench.world().ledger().unwrap().len(), 2);
}
