//! A playbook that asks a person, from the command line and over HTTP, on both stores.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Shop, eventually, playbook};

/// `more` is said of its question.
fn ship(more: &str) -> String {
    let ask = format!("ask = \"ship it to production?\"\n{more}choices = [\"approve\", \"reject\"]");
    let ship = r#"when = '''steps["go ahead?"].output.choice == "approve"'''
exec = ["echo", "shipped by {{ steps['go ahead?'].output.by }}: {{ steps['go ahead?'].output.reason }}"]"#;
    playbook("ship", "job", &[("build", r#"exec = ["echo", "built"]"#), ("go ahead?", &ask), ("ship", ship)])
}

fn asked(shop: &Shop) -> String {
    fs::write(shop.path("ship.toml"), ship("")).unwrap();
    let ran = shop.run(&["run", "start", "ship.toml", "--wait"]);
    let id = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
    let answer = format!("answer with: waypost run resume {id} --resolve 'go ahead?=approve|reject'");
    ran.expect(6, &["go ahead?: ship it to production? (approve, reject)", &answer]);
    id
}

// proves U4
#[test]
fn the_command_line_says_what_is_asked_and_takes_the_answer() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let id = asked(&shop);
        let shown = shop.ok(&["run", "show", &id]);
        assert!(shown.contains("go ahead?: ship it to production? (approve, reject)"), "{shown}");
        shop.run(&["run", "resume", &id])
            .expect(2, &["waits for decisions about go ahead?", "--resolve 'go ahead?=approve|reject'"]);
        shop.run(&["run", "resume", &id, "--resolve", "go ahead?=maybe"])
            .expect(2, &["go ahead?: \"maybe\" is no choice; allowed: approve, reject"]);
        shop.run(&["run", "resume", &id, "--resolve", "stop?=approve"])
            .expect(2, &["nothing is asked about \"stop?\"; asked are: go ahead?"]);
        let answer =
            ["run", "resume", &id, "--resolve", "go ahead?=approve", "--reason", "looks fine", "--wait"];
        let ran = shop.run(&answer);
        ran.expect(0, &["completed"]);
        assert_eq!(ran.out, "shipped by tester: looks fine\n");
        shop.verifies();
    }
}

/// Neither the list nor the step's line takes a person's time for work.
// proves U4
#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_a_person_thinks_is_not_taken_for_work() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let id = asked(&shop);
        shop.store().await.advance_clock(waypost_kernel::Span::from_seconds(7_200)).await.unwrap();
        let took = |page: &str| page.lines().filter(|line| line.contains("2h00m")).count();
        let listed = shop.ok(&["run", "list"]);
        assert_eq!(took(&listed), 1, "its age alone: {listed}");
        assert!(!listed.contains("2h00m  2h00m"), "{listed}");
        shop.ok(&["run", "resume", &id, "--resolve", "go ahead?=approve", "--wait"]);
        let listed = shop.ok(&["run", "list"]);
        assert!(listed.contains(" 2h00m  0.") || listed.contains(" 2h00m  1."), "{listed}");
        let shown = shop.ok(&["run", "show", &id]);
        let ask = shown.lines().find(|line| line.starts_with("go ahead?  ")).unwrap();
        assert!(!ask.contains("2h00m"), "{shown}");
        let cancelled = asked(&shop);
        shop.store().await.advance_clock(waypost_kernel::Span::from_seconds(7_200)).await.unwrap();
        shop.ok(&["run", "cancel", &cancelled]);
        let listed = shop.ok(&["run", "list", "--status", "cancelled"]);
        assert!(!listed.contains("2h00m  2h00m"), "{listed}");
    }
}

// proves U4
#[test]
fn http_takes_the_answer() {
    let shop = Shop::new();
    let id = asked(&shop);
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let run = shop.curl(&url, &format!("/v1/runs/{id}"));
    let choices = &run["details"]["current_blockers"]["go ahead?"]["choices"];
    assert_eq!((&run["reason"], choices), (&json!("ship it to production?"), &json!(["approve", "reject"])));
    let post = |choice: &str| {
        let body = json!({ "resolutions": { "go ahead?": choice }, "reason": "no" }).to_string();
        let posted = Command::new("curl")
            .args(["-s", "--noproxy", "*", "-H", "content-type: application/json", "-d", &body])
            .arg(format!("{url}/v1/runs/{id}/resume"))
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&posted.stdout).unwrap()
    };
    let refused = post("maybe");
    assert_eq!(refused["status"], 422, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("allowed: approve, reject"), "{refused}");
    assert_eq!(post("reject")["status"], "pending");
}

// proves U3, U4: a step that runs again asks again, and what was answered in the old run is no answer
#[test]
fn a_replay_from_a_question_asks_it_again() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let id = asked(&shop);
        shop.run(&["run", "resume", &id, "--resolve", "go ahead?=reject", "--wait"])
            .expect(0, &["completed"]);
        let ran = shop.run(&["run", "replay", &id, "--from", "go ahead?", "--wait", "-o", "json"]);
        assert_eq!(ran.code, Some(6), "{}", ran.err);
        let new: Value = serde_json::from_str(&ran.out).unwrap();
        let new = new["run_id"].as_str().unwrap();
        let shown = shop.ok(&["run", "show", new]);
        for words in
            ["go ahead?: ship it to production? (approve, reject)", "--resolve 'go ahead?=approve|reject'"]
        {
            assert!(shown.contains(words), "{shown}");
        }
        assert!(!shown.contains("is decided"), "{shown}");
        shop.run(&["run", "resume", new]).expect(2, &["waits for decisions about go ahead?"]);
        let ran = shop.run(&["run", "resume", new, "--resolve", "go ahead?=approve", "--wait"]);
        ran.expect(0, &["completed"]);
        assert!(ran.out.starts_with("shipped by tester"), "{}", ran.out);
        shop.verifies();
    }
}

// proves U4: forced on, a run does not ask the same again
#[test]
fn a_run_that_is_forced_on_says_that_nobody_answered() {
    let shop = Shop::new();
    let id = asked(&shop);
    shop.run(&["run", "resume", &id, "--force", "--reason", "Kim is ill", "--wait"])
        .expect(0, &["completed"]);
    let shown = shop.ok(&["run", "show", &id, "-v"]);
    assert!(shown.contains("tester let the run go on without an answer: Kim is ill"), "{shown}");
    assert!(shown.contains("(forced: Kim is ill)"), "{shown}");
    shop.verifies();
}

// proves U4: when its time is over nobody is invited to answer, and no answer is taken
#[test]
fn a_question_whose_time_is_over_is_shown_as_over() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        fs::write(shop.path("ship.toml"), ship("timeout = \"1h\"\n")).unwrap();
        assert_eq!(shop.run(&["run", "start", "ship.toml", "--wait"]).code, Some(6));
        let id = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
        let hour = waypost_kernel::Span::from_seconds(3_601);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { shop.store().await.advance_clock(hour).await.unwrap() });
        let shown = shop.ok(&["run", "show", &id]);
        assert!(shown.contains("go ahead?: nobody answered until"), "{shown}");
        assert!(!shown.contains("--resolve") && !shown.contains("run resume"), "{shown}");
        shop.run(&["run", "resume", &id, "--resolve", "go ahead?=approve"])
            .expect(2, &["resolutions", "it could be answered until"]);
        assert_eq!(shop.show(&id)["status"], "paused");
        let _worker = shop.spawn(&["worker", "--allow-commands"]);
        eventually("it goes on without an answer", std::time::Duration::from_secs(60), || {
            shop.show(&id)["error_code"] == "NOBODY_ANSWERED"
        });
        shop.verifies();
    }
}

/// Two questions; nobody answers the first one in time.
fn two() -> String {
    let ask = |question: &str, timeout: &str| {
        format!(
            "needs = []\nask = \"{question}\"\ntimeout = \"{timeout}\"\non_timeout = \"no\"\nchoices = [\"yes\", \"no\"]"
        )
    };
    playbook("two", "job", &[("quick", &ask("quick?", "1h")), ("slow", &ask("slow?", "3h"))])
}

// proves U4: whoever waits for the run goes on waiting for it, since it goes on by itself
#[test]
fn who_waits_for_a_run_that_nobody_answered_in_time_sees_it_go_on() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        fs::write(shop.path("two.toml"), two()).unwrap();
        let hour = waypost_kernel::Span::from_seconds(3_601);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let late = || {
            let run = shop.ends(6, &["run", "start", "two.toml", "--wait"]);
            runtime.block_on(async { shop.store().await.advance_clock(hour).await.unwrap() });
            run["run_id"].as_str().unwrap().to_owned()
        };
        let id = late();
        shop.run(&["run", "resume", &id])
            .expect(5, &["nobody answered until", "goes on with it", &format!("waypost run watch {id}")]);
        // It asks what is left, by itself.
        shop.run(&["run", "resume", &id, "--wait"]).expect(6, &["slow: slow? (yes, no"]);
        let id = late();
        shop.run(&["run", "resume", &id, "--resolve", "slow=yes", "--wait"]).expect(0, &["completed"]);
        let id = late();
        let mut watch = shop.spawn(&["run", "watch", &id]);
        let _worker = shop.spawn(&["worker", "--allow-commands"]);
        assert_eq!(watch.end(), Some(6), "the other question is asked");
        assert_eq!(shop.show(&id)["details"]["hosts_with_blockers"], 1);
    }
}
