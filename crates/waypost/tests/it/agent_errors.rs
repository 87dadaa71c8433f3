//! Every row of seed 001's error table, made to happen: the code in status.json, and the HTTP status of whoever waited.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agents::{ask, start};
use crate::support::{Running, Shop, eventually};

const SOON: Duration = Duration::from_secs(60);

const SLEEPS: &str = r#"exec = ["sleep", "600"]"#;

/// Slug, what its one step does, what else its playbook says; what is told of it.
const TABLE: [(&str, &str, &str, &str, u16); 5] = [
    (
        "no-model",
        "chat = { url = \"URL\", model = \"m\", prompt = \"?\", allow_private = true }\nretries = 0",
        "",
        "NLM_UNAVAILABLE",
        502,
    ),
    (
        "slow-step",
        "exec = [\"sleep\", \"600\"]\ntimeout = \"200ms\"\nretries = 1\nbackoff = [\"10ms\"]",
        "",
        "AGENT_TIMEOUT",
        504,
    ),
    ("slow-run", SLEEPS, "timeout = \"1s\"", "AGENT_TIMEOUT", 504),
    ("failing", "exec = [\"false\"]\nretries = 1\nbackoff = [\"10ms\"]", "", "INTERNAL_ERROR", 500),
    ("upstream", "exec = [\"sh\", \"upstream.sh\"]\nretries = 0", "", "UPSTREAM_UNAVAILABLE", 502),
];

/// What a handler says of what it needs itself.
const UPSTREAM: &str = r#"echo '{"outcome":"fail","code":"UPSTREAM_UNAVAILABLE","message":"the archive is away"}' > "$WAYPOST_OUTPUT""#;

/// An address where nobody listens.
fn nobody() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{address}/v1")
}

// proves A10
#[test]
fn every_row_of_the_error_table_is_told_in_the_document_and_over_http() {
    let shop = Shop::new();
    let mut file = format!("[projection]\nobject_store = \"file://{}\"\n", shop.path("objects").display());
    for (slug, step, more, ..) in TABLE {
        let step = step.replace("URL", &nobody());
        let playbook = format!(
            "name = \"{slug}\"\nlifecycle = \"agent\"\n{more}\n[[step]]\nname = \"execute-agent\"\n{step}\n"
        );
        fs::write(shop.path(&format!("{slug}.toml")), playbook).unwrap();
        file += &format!("[[agent]]\nslug = \"{slug}\"\nplaybook = \"{slug}.toml\"\n");
    }
    file += "[[agent]]\nslug = \"homeless\"\nplaybook = \"nobody-has-it\"\n";
    fs::write(shop.path("waypost.toml"), file).unwrap();
    fs::write(shop.path("upstream.sh"), UPSTREAM).unwrap();
    let (_server, url) = shop.serve(&["serve"]);
    for (slug, _, _, code, status) in TABLE {
        let told = start(&url, &json!({ "agent_slug": slug, "correlationId": slug }), true);
        told.is_error(status, code);
        assert_eq!(told.body["correlationId"], slug);
        let run = &told.body["error"]["details"]["run"];
        let error = run["error"].as_str().unwrap_or_default();
        assert!(error.starts_with(&format!("{code}: ")), "{slug}: {error}");
        assert_eq!(
            (&run["status"], &run["current_step"]),
            (&json!("failed"), &json!("execute-agent")),
            "{slug}"
        );
        let path = format!("/runs/{}/status", run["run_id"].as_str().unwrap());
        let polled = ask(&url, "GET", &path, &[], None);
        assert_eq!(
            (polled.status, &polled.body),
            (200, run),
            "a poll is answered, whatever became of the run"
        );
    }
    // What executes the agent's runs is away: no run is left behind.
    start(&url, &json!({ "agent_slug": "homeless" }), false).is_error(502, "UPSTREAM_UNAVAILABLE");
    let runs: Vec<Value> = shop.runs();
    assert_eq!(runs.len(), TABLE.len(), "{runs:?}");
    shop.verifies();
}

/// One agent, whose one step does that.
fn serve(shop: &Shop, step: &str, more: &str) -> (Running, String) {
    let playbook = format!(
        "name = \"violin\"\nlifecycle = \"agent\"\n{more}\n[[step]]\nname = \"execute-agent\"\n{step}\n"
    );
    fs::write(shop.path("violin.toml"), playbook).unwrap();
    let file = format!(
        "[projection]\nobject_store = \"file://{}\"\n[[agent]]\nslug = \"violin\"\nplaybook = \"violin.toml\"\n",
        shop.path("objects").display()
    );
    fs::write(shop.path("waypost.toml"), file).unwrap();
    shop.serve(&["serve"])
}

/// "MinIO недоступний" while a run is under way: the step is done, and the manifest cannot be written until the run's time is over.
// proves A10, A11
#[test]
fn an_object_store_that_goes_away_under_a_run_fails_it_as_upstream() {
    let shop = Shop::new();
    let (away, objects) = (shop.path("away"), shop.path("objects"));
    fs::write(shop.path("away.sh"), "mv objects away && : > objects\n").unwrap();
    let (_server, url) = serve(&shop, "exec = [\"sh\", \"away.sh\"]", "timeout = \"2s\"");
    let told = thread::scope(|scope| {
        let caller = scope.spawn(|| start(&url, &json!({ "agent_slug": "violin" }), true));
        let status = || shop.runs().first().map_or(Value::Null, |run| run["status"].clone());
        eventually("the run is over in the database", SOON, || status() == "failed");
        fs::remove_file(&objects).unwrap();
        fs::rename(&away, &objects).unwrap();
        caller.join().unwrap()
    });
    told.is_error(502, "UPSTREAM_UNAVAILABLE");
    let run = &told.body["error"]["details"]["run"];
    assert!(run["error"].as_str().unwrap().starts_with("UPSTREAM_UNAVAILABLE: "), "{run}");
    assert_eq!((&run["status"], &run["steps_completed"]), (&json!("failed"), &json!(1)), "{run}");
    let document = objects.join("runs").join(run["run_id"].as_str().unwrap()).join("status.json");
    let document: Value = serde_json::from_slice(&fs::read(document).unwrap()).unwrap();
    assert_eq!(&document, run);
    shop.verifies();
}

/// "Concurrency limit (не error)".
// proves A7, A10
#[test]
fn a_run_that_waits_for_its_turn_is_queued_and_no_error() {
    let shop = Shop::new();
    let (_server, url) = serve(&shop, SLEEPS, "");
    let begin = || start(&url, &json!({ "agent_slug": "violin" }), false);
    let (first, second) = (begin(), begin());
    assert_eq!((first.status, second.status), (202, 202));
    let status = |run: &Value| {
        let path = format!("/runs/{}/status", run["run_id"].as_str().unwrap());
        let polled = ask(&url, "GET", &path, &[], None);
        (polled.status, polled.body["status"].clone(), polled.body["error"].clone())
    };
    for (run, expected) in [(&first.body, "running"), (&second.body, "queued")] {
        let expected = (200, json!(expected), Value::Null);
        eventually("it is told where it stands", SOON, || status(run) == expected);
    }
    // Whoever waits for it is answered when the time is over, and no error either.
    let waited = ask(
        &url,
        "POST",
        "/agents/run",
        &["Prefer: wait=1"],
        Some(&json!({ "agent_slug": "violin", "correlationId": "c" })),
    );
    assert_eq!((waited.status, &waited.body["error"]), (202, &Value::Null), "{}", waited.body);
}
