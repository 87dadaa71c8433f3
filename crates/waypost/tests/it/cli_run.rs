//! One command, nothing to start first: what people meet.

use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Ran, Shop};

const GOOD: &str = "queued → claimed → running → success";
const BAD: &str = "queued → claimed → running → failed";

/// The keys of the run object that DESIGN promises.
const KEYS: &[&str] = &[
    "run_id",
    "tenant",
    "lifecycle",
    "status",
    "phase",
    "queue",
    "priority",
    "attempt",
    "max_attempts",
    "claimed_by",
    "fence",
    "stale_after",
    "queued_at",
    "started_at",
    "finished_at",
    "schedule_at",
    "error_code",
    "error_msg",
    "input",
    "metadata",
    "details",
    "items",
    "allowed",
];

#[test]
fn a_command_is_run_its_output_is_data_and_its_path_is_told() {
    let shop = Shop::new();
    let ran = shop.run(&["run", "start", "--wait", "--", "echo", "hi"]);
    ran.expect(0, &[GOOD]);
    assert_eq!(ran.out, "hi\n");
    shop.verifies();
}

#[test]
fn a_failure_is_the_exit_code_and_says_why() {
    let shop = Shop::new();
    let ran = shop.run(&["run", "start", "--wait", "--", "false"]);
    ran.expect(3, &[BAD, "EXIT_1"]);
    shop.run(&["run", "start", "--wait", "--", "sh", "-c", "echo 'disk full' >&2; exit 7"])
        .expect(3, &["EXIT_7: disk full"]);
    shop.run(&["run", "start", "--wait", "--", "no-such-program-here"]).expect(3, &["no-such-program-here"]);
}

#[test]
fn json_is_the_run_object_and_nothing_else() {
    let shop = Shop::new();
    let flags = ["run", "start", "--wait", "-o", "json", "--input", "n=3", "--metadata", "who=me"];
    let ran = shop.run(&[&flags[..], &["--", "sh", "-c", "cat; echo said"]].concat());
    ran.expect(0, &["said", GOOD]);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    for key in KEYS {
        assert!(run.get(key).is_some(), "no {key} in {run:#}");
    }
    assert_eq!(run["status"], "success");
    assert_eq!(run["input"], json!({ "n": 3 }));
    assert_eq!(run["metadata"]["who"], "me");
    assert_eq!(shop.show(run["run_id"].as_str().unwrap()), run, "run show prints the same object");
}

#[test]
fn many_processes_at_once_share_a_folder() {
    let shop = Shop::new();
    let started: Vec<_> = (0..6)
        .map(|number| {
            let mut command = shop.command(&["run", "start", "--wait", "--", "echo", &number.to_string()]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let waiting = started.into_iter().map(|child| thread::spawn(|| child.wait_with_output().unwrap()));
    for (number, ended) in waiting.collect::<Vec<_>>().into_iter().enumerate() {
        let ran = Ran::from(ended.join().unwrap());
        ran.expect(0, &[GOOD]);
        assert_eq!(ran.out.trim(), number.to_string(), "each works and follows its own run");
    }
    assert_eq!(shop.runs().len(), 6);
    shop.verifies();
}

#[test]
fn a_key_sent_twice_is_one_run() {
    let shop = Shop::new();
    let args = ["run", "start", "--idempotency-key", "build-1", "--", "true"];
    let first = shop.run(&args);
    let second = shop.run(&args);
    second.expect(0, &["was started before with this key"]);
    assert_eq!(first.out, second.out);
    assert_eq!(shop.runs().len(), 1);
}

#[test]
fn runs_are_found_by_the_beginning_of_their_id() {
    let shop = Shop::new();
    let id = shop.queue(&[], "true");
    assert_eq!(shop.show(&id[..30])["run_id"], id.as_str());
    shop.run(&["run", "show", "run-nope"]).expect(4, &["there is no run", "run-nope"]);
    shop.queue(&[], "true");
    let ran = shop.run(&["run", "show", "run-"]);
    assert!(matches!(ran.code, Some(2 | 4)), "{:?} {}", ran.code, ran.err);
}

#[test]
fn lists_events_and_logs_tell_what_happened() {
    let shop = Shop::new();
    let ran = shop.run(&[
        "run",
        "start",
        "--wait",
        "-o",
        "json",
        "--queue",
        "q1",
        "--",
        "sh",
        "-c",
        "echo a; echo b >&2",
    ]);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let failed = shop.run(&["run", "start", "--wait", "--", "false"]);
    failed.expect(3, &[]);
    assert_eq!(shop.runs().len(), 2);
    for (filter, value) in [("--status", "success"), ("--queue", "q1"), ("--text", &id[10..])] {
        let found = shop.json(&["run", "list", filter, value]);
        assert_eq!(found.as_array().unwrap().len(), 1, "{filter}");
        assert_eq!(found[0]["run_id"], id);
    }
    let events = shop.json(&["run", "events", id]);
    let states: Vec<&str> =
        events.as_array().unwrap().iter().map(|event| event["to"].as_str().unwrap()).collect();
    assert_eq!(states.first(), Some(&"queued"));
    assert_eq!(states.last(), Some(&"success"));
    let seqs: Vec<u64> =
        events.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let later = shop.json(&["run", "events", id, "--after", "3"]);
    assert_eq!(later[0]["seq"], 4);
    let mut logs: Vec<String> = shop.ok(&["run", "logs", id]).lines().map(str::to_owned).collect();
    logs.sort();
    assert_eq!(logs, ["a", "b"]);
    let lines = shop.ok(&["run", "events", id, "-o", "jsonl"]);
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{lines}");
}

/// What gives one object gives one line.
#[test]
fn one_object_as_jsonl_is_one_line() {
    let shop = Shop::new();
    let object = |args: &[&str]| {
        let out = shop.ok(&[args, &["-o", "jsonl"]].concat());
        assert_eq!(out.matches('\n').count(), 1, "{args:?}: {out}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let started = shop.ok(&["run", "start", "--wait", "-o", "jsonl", "--", "true"]);
    assert_eq!(started.lines().count(), 1, "{started}");
    let run: Value = serde_json::from_str(&started).unwrap();
    let id = run["run_id"].as_str().unwrap();
    for verb in ["show", "watch"] {
        assert_eq!(object(&["run", verb, id])["run_id"], id);
    }
    let queued = shop.queue(&[], "true");
    assert_eq!(object(&["run", "cancel", &queued])["status"], "cancelled");
    assert_eq!(object(&["stats"])["queue_depth"], 0);
    assert_eq!(object(&["verify"])["runs"], 2);
    let token = object(&["token", "create", "ci", "--role", "viewer"]);
    assert_eq!(token["role"], "viewer");
    assert!(token["token"].as_str().unwrap().contains(token["id"].as_str().unwrap()), "{token}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let shop = Shop::new();
    let script = format!(
        "'{}' run start --wait -- seq 1 20000 | head -1; echo ${{PIPESTATUS[0]}}",
        crate::support::WAYPOST
    );
    let mut command = std::process::Command::new("bash");
    crate::support::surround(&mut command, shop.folder());
    let ran = Ran::from(command.args(["-c", &script]).output().unwrap());
    assert_eq!(ran.out, "1\n0\n", "{}", ran.err);
}

#[test]
fn queues_are_paused_resumed_and_counted() {
    let shop = Shop::new();
    shop.queue(&["--queue", "builds"], "true");
    shop.ok(&["queue", "pause", "builds", "--reason", "upgrade"]);
    let stats = shop.json(&["queue", "stats"]);
    assert_eq!(stats[0]["queue"], "builds");
    assert_eq!(stats[0]["ready"], 1);
    assert_eq!(stats[0]["paused"]["reason"], "upgrade");
    assert_eq!(stats[0]["paused"]["by"], "tester");
    let timed =
        shop.run(&["run", "start", "--wait", "--timeout", "300ms", "--queue", "builds", "--", "true"]);
    timed.expect(124, &[]);
    shop.ok(&["queue", "resume", "builds"]);
    shop.run(&["run", "start", "--wait", "--queue", "builds", "--", "true"]).expect(0, &[GOOD]);
    assert_eq!(shop.json(&["queue", "stats"])[0]["paused"], Value::Null);
    shop.ok(&["queue", "limit", "builds", "4"]);
    assert_eq!(shop.json(&["queue", "stats"])[0]["at_most"], 4);
}

#[test]
fn completions_are_printed_for_every_shell() {
    let shop = Shop::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = shop.ok(&["completions", shell]);
        assert!(script.contains("waypost") && script.contains("idempotency-key"), "{shell}");
    }
    assert!(!shop.database().exists(), "looking for words makes no database");
}

/// More than a page of the store's: all that were asked for, not as many as come at once.
#[tokio::test]
async fn a_long_list_is_whole() {
    let shop = Shop::new();
    shop.ok(&["run", "list"]);
    let store = waypost_store::sqlite::SqliteStore::open(&shop.database()).unwrap();
    let run = waypost_store::NewRun { lifecycle: "deploy".into(), ..waypost_store::NewRun::default() };
    waypost_store::Store::enqueue(&store, vec![run; 1_100]).await.unwrap();
    for (limit, listed) in [("1050", 1_050), ("5000", 1_100)] {
        assert_eq!(shop.json(&["run", "list", "--limit", limit]).as_array().unwrap().len(), listed);
    }
    shop.run(&["run", "list", "--limit", "0"]).expect(2, &["'--limit <COUNT>'", "0 is not in 1.."]);
}

// proves D11
#[test]
fn artifacts_of_a_command_are_shown() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let script = r#"printf '{"artifacts": [{"type": "image", "url": "ghcr.io/a:1", "digest": "sha256:1", "size": 7}, {"type": "bogus", "url": "x"}]}' > $WAYPOST_OUTPUT"#;
        let started = shop.run(&["run", "start", "--wait", "-o", "json", "--", "sh", "-c", script]);
        let run: Value = serde_json::from_str(&started.out).unwrap();
        let artifacts = json!([
            {"type": "image", "url": "ghcr.io/a:1", "digest": "sha256:1", "size": 7},
            {"type": "bogus", "url": "x", "unknown_type": true},
        ]);
        assert_eq!((&run["status"], &run["artifacts"]), (&json!("success"), &artifacts), "{}", started.err);
        let shown = shop.ok(&["run", "show", run["run_id"].as_str().unwrap()]);
        assert!(shown.contains("ghcr.io/a:1") && shown.contains("bogus (unknown type)"), "{shown}");
        shop.verifies();
    }
    let shop = Shop::on_postgres();
    shop.psql("SELECT ops.queue_run('p', 'e', 's', 'r')");
    let id = shop.psql("SELECT run_id FROM ops.claim_next_run('w')").trim().to_owned();
    let metadata = r#"{"artifacts": [{"type": "sbom", "url": "s3://bucket/sbom.json"}]}"#;
    shop.psql(&format!("SELECT ops.finish_run('{id}', 'success', '{metadata}')"));
    assert_eq!(shop.show(&id)["artifacts"], json!([{"type": "sbom", "url": "s3://bucket/sbom.json"}]));
    assert!(shop.ok(&["run", "show", &id]).contains("s3://bucket/sbom.json"));
}
