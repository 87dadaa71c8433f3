//! Why runs wait, who works and what people did, as the command line tells it.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);

fn places() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

/// A worker that is known, and what it writes to stderr as a file.
fn worker(shop: &Shop, args: &[&str]) -> Running {
    let log = File::create(shop.path("worker.log")).unwrap();
    let running = Running(shop.command(&[&["worker"], args].concat()).stderr(log).spawn().unwrap());
    eventually("the worker is known", SOON, || shop.json(&["worker", "list"]) != Value::Array(Vec::new()));
    running
}

fn log(shop: &Shop) -> String {
    std::fs::read_to_string(shop.path("worker.log")).unwrap()
}

/// What waits for this to be read goes on until it is ended.
const HOLD: &str = "read line < hold";

fn make_hold(shop: &Shop) {
    assert!(Command::new("mkfifo").arg(shop.path("hold")).status().unwrap().success());
}

fn start(shop: &Shop, flags: &[&str], script: &str) -> String {
    shop.ok(&[&["run", "start"], flags, &["--", "sh", "-c", script]].concat()).trim().to_owned()
}

#[track_caller]
fn waits_for(shop: &Shop, id: &str, reason: &str, words: &[&str]) {
    let waiting = shop.show(id)["waiting"].clone();
    assert_eq!(waiting["reason"], reason, "{waiting}");
    let text = format!("{} {}", waiting["text"], waiting["hint"]);
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    let shown = shop.ok(&["run", "show", id]);
    for part in ["text", "hint"].iter().filter_map(|part| waiting[part].as_str()) {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
}

// proves U2
#[test]
fn the_true_reason_is_shown_while_a_worker_is_up() {
    for shop in places() {
        make_hold(&shop);
        let _worker = worker(&shop, &["--allow-commands", "--slots", "1"]);
        let nobody = start(&shop, &["--queue", "builds"], "true");
        waits_for(
            &shop,
            &nobody,
            "no_worker",
            &["queue builds", "waypost worker --queue builds --allow-commands"],
        );
        shop.ok(&["queue", "pause", "default", "--reason", "freeze"]);
        let paused = start(&shop, &[], "true");
        waits_for(&shop, &paused, "queue_paused", &["freeze", "waypost queue resume default"]);
        shop.ok(&["run", "cancel", &paused]);
        shop.ok(&["queue", "resume", "default"]);
        let slow = start(&shop, &["--concurrency-key", "k"], HOLD);
        eventually("it is worked", SOON, || shop.show(&slow)["status"] == "running");
        assert_eq!(shop.show(&slow)["waiting"], Value::Null);
        let keyed = start(&shop, &["--concurrency-key", "k"], "true");
        waits_for(&shop, &keyed, "key_limit", &[&slow]);
        let busy = start(&shop, &[], "true");
        waits_for(&shop, &busy, "slots_busy", &["the one slot of one worker is busy"]);
        shop.ok(&["queue", "limit", "default", "1"]);
        waits_for(&shop, &busy, "queue_limit", &["limit of 1", &slow]);
        let rows = shop.json(&["run", "list"]);
        let listed = rows.as_array().unwrap().iter().find(|row| row["run_id"] == busy.as_str()).unwrap();
        assert_eq!(listed["waiting"]["reason"], "queue_limit");
        assert!(shop.ok(&["run", "list"]).contains("queue default is at its limit of 1"));
        shop.ok(&["run", "cancel", &slow]);
    }
}

// proves U2 and U11
#[test]
fn a_run_whose_worker_was_killed_is_stuck() {
    for shop in places() {
        make_hold(&shop);
        let mut killed = worker(&shop, &["--allow-commands", "--lease", "1s"]);
        let id = start(&shop, &["--lifecycle", "job"], HOLD);
        eventually("it is worked", SOON, || shop.show(&id)["status"] == "running");
        assert_eq!(shop.json(&["run", "list", "--stuck"]), Value::Array(Vec::new()));
        killed.kill();
        eventually("its lease ran out", SOON, || shop.show(&id)["waiting"]["reason"] == "orphaned");
        let stuck = shop.json(&["run", "list", "--stuck"]);
        assert_eq!((stuck.as_array().unwrap().len(), &stuck[0]["run_id"]), (1, &Value::from(id.as_str())));
        assert_eq!(shop.json(&["queue", "stats"])[0]["orphaned"], 1);
        assert!(shop.ok(&["run", "show", &id]).contains("its worker "));
        assert_eq!(shop.json(&["run", "list", "--waiting"]), Value::Array(Vec::new()));
    }
}

// proves U2
#[test]
fn a_cancel_that_nobody_carries_out_says_both() {
    for shop in places() {
        make_hold(&shop);
        let mut killed = worker(&shop, &["--allow-commands", "--lease", "20s"]);
        let id = start(&shop, &["--lifecycle", "job"], HOLD);
        eventually("it is worked", SOON, || shop.show(&id)["status"] == "running");
        killed.signal("STOP");
        shop.ok(&["run", "cancel", &id]);
        let shown = shop.ok(&["run", "show", &id]);
        for words in [
            "cancel asked by tester; its worker ",
            ", last heard of at ",
            "if it is silent until ",
            "ends it as cancelled",
        ] {
            assert!(shown.contains(words), "{words}:\n{shown}");
        }
        killed.kill();
        // Nobody else is there: its lease runs out, and no sweep comes by.
        eventually("its lease ran out", SOON, || shop.show(&id)["waiting"]["reason"] == "orphaned");
        waits_for(
            &shop,
            &id,
            "orphaned",
            &["cancel asked by tester; its worker ", "no sign of life", "ends it as cancelled"],
        );
        let row = shop.ok(&["run", "list", "--stuck"]);
        assert!(row.contains("cancel asked by tester; its"), "{row}");
    }
}

// proves U2
#[test]
fn workers_without_runs_are_counted_and_none_has_no_slot() {
    for shop in places() {
        let _worker = worker(&shop, &["--allow-commands"]);
        let said = shop.ok(&["stats"]);
        assert!(said.contains("active runs: 0\nworkers: 1, 0 of them busy"), "{said}");
        assert_eq!(shop.json(&["stats"])["workers"][0]["active_runs"], 0);
        for command in ["worker", "serve", "dev"] {
            shop.run(&[command, "--slots", "0"]).expect(2, &["slots", "give 1 or more"]);
        }
    }
}

// proves U2 and U11
#[test]
fn a_worker_tells_what_it_does_and_leaves_no_trace_when_it_stops() {
    let shop = Shop::new();
    let mut running = worker(&shop, &["--allow-commands", "--slots", "3", "--metrics", "127.0.0.1:0"]);
    let row = shop.json(&["worker", "list"])[0].clone();
    assert_eq!(
        (&row["slots"], &row["embedded"], &row["queues"][0]),
        (&3.into(), &true.into(), &"default".into())
    );
    let table = shop.ok(&["worker", "list"]);
    assert!(table.contains("live") && table.contains("0/3") && table.contains("commands"), "{table}");
    let good = start(&shop, &["--title", "nightly"], "true");
    let bad = start(&shop, &[], "exit 3");
    for id in [&good, &bad] {
        eventually("it ended", SOON, || !shop.show(id)["finished_at"].is_null());
    }
    eventually("both ends are in the log", SOON, || log(&shop).matches("ended: ").count() == 2);
    let lines = log(&shop);
    for words in [
        ["claimed", good.as_str(), "nightly"],
        ["ended: succeeded", &good, "nightly"],
        ["ended: failed", &bad, "EXIT_3"],
    ] {
        assert!(lines.lines().any(|line| words.iter().all(|word| line.contains(word))), "{words:?}\n{lines}");
    }
    let url =
        lines.lines().find_map(|line| line.strip_prefix("metrics at ")).unwrap().trim_end_matches("/metrics");
    let page = shop.page(url, "/metrics");
    for line in [
        "waypost_worker_slots 3",
        "waypost_worker_runs_claimed_total 2",
        "waypost_worker_runs_ended_total{lifecycle=\"deploy\",queue=\"default\",playbook=\"\",outcome=\"failed\"} 1",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    running.signal("TERM");
    assert_eq!(running.end(), Some(0));
    assert_eq!(shop.json(&["worker", "list"]), Value::Array(Vec::new()));
}

// proves U11
#[test]
fn what_people_did_is_listed_with_their_reasons() {
    for shop in places() {
        let id = start(&shop, &[], "true");
        shop.ok(&["run", "cancel", &id, "--reason", "wrong branch"]);
        shop.ok(&["queue", "pause", "default", "--reason", "freeze"]);
        let all = shop.json(&["audit", "--since", "1h"]);
        let actions: Vec<&Value> = all.as_array().unwrap().iter().map(|row| &row["action"]).collect();
        assert_eq!(actions, ["cancel", "queue.pause"]);
        let of_run = shop.json(&["audit", "--run", &id, "--actor", "tester"]);
        assert_eq!((&of_run[0]["reason"], of_run.as_array().unwrap().len()), (&"wrong branch".into(), 1));
        assert_eq!(shop.json(&["audit", "--actor", "nobody"]), Value::Array(Vec::new()));
        shop.run(&["audit", "--since", "yesterday"]).expect(2, &["since", "24h"]);
        assert!(shop.ok(&["run", "events", &id]).contains("wrong branch"));
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let elsewhere = Shop::new();
        let asked = elsewhere
            .command(&["audit", "--action", "queue.pause"])
            .env("WAYPOST_URL", &url)
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&asked.stdout).contains("freeze"));
    }
}
