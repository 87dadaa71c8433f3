//! What people see of schedules: who fires them, what is late, what became of each plan.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Running, SOON, Shop, eventually};

const JOBS: &str = r#"
[[schedule]]
name = "hello"
description = "Says so"
cadence = "1h"
exec = ["sh", "-c", "exit 0"]

[[schedule]]
name = "tokyo"
cron = "0 2 * * *"
timezone = "Asia/Tokyo"
first = "latest"
run = { lifecycle = "deploy", exec = ["true"] }
"#;

fn shop() -> Shop {
    Shop::new().with("waypost.toml", JOBS)
}

fn of(shop: &Shop, name: &str) -> Value {
    shop.json(&["schedule", "show", name])
}

fn fires(shop: &Shop) -> Running {
    let running = shop.spawn(&["schedule", "run", "--allow-commands"]);
    eventually("it fires", SOON, || of(shop, "hello")["fired_by"] == 1);
    running
}

/// Applying fires nothing, and nothing is quietly left to nobody.
// proves C8
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_fires_is_marked_until_somebody_does() {
    for shop in [shop(), Shop::on_postgres().with("waypost.toml", JOBS)] {
        shop.run(&["schedule", "apply", "waypost.toml"])
            .expect(0, &["no process fires these yet", "waypost dev"]);
        let list = shop.run(&["schedule", "list"]);
        list.expect(0, &["nobody fires 2 of these"]);
        assert_eq!(list.out.matches("nobody fires it").count(), 2, "{}", list.out);
        assert!(
            shop.ok(&["schedule", "show", "hello"])
                .contains("nobody: start `waypost schedule run --allow-commands`")
        );
        assert_eq!(of(&shop, "hello")["overdue_s"], Value::Null, "it is applied just now");
        shop.store().await.advance_clock(waypost_kernel::Span::from_seconds(100)).await.unwrap();
        assert!(of(&shop, "hello")["overdue_s"].as_i64().unwrap() >= 100);
        assert!(shop.ok(&["schedule", "list"]).contains("1m4"), "for 1m40s");
        let _running = fires(&shop);
        let list = shop.run(&["schedule", "list"]);
        assert!(!list.out.contains("nobody") && list.err.is_empty(), "{}{}", list.out, list.err);
        eventually("nothing is late any more", SOON, || of(&shop, "hello")["overdue_s"].is_null());
        let shown = shop.ok(&["schedule", "show", "hello"]);
        for words in ["hello: Says so", "every 1h", "1 process", "its commands run in"] {
            assert!(shown.contains(words), "no {words:?} in {shown}");
        }
    }
}

/// What was taken out of the file stays, is marked, and can be removed with the others.
// proves C8
#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_no_longer_has_is_marked_and_pruned() {
    let shop = shop();
    {
        let (_server, _) = shop.serve(&["serve"]);
        eventually("the server fires its own", SOON, || of(&shop, "tokyo")["fired_by"] == 1);
    }
    shop.store().await.advance_clock(waypost_kernel::Span::from_seconds(100)).await.unwrap();
    let first = JOBS.split("[[schedule]]").take(2).collect::<Vec<_>>().join("[[schedule]]");
    fs::write(shop.path("waypost.toml"), &first).unwrap();
    let (_server, _) = shop.serve(&["serve"]);
    eventually("the one that is left is fired", SOON, || of(&shop, "hello")["fired_by"] == 1);
    assert_eq!(of(&shop, "tokyo")["fired_by"], 0);
    let shown = shop.ok(&["schedule", "show", "tokyo"]);
    assert!(
        shown.contains("no process has it in its waypost.toml")
            && shown.contains("waypost schedule remove tokyo"),
        "{shown}"
    );
    fs::write(shop.path("other.toml"), "[[schedule]]\nname = 'other'\ncadence = '1h'\nexec = ['true']\n")
        .unwrap();
    let apply = ["schedule", "apply", "other.toml", "--prune"];
    let would = shop.ok(&[&apply[..], &["--check"]].concat());
    assert!(would.contains("tokyo: would be removed") && !would.contains("hello"), "{would}");
    assert_eq!(of(&shop, "tokyo")["name"], "tokyo");
    let done = shop.ok(&apply);
    assert!(
        done.contains("tokyo: removed: none of the files has it") && !done.contains("hello"),
        "a process has it: {done}"
    );
    shop.run(&["schedule", "show", "tokyo"]).expect(4, &["tokyo"]);
}

// proves C8
#[test]
fn history_leads_to_the_run_on_the_wall_clock_of_the_schedule() {
    let shop = shop();
    shop.ok(&["schedule", "apply", "waypost.toml"]);
    let mut running = fires(&shop);
    eventually("both were executed", SOON, || {
        let of = |name: &str| shop.json(&["schedule", "history", name]);
        of("hello")[0]["run"]["status"] == "SUCCESS" && of("tokyo")[0]["run"].is_object()
    });
    let tokyo = shop.ok(&["schedule", "history", "tokyo"]);
    assert!(tokyo.contains(" 02:00:00 +09:00"), "{tokyo}");
    let run = shop.json(&["schedule", "history", "hello"])[0]["run"].clone();
    let history = shop.ok(&["schedule", "history", "hello"]);
    for words in ["RUN", "BEGUN", "TOOK", run["run_id"].as_str().unwrap(), " +00:00", "success"] {
        assert!(history.contains(words), "no {words:?} in {history}");
    }
    assert!(
        !history.contains("SCOPE") && !history.contains("global") && !history.contains("SUCCESS"),
        "{history}"
    );
    let both = shop.ok(&["schedule", "history"]);
    assert!(both.contains("SCHEDULE") && both.contains("tokyo") && !both.contains("global"), "{both}");
    running.signal("TERM");
    assert_eq!(running.end(), Some(0));
    assert_eq!(of(&shop, "hello")["fired_by"], 0, "who is told to stop says that, too");
}

// proves C8 and D10
#[test]
fn days_are_those_of_the_schedules_zone_and_reasons_are_kept() {
    for shop in [shop(), Shop::on_postgres().with("waypost.toml", JOBS)] {
        let elsewhere = Shop::new();
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let there = |args: &[&str]| elsewhere.asks(&url, args);
        shop.ok(&["schedule", "apply", "waypost.toml"]);
        let backfill = [
            "schedule",
            "backfill",
            "tokyo",
            "--from",
            "2026-02-10",
            "--to",
            "2026-02-11",
            "--reason",
            "lost data",
        ];
        assert!(shop.ok(&backfill).starts_with("2 to execute"));
        let plans: Vec<Value> = shop.json(&["schedule", "history", "tokyo"]).as_array().unwrap().clone();
        let plans: Vec<&str> = plans.iter().map(|it| it["plan_time"].as_str().unwrap()).collect();
        assert_eq!(plans, ["2026-02-10T17:00:00.000Z", "2026-02-09T17:00:00.000Z"], "02:00 in Tokyo");
        shop.run(&["schedule", "backfill", "tokyo", "--from", "2026-02-10T00:00:00", "--to", "2026-02-11"])
            .expect(2, &["from", "no time zone", "2026-02-14"]);
        there(&["schedule", "trigger", "hello", "--reason", "because"]).expect(0, &[]);
        there(&["schedule", "pause", "hello", "--reason", "freeze"]).expect(0, &[]);
        let again = shop.ok(&["schedule", "pause", "hello", "--reason", "still"]);
        assert!(again.contains("it was already, by tester: freeze"), "{again}");
        let list = shop.ok(&["schedule", "list"]);
        assert!(list.contains("paused by tester: still"), "{list}");
        there(&["schedule", "resume", "hello", "--reason", "over"]).expect(0, &[]);
        there(&["schedule", "remove", "hello", "--reason", "not needed"]).expect(0, &[]);
        let audit = shop.curl(&url, "/v1/audit");
        let told: Vec<(&str, &Value)> = audit["audit"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| !it["reason"].is_null())
            .map(|it| (it["action"].as_str().unwrap(), &it["reason"]))
            .collect();
        let expected = [
            ("schedule.backfill", json!("lost data")),
            ("schedule.trigger", json!("because")),
            ("schedule.pause", json!("freeze")),
            ("schedule.pause", json!("still")),
            ("schedule.resume", json!("over")),
            ("schedule.remove", json!("not needed")),
        ];
        assert_eq!(told, expected.each_ref().map(|(action, reason)| (*action, reason)));
    }
}

/// Without a word nobody knows why nothing happens at the hour.
#[test]
fn a_server_says_which_schedules_it_fires() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let shop = shop();
    for (args, words) in [
        (&["dev"][..], "fires schedules of waypost.toml: hello, tokyo; and those that were applied"),
        (&["serve"], "fires schedules of waypost.toml: hello, tokyo"),
        (&["serve", "--no-worker"], "fires no schedules but its own pruning"),
    ] {
        let mut command = shop.command(&[args, &["--listen", "127.0.0.1:0"]].concat());
        let mut server = Running(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut told = lines.filter(|line| line.starts_with("fires "));
        assert_eq!(told.next().as_deref(), Some(words));
    }
}
