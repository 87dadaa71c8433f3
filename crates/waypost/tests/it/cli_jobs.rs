//! Playbooks that stop for a person, from the command line, on both stores.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Shop, eventually};

/// Blocked by two hosts until somebody decides; HA goes off and on.
const PLAYBOOK: &str = r#"
name = "update"
lifecycle = "job"

[inputs.cluster]
type = "string"

[[step]]
name = "disable HA"
exec = ["sh", "-c", "echo off >> ha"]

[[step]]
name = "scan {{ inputs.cluster }}"
id = "scan"
exec = ["sh", "-c", '''cat > told; grep -q decision told && { echo "$1 scanned"; exit 0; }
  printf '{"outcome":"pause","reason":"2 hosts are blocked","blockers":{"esx1":{"blockers":[{"vm_name":"vm-7","reason":"usb","severity":"critical"}]},"esx2":{"choices":["skip"]}}}' > $WAYPOST_OUTPUT''', "sh", "{{ inputs.cluster }}"]

[[cleanup]]
name = "HA as it was"
after = "disable HA"
exec = ["sh", "-c", "echo on >> ha"]
"#;

fn both() -> [Shop; 2] {
    let shops = [Shop::new(), Shop::on_postgres()];
    for shop in &shops {
        fs::write(shop.path("update.toml"), PLAYBOOK).unwrap();
    }
    shops
}

fn ha(shop: &Shop) -> Vec<String> {
    fs::read_to_string(shop.path("ha")).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn paused(shop: &Shop) -> String {
    let ran = shop.run(&["run", "start", "update.toml", "--input", "cluster=c1", "--wait"]);
    ran.expect(
        6,
        &["▶ disable HA", "✓ disable HA", "⏸ scan c1", "✓ HA as it was", "pending → running → paused"],
    );
    shop.runs()[0]["run_id"].as_str().unwrap().to_owned()
}

// proves J3, J5 and J8
#[test]
fn a_blocked_job_waits_and_goes_on_with_decisions() {
    for shop in both() {
        let id = paused(&shop);
        let run = shop.show(&id);
        assert_eq!(
            (&run["reason"], &run["details"]["hosts_with_blockers"]),
            (&json!("2 hosts are blocked"), &json!(2))
        );
        assert_eq!(ha(&shop), ["off", "on"]);
        shop.run(&["run", "resume", &id]).expect(
            2,
            &["waits for decisions about esx1, esx2", "--resolve esx1=DECISION --resolve esx2=skip"],
        );
        let one = ["run", "resume", &id, "--resolve", "esx1=power_off", "--reason", "agreed", "--wait"];
        let kept = shop.run(&one);
        assert_eq!(
            (kept.code, kept.out),
            (Some(6), format!("{id} keeps it and waits for decisions about esx2\n"))
        );
        shop.run(&["run", "resume", &id, "--resolve", "esx1=skip"])
            .expect(2, &["esx1 was decided already: power_off by tester"]);
        shop.run(&["run", "resume", &id])
            .expect(2, &["waits for decisions about esx2\n", "--resolve esx2=skip"]);
        shop.run(&["run", "resume", &id, "--resolve", "esx1"])
            .expect(2, &["resolve: \"esx1\" is not STEP=CHOICE"]);
        let decided = ["run", "resume", &id, "--resolve", "esx2=skip", "--wait"];
        let ran = shop.run(&decided);
        ran.expect(0, &["✓ scan c1", "pending → running → completed"]);
        assert_eq!(ran.out, "c1 scanned\n", "what was printed before is not told again");
        assert_eq!(ha(&shop), ["off", "on", "off", "on"]);
        let run = shop.show(&id);
        let kept = &run["details"]["maintenance_blocker_resolutions"]["esx1"];
        assert_eq!(
            (&kept["decision"], &kept["by"], &kept["reason"]),
            (&json!("power_off"), &json!("tester"), &json!("agreed"))
        );
        shop.run(&decided).expect(5, &["completed"]);
        shop.verifies();
    }
}

#[test]
fn a_paused_job_is_forced_on_or_cancelled() {
    for shop in both() {
        let id = paused(&shop);
        assert_eq!(
            shop.run(&["run", "resume", &id, "--force", "--wait"]).code,
            Some(6),
            "it is blocked again"
        );
        assert_eq!(shop.ok(&["run", "cancel", &id, "--reason", "no"]), format!("{id} is cancelled\n"));
        assert_eq!(ha(&shop).last().map(String::as_str), Some("on"));
        shop.verifies();
    }
}

// proves J2
#[test]
fn a_persons_pause_ends_by_force_alone() {
    let shop = Shop::new();
    let text =
        "name = \"slow\"\nlifecycle = \"job\"\n[[step]]\nname = \"wait\"\nexec = [\"sleep\", \"600\"]\n";
    fs::write(shop.path("slow.toml"), text).unwrap();
    let id = shop.ok(&["run", "start", "slow.toml"]).trim().to_owned();
    let mut worker = shop.spawn(&["worker", "--allow-commands"]);
    let until = |status: &str| {
        eventually(status, std::time::Duration::from_secs(60), || shop.show(&id)["status"] == *status);
    };
    until("running");
    shop.ok(&["run", "pause", &id, "--reason", "change freeze"]);
    until("paused");
    worker.kill();
    let refused = shop.run(&["run", "resume", &id]);
    refused.expect(
        5,
        &["resolutions are saved, or the move is forced", &format!("waypost run resume {id} --force")],
    );
    assert_eq!(shop.show(&id)["status"], json!("paused"));
    assert_eq!(shop.ok(&["run", "resume", &id, "--force"]), format!("{id} is pending\n"));
}

#[test]
fn a_job_is_replayed_with_an_edited_input() {
    for shop in both() {
        let id = paused(&shop);
        let refused = shop.run(&["run", "retry", &id]);
        refused.expect(5, &[&format!("waypost run replay {id}")]);
        let ran = shop.run(&["run", "replay", &id, "--input", "cluster=c2", "-o", "json"]);
        let new: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((&new["retry_of"], &new["input"]), (&json!(id), &json!({"cluster": "c2"})));
        assert_eq!((&new["status"], &new["items"]["step"]["pending"]), (&json!("pending"), &json!(3)));
        shop.run(&["run", "replay", &id, "--input", "clster=c2"]).expect(2, &["clster", "cluster"]);
    }
}

#[test]
fn a_title_is_shown_and_a_replay_keeps_it() {
    for shop in both() {
        let started = shop.ok(&["run", "start", "--title", "Nightly build", "-o", "json", "--", "true"]);
        let run: Value = serde_json::from_str(&started).unwrap();
        let id = run["run_id"].as_str().unwrap();
        assert!(shop.ok(&["run", "show", id]).contains("Nightly build"));
        let again: Value = serde_json::from_str(&shop.ok(&["run", "replay", id, "-o", "json"])).unwrap();
        assert_eq!((&again["title"], &again["retry_of"]), (&json!("Nightly build"), &run["run_id"]));
        shop.run(&["run", "start", "--title", "", "--", "true"]).expect(2, &["title: is empty"]);
        shop.verifies();
    }
}

/// `1.10` is a version where a string is declared, and a number where nothing is.
#[test]
fn an_input_is_read_as_the_playbook_declares_it() {
    const TYPES: &str = "[inputs.s]\ntype = \"string\"\n[inputs.n]\ntype = \"number\"\ndefault = 0\n\
                         [inputs.l]\ntype = \"list\"\ndefault = []\n";
    let shop = Shop::new();
    let playbook = |types: &str| {
        format!("name = \"a\"\nlifecycle = \"job\"\n{types}[[step]]\nname = \"x\"\nexec = [\"true\"]\n")
    };
    fs::write(shop.path("typed.toml"), playbook(TYPES)).unwrap();
    fs::write(shop.path("any.toml"), playbook("")).unwrap();
    let input = |words: &[&str]| {
        let ran = shop.run(&[words, &["-o", "json"]].concat());
        serde_json::from_str::<Value>(&ran.out)
            .unwrap_or_else(|_| panic!("{words:?}: {}{}", ran.out, ran.err))
    };
    for text in ["1.10", "true", "[1]", "null", "{\"a\":1}", "\"quoted\"", "a=b", ""] {
        let given = format!("s={text}");
        let run = input(&["run", "start", "typed.toml", "--input", &given]);
        assert_eq!(run["input"], json!({"s": text, "n": 0, "l": []}), "{text}");
        let id = run["run_id"].as_str().unwrap();
        let again = input(&["run", "replay", id, "--input", &given, "--input", "n=1.5"]);
        assert_eq!(again["input"], json!({"s": text, "n": 1.5, "l": []}), "{text}");
    }
    let run =
        input(&["run", "start", "typed.toml", "--input", "s=x", "--input", "n=7", "--input", "l=[\"a\"]"]);
    assert_eq!(run["input"], json!({"s": "x", "n": 7, "l": ["a"]}));
    shop.run(&["run", "start", "typed.toml", "--input", "s=x", "--input", "n=many"])
        .expect(2, &["`n`", "a string, not a number"]);
    let run = input(&["run", "start", "any.toml", "--input", "s=1.5", "--input", "t=true", "--input", "u=x"]);
    assert_eq!(run["input"], json!({"s": 1.5, "t": true, "u": "x"}));
}

// proves J5: who is not told to execute what runs bring along has what it was given
#[test]
fn a_worker_executes_the_playbooks_of_its_folder_and_no_others() {
    let shop = Shop::new();
    fs::create_dir(shop.path("books")).unwrap();
    let hello =
        "name = \"hello\"\nlifecycle = \"job\"\n[[step]]\nname = \"greet\"\nexec = [\"echo\", \"hi\"]\n";
    fs::write(shop.path("books/hello.toml"), hello).unwrap();
    fs::write(shop.path("other.toml"), hello.replace("hello", "other")).unwrap();
    let mine = shop.ok(&["run", "start", "books/hello.toml"]).trim().to_owned();
    let other = shop.ok(&["run", "start", "--queue", "others", "other.toml"]).trim().to_owned();
    let brought = shop.show(&mine);
    assert!(brought["playbook"].as_str().unwrap().starts_with("hello@"));
    shop.run(&["worker"]).expect(2, &["--playbooks DIR", "--allow-commands"]);
    shop.run(&["worker", "--playbooks", "nowhere"]).expect(2, &["nowhere", "cannot be read"]);
    let mut worker = shop.spawn(&["worker", "--playbooks", "books", "--until-idle"]);
    assert_eq!(worker.end(), Some(0));
    assert_eq!(shop.show(&mine)["status"], json!("completed"), "it has that very content itself");
    // What a run brings along is not executed, whatever its name.
    let behind = shop.ok(&["run", "start", "--queue", "others", "books/hello.toml"]).trim().to_owned();
    let mut worker = shop.spawn(&["worker", "--playbooks", "books", "--queue", "others"]);
    eventually("the one behind it is worked", std::time::Duration::from_secs(60), || {
        shop.show(&behind)["status"] == json!("completed")
    });
    worker.kill();
    let left = shop.show(&other);
    assert_eq!((&left["items"]["step"]["pending"], &left["seq"]), (&json!(1), &json!(1)));
    let said = shop.ok(&["run", "show", &other]);
    assert!(said.contains("no live worker of queue others may execute what runs bring along"), "{said}");
}

/// A step that nobody began again says so, when its run ends without it.
// proves J6
#[test]
fn a_step_that_its_worker_left_says_why_it_was_skipped() {
    let shop = Shop::new();
    let waits = r#"exec = ["sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.02; done"]"#;
    let text = format!(
        "name = \"long\"\nlifecycle = \"job\"\n[[step]]\nname = \"first\"\n{waits}\n[[step]]\nname = \"second\"\nexec = [\"true\"]\n"
    );
    fs::write(shop.path("long.toml"), text).unwrap();
    let id = shop.ok(&["run", "start", "long.toml"]).trim().to_owned();
    let mut worker = shop.spawn(&["worker", "--allow-commands", "--grace", "100ms"]);
    eventually("the step begins", std::time::Duration::from_secs(60), || shop.path("begun").exists());
    worker.signal("TERM");
    worker.end();
    shop.ok(&["run", "cancel", &id]);
    let shown = shop.ok(&["run", "show", &id]);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("first").contains("skipped"), "{shown}");
    assert!(shown.contains("it had begun before, and was not begun again"), "{shown}");
    assert!(line("second").trim_end().ends_with("skipped"), "{shown}");
    shop.verifies();
}

/// What ran before a pause, and was to run again after it, is not told as if it never had.
// proves J6, J5
#[test]
fn what_ran_before_a_pause_says_so_when_the_run_is_cancelled_after_it() {
    let shop = Shop::new();
    let text = r#"name = "p"
lifecycle = "job"
[[step]]
name = "lock"
exec = ["true"]
[[step]]
name = "sure"
ask = "go on?"
choices = ["yes", "no"]
[[step]]
name = "ship"
exec = ["true"]
[[cleanup]]
name = "unlock"
after = "lock"
exec = ["true"]
"#;
    fs::write(shop.path("p.toml"), text).unwrap();
    let run = shop.ends(6, &["run", "start", "p.toml", "--wait"]);
    let id = run["run_id"].as_str().unwrap();
    shop.ok(&["run", "resume", id, "--resolve", "sure=yes"]);
    shop.ok(&["run", "cancel", id]);
    let shown = shop.ok(&["run", "show", id]);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    for name in ["lock", "unlock"] {
        assert!(line(name).contains("it ran before the pause, and was not begun again"), "{name}:\n{shown}");
    }
    assert!(line("sure").contains("it had begun before, and was not begun again"), "{shown}");
    assert!(line("ship").trim_end().ends_with("skipped"), "{shown}");
}

/// A cleanup that failed is in the words of whatever end its run has, and of those who wait for that.
// proves X8
#[test]
fn a_cancelled_run_says_that_its_cleanup_failed() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let text = r#"name = "p"
lifecycle = "job"
[[step]]
name = "lock"
exec = ["sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.02; done"]
[[cleanup]]
name = "unlock it"
after = "lock"
exec = ["sh", "-c", "exit 4"]
"#;
        fs::write(shop.path("p.toml"), text).unwrap();
        let id = shop.ok(&["run", "start", "p.toml"]).trim().to_owned();
        let mut worker = shop.spawn(&["worker", "--allow-commands", "--grace", "100ms"]);
        eventually("the step begins", std::time::Duration::from_secs(60), || shop.path("begun").exists());
        shop.ok(&["run", "cancel", &id, "--reason", "enough"]);
        let watched = shop.run(&["run", "watch", &id]);
        watched.expect(3, &["CANCELLED: enough", "cleanup failed: what was to be undone was not: unlock it"]);
        let shown = shop.ok(&["run", "show", &id]);
        assert!(shown.contains("cleanup failed: what was to be undone was not: unlock it"), "{shown}");
        assert_eq!(shop.show(&id)["details"]["cleanup_failed"], json!(["unlock it"]));
        worker.signal("TERM");
        worker.end();
    }
}

/// A run that nobody has names no worker; a cancel of it says what became of its step, and a step that its handler skipped was not left.
// proves J6, U6
#[test]
fn what_waits_in_nobodys_hands_says_so() {
    let shop = Shop::new();
    let text = r#"name = "waits"
lifecycle = "job"
[[step]]
name = "first"
exec = ["sh", "-c", "exit 4"]
retries = 1
backoff = ["10m"]
"#;
    fs::write(shop.path("waits.toml"), text).unwrap();
    let id = shop.ok(&["run", "start", "waits.toml"]).trim().to_owned();
    shop.ok(&["worker", "--allow-commands", "--until-idle"]);
    let shown = shop.ok(&["run", "show", &id]);
    assert!(shown.contains("it is tried again at"), "{shown}");
    assert!(!shown.contains("  worker  "), "{shown}");
    shop.ok(&["run", "cancel", &id]);
    let shown = shop.ok(&["run", "show", &id]);
    assert!(shown.contains("its next try did not begin; the last: EXIT_4: exit code 4"), "{shown}");
    let skips = r#"exec = ["sh", "-c", "echo '{\"outcome\": \"skip\"}' > $WAYPOST_OUTPUT"]"#;
    let text = format!("name = \"skips\"\nlifecycle = \"job\"\n[[step]]\nname = \"last\"\n{skips}\n");
    fs::write(shop.path("skips.toml"), text).unwrap();
    shop.ok(&["run", "start", "skips.toml", "--wait"]);
    let shown = shop.ok(&["run", "show", "@1"]);
    assert!(shown.contains("skipped") && !shown.contains("begun"), "{shown}");
    shop.verifies();
}
