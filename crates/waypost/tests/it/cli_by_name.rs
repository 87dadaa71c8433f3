//! Runs by the name of a playbook that a server or a worker has.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Ran, Shop};

const EXCL: &str = r#"name = "excl"
lifecycle = "job"
concurrency_key = "deploy-{{ inputs.env }}"
queue = "deploys"
priority = 7

[inputs.env]
type = "string"
description = "where to"

[inputs.parts]
type = "list"
default = ["a"]

[[step]]
name = "scan"
exec = ["sh", "-c", "echo '{\"output\": {\"hosts\": [1, 2]}}' > $WAYPOST_OUTPUT"]

[[step]]
name = "ship {{ item }} to {{ inputs.env }}"
id = "ship"
for_each = "inputs.parts"
exec = ["echo", "{{ item }}", "{{ inputs.env }}"]

[[step]]
name = "tell"
for_each = "steps.scan.output.hosts"
exec = ["echo", "{{ item }}", "{{ steps.scan.output.hosts | length }}"]
"#;

fn with_folder(shop: Shop) -> Shop {
    fs::create_dir(shop.path("books")).unwrap();
    fs::write(shop.path("books/excl.toml"), EXCL).unwrap();
    shop
}

/// Status and body of a request with a JSON body.
fn post(url: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let (url, auth) = (format!("{url}{path}"), format!("authorization: Bearer {}", token.trim()));
    let body = body.to_string();
    let asked = Command::new("curl")
        .args(["-s", "--noproxy", "*", "-w", "\n%{http_code}", "-H", "content-type: application/json"])
        .args(["-H", &auth, "-d", &body, &url])
        .output()
        .unwrap();
    let text = String::from_utf8(asked.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

/// What starting by name and by file have in common.
fn same(run: &Value) -> Value {
    let keep = ["lifecycle", "queue", "priority", "concurrency_key", "playbook", "input", "items", "status"];
    keep.iter().map(|name| ((*name).to_owned(), run[*name].clone())).collect::<serde_json::Map<_, _>>().into()
}

// proves U1: a worker's folder alone is enough, and a name is what its file is
fn a_name_is_what_its_file_is(shop: &Shop) {
    shop.run(&["run", "start", "excl"]).expect(4, &["there is no playbook `excl`", "--playbooks DIR", "./"]);
    assert_eq!(shop.ok(&["playbook", "list"]), "");
    let mut worker = shop.spawn(&["worker", "--playbooks", "books", "--until-idle"]);
    assert_eq!(worker.end(), Some(0));
    let listed = shop.json(&["playbook", "list"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &json!("excl")));
    assert_eq!(listed[0]["inputs"][0]["name"], "env");
    let table = shop.ok(&["playbook", "list"]);
    assert!(table.contains("excl") && table.contains("env, parts?"), "{table}");
    let shown = shop.ok(&["playbook", "show", "excl"]);
    for word in ["deploys, priority 7", "deploy-{{ inputs.env }}", "where to", "step 2 ship", "[[step]]"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let flags = ["--input", "env=prod"];
    let by_file = shop.json(&[&["run", "start", "books/excl.toml"], &flags[..]].concat());
    let by_name = shop.json(&[&["run", "start", "excl"], &flags[..]].concat());
    assert_eq!(same(&by_name), same(&by_file));
    assert_eq!((&by_name["queue"], &by_name["priority"]), (&json!("deploys"), &json!(7)));
    assert_eq!(by_name["concurrency_key"], "deploy-prod");
    assert_eq!(by_name["carried"], Value::Null, "it brings nothing along");
    let items = shop.json(&["run", "show", by_name["run_id"].as_str().unwrap()])["items"].clone();
    assert_eq!(items, json!({"step": {"pending": 2}}), "scan and ship[1]; no step is made up");
    let mut worker = shop.spawn(&["worker", "--playbooks", "books", "--queue", "deploys", "--until-idle"]);
    assert_eq!(worker.end(), Some(0));
    for run in [&by_file, &by_name] {
        let ended = shop.show(run["run_id"].as_str().unwrap());
        assert_eq!(
            (&ended["status"], &ended["items"]),
            (&json!("completed"), &json!({"step": {"completed": 4}}))
        );
    }
    // What is wrong with a request is told at once, and nothing is written.
    let before = shop.runs().len();
    shop.run(&["run", "start", "excl"])
        .expect(2, &["input `env`", "it is missing: where to", "give a string"]);
    shop.run(&["run", "start", "excl", "--input", "env=x", "--input", "parts=1"]).expect(2, &["not a list"]);
    shop.run(&["run", "start", "excl", "--input", "env=x", "--lifecycle", "deploy"]).expect(2, &["\"job\""]);
    shop.run(&["run", "start", "exlc", "--input", "env=x"])
        .expect(4, &["did you mean `excl`?", "there are: excl"]);
    shop.run(&["run", "start", "excl@beef", "--input", "env=x"]).expect(4, &["no version"]);
    assert_eq!(shop.runs().len(), before);
    let later = shop.json(&["run", "start", "later", "--unknown-playbook", "--lifecycle", "job"]);
    assert_eq!((&later["playbook"], &later["status"]), (&json!("later"), &json!("pending")));
    shop.verifies();
}

#[test]
fn on_sqlite_a_name_is_what_its_file_is() {
    a_name_is_what_its_file_is(&with_folder(Shop::new()));
}

#[test]
fn on_postgres_a_name_is_what_its_file_is() {
    a_name_is_what_its_file_is(&with_folder(Shop::on_postgres()));
}

// proves U1
#[test]
fn the_version_that_came_last_is_started_and_an_older_one_by_its_hash() {
    let shop = with_folder(Shop::new());
    let offer = |text: &str| {
        fs::write(shop.path("books/excl.toml"), text).unwrap();
        assert_eq!(shop.spawn(&["worker", "--playbooks", "books", "--until-idle"]).end(), Some(0));
        shop.json(&["playbook", "list"])[0]["hash"].as_str().unwrap().to_owned()
    };
    let first = offer(EXCL);
    let second = offer(&EXCL.replace("priority = 7", "priority = 8"));
    assert_ne!(first, second);
    let started = |name: &str| shop.json(&["run", "start", name, "--input", "env=x"]);
    assert_eq!(started("excl")["priority"], 8);
    let old = started(&format!("excl@{}", &first[..8]));
    assert_eq!((&old["priority"], &old["playbook"]), (&json!(7), &json!(format!("excl@{first}"))));
    assert_eq!(shop.json(&["playbook", "list", "--versions"]).as_array().unwrap().len(), 2);
    assert_eq!(offer(EXCL), first, "it went back");
    assert_eq!(started("excl")["priority"], 7);
}

// proves U1: over HTTP an operator's token is enough, and refusals name the field
#[test]
fn over_http_a_name_is_enough() {
    for shop in [with_folder(Shop::new()), with_folder(Shop::on_postgres())] {
        let admin = shop.ok(&["token", "create", "root", "--role", "admin"]);
        let operator = shop.ok(&["token", "create", "op", "--role", "operator"]);
        let (_server, url) =
            shop.serve(&["serve", "--playbooks", "books", "--require-tokens", "--no-worker"]);
        let start = |body: Value| post(&url, "/v1/runs", &operator, &body);
        let (status, run) = start(json!({"playbook": "excl", "input": {"env": "prod"}}));
        assert_eq!(status, 201, "{run}");
        assert_eq!(
            (
                &run["lifecycle"],
                &run["queue"],
                &run["priority"],
                &run["concurrency_key"],
                &run["input"]["parts"]
            ),
            (&json!("job"), &json!("deploys"), &json!(7), &json!("deploy-prod"), &json!(["a"]))
        );
        assert_eq!(run["items"], json!({"step": {"pending": 2}}));
        let (status, problem) = start(json!({"playbook": "excl", "input": {"parts": 1}}));
        assert_eq!((status, problem["errors"].as_array().unwrap().len()), (422, 2), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"], "/input/env");
        for (body, field, words) in [
            (json!({"playbook": "excl", "lifecycle": "deploy", "input": {"env": "x"}}), "/lifecycle", "job"),
            (json!({"playbook": "exlc"}), "/playbook", "did you mean `excl`?"),
            (json!({"playbook": "later", "unknown_playbook": true}), "/lifecycle", "is missing"),
            (json!({"input": {}}), "/lifecycle", "is missing"),
        ] {
            let (status, problem) = start(body.clone());
            assert_eq!((status, &problem["errors"][0]["pointer"]), (422, &json!(field)), "{body}: {problem}");
            assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
        }
        let (status, run) = start(json!({"playbook": "later", "unknown_playbook": true, "lifecycle": "job"}));
        assert_eq!((status, &run["playbook"]), (201, &json!("later")));
        // The command line with the same token.
        let mut command = shop.command(&["run", "start", "excl", "--input", "env=qa", "-o", "json"]);
        let ran = Ran::from(
            command.env("WAYPOST_URL", &url).env("WAYPOST_TOKEN", operator.trim()).output().unwrap(),
        );
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let run: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((&run["queue"], &run["concurrency_key"]), (&json!("deploys"), &json!("deploy-qa")));
        let body = json!({"runs": [{"playbook": "excl", "input": {"env": "b"}}, {"playbook": "none"}]});
        let (_, made) = post(&url, "/v1/runs/batch", &admin, &body);
        assert!(made["runs"][0]["run_id"].is_string(), "{made}");
        assert_eq!(made["runs"][1]["error"]["code"], "INVALID_INPUT");
        let (status, plan) =
            post(&url, "/v1/runs/dry-run", &operator, &json!({"playbook": "excl", "input": {"env": "x"}}));
        assert_eq!(
            (status, &plan["queue"], &plan["steps"][1]["name"]),
            (200, &json!("deploys"), &json!("ship a to x"))
        );
    }
}

// proves U1
#[test]
fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    let shop = with_folder(Shop::new());
    let args = ["run", "start", "books/excl.toml", "--input", "env=prod", "--dry-run"];
    let plan = shop.json(&args);
    assert_eq!(
        (&plan["queue"], &plan["concurrency_key"], &plan["status"], &plan["input"]),
        (
            &json!("deploys"),
            &json!("deploy-prod"),
            &json!("pending"),
            &json!({"env": "prod", "parts": ["a"]})
        )
    );
    assert_eq!(plan["steps"][1]["does"]["exec"], json!(["echo", "a", "prod"]));
    assert_eq!(plan["steps"][2]["for_each"]["items"], "known later");
    assert_eq!(plan["steps"][2]["needs_output_of"], json!(["scan"]));
    assert_eq!(plan["steps"][2]["does"]["exec"][1], "{{ item }}");
    let said = shop.ok(&args);
    for word in
        ["Nothing was written", "deploys, priority 7", "ship a to prod", "known later", "output of scan"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    let said = shop.ok(&["run", "start", "--dry-run", "--", "echo", "hi"]);
    assert!(said.contains("deploy run of a command") && said.contains("echo hi"), "{said}");
    let by_name =
        shop.json(&["run", "start", "excl", "--playbooks", "books", "--input", "env=prod", "--dry-run"]);
    assert_eq!(by_name, plan);
    shop.run(&["run", "start", "books/excl.toml", "--dry-run"]).expect(2, &["input `env`"]);
    assert!(!shop.database().exists(), "not even a database");
}

// proves U1
#[test]
fn a_folder_of_ones_own_is_found_by_name_and_worked_here() {
    let shop = with_folder(Shop::new());
    let run = shop.json(&["run", "start", "excl", "--playbooks", "books", "--input", "env=x", "--wait"]);
    assert_eq!((&run["status"], &run["carried"]), (&json!("completed"), &Value::Null));
}

// proves U1 and U9
#[test]
fn what_cannot_be_worked_here_is_neither_taken_nor_given_back() {
    let shop = with_folder(Shop::new());
    {
        let (mut server, url) = shop.serve(&["serve", "--playbooks", "books", "--queue", "deploys"]);
        let args = ["--url", &url, "run", "start", "excl", "--input", "env=x", "--here"];
        shop.run(&args).expect(2, &["the playbook excl is not here", "--playbooks DIR"]);
        assert_eq!(shop.json(&["run", "list"]), json!([]));
        // Its worker says that it leaves: one that was killed would count as live for a while.
        server.signal("TERM");
        assert_eq!(server.end(), Some(0));
    }
    // The database knows the name, and nobody is there to work it.
    shop.run(&["run", "start", "excl", "--input", "env=x", "--here"]).expect(2, &["is not here"]);
    let waited = ["run", "start", "excl", "--input", "env=x", "--wait", "--timeout", "3s"];
    shop.run(&waited).expect(124, &["no live worker", "goes on: waypost run watch"]);
    let events = shop.ok(&["run", "events", "@1"]);
    assert!(!events.contains("claim") && !events.contains("release"), "{events}");
}

#[test]
fn a_new_playbook_is_sound_and_nothing_is_overwritten() {
    let shop = Shop::new();
    let said = shop.ok(&["playbook", "new", "greet"]);
    assert!(said.contains("run start ./greet.toml"), "{said}");
    shop.ok(&["playbook", "check", "greet.toml"]);
    assert_eq!(
        shop.json(&["run", "start", "greet.toml", "--input", "target=x", "--wait"])["status"],
        "completed"
    );
    shop.run(&["playbook", "new", "greet"]).expect(5, &["is there already"]);
    shop.run(&["playbook", "new", "other", "--lifecycle", "nowhere"]).expect(2, &["there is no lifecycle"]);
    assert!(!shop.path("other.toml").exists());
}

// proves U1: a schedule that names a playbook starts it as a person would
#[test]
fn a_schedule_by_name_goes_the_same_way() {
    let shop = with_folder(Shop::new());
    assert_eq!(shop.spawn(&["worker", "--playbooks", "books", "--until-idle"]).end(), Some(0));
    let schedule = "[[schedule]]\nname = \"nightly\"\ncadence = \"1m\"\nfirst = \"latest\"\n\
        run = { lifecycle = \"job\", playbook = \"excl\", input = { env = \"night\" } }\n";
    fs::write(shop.path("waypost.toml"), schedule).unwrap();
    let (_server, _) = shop.serve(&["serve"]);
    let mut run = Value::Null;
    crate::support::eventually("it fires", std::time::Duration::from_secs(60), || {
        run = shop.runs().into_iter().next().unwrap_or_default();
        run.is_object()
    });
    let run = shop.show(run["run_id"].as_str().unwrap());
    assert_eq!(
        (&run["queue"], &run["priority"], &run["concurrency_key"], &run["items"]),
        (&json!("deploys"), &json!(7), &json!("deploy-night"), &json!({"step": {"pending": 2}}))
    );
}

// proves U1: what nobody has has no steps yet, and none is made up
#[test]
fn a_playbook_that_nobody_has_shows_no_step() {
    let shop = with_folder(Shop::new());
    let start = [
        "run",
        "start",
        "excl",
        "--unknown-playbook",
        "--lifecycle",
        "job",
        "--input",
        "env=x",
        "-o",
        "json",
    ];
    let run: Value = serde_json::from_str(&shop.ok(&start)).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let shown = shop.ok(&["run", "show", id]);
    assert!(!shown.contains("STEP"), "{shown}");
    let watched = shop.run(&["run", "start", "--lifecycle", "job", "--wait", "--", "echo", "hi"]);
    assert_eq!(watched.out, "hi\n");
    assert!(!watched.err.lines().any(|line| line.ends_with(" run")), "{}", watched.err);
}
