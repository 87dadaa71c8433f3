//! A server, and the same commands through it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ran, Running, Shop, eventually, surround};

const SOON: Duration = Duration::from_secs(30);

/// A command that asks a server. It stands in another folder than the server: nothing may come from a database there.
fn ask(elsewhere: &Shop, url: &str, args: &[&str]) -> Ran {
    elsewhere.asks(url, args)
}

#[track_caller]
fn ok(elsewhere: &Shop, url: &str, args: &[&str]) -> String {
    let ran = ask(elsewhere, url, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.out, ran.err);
    ran.out
}

fn shown(elsewhere: &Shop, url: &str, id: &str) -> Value {
    serde_json::from_str(&ok(elsewhere, url, &["run", "show", id, "-o", "json"])).unwrap()
}

#[test]
fn commands_work_the_same_through_a_server() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let elsewhere = Shop::new();
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let id = ok(&elsewhere, &url, &["run", "start", "--idempotency-key", "k", "--", "echo", "hi"]);
        let id = id.trim();
        let again = ok(&elsewhere, &url, &["run", "start", "--idempotency-key", "k", "--", "echo", "hi"]);
        assert_eq!(again.trim(), id);
        assert_eq!(shown(&elsewhere, &url, id), shop.show(id), "the very object that the database gives");
        assert!(ok(&elsewhere, &url, &["run", "list"]).contains(&id[id.len() - 8..]));
        assert!(ok(&elsewhere, &url, &["queue", "stats"]).contains("default"));
        ok(&elsewhere, &url, &["run", "cancel", &id[..30], "--reason", "enough"]);
        assert_eq!(shown(&elsewhere, &url, id)["status"], "cancelled");
        ask(&elsewhere, &url, &["run", "cancel", "run-nothing"]).expect(4, &["no run"]);
        assert!(ok(&elsewhere, &url, &["run", "events", id]).contains("tester"));
        assert!(!elsewhere.database().exists(), "no database was made beside the server");
        shop.verifies();
    }
}

#[test]
fn a_run_is_worked_and_waited_for_through_a_server() {
    let (shop, elsewhere) = (Shop::new(), Shop::new());
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let ran = ask(&elsewhere, &url, &["run", "start", "--wait", "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), "out\n"), "{}", ran.err);
    let ran = ask(&elsewhere, &url, &["run", "start", "--wait", "--", "true"]);
    ran.expect(0, &["queued → claimed → running → success"]);
    shop.verifies();
}

// proves X8
#[test]
fn a_worker_works_through_a_server_and_hears_of_a_cancel() {
    let (shop, elsewhere) = (Shop::new(), Shop::new());
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let mut worker = elsewhere.spawn(&["worker", "--allow-commands", "--url", &url]);
    let done = ok(&elsewhere, &url, &["run", "start", "--", "echo", "hi"]);
    eventually("it is worked", SOON, || shop.show(done.trim())["status"] == "success");
    assert_eq!(ok(&elsewhere, &url, &["run", "logs", done.trim()]), "hi\n");
    let long = ok(&elsewhere, &url, &["run", "start", "--", "sleep", "600"]);
    eventually("it runs", SOON, || shop.show(long.trim())["status"] == "running");
    ok(&elsewhere, &url, &["run", "cancel", long.trim()]);
    eventually("it is cancelled", SOON, || shop.show(long.trim())["status"] == "cancelled");
    worker.signal("TERM");
    assert_eq!(worker.end(), Some(0));
    shop.verifies();
}

#[test]
fn a_worker_outlives_its_server() {
    let (shop, elsewhere) = (Shop::new(), Shop::new());
    let (mut server, url) = shop.serve(&["serve", "--no-worker"]);
    let _worker = elsewhere.spawn(&["worker", "--allow-commands", "--url", &url]);
    let id = ok(
        &elsewhere,
        &url,
        &["run", "start", "--", "sh", "-c", "until [ -e go ]; do sleep 0.05; done; echo on"],
    );
    eventually("it runs", SOON, || shop.show(id.trim())["status"] == "running");
    server.kill();
    std::fs::write(elsewhere.path("go"), "").unwrap();
    let address = url.strip_prefix("http://").unwrap();
    let (_server, _) = shop.serve_at(&["serve", "--no-worker", "--listen", address]);
    eventually("it ends well", SOON, || shop.show(id.trim())["status"] == "success");
    assert_eq!(shop.show(id.trim())["attempt"], 1);
    shop.verifies();
}

#[test]
fn dev_runs_what_runs_bring_along() {
    let (shop, elsewhere) = (Shop::new(), Shop::new());
    let (mut server, url) = shop.serve(&["dev"]);
    let id = ok(&elsewhere, &url, &["run", "start", "--", "echo", "hi"]);
    let ran = ask(&elsewhere, &url, &["run", "watch", id.trim()]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "hi\n"), "{}", ran.err);
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_server_that_is_not_there_is_told_of_and_nothing_is_done_instead() {
    let shop = Shop::new();
    let ran = ask(&shop, "http://127.0.0.1:1", &["run", "start", "--", "true"]);
    ran.expect(1, &["cannot reach the server http://127.0.0.1:1", "waypost serve", "unset WAYPOST_URL"]);
    assert!(!shop.database().exists());
    ask(&shop, "nonsense", &["run", "list"]).expect(2, &["url", "http://host:port"]);
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    for what in ["verify", "migrate", "doctor"] {
        ask(&shop, &url, &[what]).expect(1, &["needs the database itself", what]);
    }
}

#[test]
fn addresses_that_others_reach_are_refused() {
    let shop = Shop::new();
    for noun in ["serve", "dev"] {
        shop.run(&[noun, "--listen", "0.0.0.0:0"]).expect(2, &["listen", "loopback"]);
    }
    let token = shop.ok(&["token", "create", "old", "--role", "admin"]);
    shop.ok(&["token", "revoke", token.split('_').nth(1).unwrap()]);
    shop.run(&["serve", "--listen", "0.0.0.0:0"]).expect(2, &["waypost token create"]);
    shop.run(&["serve", "--listen", "nowhere"]).expect(2, &["--listen"]);
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let address = url.strip_prefix("http://").unwrap();
    shop.run(&["serve", "--listen", address]).expect(1, &["cannot listen", "--listen"]);
    shop.run(&["serve", "--playbooks", "nowhere", "--listen", "127.0.0.1:0"])
        .expect(2, &["nowhere", "the folder cannot be read"]);
}

#[test]
fn playbooks_of_the_folder_are_listed() {
    let shop = Shop::new();
    std::fs::create_dir(shop.path("books")).unwrap();
    let text = "name = \"update\"\nlifecycle = \"job\"\n[inputs.cluster]\ntype = \"string\"\n[[step]]\nname = \"scan\"\nexec = [\"true\"]\n";
    std::fs::write(shop.path("books/update.toml"), text).unwrap();
    let (_server, url) = shop.serve(&["serve", "--playbooks", "books"]);
    let page = shop.curl(&url, "/v1/playbooks");
    let book = &page["playbooks"][0];
    assert_eq!((&book["name"], &book["lifecycle"]), (&json!("update"), &json!("job")));
    assert_eq!(book["inputs"][0]["name"], "cluster");
}

#[test]
fn with_tokens_everybody_may_do_what_their_token_says() {
    let (shop, elsewhere) = (Shop::new(), Shop::new());
    let admin = shop.ok(&["token", "create", "root", "--role", "admin"]);
    let (_server, url) = shop.serve(&["serve", "--no-worker", "--require-tokens"]);
    ask(&elsewhere, &url, &["run", "list"]).expect(5, &["this server needs a token"]);
    let with = |token: &str, args: &[&str]| {
        let mut command = elsewhere.command(args);
        Ran::from(command.env("WAYPOST_URL", &url).env("WAYPOST_TOKEN", token.trim()).output().unwrap())
    };
    with("wp_nonsense", &["run", "list"]).expect(5, &["not one of this server's"]);
    let made = |role: &str| {
        let ran = with(&admin, &["token", "create", &format!("{role}-1"), "--role", role]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran.out
    };
    let (viewer, operator, worker) = (made("viewer"), made("operator"), made("worker"));
    let id = with(&admin, &["run", "start", "--", "true"]).out.trim().to_owned();
    with(&operator, &["run", "start", "--", "true"]).expect(5, &["embedded", "admin", "playbook"]);
    with(&viewer, &["run", "cancel", &id]).expect(5, &["viewer", "may not"]);
    with(&worker, &["run", "cancel", &id]).expect(5, &["worker", "may not"]);
    assert_eq!(with(&worker, &["worker", "--allow-commands", "--until-idle"]).code, Some(0));
    assert_eq!(shop.show(&id)["status"], "success");
    assert_eq!(with(&viewer, &["run", "show", &id]).code, Some(0));
    let listed = with(&admin, &["token", "list", "-o", "json"]).out;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let of_viewer = listed.as_array().unwrap().iter().find(|it| it["name"] == "viewer-1").unwrap();
    assert!(!listed.to_string().contains(viewer.trim()), "no secret is shown again");
    with(&admin, &["token", "revoke", of_viewer["id"].as_str().unwrap()]).expect(0, &[]);
    eventually("it is refused", SOON, || with(&viewer, &["run", "list"]).code == Some(5));
    shop.verifies();
}

#[test]
fn what_people_do_to_schedules_is_kept() {
    let shop = Shop::new();
    let file = "[[schedule]]\nname = \"beat\"\ncadence = \"1h\"\nexec = [\"true\"]\n";
    std::fs::write(shop.path("beat.toml"), file).unwrap();
    shop.ok(&["schedule", "apply", "beat.toml"]);
    shop.ok(&["schedule", "apply", "--check", "beat.toml"]);
    shop.ok(&["schedule", "pause", "beat", "--reason", "upgrade"]);
    shop.ok(&["schedule", "resume", "beat"]);
    shop.ok(&["schedule", "trigger", "beat"]);
    shop.ok(&["schedule", "remove", "beat"]);
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let page = shop.curl(&url, "/v1/audit");
    let rows = page["audit"].as_array().unwrap().iter();
    let told: Vec<Value> =
        rows.map(|row| json!([row["by"], row["action"], row["subject"], row["reason"]])).collect();
    let expected = [
        json!(["tester", "schedule.apply", "beat", null]),
        json!(["tester", "schedule.pause", "beat", "upgrade"]),
        json!(["tester", "schedule.resume", "beat", null]),
        json!(["tester", "schedule.trigger", "beat", null]),
        json!(["tester", "schedule.remove", "beat", null]),
    ];
    assert_eq!(told, expected);
}

/// Who and why is kept, whether a command asks the database or a server.
#[test]
fn what_people_do_is_kept_the_same_with_and_without_a_server() {
    let told = |shop: &Shop, url: Option<&str>| -> Vec<Value> {
        let elsewhere = Shop::new();
        let run = |args: &[&str]| match url {
            Some(url) => ok(&elsewhere, url, args),
            None => shop.ok(args),
        };
        let id = run(&["run", "start", "--", "true"]);
        run(&["run", "cancel", id.trim(), "--reason", "wrong branch"]);
        run(&["queue", "pause", "default", "--reason", "upgrade"]);
        run(&["queue", "resume", "default", "--reason", "done"]);
        run(&["queue", "limit", "default", "4", "--reason", "slow disk"]);
        let token = run(&["token", "create", "ci", "--role", "viewer"]);
        let token_id = token.split('_').nth(1).unwrap();
        run(&["token", "revoke", token_id, "--reason", "leaked"]);
        let page = match url {
            Some(url) => shop.curl(url, "/v1/audit"),
            None => {
                let (_server, url) = shop.serve(&["serve", "--no-worker"]);
                shop.curl(&url, "/v1/audit")
            }
        };
        let subject = |row: &Value| match row["subject"].as_str().unwrap() {
            subject if subject == id.trim() => "the run".to_owned(),
            subject if subject == token_id => "the token".to_owned(),
            subject => subject.to_owned(),
        };
        let rows = page["audit"].as_array().unwrap().iter();
        rows.map(|row| json!([row["tenant"], row["by"], row["action"], subject(row), row["reason"]]))
            .collect()
    };
    let expected = [
        json!(["default", "tester", "cancel", "the run", "wrong branch"]),
        json!(["default", "tester", "queue.pause", "default", "upgrade"]),
        json!(["default", "tester", "queue.resume", "default", "done"]),
        json!(["default", "tester", "queue.limit", "default", "limit 4: slow disk"]),
        json!(["default", "tester", "token.create", "the token", null]),
        json!(["default", "tester", "token.revoke", "the token", "leaked"]),
    ];
    for shop in [Shop::new(), Shop::on_postgres()] {
        assert_eq!(told(&shop, None), expected);
    }
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    assert_eq!(told(&shop, Some(&url)), expected);
}

/// A shell's limit is for the shell; what the system allows is for whoever needs it.
#[test]
fn a_server_has_as_many_files_as_it_may_and_says_if_they_are_too_few() {
    let shop = Shop::new();
    for (hard, is_enough) in [(700, false), (2_000, true)] {
        let mut command = std::process::Command::new("sh");
        let script = format!(
            "ulimit -Sn 200 && ulimit -Hn {hard} && exec \"$0\" serve --no-worker --listen 127.0.0.1:0"
        );
        command.args(["-c", &script, env!("CARGO_BIN_EXE_waypost")]);
        surround(&mut command, shop.folder());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = Running(command.spawn().unwrap());
        let lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said: Vec<String> = lines.take_while(|line| !line.starts_with("listening on ")).collect();
        let warned = said.iter().any(|line| line.contains("700 files open, and 1024 connections need 1536"));
        assert_eq!(warned, !is_enough, "{said:?}");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.0.id())).unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let files: Vec<&str> = files.split_whitespace().skip(3).take(2).collect();
        assert_eq!(files, [hard.to_string(), hard.to_string()]);
    }
}
