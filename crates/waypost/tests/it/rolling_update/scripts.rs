//! Each script by itself, as a worker runs it.

use serde_json::{Value, json};
use waypost_simulate::{Do, Fault, Maintenance, Site, Vm};

use super::stage::{Call, Stage, is_as_it_was, playbook};
use crate::support::Shop;

fn names(hosts: &Value) -> Vec<&str> {
    hosts.as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap()).collect()
}

fn hosts(stage: &Stage) -> Value {
    stage.ran(&["preflight.sh"], &Call::default(), "done")["output"]["hosts"].clone()
}

fn turn(stage: &Stage, host: &str, resolutions: Value) -> Call {
    Call { resolutions, ..stage.turn_of(host) }
}

#[test]
fn the_playbook_is_sound() {
    let path = playbook().join("playbook.toml");
    let said = Shop::new().ok(&["playbook", "check", path.to_str().unwrap()]);
    assert!(said.contains("is sound: 5 steps, 2 cleanups, lifecycle job"), "{said}");
}

// proves J5
#[test]
fn preflight_names_the_hosts_that_need_firmware_with_vcenters_own_at_the_end() {
    let mut site = Site::sample();
    let wanted = site.catalogue.clone();
    for (installed, firmware) in site.host_mut("esx3").unwrap().firmware.iter_mut().zip(&wanted) {
        installed.version.clone_from(&firmware.version);
    }
    // Newer than the catalogue's: nobody is taken back.
    site.host_mut("esx4").unwrap().firmware[0].version = "2.100.0".to_owned();
    site.host_mut("esx4").unwrap().maintenance = Maintenance::In;
    let stage = Stage::of(&site);
    let outcome = stage.ran(&["preflight.sh"], &Call::default(), "done");
    let output = &outcome["output"];
    assert_eq!(names(&output["hosts"]), ["esx2", "esx4", "esx1"]);
    assert_eq!(output["hosts"][1]["updates"].as_array().unwrap().len(), 1);
    assert_eq!(output["up_to_date"], json!(["esx3"]));
    assert_eq!(output["in_maintenance_before"], json!(["esx4"]));
    assert_eq!(output["ha"]["enabled"], true);
    assert_eq!(outcome["details"]["hosts_needing_updates"], json!(["esx2", "esx4", "esx1"]));
    assert!(stage.changes().is_empty());
}

// proves J4
#[test]
fn preflight_finishes_the_run_when_there_is_nothing_to_do() {
    let stage = Stage::of(&Site { catalogue: Vec::new(), ..Site::sample() });
    let outcome = stage.ran(&["preflight.sh"], &Call::default(), "finish");
    assert!(outcome["reason"].as_str().unwrap().contains("has the catalogue's firmware"), "{outcome}");
    assert!(stage.changes().is_empty());
}

#[test]
fn preflight_says_what_is_wrong_and_tries_again_what_may_pass() {
    let mut manual = Site::sample();
    manual.cluster.drs.mode = "manual".to_owned();
    let mut down = Site::sample();
    down.host_mut("esx2").unwrap().back_at_ms = Some(u64::MAX);
    let mut stranger = Site::sample();
    stranger.vms.retain(|vm| vm.name != "vcenter");
    for (site, code, words) in [
        (manual, "DRS_NOT_AUTOMATED", "DRS of Prod"),
        (down, "HOST_UNREACHABLE", "not reach every host: esx2: notResponding"),
        (stranger, "BAD_INPUT", "input vcenter_vm: vCenter has no machine vcenter"),
    ] {
        let outcome = Stage::of(&site).ran(&["preflight.sh"], &Call::default(), "fail");
        assert_eq!((&outcome["code"], &outcome["permanent"]), (&code.into(), &true.into()), "{outcome}");
        assert!(outcome["message"].as_str().unwrap().contains(words), "{outcome}");
    }
    let stage = Stage::of(&Site::sample());
    let busy = Do::Fail { status: 503, message: "busy".to_owned() };
    for what in ["FirmwareInventory", "host.info", "catalogue"] {
        stage.world.set_faults(&[Fault::new(what, busy.clone())]).unwrap();
        let ran = stage.run(&["preflight.sh"], &Call::default());
        assert_eq!((ran.code, &ran.outcome), (Some(75), &Value::Null), "{what}: {}", ran.text);
    }
}

#[test]
fn the_scan_tells_every_sort_of_blocker_and_changes_nothing() {
    let stage = Stage::of(&Site::with_blockers());
    let call = Call { hosts: hosts(&stage), ..Call::default() };
    let outcome = stage.ran(&["scan.sh"], &call, "pause");
    let mut told = Vec::new();
    for (host, blocked) in outcome["blockers"].as_object().unwrap() {
        assert_eq!(&blocked["host_name"], host.as_str());
        for blocker in blocked["blockers"].as_array().unwrap() {
            let text = |key: &str| blocker[key].as_str().unwrap().to_owned();
            assert!(!text("remediation").is_empty() && !text("details").is_empty());
            told.push(format!("{host} {} {} {}", text("vm_name"), text("reason"), text("severity")));
        }
    }
    let expected = [
        "esx2 licence usb_passthrough critical",
        "esx3 cad vgpu critical",
        "esx3 ledger fault_tolerance critical",
        "esx3 installer cdrom warning",
        "esx4 scratch local_storage critical",
    ];
    assert_eq!(told, expected);
    assert_eq!(outcome["details"], json!({ "hosts_with_blockers": 3, "total_critical_blockers": 4 }));
    assert!(outcome["reason"].as_str().unwrap().contains("esx2, esx3, esx4"), "{outcome}");
    assert!(stage.changes().is_empty());
}

// proves J3
#[test]
fn the_scan_follows_decisions_and_pauses_again_for_what_is_not_decided() {
    let stage = Stage::of(&Site::with_blockers());
    let decided = |esx2: &str, esx3: &str| json!({ "esx2": { "decision": esx2, "by": "ann" }, "esx3": { "decision": esx3 } });
    let call = Call { hosts: hosts(&stage), resolutions: decided("power_off", "skip"), ..Call::default() };
    let outcome = stage.ran(&["scan.sh"], &call, "pause");
    assert_eq!(outcome["blockers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["esx4"]);
    stage.world.change(|site| site.vm_mut("scratch").unwrap().powered_on = false).unwrap();
    let outcome = stage.ran(&["scan.sh"], &call, "done");
    assert_eq!(names(&outcome["output"]["hosts"]), ["esx2", "esx4", "esx1"]);
    assert_eq!(outcome["output"]["skipped"], json!(["esx3"]));
    let wrong = Call { resolutions: decided("reboot", "skip"), ..call };
    let outcome = stage.ran(&["scan.sh"], &wrong, "fail");
    assert_eq!(outcome["message"], "resolutions.esx2 is \"reboot\"; allowed: power_off, skip");
}

// proves J5
#[test]
fn the_scan_leaves_blocked_hosts_out_when_nobody_can_be_asked() {
    let stage = Stage::of(&Site::with_blockers());
    let call = Call { hosts: hosts(&stage), unattended: "skip".into(), ..Call::default() };
    let outcome = stage.ran(&["scan.sh"], &call, "done");
    assert_eq!(names(&outcome["output"]["hosts"]), ["esx1"]);
    assert_eq!(outcome["output"]["skipped"], json!(["esx2", "esx3", "esx4"]));
    stage.ran(&["scan.sh"], &Call { unattended: "fail".into(), ..call.clone() }, "pause");
    stage
        .world
        .change(|site| site.vms.push(Vm { usb: Some("key".to_owned()), ..Vm::on("esx1", "pos") }))
        .unwrap();
    let none = stage.ran(&["scan.sh"], &call, "done");
    assert_eq!((&none["output"]["hosts"], none["output"]["all"].as_array().unwrap().len()), (&json!([]), 4));
    assert_eq!(none["output"]["all"][0]["skip"], "nobody can be asked about what blocks it");
}

#[test]
fn vcenter_itself_is_never_powered_off() {
    let mut site = Site::sample();
    site.vm_mut("vcenter").unwrap().usb = Some("key".to_owned());
    let stage = Stage::of(&site);
    let decided = json!({ "esx1": { "decision": "power_off" } });
    let call = Call { hosts: hosts(&stage), resolutions: decided.clone(), ..Call::default() };
    let outcome = stage.ran(&["scan.sh"], &call, "pause");
    let remediation = &outcome["blockers"]["esx1"]["blockers"][0]["remediation"];
    assert!(remediation.as_str().unwrap().contains("vCenter itself"), "{outcome}");
    stage.ran(&["update.sh"], &turn(&stage, "esx1", decided), "pause");
    is_as_it_was(&stage.site(), &site);
}

#[test]
fn ha_goes_off_and_comes_back_as_it_was() {
    for (enabled, admission) in [(true, true), (true, false), (false, true)] {
        let mut site = Site::sample();
        site.cluster.ha.enabled = enabled;
        site.cluster.ha.admission_control_enabled = admission;
        let stage = Stage::of(&site);
        let outcome = stage.ran(&["ha.sh", "disable"], &Call::default(), "done");
        assert_eq!(outcome["output"]["was_on"], enabled);
        assert!(!stage.site().cluster.ha.enabled);
        let call = Call { was: outcome["output"].clone(), ..Call::default() };
        stage.ran(&["ha.sh", "restore"], &call, "done");
        stage.ran(&["ha.sh", "restore"], &call, "done");
        is_as_it_was(&stage.site(), &site);
        assert_eq!(stage.count("cluster.change", "Prod"), if enabled { 2 } else { 0 });
    }
}

#[test]
fn a_host_is_updated_and_its_machines_run_again() {
    let mut site = Site::with_blockers();
    site.vm_mut("licence").unwrap().has_tools = false;
    let stage = Stage::of(&Site { pace_ms: 30, ..site });
    let before = stage.site();
    let call = turn(&stage, "esx2", json!({ "esx2": { "decision": "power_off" } }));
    let ran = stage.run(&["update.sh"], &call);
    assert_eq!(ran.outcome["output"]["firmware"]["BIOS"], "2.21.2", "{}", ran.text);
    for line in
        ["::task 100 Enter maintenance mode", "::task 100 Apply firmware", "::task 100 Exit maintenance mode"]
    {
        assert!(ran.text.lines().any(|told| told == line), "{}", ran.text);
    }
    let site = stage.site();
    is_as_it_was(&site, &before);
    assert_eq!(site.host("esx2").unwrap().version_of("159"), Some("2.21.2"));
    assert_eq!(site.host("esx2").unwrap().starts, 1);
    assert!(stage.world.ledger().unwrap().iter().all(|entry| entry.what != "vm.crashed"));
    // Once more: there is nothing left to do to it.
    stage.ran(&["update.sh"], &call, "done");
    assert_eq!(stage.count("UpdateService.SimpleUpdate", "esx2"), 2);
    assert_eq!(stage.count("ComputerSystem.Reset", "esx2"), 1);
}

#[test]
fn a_host_that_was_in_maintenance_stays_in_it() {
    let mut site = Site::sample();
    site.vms.retain(|vm| vm.host != "esx2");
    site.host_mut("esx2").unwrap().maintenance = Maintenance::In;
    let stage = Stage::of(&site);
    stage.ran(&["update.sh"], &turn(&stage, "esx2", json!({})), "done");
    is_as_it_was(&stage.site(), &site);
    assert_eq!(stage.site().host("esx2").unwrap().starts, 1);
}

#[test]
fn what_blocks_since_the_scan_is_asked_about() {
    let site = Site::with_blockers();
    let stage = Stage::of(&site);
    let outcome = stage.ran(&["update.sh"], &turn(&stage, "esx2", json!({})), "pause");
    assert_eq!(outcome["blockers"]["esx2"]["blockers"][0]["vm_name"], "licence");
    is_as_it_was(&stage.site(), &site);
    let skipped = turn(&stage, "esx2", json!({ "esx2": { "decision": "skip" } }));
    stage.ran(&["update.sh"], &skipped, "skip");
    let nobody = Call { unattended: "skip".into(), ..turn(&stage, "esx2", json!({})) };
    stage.ran(&["update.sh"], &nobody, "skip");
    is_as_it_was(&stage.site(), &site);
    assert_eq!(stage.site().host("esx2").unwrap().starts, 0);
}

#[test]
fn a_failed_export_or_installation_fails_for_good() {
    let fail = Do::Fail { status: 0, message: String::new() };
    let stage = Stage::of(&Site::sample());
    stage.world.set_faults(&[Fault::new("firmware.apply", fail).on("esx2").nth(2)]).unwrap();
    let call = turn(&stage, "esx2", json!({}));
    let outcome = stage.ran(&["update.sh"], &call, "fail");
    assert_eq!(
        (&outcome["code"], &outcome["permanent"]),
        (&"FIRMWARE_FAILED".into(), &true.into()),
        "{outcome}"
    );
    let message = outcome["message"].as_str().unwrap();
    assert!(message.contains("Integrated Dell Remote Access Controller 7.00.00.173"), "{message}");
    stage.ran(&["hosts.sh"], &Call::default(), "done");
    is_as_it_was(&stage.site(), &Site::sample());
    // Another try installs what is missing and nothing else.
    stage.ran(&["update.sh"], &call, "done");
    assert_eq!(stage.count("UpdateService.SimpleUpdate", "esx2"), 3);

    let stage = Stage::of(&Site::sample());
    let job = waypost_simulate::Job {
        id: "JID_1".to_owned(),
        kind: waypost_simulate::JobType::ExportConfiguration,
        name: "Export: Server Configuration Profile".to_owned(),
        state: waypost_simulate::JobState::Failed,
        message: "the share is full".to_owned(),
        due_at_ms: 0,
        installs: None,
        file: None,
        will_fail: true,
    };
    stage.world.change(|site| site.host_mut("esx2").unwrap().jobs.push(job)).unwrap();
    let outcome = stage.ran(&["update.sh"], &turn(&stage, "esx2", json!({})), "fail");
    assert!(outcome["message"].as_str().unwrap().contains("the share is full"), "{outcome}");
    assert!(stage.changes().is_empty());
}

#[test]
fn no_answer_never_looks_like_nothing_there() {
    let stage = Stage::of(&Site::with_blockers());
    let turn = turn(&stage, "esx2", json!({ "esx2": { "decision": "power_off" } }));
    let scan = Call { hosts: hosts(&stage), ..Call::default() };
    let broken = Do::Fail { status: 500, message: "broken".to_owned() };
    let looks = ["find", "host.info", "vm.info", "device.info", "datastore.info", "fields.info", "Jobs"];
    for what in looks {
        stage.world.set_faults(&[Fault::new(what, broken.clone())]).unwrap();
        let mut scripts: Vec<(&[&str], &Call)> = vec![(&["update.sh"], &turn)];
        if !["fields.info", "Jobs"].contains(&what) {
            scripts.push((&["scan.sh"], &scan));
        }
        if what == "fields.info" || what == "find" {
            scripts.extend([
                (&["hosts.sh"][..], &scan),
                (&["ha.sh", "restore"], &scan),
                (&["ha.sh", "disable"], &scan),
            ]);
        }
        for (script, call) in scripts {
            let ran = stage.run(script, call);
            assert_eq!((ran.code, &ran.outcome), (Some(75), &Value::Null), "{what} {script:?}: {}", ran.text);
        }
    }
    stage.world.set_faults(&[]).unwrap();
    assert_eq!(stage.count("UpdateService.SimpleUpdate", "esx2"), 0);
    assert_eq!(stage.count("cluster.change", "Prod"), 0);
}
