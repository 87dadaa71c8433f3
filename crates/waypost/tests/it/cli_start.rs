//! What a run of a plain command is told: its environment, folder, time and beginning.

use std::fs;

use serde_json::{Value, json};

use crate::support::{SOON, Shop, eventually, id_of, playbook};

fn both() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

// proves U12
#[test]
fn a_command_has_an_environment_and_a_folder_of_its_own_whoever_executes_it() {
    for shop in both() {
        fs::create_dir(shop.path("there")).unwrap();
        let flags = ["--env", "STAGE=eu=1", "--env", "EMPTY=", "--dir", "there"];
        let script = "echo \"$STAGE:$EMPTY:$(basename \"$PWD\")\"";
        let run = shop.queue(&flags, script);
        shop.ok(&["worker", "--allow-commands", "--until-idle"]);
        assert_eq!(shop.ok(&["run", "logs", &run]), "eu=1::there\n");
        let args = [&["run", "start", "--wait"], &flags[..], &["--", "sh", "-c", script]].concat();
        assert_eq!(shop.ok(&args), "eu=1::there\n");
        let again = shop.ok(&["run", "replay", &run]);
        let again = again.split_whitespace().next().unwrap();
        shop.ok(&["worker", "--allow-commands", "--until-idle"]);
        assert_eq!(shop.ok(&["run", "logs", again]), "eu=1::there\n");
    }
}

// proves U12
#[test]
fn a_command_that_takes_too_long_is_stopped_by_whoever_executes_it() {
    for shop in both() {
        let run = shop.queue(&["--timeout", "300ms"], "sleep 600");
        shop.ok(&["worker", "--allow-commands", "--until-idle", "--grace", "1s"]);
        let shown = shop.show(&run);
        assert_eq!(
            (&shown["status"], &shown["error_code"]),
            (&"failed".into(), &"TIMEOUT".into()),
            "{shown}"
        );
        assert_eq!(shown["error_msg"], "no end within 300ms");
    }
    let shop = Shop::new();
    // The command's own limit fails the run; how long to wait cancels it.
    let sleep = ["--", "sh", "-c", "sleep 600"];
    let limited = shop.run(&[&["run", "start", "--wait", "--run-timeout", "300ms"], &sleep[..]].concat());
    limited.expect(3, &["TIMEOUT: no end within 300ms"]);
    let given_up = shop.run(&[&["run", "start", "--wait", "--timeout", "300ms"], &sleep[..]].concat());
    given_up.expect(124, &["cancelled"]);
}

/// Each try has the time to itself.
// proves U12
#[test]
fn a_try_that_took_too_long_is_followed_by_another() {
    let shop = Shop::new();
    let script = "test -e tried && exit 0; touch tried; sleep 600";
    let args = ["run", "start", "--wait", "--retries", "1", "--run-timeout", "10s", "--", "sh", "-c", script];
    let ran = shop.run(&args);
    ran.expect(0, &["Retry 1/1 in 5 seconds"]);
}

// proves U12
#[test]
fn a_run_may_begin_later_by_an_instant_with_its_zone_or_a_length() {
    for shop in both() {
        let run = shop.queue(&["--schedule-at", "10m"], "true");
        let shown = shop.show(&run);
        let instant = |name: &str| waypost_store::parse_time(shown[name].as_str().unwrap()).unwrap();
        let later = instant("schedule_at") - instant("queued_at");
        assert!((595..=605).contains(&(later.ms() / 1_000)), "{later}");
        shop.queue(&["--schedule-at", "2126-02-14T08:00:00+01:00"], "true");
    }
}

/// Whatever else is worked meanwhile.
// proves U9
#[test]
fn a_run_that_is_started_here_is_worked_here() {
    for shop in both() {
        let (_server, url) = shop.serve(&["serve", "--allow-commands", "--slots", "4"]);
        eventually("the worker is known", SOON, || {
            !shop.json(&["worker", "list"]).as_array().unwrap().is_empty()
        });
        let other = shop.json(&["worker", "list"])[0]["name"].as_str().unwrap().to_owned();
        for number in 0..12 {
            let start = ["run", "start", "--here", "-o", "json", "--", "true"];
            let ran = if number % 2 == 0 { shop.run(&start) } else { shop.asks(&url, &start) };
            ran.expect(0, &[]);
            let run: Value = serde_json::from_str(&ran.out).unwrap();
            let events = shop.json(&["run", "events", id_of(&run)]);
            let claim = events.as_array().unwrap().iter().find(|event| event["command"] == "claim").unwrap();
            assert_ne!(claim["by"], other.as_str(), "{events}");
        }
        let again = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
        let replayed = shop.ends(0, &["run", "replay", &again, "--here"]);
        shop.run(&["run", "replay", &again, "--here"]).expect(0, &["queued → claimed → running → success"]);
        let events = shop.json(&["run", "events", id_of(&replayed)]);
        assert_ne!(events[1]["by"], other.as_str(), "{events}");
        shop.verifies();
    }
}

/// A command that lets a run go on, and the claim of it, are one: a worker that waits for such runs does not get it.
// proves U9
#[test]
fn a_run_that_goes_on_here_is_worked_here() {
    for shop in both() {
        let pauses = r#"exec = ["sh", "-c", "test -e done || { touch done; echo '{\"outcome\": \"pause\"}' > $WAYPOST_OUTPUT; }"]"#;
        let text = playbook("pauses", "job", &[("look", pauses)]);
        fs::write(shop.path("pauses.toml"), text).unwrap();
        let (_server, url) = shop.serve(&["serve", "--allow-commands", "--slots", "4"]);
        eventually("the worker is known", SOON, || {
            !shop.json(&["worker", "list"]).as_array().unwrap().is_empty()
        });
        let other = shop.json(&["worker", "list"])[0]["name"].as_str().unwrap().to_owned();
        for number in 0..6 {
            let _ = fs::remove_file(shop.path("done"));
            let paused = shop.ends(6, &["run", "start", "pauses.toml", "--wait"]);
            let resume = ["run", "resume", id_of(&paused), "--force", "--here"];
            let ran = if number % 2 == 0 { shop.run(&resume) } else { shop.asks(&url, &resume) };
            ran.expect(0, &["running → completed"]);
            let events = shop.json(&["run", "events", id_of(&paused)]);
            let claim = events.as_array().unwrap().iter().rfind(|event| event["command"] == "claim").unwrap();
            assert_ne!(claim["by"], other.as_str(), "{events}");
        }
        shop.verifies();
    }
}

/// Whoever waits for a run goes on with it when its worker is gone and no other is there.
// proves U9
#[test]
fn who_waits_takes_over_from_a_worker_that_died() {
    for shop in both() {
        let holds = r#"exec = ["sh", "-c", "touch begun; until test -e go; do sleep 0.02; done"]"#;
        let text = playbook("long", "job", &[("look", holds)]);
        fs::write(shop.path("long.toml"), text).unwrap();
        let mut worker = shop.spawn(&["worker", "--allow-commands", "--lease", "1s"]);
        eventually("the worker is known", SOON, || {
            !shop.json(&["worker", "list"]).as_array().unwrap().is_empty()
        });
        let mut waits = shop.spawn(&["run", "start", "long.toml", "--wait"]);
        eventually("it is worked", SOON, || shop.path("begun").exists());
        worker.kill();
        fs::write(shop.path("go"), "").unwrap();
        assert_eq!(waits.end(), Some(0));
        let run = shop.runs()[0].clone();
        assert_eq!((&run["status"], &run["take_overs"]), (&json!("completed"), &json!(1)), "{run}");
        shop.verifies();
    }
}

// proves U12
#[test]
fn a_command_is_no_bulk_change() {
    let shop = Shop::new();
    let refused = shop.run(&["run", "start", "--lifecycle", "rule", "--", "echo", "x"]);
    refused.expect(2, &["lifecycle: a rule run", "a command has none", "PREVIEW", "deploy, job"]);
    shop.run(&["run", "start", "--lifecycle", "rule", "--dry-run", "--", "echo", "x"])
        .expect(2, &["lifecycle"]);
    assert!(shop.runs().is_empty());
    for lifecycle in ["job", "agent", "deploy"] {
        shop.ok(&["run", "start", "--lifecycle", lifecycle, "--", "echo", "x"]);
    }
}

// proves U12
#[test]
fn what_cannot_be_told_a_command_is_refused_with_what_can() {
    let shop = Shop::new();
    fs::write(shop.path("p.toml"), "name = 'p'\nlifecycle = 'job'\n[[step]]\nname = 'a'\nexec = ['true']\n")
        .unwrap();
    let plain = ["--", "true"];
    for (flags, words) in [
        (&["--schedule-at", "2026-11-15T18:00:00"][..], &["schedule-at", "no time zone", "+02:00"][..]),
        (&["--schedule-at", "soon"], &["schedule-at", "10m (from now)"]),
        (&["--env", "STAGE"], &["env", "KEY=VALUE"]),
        (&["--env", "WAYPOST_TOKEN=x"], &["env", "Waypost's to set"]),
        (&["--env", "A B=x"], &["env", "no environment variable"]),
        (&["--timeout", "5"], &["--timeout", "60s"]),
    ] {
        shop.run(&[&["run", "start"], flags, &plain].concat()).expect(2, words);
    }
    for how in [&["run", "start"][..], &["run", "start", "--here"], &["run", "start", "--dry-run"]] {
        for program in ["", " "] {
            let words = ["command: it begins with an empty word", "after `--`"];
            shop.run(&[how, &["--", program, "x"]].concat()).expect(2, &words);
        }
    }
    shop.run(&["run", "start", "p.toml", "--timeout", "5m"])
        .expect(2, &["timeout", "of their own", "--wait"]);
    shop.run(&["run", "start", "p.toml", "--env", "A=b"]).expect(2, &["--env"]);
    assert!(shop.runs().is_empty(), "nothing was started");
}
