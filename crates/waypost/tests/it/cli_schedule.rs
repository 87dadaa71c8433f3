//! `waypost schedule …`, as a person and as a script use it.

use std::fs;

use serde_json::{Value, json};

use crate::support::{SOON, Shop, eventually};

const JOBS: &str = r#"
[[schedule]]
name = "hello"
description = "Says so"
cadence = "1m"
exec = ["sh", "-c", "echo hi > said"]

[[schedule]]
name = "nightly"
cron = "0 2 * * *"
overlap = "allow"
timezone = "Europe/Kyiv"
scopes = { kind = "shop", ids = ["a", "b"] }
run = { lifecycle = "deploy", exec = ["true"] }
"#;

fn shop() -> Shop {
    Shop::new().with("waypost.toml", JOBS)
}

// proves C8
#[test]
fn schedules_are_applied_listed_paused_and_removed() {
    let shop = shop();
    let added = shop.ok(&["schedule", "apply", "waypost.toml"]);
    let (hello, nightly) = added.trim().split_once('\n').unwrap();
    assert!(
        hello.starts_with(
            "hello: added; first its latest plan, as soon as a process that fires schedules sees it; now "
        ),
        "{added}"
    );
    assert!(nightly.starts_with("nightly: added; first at ") && nightly.contains(" 02:00:00 +0"), "{added}");
    assert_eq!(shop.ok(&["schedule", "apply", "waypost.toml"]), "hello: unchanged\nnightly: unchanged\n");
    let listed = shop.json(&["schedule", "list"]);
    assert_eq!(
        (&listed[1]["name"], &listed[1]["when"]),
        (&json!("nightly"), &json!("at 02:00 every day (Europe/Kyiv)"))
    );
    assert_eq!(listed[1]["next"].as_array().unwrap().len(), 5);
    assert_eq!((&listed[1]["scopes"], &listed[0]["skipped"]["late"]), (&json!(2), &json!(0)));
    assert!(shop.ok(&["schedule", "list"]).contains("at 02:00 every day (Europe/Kyiv)"));
    let next = shop.ok(&["schedule", "next", "nightly", "--count", "400"]);
    assert_eq!(next.lines().filter(|line| line.contains(" 02:00:00 +0")).count(), 400, "{next}");
    assert!(next.contains("clocks go "), "{next}");
    shop.ok(&["schedule", "pause", "nightly", "--reason", "migration"]);
    fs::write(shop.path("waypost.toml"), JOBS.replace("0 2 * * *", "0 3 * * *")).unwrap();
    assert!(shop.ok(&["schedule", "apply", "waypost.toml"]).contains("nightly: changed"));
    let paused = &shop.json(&["schedule", "list"])[1]["paused"];
    assert_eq!(
        (&paused["by"], &paused["reason"]),
        (&json!("tester"), &json!("migration")),
        "a redeploy leaves it"
    );
    shop.ok(&["schedule", "resume", "nightly"]);
    assert!(
        shop.ok(&["schedule", "rm", "nightly"])
            .starts_with("nightly is removed: plans that waited are dropped")
    );
    shop.run(&["schedule", "rm", "waypost.prune"]).expect(2, &["cannot be removed; pause it instead"]);
    assert_eq!(shop.json(&["schedule", "list"]).as_array().unwrap().len(), 1);
}

// proves C8 and D10
#[test]
fn a_trigger_and_a_backfill_are_plans_of_their_own() {
    let shop = shop();
    shop.ok(&["schedule", "apply", "waypost.toml"]);
    assert!(shop.ok(&["schedule", "trigger", "nightly", "--scope", "b"]).starts_with("1 to execute"));
    let range = ["--from", "2026-02-10T00:00:00Z", "--to", "2026-02-12T23:00:00Z"];
    let backfill = [&["schedule", "backfill", "nightly"], range.as_slice()].concat();
    assert!(shop.ok(&backfill).starts_with("6 to execute"), "three nights of two shops");
    assert!(shop.ok(&backfill).starts_with("0 to execute"));
    let mut running = shop.spawn(&["schedule", "run", "--allow-commands"]);
    eventually("all of them are queued", SOON, || {
        let history = shop.json(&["schedule", "history", "nightly", "--limit", "100"]);
        let all = history.as_array().unwrap();
        all.iter().filter(|it| it["manual"] != json!(null) && it["run"]["lifecycle"] == "deploy").count() == 7
    });
    eventually("the other one was executed", SOON, || {
        let history = shop.json(&["schedule", "history", "hello"]);
        history.get(0).is_some_and(|it| it["run"]["status"] == "SUCCESS")
    });
    running.signal("TERM");
    assert_eq!(running.end(), Some(0));
    assert_eq!(fs::read_to_string(shop.path("said")).unwrap(), "hi\n");
    shop.verifies();
}

#[test]
fn bad_input_names_file_line_and_field() {
    let shop = shop();
    let bad = JOBS.replace("0 2 * * *", "0 25 * * *").replace("cadence = \"1m\"", "cadance = \"1m\"");
    fs::write(shop.path("bad.toml"), bad).unwrap();
    let ran = shop.run(&["schedule", "apply", "bad.toml"]);
    ran.expect(
        2,
        &[
            "bad.toml:10: schedule[1].cron: hour: `25` is no value",
            "write 0 to 23",
            "bad.toml:5: schedule[0].cadance",
        ],
    );
    assert_eq!(shop.json(&["schedule", "list"]), json!([]), "all or none");
    fs::write(shop.path("kept.toml"), format!("{JOBS}\n[retention.dploy]\nsuccess = \"7d\"\n")).unwrap();
    for args in [&["schedule", "apply", "kept.toml"][..], &["schedule", "apply", "kept.toml", "--check"]] {
        let words =
            ["kept.toml:16: retention.dploy", "there is no lifecycle of runs", "did you mean `deploy`"];
        shop.run(args).expect(2, &words);
    }
    shop.run(&["schedule", "apply", "none.toml"]).expect(4, &["none.toml"]);
    shop.run(&["schedule", "run", "--file", "bad.toml"]).expect(2, &["bad.toml:10"]);
    for args in [["schedule", "next", "nope"], ["schedule", "pause", "nope"], ["schedule", "trigger", "nope"]]
    {
        shop.run(&args).expect(4, &["there is no schedule \"nope\""]);
    }
    shop.ok(&["schedule", "apply", "waypost.toml"]);
    shop.run(&["schedule", "trigger", "nightly", "--scope", "z"])
        .expect(2, &["scopes: nightly has no \"z\"; it has a, b"]);
    let range = ["--from", "yesterday", "--to", "2026-02-12T23:00:00Z"];
    shop.run(&[&["schedule", "backfill", "nightly"], range.as_slice()].concat())
        .expect(2, &["from: \"yesterday\""]);
}

// proves C11
#[test]
fn a_server_fires_the_schedules_of_its_own_file() {
    let shop = shop();
    let mut server = shop.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    eventually("it was executed", SOON, || {
        shop.path("said").exists()
            && shop
                .json(&["schedule", "history", "hello"])
                .get(0)
                .is_some_and(|it| it["run"]["status"] == "SUCCESS")
    });
    let listed = shop.json(&["schedule", "list"]);
    assert_eq!((&listed[0]["name"], &listed[0]["applied"]), (&json!("hello"), &json!(false)));
    assert_eq!(listed[2]["name"], "waypost.prune", "pruning is one of them");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
}

// proves C8
#[test]
fn schedules_work_the_same_through_a_server() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let elsewhere = self::shop();
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let ask = |args: &[&str]| elsewhere.asks(&url, args);
        let ok = |args: &[&str]| {
            let ran = ask(args);
            assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.out, ran.err);
            ran.out
        };
        let added = ok(&["schedule", "apply", "waypost.toml"]);
        assert!(
            added.starts_with("hello: added; ") && added.contains("\nnightly: added; first at "),
            "{added}"
        );
        assert_eq!(ok(&["schedule", "apply", "waypost.toml"]), "hello: unchanged\nnightly: unchanged\n");
        ok(&["schedule", "pause", "nightly", "--reason", "migration"]);
        let listed = shop.json(&["schedule", "list"]);
        assert_eq!(listed[1]["paused"]["reason"], "migration");
        assert_eq!(listed[1]["folder"], elsewhere.folder().display().to_string());
        // The server fires its own schedule meanwhile.
        eventually("the very objects that the database gives", SOON, || {
            let there: Value = serde_json::from_str(&ok(&["schedule", "list", "-o", "json"])).unwrap();
            there == shop.json(&["schedule", "list"])
        });
        ok(&["schedule", "resume", "nightly"]);
        assert!(ok(&["schedule", "trigger", "nightly", "--scope", "b"]).starts_with("1 to execute"));
        let range = ["--from", "2026-02-10T00:00:00Z", "--to", "2026-02-12T23:00:00Z"];
        let backfill = [&["schedule", "backfill", "nightly"], range.as_slice()].concat();
        assert!(ok(&backfill).starts_with("6 to execute"));
        assert!(ok(&["schedule", "next", "nightly"]).contains("at 02:00 every day (Europe/Kyiv)"));
        let history = ["schedule", "history", "nightly", "--limit", "100", "-o", "json"];
        let there: Value = serde_json::from_str(&ok(&history)).unwrap();
        assert_eq!((there.as_array().unwrap().len(), &there[0]["manual"]), (7, &json!("trigger")));
        ask(&["schedule", "next", "nope"]).expect(4, &["there is no schedule \"nope\""]);
        ask(&["schedule", "run"]).expect(1, &["needs the database itself", "--database-url"]);
        ok(&["schedule", "remove", "nightly"]);
        ask(&["schedule", "remove", "nightly"]).expect(4, &["there is no schedule \"nightly\""]);
    }
}

// proves C5 and C8
#[test]
fn a_plan_that_failed_is_executed_again_and_a_removed_schedule_has_its_history() {
    let shop = Shop::new();
    let job = "[[schedule]]\nname = \"once\"\ncadence = \"1h\"\nbackoff = []\nexec = [\"sh\", \"-c\", \"test -e mended\"]\n";
    fs::write(shop.path("jobs.toml"), job).unwrap();
    let history = || shop.json(&["schedule", "history", "once"]);
    let status = || history()[0]["run"]["status"].clone();
    let mut scheduler = shop.spawn(&["schedule", "run", "--file", "jobs.toml"]);
    eventually("the plan has failed", SOON, || {
        shop.run(&["schedule", "history", "once"]).code == Some(0) && status() == "FAILED"
    });
    let run_id = history()[0]["run"]["run_id"].as_str().unwrap().to_owned();
    fs::write(shop.path("mended"), "").unwrap();
    assert!(shop.ok(&["run", "retry", &run_id]).contains("is executed again"));
    eventually("it succeeds", SOON, || status() == "SUCCESS");
    assert_eq!(history().as_array().unwrap().len(), 1, "one execution per plan");
    shop.run(&["run", "retry", history()[0]["run"]["run_id"].as_str().unwrap()])
        .expect(5, &["no retry from SUCCESS"]);
    let plan = history()[0]["plan_time"].as_str().unwrap().to_owned();
    let backfill = ["schedule", "backfill", "once", "--from", &plan, "--to", &plan];
    assert!(shop.ok(&backfill).contains("every plan of the range has its execution"));
    assert!(shop.ok(&[&backfill[..], &["--again"]].concat()).starts_with("0 to execute"));
    scheduler.kill();
    shop.ok(&["schedule", "remove", "once"]);
    assert!(shop.ok(&["schedule", "history", "once"]).contains("success"));
    shop.run(&["schedule", "history", "nobody"]).expect(4, &["nobody"]);
}
