//! Scripts that are killed after each change that they make, and begin again: everything ends the same.

use serde_json::{Value, json};
use waypost_simulate::{Do, Fault, Maintenance, Site, When};

use super::stage::{Call, Stage, after_each, is_as_it_was};

/// Time enough between changes that one finds the site in the middle of things.
const PACE_MS: u64 = 30;

fn site() -> Site {
    Site { pace_ms: PACE_MS, ..Site::with_blockers() }
}

/// esx2's turn, with a machine to be powered off.
fn turn(stage: &Stage) -> Call {
    Call { resolutions: json!({ "esx2": { "decision": "power_off" } }), ..stage.turn_of("esx2") }
}

/// The faults that stop an update after each of its changes.
fn stops() -> Vec<Fault> {
    let stage = Stage::of(&site());
    stage.ran(&["update.sh"], &turn(&stage), "done");
    let stops = after_each(&stage.changes());
    assert!(stops.len() >= 11, "{stops:?}");
    stops
}

#[track_caller]
fn is_updated_once(stage: &Stage, fault: &Fault) {
    let site = stage.site();
    is_as_it_was(&site, &self::site());
    let host = site.host("esx2").unwrap();
    assert_eq!((host.version_of("159"), host.starts), (Some("2.21.2"), 1), "{fault:?}");
    let images = stage.changes().into_iter().filter(|entry| entry.what == "UpdateService.SimpleUpdate");
    let mut images: Vec<Value> = images.map(|entry| entry.with["ImageURI"].clone()).collect();
    let scheduled = images.len();
    images.sort_by_key(Value::to_string);
    images.dedup();
    assert_eq!((scheduled, images.len()), (2, 2), "{fault:?}");
    assert_eq!(stage.count("firmware.applied", "esx2"), 2, "{fault:?}");
    assert!(stage.world.ledger().unwrap().iter().all(|entry| entry.what != "vm.crashed"), "{fault:?}");
}

// proves X5
#[test]
fn an_update_that_is_killed_after_any_change_and_repeated_ends_the_same() {
    for fault in stops() {
        let stage = Stage::of(&site());
        let call = turn(&stage);
        stage.killed_at(&fault, &["update.sh"], &call);
        stage.ran(&["update.sh"], &call, "done");
        is_updated_once(&stage, &fault);
    }
}

#[test]
fn an_update_whose_answers_are_lost_ends_the_same() {
    for stop in stops() {
        let fault = Fault { does: Do::LoseAnswer, ..stop };
        let stage = Stage::of(&site());
        let call = turn(&stage);
        stage.world.set_faults(std::slice::from_ref(&fault)).unwrap();
        let mut ran = stage.run(&["update.sh"], &call);
        // A guest that was asked to shut down is looked at anyhow; all else is tried again.
        let tries = (1..4).find(|_| {
            let is_over = ran.code == Some(0);
            if !is_over {
                assert_eq!(ran.code, Some(75), "{fault:?}: {}", ran.text);
                ran = stage.run(&["update.sh"], &call);
            }
            is_over
        });
        assert!(tries.is_some() && ran.outcome["outcome"] == "done", "{fault:?}: {}", ran.text);
        is_updated_once(&stage, &fault);
    }
}

// proves J6
#[test]
fn an_update_that_is_given_up_after_any_change_leaves_everything_as_it_was() {
    for fault in stops() {
        let stage = Stage::of(&site());
        let call = turn(&stage);
        stage.killed_at(&fault, &["update.sh"], &call);
        stage.ran(&["hosts.sh"], &Call::default(), "done");
        is_as_it_was(&stage.site(), &site());
        let site = stage.site();
        let host = site.host("esx2").unwrap();
        let (starts, version) = (host.starts, host.version_of("159").unwrap());
        assert_eq!(version, if starts == 1 { "2.21.2" } else { "2.19.1" }, "{fault:?}");
        // Nothing waits to be installed at some later start.
        assert!(host.jobs.iter().all(waypost_simulate::Job::is_over), "{fault:?}");
    }
}

#[test]
fn a_cleanup_that_is_killed_after_any_change_and_repeated_ends_the_same() {
    let reset = Fault::new("UpdateService.SimpleUpdate", Do::Hang(When::After)).nth(2);
    let left_behind = || {
        let stage = Stage::of(&site());
        let call = turn(&stage);
        stage.killed_at(&reset, &["update.sh"], &call);
        stage
    };
    let stage = left_behind();
    let before = stage.changes().len();
    stage.ran(&["hosts.sh"], &Call::default(), "done");
    let changes = stage.changes().split_off(before);
    assert!(changes.iter().any(|entry| entry.what == "DellJobService.DeleteJobQueue"), "{changes:?}");
    for fault in after_each(&changes) {
        let stage = left_behind();
        stage.killed_at(&fault, &["hosts.sh"], &Call::default());
        stage.ran(&["hosts.sh"], &Call::default(), "done");
        is_as_it_was(&stage.site(), &site());
    }
}

#[test]
fn entering_that_was_left_behind_is_ended() {
    let stage = Stage::of(&site());
    let call = turn(&stage);
    let hang = Fault::new("host.maintenance.enter", Do::Hang(When::After));
    // Somebody starts a machine that cannot move while vCenter empties the host.
    stage.killed_at(&hang, &["update.sh"], &call);
    stage
        .world
        .change(|site| {
            site.vm_mut("licence").unwrap().powered_on = true;
            site.host_mut("esx2").unwrap().maintenance =
                Maintenance::Entering { task: 7, not_before_ms: 0, gives_up_at_ms: None };
        })
        .unwrap();
    stage.ran(&["hosts.sh"], &Call::default(), "done");
    is_as_it_was(&stage.site(), &site());
}

// proves J5
#[test]
fn ha_is_never_left_off_wherever_its_scripts_are_killed() {
    let clean = Stage::of(&Site::sample());
    let output = clean.ran(&["ha.sh", "disable"], &Call::default(), "done")["output"].clone();
    let disabling = after_each(&clean.changes());
    let before = clean.changes().len();
    clean.ran(&["ha.sh", "restore"], &Call { was: output.clone(), ..Call::default() }, "done");
    let restoring = after_each(&clean.changes().split_off(before));
    assert_eq!((disabling.len(), restoring.len()), (2, 2));
    for fault in &disabling {
        // Begun again, and then undone.
        let stage = Stage::of(&Site::sample());
        stage.killed_at(fault, &["ha.sh", "disable"], &Call::default());
        let again = stage.ran(&["ha.sh", "disable"], &Call::default(), "done");
        assert_eq!(again["output"], output, "{fault:?}");
        stage.ran(&["ha.sh", "restore"], &Call { was: again["output"].clone(), ..Call::default() }, "done");
        is_as_it_was(&stage.site(), &Site::sample());
        // Undone at once: nobody ever learnt what the step would have answered.
        let stage = Stage::of(&Site::sample());
        stage.killed_at(fault, &["ha.sh", "disable"], &Call::default());
        stage.ran(&["ha.sh", "restore"], &Call::default(), "done");
        is_as_it_was(&stage.site(), &Site::sample());
    }
    for fault in &restoring {
        let stage = Stage::of(&Site::sample());
        stage.ran(&["ha.sh", "disable"], &Call::default(), "done");
        stage.killed_at(fault, &["ha.sh", "restore"], &Call { was: output.clone(), ..Call::default() });
        stage.ran(&["ha.sh", "restore"], &Call { was: output.clone(), ..Call::default() }, "done");
        is_as_it_was(&stage.site(), &Site::sample());
    }
}
