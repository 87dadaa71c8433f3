//! Runs from their beginning to their end, as people know them.

use std::fs;

use serde_json::{Value, json};
use waypost_simulate::{Do, Fault, Site, When};

use super::stage::playbook;
use super::whole::{Whole, blockers_of, decisions, newcomer, site};
use crate::support::Shop;

fn tells_how_far_it_is(details: &Value) {
    for (name, value) in [
        ("cluster_id", json!("Prod")),
        ("cluster_name", json!("Prod")),
        ("hosts_total", json!(3)),
        ("hosts_completed", json!(2)),
        ("progress_pct", json!(100)),
        ("current_host", json!("esx3")),
        ("current_host_ip", json!("127.0.0.1")),
    ] {
        assert_eq!(details[name], value, "{name}: {details}");
    }
    assert!(
        details["vcenter_id"].is_string() && details["update_check_results"]["esx1"].is_array(),
        "{details}"
    );
}

async fn blockers_are_resolved(shop: Shop) {
    let mut whole = Whole::of(shop, &site());
    let run_id = whole.start();
    let _worker = whole.worker();
    let run = whole.until(&run_id, "paused").await;
    assert_eq!(blockers_of(&run), ["esx2", "esx3"]);
    assert_eq!(run["details"]["awaiting_blocker_resolution"], true);
    assert_eq!(run["details"]["total_critical_blockers"], 2);
    assert!(run["details"]["pause_reason"].as_str().unwrap().contains("esx2, esx3"), "{run}");
    // HA is on while nobody works, and everything else as it was.
    whole.is_updated(&[]);
    // A decision for one host is kept, and is not one for the other, nor for what comes later.
    let one =
        whole.shop.run(&["run", "resume", &run_id, "--resolve", "esx2=power_off", "--reason", "agreed"]);
    assert_eq!(
        (one.code, one.out.contains("waits for decisions about esx3")),
        (Some(6), true),
        "{}",
        one.err
    );
    whole.stage.world.change(|site| site.vms.push(newcomer("esx1"))).unwrap();
    whole.before.vms.push(newcomer("esx1"));
    whole.resume(&run_id);
    let run = whole.until(&run_id, "paused").await;
    assert_eq!(blockers_of(&run), ["esx1"]);
    whole.is_updated(&[]);
    whole.shop.ok(&["run", "resume", &run_id, "--resolve", "esx1=power_off", "--reason", "at night"]);
    let run = whole.until(&run_id, "completed").await;
    let decided = json!({ "esx1": ["power_off", "at night"], "esx2": ["power_off", "agreed"], "esx3": ["skip", "agreed"] });
    assert_eq!(decisions(&run), decided);
    whole.is_updated(&["esx2", "esx1"]);
    let expected = [
        "Pre-flight checks: completed",
        "Disable HA on cluster: Prod: completed",
        "Comprehensive blocker scan: completed",
        "SCP Backup: esx2: completed",
        "SCP Backup: esx1: completed",
        "Update host: esx2: completed",
        "Update host: esx1: completed",
        "Update host: esx3: skipped",
        "Take hosts out of maintenance mode: completed",
        "Re-enable HA on cluster: Prod: completed",
    ];
    assert_eq!(whole.steps(&run_id).await, expected);
    tells_how_far_it_is(&run["details"]);
    let tasks = whole.tasks(&run_id).await;
    assert_eq!(tasks.len(), 8);
    assert!(tasks.iter().all(|task| task.ends_with("completed 100")), "{tasks:?}");
    for host in ["esx2", "esx1"] {
        assert!(whole.stage.world.folder().join(format!("scp/{host}-{run_id}.xml")).is_file());
    }
    // Off and on three times: once for each time that somebody worked.
    assert_eq!(whole.stage.count("cluster.change", "Prod"), 6);
    let printed = whole.shop.ok(&["run", "events", &run_id, "-o", "json"]);
    assert!(!printed.contains("-password"), "a secret is in the log");
    assert!(!printed.contains("{{ inputs.cluster }}"), "a name is shown as it is written");
}

// proves J3, J5 and J8
#[tokio::test]
async fn blocked_hosts_are_powered_off_or_skipped_as_decided_and_ha_is_as_it_was() {
    blockers_are_resolved(Shop::new()).await;
}

#[tokio::test]
async fn blocked_hosts_on_postgres_are_powered_off_or_skipped_as_decided_and_ha_is_as_it_was() {
    blockers_are_resolved(Shop::on_postgres()).await;
}

/// A run that was scheduled, with the playbook's word for what would pause it.
fn scheduled(whole: &Whole, unattended: &str) -> String {
    let folder = whole.shop.path("playbook");
    fs::create_dir(&folder).unwrap();
    for file in fs::read_dir(playbook()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let path = folder.join("playbook.toml");
    let text = fs::read_to_string(&path).unwrap();
    let said = format!("unattended = \"{unattended}\"");
    fs::write(&path, text.replace("unattended = \"skip\"", &said)).unwrap();
    whole.queue(path.to_str().unwrap(), &["--schedule-at", "2020-01-01T00:00:00Z"])
}

async fn nobody_is_asked(shop: Shop, unattended: &str) {
    let whole = Whole::of(shop, &site());
    let run_id = scheduled(&whole, unattended);
    let _worker = whole.worker();
    if unattended == "skip" {
        let run = whole.until(&run_id, "completed").await;
        assert_eq!(run["details"]["hosts_skipped"], json!(["esx2", "esx3"]));
        whole.is_updated(&["esx1"]);
    } else {
        let run = whole.until(&run_id, "failed").await;
        assert_eq!(run["error_code"], "UNATTENDED");
        assert!(run["error_msg"].as_str().unwrap().contains("esx2, esx3"), "{run}");
        whole.is_updated(&[]);
    }
}

// proves J5
#[tokio::test]
async fn a_scheduled_run_leaves_blocked_hosts_out() {
    nobody_is_asked(Shop::new(), "skip").await;
}

#[tokio::test]
async fn a_scheduled_run_on_postgres_leaves_blocked_hosts_out() {
    nobody_is_asked(Shop::on_postgres(), "skip").await;
}

#[tokio::test]
async fn a_scheduled_run_fails_if_it_should_and_ha_is_as_it_was() {
    nobody_is_asked(Shop::new(), "fail").await;
}

#[tokio::test]
async fn a_scheduled_run_on_postgres_fails_if_it_should_and_ha_is_as_it_was() {
    nobody_is_asked(Shop::on_postgres(), "fail").await;
}

// proves J4
#[tokio::test]
async fn a_cluster_without_old_firmware_is_left_alone() {
    let whole = Whole::of(Shop::new(), &Site { catalogue: Vec::new(), ..site() });
    let run_id = whole.start();
    let _worker = whole.worker();
    whole.until(&run_id, "completed").await;
    whole.is_updated(&[]);
    assert!(whole.stage.changes().is_empty());
}

/// A machine that cannot be moved appears on the second host while the first is updated.
#[tokio::test]
async fn what_blocks_since_the_scan_pauses_the_run_at_that_host() {
    let mut site = site();
    site.vms.retain(|vm| ["vcenter", "web2"].contains(&vm.name.as_str()));
    let mut whole = Whole::of(Shop::new(), &site);
    let fault = Fault::new("host.maintenance.exit", Do::Hang(When::Before)).on("esx2");
    let armed = whole.arm(&fault);
    let run_id = whole.start();
    let _worker = whole.worker();
    whole.until_hanging(&fault, armed);
    whole.stage.world.change(|site| site.vms.push(newcomer("esx3"))).unwrap();
    whole.before.vms.push(newcomer("esx3"));
    // What hung is lost: the step is tried again, ten seconds later.
    whole.release();
    let run = whole.until(&run_id, "paused").await;
    assert_eq!(blockers_of(&run), ["esx3"]);
    assert_eq!(whole.stage.site().cluster.ha, whole.before.cluster.ha);
    whole.shop.ok(&["run", "resume", &run_id, "--resolve", "esx3=power_off"]);
    whole.until(&run_id, "completed").await;
    whole.is_updated(&["esx2", "esx3", "esx1"]);
}

/// What somebody else left behind is put right by the next run.
#[tokio::test]
async fn a_failed_installation_fails_the_run_and_the_next_one_puts_it_right() {
    let whole = Whole::of(Shop::new(), &Site { vms: Vec::new(), ..site() });
    let fail = Do::Fail { status: 0, message: String::new() };
    whole.stage.world.change(|site| site.vms.push(waypost_simulate::Vm::on("esx1", "vcenter"))).unwrap();
    let whole = Whole { before: whole.stage.site(), ..whole };
    whole.stage.world.set_faults(&[Fault::new("firmware.apply", fail).on("esx2").nth(1)]).unwrap();
    let run_id = whole.start();
    let _worker = whole.worker();
    let run = whole.until(&run_id, "failed").await;
    assert_eq!(run["error_code"], "FIRMWARE_FAILED", "{run}");
    super::stage::is_as_it_was(&whole.stage.site(), &whole.before);
    let steps = whole.steps(&run_id).await;
    assert!(steps.contains(&"Update host: esx2: failed".to_owned()), "{steps:?}");
    assert!(steps.contains(&"Re-enable HA on cluster: Prod: completed".to_owned()), "{steps:?}");
    whole.until(&whole.start(), "completed").await;
    let site = whole.stage.site();
    super::stage::is_as_it_was(&site, &whole.before);
    assert!(site.hosts.iter().all(|host| host.version_of("159") == Some("2.21.2")));
    whole.nothing_crashed();
}
