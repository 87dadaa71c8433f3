//! Looking at runs: lists that say what each run is, ids that can be typed, logs that can be narrowed, errors that help.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ran, Running, Shop, eventually};

const PLAYBOOK: &str = r#"
name = "shop"
lifecycle = "job"
[inputs.region]
type = "string"
default = "eu"
[[step]]
name = "build"
exec = ["sh", "-c", "echo '::task 30 pack'; echo building; echo '::task 100 pack'; echo '{\"output\":{\"image\":\"a:1\"}}' > $WAYPOST_OUTPUT"]
[[step]]
name = "ship to {{ inputs.region }}"
exec = ["sh", "-c", "echo shipping >&2; exit 3"]
[[cleanup]]
name = "unlock {{ inputs.region }}"
exec = ["true"]
"#;

const RELEASE: &str = r#"
name = "release"
description = "a release that somebody approves"
version = 1
ids = "rel-{rand6}"
initial = ["draft"]

[states]
draft = { phase = "draft" }
approved = { phase = "ready" }
rolling = { phase = "held", lease = "60s", on_stale = "take-over" }
live = { phase = "settled", outcome = "succeeded" }
failed = { phase = "settled", outcome = "failed" }

transitions = [
  ["draft", "approve", "approved", "operator", "has-reason"],
  ["draft", "cancel", "failed", "client, operator", ""],
  ["approved", "claim", "rolling", "worker", ""],
  ["approved", "cancel", "failed", "client, operator", ""],
  ["rolling", "finish-up", "live", "worker", ""],
  ["rolling", "fail", "failed", "worker", ""],
  ["rolling", "cancel", "failed", "client, operator, worker", ""],
  ["rolling", "lose", "failed", "engine", ""],
]
"#;

fn playbook(shop: &Shop) -> Ran {
    fs::write(shop.path("shop.toml"), PLAYBOOK).unwrap();
    shop.run(&["run", "start", "shop.toml", "--wait"])
}

fn at_width(shop: &Shop, columns: &str, args: &[&str]) -> String {
    Ran::from(shop.command(args).env("COLUMNS", columns).output().unwrap()).out
}

// proves U9
#[test]
fn a_list_says_what_each_run_is_at_any_width() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        playbook(&shop).expect(3, &["EXIT_3"]);
        shop.ok(&["run", "start", "--wait", "--", "echo", "a command of many words"]);
        shop.queue(&["--title", "Nightly build"], "true");
        let titles: Vec<Value> = shop.runs().iter().map(|run| run["title"].clone()).collect();
        assert_eq!(titles, ["Nightly build", "echo a command of many words", "shop"], "the API has them");
        for columns in ["60", "100", "200"] {
            let listed = at_width(&shop, columns, &["run", "list"]);
            let widest = listed.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns.parse().unwrap(), "{listed}");
            assert_eq!(listed.lines().count(), 4, "a line for each: {listed}");
            for title in ["shop", "Nightly build", "echo a com"] {
                assert!(listed.contains(title), "{listed}");
            }
        }
        assert!(at_width(&shop, "200", &["run", "list"]).contains("QUEUED"), "more where there is room");
        let ids = |args: &[&str]| -> Vec<String> {
            let listed = shop.ok(args);
            listed.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
        };
        assert_eq!(ids(&["ls"]), ids(&["run", "ps"]));
        assert!(shop.ok(&["version"]).starts_with("waypost "));
    }
}

// proves U9
#[test]
fn short_ids_and_numbers_work_wherever_a_run_is_asked_for() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let ids: Vec<String> = (0..3).map(|_| shop.queue(&[], "echo hi")).collect();
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        for (number, id) in ids.iter().rev().enumerate() {
            let listed = shop.ok(&["run", "list"]);
            let short = listed.lines().nth(number + 1).unwrap().split_whitespace().next().unwrap();
            assert!(short.len() <= 12 && id.ends_with(short), "{short} {id}");
            for part in [short, &id[4..], &format!("@{}", number + 1)] {
                assert_eq!(shop.show(part)["run_id"], id.as_str(), "{part}");
                let over_http = shop.json(&["--url", &url, "run", "show", part]);
                assert_eq!(over_http["run_id"], id.as_str(), "{part} over HTTP");
            }
            shop.run(&["run", "cancel", short]).expect(0, &[]);
        }
        shop.run(&["run", "show", "@9"]).expect(4, &["@9", "there are 3"]);
        shop.run(&["run", "show", "@0"]).expect(2, &["@1"]);
        shop.run(&["run", "show", "ffffffff-none"]).expect(4, &["no run"]);
    }
}

// proves U9
#[test]
fn a_word_that_was_typed_wrongly_is_an_error_also_over_http() {
    let shop = Shop::new();
    shop.queue(&["--queue", "builds"], "true");
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    for place in [&[][..], &["--url", &url]] {
        let ask = |flags: &[&str]| shop.run(&[place, &["run", "list"], flags].concat());
        ask(&["--status", "faild"]).expect(2, &["status", "faild", "did you mean `failed`"]);
        ask(&["--lifecycle", "deplo"]).expect(2, &["lifecycle", "deplo", "deploy", "job"]);
        ask(&["--lifecycle", "job", "--status", "success"]).expect(2, &["status", "completed"]);
        ask(&["--queue", "bilds"]).expect(0, &["queue", "bilds", "builds"]);
        ask(&["--queue", "builds", "--status", "failed"]).expect(0, &[]);
        ask(&["--limit", "0"]).expect(2, &["--limit"]);
    }
    assert_eq!(shop.curl(&url, "/v1/runs?status=faild")["status"], 400);
}

// proves U9
#[test]
fn looking_makes_nothing() {
    let shop = Shop::new();
    let far = format!("sqlite://{}/nowhere/x.db", shop.folder().display());
    let looks: &[&[&str]] = &[
        &["run", "list"],
        &["queue", "stats"],
        &["stats"],
        &["schedule", "list"],
        &["schedule", "history"],
        &["token", "list"],
        &["lifecycle", "list"],
        &["--database-url", &far, "run", "list"],
    ];
    for args in looks {
        shop.ok(args);
    }
    for args in [&["run", "show", "@1"], &["run", "logs", "x-12345678"], &["run", "cancel", "x-12345678"]] {
        shop.run(args).expect(4, &["no run"]);
    }
    assert_eq!(fs::read_dir(shop.folder()).unwrap().count(), 0, "nothing is left behind");
}

/// What changes or checks something that must be there says what to do, and makes nothing either.
// proves U9
#[test]
fn what_must_be_there_is_not_made() {
    let shop = Shop::new();
    let far = format!("sqlite://{}/nowhere/x.db", shop.folder().display());
    let asks: &[&[&str]] = &[
        &["verify"],
        &["queue", "resume", "zzz"],
        &["queue", "pause", "zzz"],
        &["queue", "limit", "zzz", "3"],
        &["token", "revoke", "zzz"],
    ];
    for args in asks {
        shop.run(args)
            .expect(4, &["there is no database .waypost/waypost.db", "waypost migrate", "--database-url"]);
        shop.run(&[&["--database-url", &far], *args].concat())
            .expect(4, &["there is no database", "nowhere"]);
    }
    assert_eq!(fs::read_dir(shop.folder()).unwrap().count(), 0, "nothing is left behind");
    shop.queue(&[], "true");
    shop.run(&["queue", "resume", "defualt"]).expect(4, &["no run is or was in", "did you mean `default`"]);
    shop.run(&["queue", "pause", "later", "--reason", "before its first run"])
        .expect(0, &["no run is or was in `later`", "the pause is kept"]);
    assert_eq!(shop.run(&["queue", "limit", "later", "0"]).err, "", "it is known by its pause");
    shop.ok(&["queue", "resume", "later"]);
    let listed = shop.run(&["run", "list", "--queue", "defualt", "-o", "json"]);
    listed.expect(0, &["no run is or was in", "did you mean `default`"]);
    assert_eq!(listed.out, "[]\n");
    shop.run(&["run", "show", "@2"]).expect(4, &["there is no run @2: there is 1"]);
}

/// What cannot be started, applied or asked for leaves no database behind where none was.
// proves U9
#[test]
fn what_is_refused_makes_nothing() {
    let shop = Shop::new();
    fs::write(shop.path("bad.toml"), "name = \"bad\"\nlifecycle = \"nowhere\"\n").unwrap();
    fs::write(shop.path("schedules.toml"), "[[schedule]]\nname = \"x\"\n").unwrap();
    let far = format!("sqlite://{}/nowhere/x.db", shop.folder().display());
    let asks: &[(i32, &[&str])] = &[
        (2, &["run", "start", "bad.toml"]),
        (2, &["run", "start", "./missing.toml"]),
        (4, &["run", "start", "nobody-has-it"]),
        (4, &["run", "start", "nobody-has-it", "--wait"]),
        (2, &["run", "start", "later", "--unknown-playbook", "--lifecycle", "job", "--here"]),
        (2, &["run", "start", "--lifecycle", "nowhere", "--", "true"]),
        (2, &["run", "start", "--input", "x", "--", "true"]),
        (2, &["run", "start", "--schedule-at", "yesterday", "--", "true"]),
        (4, &["run", "start", "--parent", "x-12345678", "--", "true"]),
        (2, &["schedule", "apply", "schedules.toml"]),
        (4, &["agent", "run", "nobody"]),
    ];
    for (code, args) in asks {
        for place in [&[][..], &["--database-url", &far]] {
            let ran = shop.run(&[place, args].concat());
            assert_eq!(ran.code, Some(*code), "{args:?}: {}", ran.err);
        }
    }
    let mut left: Vec<_> = fs::read_dir(shop.folder()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["bad.toml", "schedules.toml"], "nothing is left behind");
    shop.ok(&["run", "start", "--", "true"]);
    assert_eq!(shop.runs().len(), 1);
}

/// Least of all in somebody else's database.
// proves U9
#[test]
fn looking_makes_no_tables_in_a_database_that_has_none() {
    let database = waypost_testkit::Postgres::start().unwrap();
    let shop = Shop::at(&database.url());
    for args in [&["run", "list"][..], &["queue", "stats"], &["stats"], &["lifecycle", "list"]] {
        shop.ok(args);
    }
    for args in [&["verify"][..], &["queue", "resume", "zzz"]] {
        shop.run(args).expect(4, &["has no tables of Waypost", "waypost migrate"]);
    }
    shop.run(&["run", "start", "nobody-has-it"]).expect(4, &["nobody-has-it"]);
    let schemas = "select count(*) from pg_namespace where nspname in ('waypost', 'ops')";
    assert_eq!(database.psql(schemas).unwrap().trim(), "0");
}

// proves U9
#[test]
fn a_list_without_a_hit_says_that_none_matches() {
    let shop = Shop::new();
    assert!(shop.ok(&["run", "list"]).starts_with("no runs; start one"));
    shop.queue(&[], "true");
    for flags in [&["--stuck"][..], &["--waiting"], &["--text", "nowhere"], &["--status", "failed"]] {
        assert_eq!(shop.ok(&[&["run", "list"], flags].concat()), "no run matches\n");
    }
}

// proves U9
#[test]
fn a_server_that_is_named_is_asked_or_the_command_refused() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let elsewhere = Shop::new();
    for args in [&["doctor"][..], &["migrate"], &["verify"], &["serve"], &["dev"], &["backup", "x.db"]] {
        let ran = elsewhere.run(&[&["--url", &url], args].concat());
        assert_ne!(ran.code, Some(0), "{args:?}");
        assert!(ran.err.contains("WAYPOST_URL"), "{args:?}: {}", ran.err);
    }
    fs::write(elsewhere.path("release.toml"), RELEASE).unwrap();
    elsewhere.ok(&["--url", &url, "lifecycle", "add", "release.toml"]);
    assert!(elsewhere.ok(&["--url", &url, "lifecycle", "show", "release"]).contains("somebody approves"));
    assert!(elsewhere.ok(&["--url", &url, "lifecycle", "list"]).contains("somebody approves"));
    for args in [&["list"][..], &["show", "deploy"]] {
        let nowhere = [&["--url", "http://127.0.0.1:1", "lifecycle"], args].concat();
        elsewhere.run(&nowhere).expect(1, &["cannot reach the server"]);
    }
    assert!(!elsewhere.path(".waypost").exists());
}

// proves U9
#[test]
fn a_run_is_shown_with_what_matters_first_and_what_its_steps_gave() {
    let shop = Shop::new();
    let ran = playbook(&shop);
    ran.expect(3, &["▶ build", "pack 100 %", "✓ build", "✗ ship to eu", "(EXIT_3)", "✓ unlock eu"]);
    assert!(!ran.err.contains("{{") && !ran.err.contains("Run finished"), "{}", ran.err);
    let shown = shop.ok(&["run", "show", "@1"]);
    let head: Vec<&str> = shown.lines().take(2).collect();
    assert!(head[0] == "shop" && head[1].starts_with("failed ") && head[1].contains("EXIT_3"), "{shown}");
    assert!(shown.contains(r#"{"image":"a:1"}"#), "outputs of steps: {shown}");
    assert!(!shown.contains("fence"), "internals are not for everybody: {shown}");
    assert!(shop.ok(&["run", "show", "-v", "@1"]).contains("fence"));
    let events = shop.ok(&["run", "events", "@1"]);
    assert!(!events.contains("{{") && events.contains("ship to eu: failed"), "{events}");
    let whole = shop.json(&["run", "show", "-v", "@1"]);
    assert_eq!(whole["steps"][0]["output"]["image"], "a:1");
}

// proves U9
#[test]
fn logs_are_narrowed_by_step_time_and_number() {
    let shop = Shop::new();
    playbook(&shop);
    let all = shop.ok(&["run", "logs", "@1"]);
    assert!(all.contains("build      | building") && all.contains("ship to eu | shipping"), "{all}");
    assert_eq!(shop.ok(&["run", "logs", "@1", "--step", "build"]), "building\n");
    assert_eq!(shop.ok(&["run", "logs", "@1", "--tail", "1", "--plain"]), "shipping\n");
    assert_eq!(shop.ok(&["run", "logs", "@1", "--since", "1h", "--plain"]), "building\nshipping\n");
    assert_eq!(shop.ok(&["run", "logs", "@1", "--since", "2999-01-01T00:00:00Z"]), "");
    shop.run(&["run", "logs", "@1", "--step", "biuld"]).expect(4, &["did you mean `build`"]);
    shop.run(&["run", "logs", "@1", "--since", "soon"]).expect(2, &["since", "10m"]);
    let lines = shop.ok(&["run", "logs", "@1", "-o", "jsonl"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["step"], &lines[0]["line"], &lines[0]["stream"]),
        (&"build".into(), &"building".into(), &"out".into())
    );
    assert!(lines[1]["at"].is_string() && lines[1]["stream"] == "err");
    assert_eq!(shop.json(&["run", "logs", "@1"]).as_array().unwrap().len(), 2);
}

// proves U9
#[test]
fn what_workers_say_over_http_is_in_the_log() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let post = |path: &str, body: &str| -> Value {
        let args = ["-s", "--noproxy", "*", "-H", "content-type: application/json", "-d", body];
        let asked =
            std::process::Command::new("curl").args(args).arg(format!("{url}{path}")).output().unwrap();
        serde_json::from_slice(&asked.stdout).unwrap()
    };
    let id = post("/v1/runs", r#"{"lifecycle":"deploy"}"#)["run_id"].as_str().unwrap().to_owned();
    let claimed = post("/v1/claims", r#"{"worker":"py","queues":["default"]}"#);
    let token = claimed["claims"][0]["lease"]["token"].as_str().unwrap().to_owned();
    let say = format!(r#"{{"lease_token":"{token}","level":"info","message":"step 1 of 3"}}"#);
    post(&format!("/v1/runs/{id}/events"), &say);
    post(&format!("/v1/runs/{id}/finish"), &format!(r#"{{"lease_token":"{token}","status":"success"}}"#));
    assert_eq!(shop.ok(&["run", "logs", &id]), "step 1 of 3\n");
    shop.run(&["run", "watch", &id]).expect(0, &["step 1 of 3"]);
}

// proves U9
#[test]
fn errors_are_json_where_json_is_asked_for() {
    let shop = Shop::new();
    let id = shop.queue(&[], "true");
    shop.ok(&["run", "cancel", &id]);
    let error = |args: &[&str]| {
        let ran = shop.run(args);
        assert!(ran.code != Some(0) && ran.out.is_empty(), "{args:?}: {}", ran.out);
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        serde_json::from_str::<Value>(&ran.err).unwrap()
    };
    let missing = error(&["run", "show", "run-nope", "-o", "json"]);
    assert_eq!((&missing["code"], &missing["exit_code"]), (&"NOT_FOUND".into(), &4.into()), "{missing}");
    let refused = error(&["run", "do", &id, "retry", "-o", "jsonl"]);
    assert_eq!(
        (&refused["code"], &refused["current"]),
        (&"INVALID_TRANSITION".into(), &"cancelled".into()),
        "{refused}"
    );
    assert_eq!(error(&["run", "list", "--nonsense", "-o", "json"])["code"], "INVALID_INPUT");
    assert_eq!(error(&["run", "start", "gone.toml", "-o", "json"])["code"], "INVALID_INPUT");
    fs::write(shop.path("bad.toml"), RELEASE.replace("operator\", \"has-reason", "human\", \"has-reason"))
        .unwrap();
    let ran = shop.run(&["lifecycle", "check", "bad.toml", "-o", "json"]);
    let checked: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &checked[0]["sound"]), (Some(2), &false.into()), "{checked}");
    assert!(checked[0]["problems"][0]["message"].as_str().unwrap().contains("human"), "{checked}");
}

// proves U9
#[test]
fn mistakes_at_the_start_are_answered_with_what_to_type() {
    let shop = Shop::new();
    shop.run(&["run", "start", "echo", "hi"]).expect(2, &["waypost run start -- echo hi"]);
    shop.run(&["run", "start", "gone.toml", "--timeout", "1s"]).expect(2, &["timeout", "--wait"]);
    let ran = shop.run(&["run", "start", "--wait", "--", "printf", "no line end"]);
    assert_eq!(ran.out, "no line end\n");
    let mut command = shop.command(&["run", "start", "--", "true"]);
    let id = Ran::from(command.env_remove("USER").output().unwrap()).out;
    let by = shop.json(&["run", "events", id.trim()])[0]["by"].as_str().unwrap().to_owned();
    let os = Ran::from(std::process::Command::new("id").arg("-un").output().unwrap()).out;
    assert_eq!(by, os.trim(), "the system's name for the uid");
}

// proves U10
#[test]
fn any_command_of_a_lifecycle_can_be_given() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        fs::write(shop.path("release.toml"), RELEASE).unwrap();
        shop.ok(&["lifecycle", "add", "release.toml"]);
        assert!(shop.ok(&["lifecycle", "list"]).contains("a release that somebody approves"));
        let id = shop.ok(&["run", "start", "--lifecycle", "release", "--", "true"]).trim().to_owned();
        shop.run(&["run", "watch", &id]).expect(6, &["it is a draft", "run do", "approve"]);
        let shown = shop.ok(&["run", "show", &id]);
        assert!(shown.contains("approve, cancel") && shown.contains("run do"), "{shown}");
        shop.run(&["run", "do", &id, "approve"]).expect(5, &["reason"]);
        shop.run(&["run", "do", &id, "aprove"]).expect(5, &["did you mean `approve`"]);
        shop.run(&["run", "do", &id, "approve", "--reason", "tested on staging", "--here"])
            .expect(0, &["live"]);
        assert_eq!(shop.show(&id)["status"], "live");
        let events = shop.ok(&["run", "events", &id]);
        assert!(events.contains("tested on staging"), "who approved, and why: {events}");
        shop.verifies();
    }
}

// proves U10
#[test]
fn a_lifecycle_is_told_all_that_is_wrong_with_it_at_once() {
    let shop = Shop::new();
    let bad = RELEASE
        .replace(", on_stale = \"take-over\"", "")
        .replace("{ phase = \"settled\", outcome = \"succeeded\" }", "{ phase = \"settled\" }")
        .replace("\"operator\", \"has-reason\"", "\"human\", \"has-reason\"");
    fs::write(shop.path("bad.toml"), bad).unwrap();
    shop.run(&["lifecycle", "check", "bad.toml"]).expect(2, &["human", "on_stale", "outcome"]);
}

// proves U9
#[test]
fn a_run_that_another_worker_takes_is_followed_and_left_to_it() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--allow-commands"]);
    let go = shop.path("go");
    let script = format!("echo begun; while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let args = ["--url", &url, "run", "start", "--wait", "--timeout", "3s", "--", "sh", "-c", &script];
    let ran = shop.run(&args);
    ran.expect(124, &["goes on", "run watch"]);
    assert_eq!(ran.out, "begun\n");
    let id = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(shop.show(&id)["status"], "running", "another worker's run is not cancelled");
    fs::write(go, "").unwrap();
    shop.run(&["run", "watch", &id]).expect(0, &["success"]);
}

// proves U9
#[test]
fn a_second_interrupt_does_not_wait() {
    let shop = Shop::new();
    let script = "trap '' TERM INT; echo begun; while :; do sleep 0.05; done";
    let mut command = shop.command(&["run", "start", "--here", "--", "sh", "-c", script]);
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut out = running.0.stdout.take().unwrap();
    let mut begun = [0; 6];
    out.read_exact(&mut begun).unwrap();
    running.signal("INT");
    let id = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
    eventually("the cancel is asked for", Duration::from_secs(30), || {
        shop.show(&id)["cancel_requested"] == true
    });
    running.signal("INT");
    assert_eq!(running.end(), Some(130));
}
