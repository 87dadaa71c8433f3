#![allow(clippy::unwrap_used)]
//! An iDRAC over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Server;
use crate::{Do, Fault, JobState, Maintenance, Site, World};

const ROOT: &str = "cm9vdDppZHJhYy1wYXNzd29yZA==";
const JOBS: &str = "Managers/iDRAC.Embedded.1/Oem/Dell/Jobs?$expand=*($levels=1)";
const UPDATE: &str = "UpdateService/Actions/UpdateService.SimpleUpdate";
const RESET: &str = "Systems/System.Embedded.1/Actions/ComputerSystem.Reset";
const EXPORT: &str = "Managers/iDRAC.Embedded.1/Actions/Oem/EID_674_Manager.ExportSystemConfiguration";
const DELETE: &str =
    "Managers/iDRAC.Embedded.1/Oem/Dell/DellJobService/Actions/DellJobService.DeleteJobQueue";

struct Bench {
    _folder: TempDir,
    world: World,
    address: String,
}

impl Bench {
    fn of(site: &Site) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let world = World::create(folder.path(), site).unwrap();
        let server = Server::bind(&world, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.url().unwrap().replace("http://", "");
        thread::spawn(move || server.run());
        Bench { _folder: folder, world, address }
    }

    /// Head and body as they came; nothing if the connection broke.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} /idrac/esx2/redfish/v1/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {ROOT}\r\n\
             Idempotency-Key: key-1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let text = self.raw(&head);
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, text)
    }

    fn get(&self, path: &str) -> Value {
        let (status, text) = self.ask("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn job_states(&self) -> Vec<String> {
        let jobs = self.get(JOBS);
        let state = |job: &Value| job["JobState"].as_str().unwrap().to_owned();
        jobs["Members"].as_array().unwrap().iter().map(state).collect()
    }
}

fn image(site: &Site) -> Value {
    json!({ "ImageURI": site.catalogue[0].image, "@Redfish.OperationApplyTime": "OnReset" })
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let ends_at = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < ends_at, "not within 20 s");
        thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn firmware_is_installed_by_the_next_start() {
    let site = Site { pace_ms: 20, ..Site::sample() };
    let bench = Bench::of(&site);
    assert_eq!(bench.get("Systems/System.Embedded.1")["BiosVersion"], "2.19.1");
    let (status, head) = bench.ask("POST", UPDATE, &image(&site));
    assert!(
        status == 202 && head.contains("Location: /redfish/v1/TaskService/Tasks/JID_000000000001"),
        "{head}"
    );
    eventually(|| bench.job_states() == ["Scheduled"]);
    bench.world.change(|site| site.vms.clear()).unwrap();
    assert_eq!(bench.ask("POST", RESET, &json!({ "ResetType": "GracefulRestart" })).0, 204);
    assert!(!bench.world.site().unwrap().host("esx2").unwrap().is_connected());
    eventually(|| bench.get("TaskService/Tasks/JID_000000000001")["TaskState"] == "Completed");
    eventually(|| bench.world.site().unwrap().host("esx2").unwrap().is_connected());
    let inventory = bench.get("UpdateService/FirmwareInventory?$expand=*($levels=1)");
    assert_eq!(inventory["Members"][0]["Version"], "2.21.2");
    let plain = bench.get("UpdateService/FirmwareInventory");
    assert!(plain["Members"][0].get("Version").is_none());
    let applied: Vec<_> = bench.world.ledger().unwrap();
    assert_eq!(applied.iter().filter(|entry| entry.what == "firmware.applied").count(), 1);
    assert!(applied.iter().any(|entry| entry.by.as_deref() == Some("key-1")));
}

#[test]
fn a_start_takes_down_what_runs_on_the_host() {
    let bench = Bench::of(&Site::sample());
    bench.ask("POST", RESET, &json!({ "ResetType": "ForceRestart" }));
    assert!(!bench.world.site().unwrap().vm("web2").unwrap().powered_on);
    assert!(bench.world.ledger().unwrap().iter().any(|entry| entry.what == "vm.crashed"));
}

#[test]
fn a_configuration_is_exported_to_a_file() {
    let bench = Bench::of(&Site { pace_ms: 50, ..Site::sample() });
    let body =
        json!({ "ExportFormat": "XML", "ShareParameters": { "Target": "ALL", "FileName": "esx2.xml" } });
    assert_eq!(bench.ask("POST", EXPORT, &body).0, 202);
    let (status, head) = bench.ask("POST", EXPORT, &body);
    assert!(status == 503 && head.contains("Retry-After: 1"), "{head}");
    eventually(|| bench.job_states() == ["Completed"]);
    assert!(bench.world.folder().join("scp/esx2.xml").is_file());
}

#[test]
fn a_job_that_waits_can_be_taken_back_and_one_that_runs_cannot() {
    let site = Site { pace_ms: 20, ..Site::sample() };
    let bench = Bench::of(&site);
    bench.ask("POST", UPDATE, &image(&site));
    eventually(|| bench.job_states() == ["Scheduled"]);
    assert_eq!(bench.ask("POST", DELETE, &json!({ "JobID": "JID_000000000001" })).0, 200);
    assert!(bench.job_states().is_empty());
    bench.ask("POST", UPDATE, &image(&site));
    let runs = |site: &mut Site| {
        let job = &mut site.host_mut("esx2").unwrap().jobs[0];
        (job.state, job.due_at_ms) = (JobState::Running, u64::MAX);
    };
    bench.world.change(runs).unwrap();
    assert_eq!(bench.ask("POST", DELETE, &json!({ "JobID": "JID_000000000002" })).0, 400);
}

#[test]
fn strangers_bad_requests_and_unknown_paths_are_refused() {
    let bench = Bench::of(&Site::sample());
    let text = bench.raw("GET /idrac/esx2/redfish/v1/UpdateService HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 401") && text.contains("WWW-Authenticate"), "{text}");
    let text = bench.raw("GET /idrac/esx2/redfish/v1 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("RedfishVersion"), "{text}");
    assert!(bench.raw("GET /catalogue.json HTTP/1.1\r\n\r\n").contains("\"software_id\""));
    assert!(bench.raw("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    for (method, path, body, expected) in [
        ("GET", "Nothing", Value::Null, 404),
        ("DELETE", UPDATE, Value::Null, 404),
        ("POST", UPDATE, json!({ "ImageURI": "x", "@Redfish.OperationApplyTime": "OnReset" }), 400),
        ("POST", UPDATE, json!({}), 400),
        ("POST", RESET, json!({ "ResetType": "Nonsense" }), 400),
        ("POST", EXPORT, json!({}), 400),
        ("POST", DELETE, json!({ "JobID": "JID_9" }), 404),
    ] {
        assert_eq!(bench.ask(method, path, &body).0, expected, "{method} {path} {body}");
    }
    assert!(bench.world.ledger().unwrap().iter().all(|entry| !entry.changed));
}

#[test]
fn an_answer_is_lost_after_it_was_done_and_an_installation_fails() {
    let site = Site::sample();
    let bench = Bench::of(&site);
    let lose = Fault::new("UpdateService.SimpleUpdate", Do::LoseAnswer).on("esx2").nth(1);
    let doom = Fault::new("firmware.apply", Do::Fail { status: 0, message: String::new() });
    bench.world.set_faults(&[lose, doom]).unwrap();
    assert_eq!(bench.ask("POST", UPDATE, &image(&site)), (0, String::new()));
    eventually(|| bench.job_states() == ["Scheduled"]);
    bench.world.change(|site| site.host_mut("esx2").unwrap().maintenance = Maintenance::In).unwrap();
    bench.ask("POST", RESET, &json!({ "ResetType": "GracefulRestart" }));
    eventually(|| bench.job_states() == ["Failed"]);
    assert_eq!(bench.world.site().unwrap().host("esx2").unwrap().version_of("159"), Some("2.19.1"));
}
