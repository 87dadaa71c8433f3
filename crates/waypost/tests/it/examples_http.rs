//! The examples of the guide, as people would start them.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Running, Shop, eventually, surround};

const SOON: Duration = Duration::from_secs(60);

fn example(name: &str) -> String {
    format!("{}/../../docs/examples/http/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn post(url: &str, path: &str, body: &str) -> Value {
    let args = ["-s", "--noproxy", "*", "-H", "content-type: application/json", "-d", body];
    let asked = Command::new("curl").args(args).arg(format!("{url}{path}")).output().unwrap();
    serde_json::from_slice(&asked.stdout).unwrap()
}

fn start(url: &str, input: &str) -> String {
    let body = format!(r#"{{"lifecycle": "job", "queue": "example", "input": {input}}}"#);
    let run = post(url, "/v1/runs", &body);
    run["run_id"].as_str().unwrap_or_else(|| panic!("{run}")).to_owned()
}

fn deploy(url: &str, input: &str) -> String {
    let body = format!(r#"{{"lifecycle": "deploy", "queue": "example", "input": {input}}}"#);
    post(url, "/v1/runs", &body)["run_id"].as_str().unwrap().to_owned()
}

fn python(shop: &Shop, url: &str) -> Running {
    let mut command = Command::new("python3");
    surround(&mut command, shop.folder());
    command.arg(example("worker.py")).arg("example").env("WAYPOST_URL", url);
    Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

// proves X5 and X8
#[test]
fn the_worker_in_python_works_a_run_and_hears_of_a_cancel() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let _worker = python(&shop, &url);
    let id = deploy(&url, r#"{"steps": 3}"#);
    eventually("it is worked", SOON, || shop.show(&id)["status"] == "success");
    let events = shop.ok(&["run", "events", &id]);
    assert!(["step 1", "step 2", "step 3"].iter().all(|step| events.contains(step)), "{events}");
    let mut took: Vec<i64> = (0..cancels()).map(|_| cancelled_after(&shop, &url)).collect();
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{} runs cancelled under way: the worker in Python, which beats twice a second, had ended them after {median} ms in the \
         middle, {most} ms at most",
        took.len()
    );
    assert!(median < 5_000, "{took:?}");
    shop.verifies();
}

/// `./scripts/soak python-worker` asks for more.
fn cancels() -> usize {
    std::env::var("WAYPOST_CANCELS").map_or(3, |text| text.parse().unwrap())
}

/// From the request to the run's end, by the database's clock.
fn cancelled_after(shop: &Shop, url: &str) -> i64 {
    let long = deploy(url, r#"{"steps": 1000, "pause": 0.2}"#);
    eventually("it runs", SOON, || shop.show(&long)["status"] == "running");
    post(url, &format!("/v1/runs/{long}/cancel"), r#"{"reason": "enough"}"#);
    eventually("it is cancelled", SOON, || shop.show(&long)["status"] == "cancelled");
    let page = shop.curl(url, &format!("/v1/runs/{long}/events?limit=500"));
    let events = page["events"].as_array().unwrap();
    let at =
        |event: Option<&Value>| waypost_store::parse_time(event.unwrap()["at"].as_str().unwrap()).unwrap();
    let asked = events.iter().find(|event| event["actor"] == "operator");
    let ended = events.iter().find(|event| event["to"] == "cancelled");
    (at(ended) - at(asked)).ms()
}

#[test]
fn the_worker_in_python_outlives_its_server() {
    let shop = Shop::new();
    let (mut server, url) = shop.serve(&["serve", "--no-worker"]);
    let _worker = python(&shop, &url);
    let id = deploy(&url, r#"{"steps": 5, "pause": 0.3}"#);
    eventually("it runs", SOON, || shop.show(&id)["status"] == "running");
    server.kill();
    let address = url.strip_prefix("http://").unwrap();
    let (_server, _) = shop.serve_at(&["serve", "--no-worker", "--listen", address]);
    eventually("it ends well", SOON, || shop.show(&id)["status"] == "success");
    assert_eq!(shop.show(&id)["attempt"], 1);
    shop.verifies();
}

// proves X5
#[test]
fn the_worker_in_python_stops_when_another_has_its_run() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let mut worker = python(&shop, &url);
    let id = start(&url, r#"{"steps": 1000, "pause": 0.1}"#);
    eventually("it runs", SOON, || shop.show(&id)["phase"] == "held");
    worker.signal("STOP");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = shop.store().await;
        store.advance_clock(waypost_kernel::Span::from_seconds(3_600)).await.unwrap();
        store.claim_run(id.clone(), "another".into()).await.unwrap();
    });
    let held = shop.show(&id);
    worker.signal("CONT");
    let errors = worker.0.stderr.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(errors)).map_while(Result::ok);
    assert_eq!(lines.next(), Some(format!("{id}: LEASE_LOST")));
    let still = shop.show(&id);
    assert_eq!((&still["claimed_by"], &still["fence"]), (&held["claimed_by"], &held["fence"]));
    shop.verifies();
}

#[test]
fn the_worker_in_shell_works_a_run() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    for (command, status) in [("true", "success"), ("false", "failed")] {
        let id = deploy(&url, "{}");
        let mut worker = Command::new("bash");
        surround(&mut worker, shop.folder());
        let ran = worker
            .arg(example("worker.sh"))
            .args(["example", command])
            .env("WAYPOST_URL", &url)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), status);
        assert_eq!(shop.show(&id)["status"], status);
    }
    shop.verifies();
}
