//! Agents, as their front ends, their owners and a simulated model see them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::simulators::Served;
use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);

const PLAYBOOK: &str = r#"
name = "archivist"
lifecycle = "agent"

[inputs.fail]
type = "boolean"
default = false

[[step]]
name = "load-context"
output = { fail = "{{ inputs.fail }}" }

[[step]]
name = "execute-agent"
retries = 0
exec = ["sh", "-c", "test \"$1\" = false", "sh", "{{ steps[\"load-context\"].output.fail }}"]
"#;

/// What a server answered: its status, body and headers.
pub struct Said {
    pub status: u16,
    pub body: Value,
    pub head: String,
}

impl Said {
    pub fn header(&self, name: &str) -> Option<String> {
        let line =
            self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    /// Of a route that is none of the seed's.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, &self.body["code"]), (status, &json!(code)), "{}", self.body);
    }

    #[track_caller]
    pub fn is_error(&self, status: u16, code: &str) {
        assert_eq!((self.status, &self.body["error"]["code"]), (status, &json!(code)), "{}", self.body);
        assert!(self.body["error"]["message"].is_string() && self.body["error"]["details"].is_object());
        assert!(self.body["correlationId"].is_string(), "{}", self.body);
    }
}

pub fn ask(url: &str, method: &str, path: &str, headers: &[&str], body: Option<&Value>) -> Said {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-i", "--noproxy", "*", "-X", method]);
    for header in headers {
        curl.args(["-H", header]);
    }
    if let Some(body) = body {
        curl.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
    }
    let asked = curl.arg(format!("{url}{path}")).output().unwrap();
    let text = String::from_utf8(asked.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Said { status, body: serde_json::from_str(body).unwrap_or_default(), head: head.to_owned() }
}

pub fn start(url: &str, body: &Value, waits: bool) -> Said {
    let headers: &[&str] = if waits { &["Prefer: wait=60"] } else { &[] };
    ask(url, "POST", "/agents/run", headers, Some(body))
}

fn serve(shop: &Shop) -> (Running, String) {
    fs::write(shop.path("archivist.toml"), PLAYBOOK).unwrap();
    let objects = shop.path("objects");
    let file = format!(
        "[projection]\nobject_store = \"file://{}\"\n[[agent]]\nslug = \"violin\"\nplaybook = \"archivist.toml\"\n[agents]\nlimit = 4\n",
        objects.display()
    );
    fs::write(shop.path("waypost.toml"), file).unwrap();
    shop.serve(&["serve"])
}

// proves A1, A3, A7, A8, A10
#[test]
fn a_front_end_starts_runs_polls_them_and_is_told_what_went_wrong() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = serve(&shop);
        let asked = json!({ "agent_slug": "violin", "correlationId": "c1" });
        let first = start(&url, &asked, false);
        assert_eq!((first.status, &first.body["status"]), (202, &json!("requested")), "{}", first.body);
        let id = first.body["run_id"].as_str().unwrap().to_owned();
        let path = format!("/runs/{id}/status");
        let status = || ask(&url, "GET", &path, &[], None);
        assert_eq!(status().status, 200, "it is there from the first answer on");
        eventually("the run completes", SOON, || status().body["status"] == "completed");
        let last = status();
        let fields: Vec<&String> = last.body.as_object().unwrap().keys().collect();
        assert_eq!(fields.len(), 11, "{fields:?}");
        assert_eq!((&last.body["agent_slug"], &last.body["steps_completed"]), (&json!("violin"), &json!(2)));
        assert!(shop.path("objects/runs").join(&id).join("manifest.json").exists());
        let tag = format!("If-None-Match: {}", last.header("etag").unwrap());
        assert_eq!(ask(&url, "GET", &path, &[&tag], None).status, 304);
        assert_eq!(ask(&url, "GET", &path, &["If-None-Match: *"], None).status, 304);
        let again = start(&url, &asked, true);
        assert_eq!((again.status, &again.body["run_id"]), (200, &json!(id)), "{}", again.body);
        start(&url, &json!({ "agent_slug": "nobody" }), false).is_error(404, "AGENT_NOT_FOUND");
        start(&url, &json!({ "slug": "violin" }), false).is_error(422, "INVALID_INPUT");
        ask(&url, "GET", "/runs/run_nobody/status", &[], None).is_error(404, "NOT_FOUND");
        let other = json!({ "agent_slug": "violin", "correlationId": "c1", "input": { "fail": true } });
        start(&url, &other, false).is_error(422, "IDEMPOTENCY_KEY_REUSED");
        let unnamed = ask(
            &url,
            "POST",
            "/agents/run",
            &[],
            Some(&json!({ "agent_slug": "violin", "correlationId": "" })),
        );
        assert_eq!(unnamed.status, 422);
        assert_eq!(unnamed.body["error"]["details"]["errors"][0]["pointer"], "/correlationId");
        // Front ends know one form of errors, whatever they ask by.
        for (method, path) in [("GET", "/agents/run"), ("DELETE", &*path), ("PUT", "/proposals/batch")] {
            ask(&url, method, path, &[], None).is_error(405, "METHOD_NOT_ALLOWED");
        }
        shop.verifies();
    }
}

// proves A1
#[test]
fn many_callers_with_one_correlation_id_start_one_run() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = serve(&shop);
        let asked = json!({ "agent_slug": "violin", "correlationId": "c1" });
        let answers: Vec<Said> = thread::scope(|scope| {
            let callers: Vec<_> = (0..64).map(|_| scope.spawn(|| start(&url, &asked, false))).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        let ids: BTreeSet<&str> =
            answers.iter().filter_map(|answer| answer.body["run_id"].as_str()).collect();
        assert_eq!(ids.len(), 1);
        for answer in &answers {
            assert_eq!(answer.status, 202, "{}", answer.body);
        }
        assert_eq!(shop.runs().len(), 1);
    }
}

// proves A1, X7
#[test]
fn a_correlation_id_is_that_of_its_run_whatever_became_of_agent_and_playbook() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (server, url) = serve(&shop);
        let asked = json!({ "agent_slug": "violin", "correlationId": "c1" });
        let id = start(&url, &asked, true).body["run_id"].as_str().unwrap().to_owned();
        let by_name = json!({ "playbook": "archivist", "input": { "fail": false } });
        let named = |url: &str| ask(url, "POST", "/v1/runs", &["Idempotency-Key: k1"], Some(&by_name));
        let first = named(&url);
        assert_eq!(first.status, 201, "{}", first.body);
        let from_cli = ["run", "start", "archivist", "--input", "fail=false", "--idempotency-key", "k2"];
        let of_cli = shop.ok(&from_cli);
        let through = |url: &str| {
            let asked = shop.command(&from_cli).env("WAYPOST_URL", url).output().unwrap();
            String::from_utf8(asked.stdout).unwrap()
        };
        let of_agent = ["agent", "run", "violin", "--correlation-id", "c1"];
        let is_known = |url: &str| {
            let again = start(url, &asked, false);
            assert_eq!((again.status, &again.body["run_id"]), (202, &json!(id)), "{}", again.body);
            let again = named(url);
            assert_eq!((again.status, &again.body["run_id"]), (200, &first.body["run_id"]), "{}", again.body);
            assert_eq!(again.header("idempotency-replayed").as_deref(), Some("true"));
            let many = json!({ "runs": [
                { "playbook": "archivist", "input": { "fail": false }, "idempotency_key": "k1" },
            ] });
            let many = ask(url, "POST", "/v1/runs/batch", &[], Some(&many));
            assert_eq!(many.body["runs"][0]["run_id"], first.body["run_id"], "{}", many.body);
            assert_eq!(shop.ok(&from_cli), of_cli);
            assert_eq!(through(url), of_cli);
            assert_eq!(shop.ok(&of_agent).trim(), id);
        };
        is_known(&url);
        shop.ok(&["agent", "pause", "violin"]);
        is_known(&url);
        start(&url, &json!({ "agent_slug": "violin", "correlationId": "c2" }), false)
            .is_error(409, "AGENT_NOT_ACTIVE");
        let other = json!({ "agent_slug": "violin", "correlationId": "c1", "trigger": "event" });
        start(&url, &other, false).is_error(422, "IDEMPOTENCY_KEY_REUSED");
        drop(server);
        // Its input does not fit any more.
        let changed = PLAYBOOK.replace("inputs.fail", "inputs.fails");
        fs::write(shop.path("archivist.toml"), &changed).unwrap();
        let (server, url) = shop.serve(&["serve"]);
        is_known(&url);
        named(&url);
        let new = ask(&url, "POST", "/v1/runs", &["Idempotency-Key: k3"], Some(&by_name));
        new.is_problem(422, "INVALID_INPUT");
        drop(server);
        shop.verifies();
    }
}

// proves A7, A10
#[test]
fn three_failures_put_an_agent_into_error_until_its_owner_resets_it() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop);
    let failing = json!({ "agent_slug": "violin", "input": { "fail": true } });
    for _ in 0..3 {
        let failed = start(&url, &failing, true);
        failed.is_error(500, "INTERNAL_ERROR");
        let error = failed.body["error"]["details"]["run"]["error"].as_str().unwrap();
        assert!(error.starts_with("INTERNAL_ERROR: EXIT_1"), "{error}");
    }
    let refused = start(&url, &failing, false);
    refused.is_error(409, "AGENT_NOT_ACTIVE");
    assert_eq!(refused.body["error"]["details"]["state"], "error");
    assert!(shop.ok(&["agent", "list"]).contains("error"));
    assert!(shop.ok(&["agent", "show", "violin"]).contains("waypost agent reset violin"));
    shop.run(&["agent", "run", "violin"]).expect(5, &["failed 3 times in a row"]);
    assert_eq!(shop.ok(&["agent", "reset", "violin", "--reason", "mended"]).trim(), "violin is active");
    assert_eq!(start(&url, &json!({ "agent_slug": "violin" }), true).status, 200);
    let mut through = shop.command(&["agent", "pause", "violin"]);
    assert!(through.env("WAYPOST_URL", &url).status().unwrap().success());
    start(&url, &failing, false).is_error(409, "AGENT_NOT_ACTIVE");
    assert_eq!(shop.json(&["agent", "show", "violin"])["state"], "paused");
    let archived = ask(&url, "POST", "/v1/agents/violin/archive", &[], Some(&json!({})));
    assert_eq!((archived.status, &archived.body["state"]), (200, &json!("archived")));
    shop.run(&["agent", "resume", "violin"]).expect(5, &["violin is archived"]);
    let put = ask(
        &url,
        "PUT",
        "/v1/agents/cello",
        &[],
        Some(&json!({ "playbook": "archivist", "concurrency": 2 })),
    );
    assert_eq!((put.status, &put.body["state"]), (200, &json!("active")), "{}", put.body);
    assert_eq!(start(&url, &json!({ "agent_slug": "cello" }), true).status, 200);
    shop.verifies();
}

// proves A1, A10
#[test]
fn without_its_object_store_no_run_is_left_behind() {
    let shop = Shop::new();
    fs::write(shop.path("archivist.toml"), PLAYBOOK).unwrap();
    fs::write(shop.path("in-the-way"), "no folder").unwrap();
    let agent = "[[agent]]\nslug = \"violin\"\nplaybook = \"archivist.toml\"\n";
    fs::write(shop.path("waypost.toml"), agent).unwrap();
    let place = format!("file://{}/objects", shop.path("in-the-way").display());
    let (server, url) = shop.serve(&["serve", "--object-store", &place]);
    let asked = json!({ "agent_slug": "violin", "correlationId": "c1" });
    let refused = start(&url, &asked, false);
    refused.is_error(502, "UPSTREAM_UNAVAILABLE");
    assert_eq!(refused.body["correlationId"], "c1");
    let told = refused.body.to_string();
    assert!(!told.contains("in-the-way") && !told.contains("database"), "{told}");
    let left = shop.runs();
    assert_eq!((left.len(), &left[0]["status"]), (1, &json!("failed")));
    for _ in 0..25 {
        start(&url, &asked, false).is_error(502, "UPSTREAM_UNAVAILABLE");
    }
    assert_eq!(shop.runs().len(), 1, "no run is made before the object store was seen again");
    let mut other = json!({ "agent_slug": "violin", "correlationId": "c9", "trigger": "manual" });
    start(&url, &other, false).is_error(502, "UPSTREAM_UNAVAILABLE");
    drop(server);
    fs::remove_file(shop.path("in-the-way")).unwrap();
    let (_server, url) = shop.serve(&["serve", "--object-store", &place]);
    let started = start(&url, &asked, true);
    assert_eq!(started.status, 200, "the correlation id is free: {}", started.body);
    assert_ne!(started.body["run_id"], left[0]["run_id"]);
    let again = start(&url, &asked, false);
    assert_eq!((again.status, &again.body["run_id"]), (202, &started.body["run_id"]), "{}", again.body);
    // What it was asked with is nobody's any more, too.
    other["trigger"] = json!("event");
    let answer = start(&url, &other, false);
    assert_eq!(answer.status, 202, "{}", answer.body);
    for other in ["c1#2", "run-after/c1"] {
        let other = json!({ "agent_slug": "violin", "correlationId": other });
        assert_eq!(start(&url, &other, false).status, 202);
    }
    let path = format!("/runs/{}/status", left[0]["run_id"].as_str().unwrap());
    let shown = ask(&url, "GET", &path, &[], None);
    assert_eq!(shown.body["error"], "UPSTREAM_UNAVAILABLE: the object store could not be reached");
    // One that its caller was told of keeps its correlation id, however it ended.
    shop.ok(&["queue", "pause", "agents"]);
    let asked = json!({ "agent_slug": "violin", "correlationId": "c3" });
    let told = start(&url, &asked, false).body["run_id"].clone();
    let waited = ask(&url, "POST", "/agents/run", &["Prefer: wait=1"], Some(&asked));
    assert_eq!((waited.status, &waited.body["status"]), (202, &json!("queued")), "where it is by then");
    shop.ok(&["run", "cancel", told.as_str().unwrap()]);
    assert_eq!(start(&url, &asked, false).body["run_id"], told);
    shop.verifies();
}

// proves A5, A6, A11
#[test]
fn an_agent_without_a_playbook_asks_a_model_in_four_steps() {
    let (shop, folder) = (Shop::new(), Shop::new());
    let model = Served::start(&folder, &["model"]);
    let base = model.line["url"].as_str().unwrap();
    let file = format!(
        "[[agent]]\nslug = \"violin\"\n[agents.chat]\nurl = \"{base}/v1\"\nmodel = \"any\"\nkey = \"env:WAYPOST_SECRET_MODEL\"\nallow_private = true\n"
    );
    fs::write(shop.path("waypost.toml"), file).unwrap();
    let run = |prompt: &str| {
        let input = format!("prompt={prompt}");
        let mut command =
            shop.command(&["agent", "run", "violin", "--input", &input, "--wait", "-o", "json"]);
        let ran = command.env("WAYPOST_SECRET_MODEL", "sk-secret").output().unwrap();
        let out = String::from_utf8(ran.stdout).unwrap();
        let told = String::from_utf8(ran.stderr).unwrap();
        let run: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{told}"));
        let id = run["run_id"].as_str().unwrap();
        let folder = shop.path(".waypost/objects/runs").join(id);
        (ran.status.code(), folder, format!("{out}{told}"))
    };
    let read =
        |file: std::path::PathBuf| -> Value { serde_json::from_slice(&fs::read(file).unwrap()).unwrap() };
    let (code, documents, told) = run("What is new?");
    assert_eq!(code, Some(0), "{told}");
    let status = read(documents.join("status.json"));
    assert_eq!((&status["steps_total"], &status["steps_completed"]), (&json!(4), &json!(4)), "{status}");
    let step = read(documents.join("steps/2.json"));
    assert_eq!(step["name"], "execute-agent");
    assert!(
        step["output"]["usage"]["total_tokens"].is_u64() && step["output"]["answer"].is_string(),
        "{step}"
    );
    assert!(!told.contains("sk-secret"), "{told}");
    model.stop();
    fs::write(shop.path("waypost.toml"), fs::read_to_string(shop.path("waypost.toml")).unwrap()).unwrap();
    let (code, documents, told) = run("Are you there?");
    let status = read(documents.join("status.json"));
    assert_eq!(code, Some(3), "{told}");
    assert!(status["error"].as_str().unwrap().starts_with("NLM_UNAVAILABLE: "), "{status}");
    assert_eq!(status["current_step"], "execute-agent");
}

// proves A9
#[test]
fn a_stream_tells_of_runs_and_goes_on_where_it_was() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop);
    let first = start(&url, &json!({ "agent_slug": "violin" }), true);
    let second = start(&url, &json!({ "agent_slug": "violin" }), true);
    let ids = [&first.body["run_id"], &second.body["run_id"]];
    let told = |after: &str| -> Vec<(String, Value)> {
        let header = format!("Last-Event-ID: {after}");
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-N",
            "--noproxy",
            "*",
            "--max-time",
            "3",
            "-H",
            &header,
            &format!("{url}/events/stream"),
        ]);
        let text = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        assert!(!text.contains("event:"), "{text}");
        let frame = |frame: &str| {
            let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            Some((line("id: ").unwrap_or_default(), serde_json::from_str(&line("data: ")?).unwrap()))
        };
        text.split("\n\n").filter_map(frame).collect()
    };
    let all = told("0");
    let of = |id: &Value| -> Vec<Value> {
        all.iter().map(|(_, data)| data.clone()).filter(|data| data["runId"] == *id).collect()
    };
    for id in ids {
        let changed = |status: &str| json!({ "type": "run.status.changed", "runId": id, "status": status });
        let done = |step: usize| json!({ "type": "run.step.completed", "runId": id, "step": step });
        let expected = [
            changed("requested"),
            changed("queued"),
            changed("running"),
            done(1),
            done(2),
            changed("completed"),
        ];
        assert_eq!(of(id), expected);
    }
    let (position, _) = &all[5];
    assert_eq!(told(position), all[6..].to_vec());
    // An id of another database is no reason to be silent.
    let (last, _) = all.last().unwrap();
    eventually("whoever comes with one is told of new runs", SOON, || {
        let heard = thread::scope(|scope| {
            let follower = scope.spawn(|| told("18446744073709551615"));
            start(&url, &json!({ "agent_slug": "violin" }), true);
            follower.join().unwrap()
        });
        let is_new = |id: &str| id.is_empty() || id.parse::<u64>().unwrap() > last.parse().unwrap();
        assert!(heard.iter().all(|(id, _)| is_new(id)), "{heard:?}");
        !heard.is_empty()
    });
}
