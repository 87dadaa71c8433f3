//! A run whose documents cannot be written, beside others that can, as operators and front ends see it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::agents::{ask, start};
use crate::support::{Shop, eventually};

const SOON: Duration = Duration::from_secs(60);

fn playbook(name: &str, exec: &str) -> String {
    format!("name = \"{name}\"\nlifecycle = \"agent\"\n[[step]]\nname = \"execute-agent\"\nexec = {exec}\n")
}

/// What a stream tells within three seconds.
fn streamed(url: &str, after: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-N", "--noproxy", "*", "--max-time", "3"]);
    curl.args(["-H", &format!("Last-Event-ID: {after}")]);
    String::from_utf8(curl.arg(format!("{url}/events/stream")).output().unwrap().stdout).unwrap()
}

// proves A4, A9
#[test]
fn a_run_with_a_damaged_document_holds_up_no_other_and_is_mended_by_a_rebuild() {
    let shop = Shop::new();
    fs::write(shop.path("violin.toml"), playbook("violin", "[\"true\"]")).unwrap();
    let waits = r#"["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]"#;
    fs::write(shop.path("cello.toml"), playbook("cello", waits)).unwrap();
    let file = format!(
        "[projection]\nobject_store = \"file://{}\"\n[[agent]]\nslug = \"violin\"\nplaybook = \"violin.toml\"\n[[agent]]\nslug = \"cello\"\nplaybook = \"cello.toml\"\n",
        shop.path("objects").display()
    );
    fs::write(shop.path("waypost.toml"), file).unwrap();
    let (_server, url) = shop.serve(&["serve"]);
    let begun = start(&url, &json!({ "agent_slug": "cello" }), false);
    let id = begun.body["run_id"].as_str().unwrap();
    let status = || ask(&url, "GET", &format!("/runs/{id}/status"), &[], None).body["status"].clone();
    eventually("it runs", SOON, || status() == "running");
    fs::write(shop.path("objects/.versions/runs").join(id).join("status.json"), "{\"now\":").unwrap();
    fs::write(shop.path("go"), "").unwrap();
    let left = || {
        let mut curl = Command::new("curl");
        let got = curl.args(["-s", "--noproxy", "*", &format!("{url}/metrics")]).output().unwrap();
        let text = String::from_utf8(got.stdout).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("waypost_projection_left_runs "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    eventually("it is left behind, and the others are not", SOON, || {
        let other = start(&url, &json!({ "agent_slug": "violin" }), true);
        assert_eq!((other.status, &other.body["status"]), (200, &json!("completed")));
        left() == "1"
    });
    let completed = format!("\"runId\":\"{id}\",\"status\":\"completed\"");
    let told = streamed(&url, "0");
    assert_eq!(status(), "running");
    assert!(!told.contains(&completed), "never ahead of status.json: {told}");
    assert!(told.contains("\"status\":\"completed\""), "of the others it is told: {told}");
    let rebuilt = shop.ok(&["projection", "rebuild", id]);
    assert!(rebuilt.contains("object"), "{rebuilt}");
    assert_eq!(status(), "completed");
    eventually("it is left behind no more", SOON, || left() == "0");
    assert!(streamed(&url, "0").contains(&completed));
    let last = told.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap_or("0");
    let heard = streamed(&url, last);
    assert!(heard.contains(&completed), "whoever was cut off meanwhile is told of it too: {heard}");
    shop.verifies();
}
