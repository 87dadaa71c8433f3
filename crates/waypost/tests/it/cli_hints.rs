//! What the command line tells people to type does what it says, typed as it is printed.

use std::fs;
use std::process::Command;

use waypost_kernel::Span;

use crate::support::{Ran, SOON, Shop, WAYPOST, eventually, playbook, surround};

/// The commands in a text: from `waypost ` to the end of the line, or of what is between backticks.
fn commands(text: &str) -> Vec<String> {
    let from = |line: &str| {
        let (_, command) = line.split_once("waypost ")?;
        Some(format!("waypost {}", command.split(['`', '\n']).next().unwrap_or_default().trim()))
    };
    text.lines().filter_map(from).collect()
}

/// As a person does who copies the line into a shell; of alternatives (`yes|no`) the first is taken.
fn typed(shop: &Shop, line: &str) -> Ran {
    let line = line.replace("=approve|reject'", "=approve'");
    let line = line.replacen("waypost", &format!("'{WAYPOST}'"), 1);
    let mut command = Command::new("sh");
    command.args(["-c", &line]);
    surround(&mut command, shop.folder());
    if let Some(url) = shop.url() {
        command.env("WAYPOST_DATABASE_URL", url);
    }
    Ran::from(command.output().unwrap())
}

#[track_caller]
fn the_only_one(text: &str) -> String {
    let found = commands(text);
    assert_eq!(found.len(), 1, "{text}");
    found[0].clone()
}

/// What `run show` says is to be done.
#[track_caller]
fn shown_as_to_do(shop: &Shop, id: &str, flags: &[&str]) -> String {
    let page = shop.ok(&[&["run", "show", id], flags].concat());
    let line =
        page.lines().find(|line| line.trim_start().starts_with("do ")).unwrap_or_else(|| panic!("{page}"));
    the_only_one(line)
}

#[track_caller]
fn does(shop: &Shop, line: &str, id: &str, flags: &[&str], status: &str) {
    let ran = typed(shop, line);
    assert_eq!(ran.code, Some(0), "{line}: {}{}", ran.out, ran.err);
    assert_eq!(shop.json(&[&["run", "show", id], flags].concat())["status"], status, "{line}");
}

fn both() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

const PAUSES: &str = r#"name = "pauses"
lifecycle = "job"
[[step]]
name = "look"
exec = ["sh", "-c", "echo '{\"outcome\": \"pause\", \"reason\": \"look at it\"}' > $WAYPOST_OUTPUT"]
"#;

const ASKS: &str = r#"name = "asks"
lifecycle = "job"
[[step]]
name = "one"
ask = "first?"
choices = ["approve", "reject"]
needs = []
[[step]]
name = "two"
ask = "second?"
choices = ["approve", "reject"]
needs = []
"#;

const RELEASE: &str = r#"name = "release"
version = 1
ids = "release-{uuid7}"
initial = ["draft"]
[states]
draft = { phase = "draft" }
review = { phase = "parked" }
approved = { phase = "ready" }
rolling = { phase = "held", lease = "90s", on_stale = "take-over", max_take_overs = 3 }
live = { phase = "settled", outcome = "succeeded" }
failed = { phase = "settled", outcome = "failed" }
abandoned = { phase = "settled", outcome = "cancelled" }
transitions = [
  ["draft", "submit", "review", "client", ""],
  ["draft", "cancel", "abandoned", "client", ""],
  ["review", "approve", "approved", "operator", "has-reason"],
  ["review", "cancel", "abandoned", "client", ""],
  ["approved", "claim", "rolling", "worker", ""],
  ["approved", "cancel", "abandoned", "client", ""],
  ["rolling", "promote", "live", "worker", ""],
  ["rolling", "fail", "failed", "worker", ""],
  ["rolling", "cancel", "abandoned", "client, worker", ""],
  ["rolling", "lose", "failed", "engine", ""],
]
"#;

// proves U9, X1
#[test]
fn a_pause_without_a_question_is_ended_by_the_command_that_is_shown() {
    for shop in both() {
        fs::write(shop.path("pauses.toml"), PAUSES).unwrap();
        for flags in [&[][..], &["--tenant", "the shop"]] {
            let start = [&["run", "start", "pauses.toml", "--wait"], flags].concat();
            let run = shop.ends(6, &start);
            let id = run["run_id"].as_str().unwrap();
            let show = shown_as_to_do(&shop, id, flags);
            let refused = shop.run(&[&["run", "resume", id], flags].concat());
            refused.expect(5, &["it asks for no decision: "]);
            assert_eq!(the_only_one(&refused.err), show);
            let listed = shop.json(&[&["run", "list", "--waiting"], flags].concat());
            assert_eq!(listed[0]["waiting"]["hint"], show.as_str(), "a list says the same");
            let refused = shop.run(&[&["run", "do", id, "resume"], flags].concat());
            assert_eq!(the_only_one(&refused.err), show);
            does(&shop, &show, id, flags, "pending");
            shop.ok(&[&["run", "cancel", id], flags].concat());
        }
    }
}

// proves U9, U4
#[test]
fn what_is_asked_is_answered_by_the_command_that_is_shown() {
    for shop in both() {
        fs::write(shop.path("asks.toml"), ASKS).unwrap();
        let run = shop.ends(6, &["run", "start", "asks.toml", "--wait"]);
        let id = run["run_id"].as_str().unwrap();
        shop.run(&["run", "resume", id, "--resolve", "one=reject", "--reason", "too early"]).expect(6, &[]);
        let page = shop.ok(&["run", "show", id]);
        assert!(page.contains("one is decided: reject, by tester (too early)"), "{page}");
        let why = page.lines().find(|line| line.trim_start().starts_with("why ")).unwrap();
        assert!(why.contains("two") && !why.contains("first?"), "{why}");
        let answer = page.lines().find(|line| line.starts_with("answer with: ")).unwrap();
        let answer = answer.replace("approve|reject", "approve");
        does(&shop, &the_only_one(&answer), id, &[], "pending");
    }
}

// proves U9, X1
#[test]
fn a_lifecycle_of_ones_own_is_sent_on_by_the_command_that_is_shown() {
    for shop in both() {
        fs::write(shop.path("release.toml"), RELEASE).unwrap();
        shop.ok(&["lifecycle", "add", "release.toml"]);
        let id = shop.queue(&["--lifecycle", "release"], "true");
        does(&shop, &shown_as_to_do(&shop, &id, &[]), &id, &[], "review");
        let approve = shown_as_to_do(&shop, &id, &[]);
        for refused in
            [&["run", "resume", &id][..], &["run", "resume", &id, "--force"], &["run", "do", &id, "approve"]]
        {
            let refused = shop.run(refused);
            assert_eq!(
                refused.code,
                Some(if refused.err.contains("reason") && refused.err.contains("INVALID_INPUT") {
                    2
                } else {
                    5
                }),
                "{}",
                refused.err
            );
            assert_eq!(the_only_one(&refused.err), approve);
        }
        shop.run(&["run", "do", &id, "aprove"])
            .expect(5, &["no command of release; did you mean `approve`? Allowed: approve, cancel"]);
        does(&shop, &approve, &id, &[], "approved");
    }
}

// proves U9
#[test]
fn what_keeps_a_queue_is_ended_by_the_command_that_is_shown() {
    for shop in both() {
        let id = shop.queue(&["--queue", "big builds"], "true");
        shop.ok(&["queue", "pause", "big builds", "--reason", "upgrade"]);
        let resume = shown_as_to_do(&shop, &id, &[]);
        assert_eq!(typed(&shop, &resume).code, Some(0), "{resume}");
        shop.ok(&["queue", "limit", "big builds", "0"]);
        let limit = shown_as_to_do(&shop, &id, &[]);
        assert_eq!(typed(&shop, &limit).code, Some(0), "{limit}");
        assert_eq!(shop.json(&["queue", "stats"])[0]["at_most"], 1, "{limit}");
        let paused = shop.ok(&["queue", "pause", "big builds"]);
        assert_eq!(typed(&shop, &the_only_one(&paused)).code, Some(0), "{paused}");
    }
}

/// Whoever holds it may be gone, which nobody can tell before its lease ends.
// proves U9, X5
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_says_who_carries_it_out() {
    for shop in both() {
        let id = shop.queue(&[], "touch begun; exec sleep 600");
        let mut worker = shop.spawn(&["worker", "--allow-commands"]);
        eventually("it begins", SOON, || shop.path("begun").exists());
        worker.kill();
        let told = shop.ok(&["run", "cancel", &id]);
        for words in [
            "cancel asked by tester; its worker ",
            ", last heard of at ",
            "is to do it; if it is silent until ",
            "the next sweep of any worker or server ends it as cancelled",
        ] {
            assert!(told.contains(words), "{told}");
        }
        shop.store().await.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        let shown = shop.ok(&["run", "show", &id]);
        assert!(shown.contains("gave no sign of life since"), "{shown}");
    }
}

// proves U9
#[test]
fn what_was_said_of_an_earlier_move_is_not_shown_of_the_last_one() {
    let shop = Shop::new();
    let waits = r#"exec = ["sh", "-c", "touch begun; exec sleep 600"]"#;
    fs::write(shop.path("slow.toml"), playbook("slow", "job", &[("slow", waits)])).unwrap();
    let id = shop.ok(&["run", "start", "slow.toml"]).trim().to_owned();
    let mut worker = shop.spawn(&["worker", "--allow-commands"]);
    eventually("it begins", SOON, || shop.path("begun").exists());
    shop.ok(&["run", "pause", &id, "--reason", "change freeze"]);
    eventually("it is paused", SOON, || shop.show(&id)["status"] == "paused");
    worker.kill();
    assert!(shop.ok(&["run", "show", &id]).contains("change freeze"));
    shop.ok(&["run", "resume", &id, "--force"]);
    shop.ok(&["run", "cancel", &id]);
    let page = shop.ok(&["run", "show", &id]);
    assert!(!page.contains("change freeze"), "{page}");
    assert_eq!(shop.show(&id)["reason"], serde_json::Value::Null);
}

// proves U9
#[test]
fn a_dry_run_says_when_steps_may_begin() {
    let shop = Shop::new();
    let window = "\n[window]\nweekdays = [\"mon\", \"tue\"]\nfrom = \"22:00\"\nto = \"04:00\"\ntimezone = \"Europe/Kyiv\"\n";
    let text = playbook("night", "job", &[("a", r#"exec = ["true"]"#)]) + window;
    fs::write(shop.path("night.toml"), text).unwrap();
    let told = shop.ok(&["run", "start", "night.toml", "--dry-run"]);
    let line = told.lines().find(|line| line.starts_with("window ")).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains("mon, tue 22:00 to 04:00 (Europe/Kyiv); "), "{told}");
    assert!(line.contains("open until ") || line.contains(": steps wait until then"), "{told}");
    let told = shop.json(&["run", "start", "night.toml", "--dry-run"]);
    assert_eq!((&told["window"]["from"], &told["window"]["outside"]), (&"22:00".into(), &"wait".into()));
}

#[test]
fn mistakes_are_told_in_whole_words() {
    let shop = Shop::new();
    shop.run(&["run", "list", "--tenant", "a\nb"]).expect(2, &["tenant: has a control character"]);
    shop.run(&["run", "start", "--wait", "--", "true"]).expect(0, &[]);
    assert!(shop.ok(&["verify"]).starts_with("1 run and "));
    shop.run(&["restore", ".waypost/waypost.db", "--replace"]).expect(2, &["is the database itself"]);
    shop.run(&["audit", "--limit", "0"]).expect(2, &["--limit"]);
    assert!(shop.ok(&["queue", "limit", "default", "1"]).starts_with("1 run of default may be held"));
    assert!(shop.ok(&["queue", "limit", "default", "0"]).starts_with("no run of default may be held"));
    assert!(shop.ok(&["audit"]).contains("limit 0"));
}

/// Whatever is suggested to somebody who named a tenant means that tenant.
// proves U9, U14
#[test]
fn what_is_suggested_means_the_tenant_that_was_named() {
    let shop = Shop::new();
    let flags = ["--tenant", "the shop"];
    let with = |args: &[&str]| shop.run(&[args, &flags].concat());
    let all_mean_it = |text: &str| {
        let found = commands(text);
        for command in &found {
            let is_meant = command.split("waypost ").skip(1).all(|one| one.contains("--tenant 'the shop'"));
            assert!(is_meant, "{command}");
        }
        found.len()
    };
    let said = |ran: &Ran| format!("{}{}", ran.out, ran.err);
    fs::write(shop.path("asks.toml"), ASKS).unwrap();
    let asked = with(&["run", "start", "asks.toml", "--wait"]);
    assert_eq!(all_mean_it(&said(&asked)), 1, "{}", said(&asked));
    let id = shop.json(&["run", "list", "--tenant", "the shop"])[0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(all_mean_it(&said(&with(&["run", "show", &id]))), 4);
    let cancelled = with(&["run", "cancel", &id]);
    cancelled.expect(0, &[]);
    let refused = with(&["run", "retry", &id]);
    refused.expect(5, &["goes on where it failed"]);
    assert_eq!(all_mean_it(&said(&refused)), 1, "{}", said(&refused));
    assert_eq!(all_mean_it(&said(&with(&["queue", "pause", "default", "--reason", "x"]))), 1);
    let empty = ["--tenant", "nobody"];
    for args in [&["run", "list"][..], &["worker", "list"], &["schedule", "list"]] {
        let ran = shop.run(&[args, &empty].concat());
        assert!(commands(&said(&ran)).iter().all(|it| it.contains("--tenant nobody")), "{}", said(&ran));
        assert_eq!(commands(&said(&ran)).len(), 1, "{}", said(&ran));
    }
    let listed = shop.run(&["run", "list", "--tenant", "nobody"]);
    let ran = typed(&shop, &the_only_one(&listed.out));
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "hi\n"), "{}", ran.err);
    let text = "[[schedule]]\nname = \"tick\"\ncadence = \"1h\"\nexec = [\"true\"]\n";
    fs::write(shop.path("s.toml"), text).unwrap();
    let applied = with(&["schedule", "apply", "s.toml"]);
    assert!(
        said(&applied).contains("waypost schedule run --allow-commands --tenant 'the shop'"),
        "{}",
        said(&applied)
    );
    for args in [
        &["schedule", "list"][..],
        &["schedule", "show", "tick"],
        &["schedule", "trigger", "tick"],
        &["schedule", "pause", "tick", "--reason", "x"],
    ] {
        let ran = with(args);
        ran.expect(0, &[]);
        assert!(said(&ran).contains("--tenant 'the shop'`"), "{args:?}: {}", said(&ran));
    }
}
