//! A run that goes on where another one failed.

use std::fs;

use serde_json::{Value, json};

use crate::support::{SOON, Shop, eventually, id_of, playbook};

/// Each step leaves a line in `did`. `ship us` fails until `us-is-up` is there.
const SHOP: &str = r#"name = "shop"
lifecycle = "job"

[inputs.env]
type = "string"

[[step]]
name = "build"
exec = ["sh", "-c", "echo build >> did; echo '{\"output\": {\"image\": \"i7\", \"regions\": [\"eu\", \"us\", \"ap\"]}}' > $WAYPOST_OUTPUT"]

[[step]]
name = "scan"
when = "inputs.env == 'never'"
exec = ["sh", "-c", "echo scan >> did"]

[[step]]
name = "open gate"
exec = ["sh", "-c", "echo open >> did"]

[[step]]
name = "ship {{ item }}"
id = "ship"
for_each = "steps.build.output.regions"
exec = ["sh", "-c", "echo ship $0 $1 >> did; [ $0 != us ] || [ -e us-is-up ]", "{{ item }}", "{{ steps.build.output.image }}"]

[[step]]
name = "tell"
exec = ["sh", "-c", "echo tell $0 >> did", "{{ steps.ship.output | length }}"]

[[cleanup]]
name = "close gate"
after = "open gate"
exec = ["sh", "-c", "echo close >> did"]
"#;

fn did(shop: &Shop) -> Vec<String> {
    let text = fs::read_to_string(shop.path("did")).unwrap_or_default();
    let _ = fs::remove_file(shop.path("did"));
    text.lines().map(str::to_owned).collect()
}

/// What a step does that leaves a line in `did`, which may name its item as `$0`.
fn leaves(line: &str) -> String {
    let item = if line.contains("$0") { ", \"{{ item }}\"" } else { "" };
    format!("exec = [\"sh\", \"-c\", \"echo {line} >> did\"{item}]")
}

fn items(shop: &Shop, run: &Value) -> Vec<(String, String)> {
    let store = tokio::runtime::Runtime::new().unwrap();
    let rows = store.block_on(async {
        shop.store().await.items(id_of(run).to_owned(), Some("step".into())).await.unwrap()
    });
    rows.into_iter().map(|row| (row.key, row.status)).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, status)| ((*key).to_owned(), (*status).to_owned())).collect()
}

fn failed_run(shop: &Shop) -> Value {
    fs::write(shop.path("shop.toml"), SHOP).unwrap();
    let run = shop.ends(3, &["run", "start", "shop.toml", "--input", "env=x", "--wait"]);
    assert_eq!(did(shop), ["build", "open", "ship eu i7", "ship us i7", "close"]);
    run
}

// proves U3
fn only_what_is_left_is_done(shop: &Shop) {
    let old = failed_run(shop);
    let id = id_of(&old);
    let queued = shop.json(&["run", "replay", id, "--failed"]);
    assert_eq!((&queued["retry_of"], &queued["status"]), (&json!(id), &json!("pending")));
    let expected = [
        ("build", "completed"),
        ("scan", "pending"),
        ("open gate", "pending"),
        ("ship[1]", "completed"),
        ("ship[2]", "pending"),
        ("ship[3]", "pending"),
        ("tell", "pending"),
        ("cleanup: close gate", "pending"),
    ];
    assert_eq!(items(shop, &queued), pairs(&expected));
    assert_eq!(did(shop), [""; 0], "nobody works it yet");
    shop.ok(&["run", "cancel", id_of(&queued)]);
    // It fails again where it failed, and goes on from there once more.
    let again = shop.ends(3, &["run", "replay", id, "--failed", "--wait"]);
    assert_eq!(did(shop), ["open", "ship us i7", "close"], "what a cleanup undid, and what failed");
    fs::write(shop.path("us-is-up"), "").unwrap();
    let done = shop.json(&["run", "replay", id_of(&again), "--failed", "--wait"]);
    assert_eq!(done["status"], "completed");
    assert_eq!(did(shop), ["open", "ship us i7", "ship ap i7", "tell 3", "close"]);
    assert_eq!(shop.show(id)["status"], "failed", "the old one stays as it ended");
    shop.run(&["run", "replay", id_of(&done), "--failed"]).expect(2, &["nothing of the run failed"]);
    shop.verifies();
}

#[test]
fn on_sqlite_only_what_is_left_is_done() {
    only_what_is_left_is_done(&Shop::new());
}

#[test]
fn on_postgres_only_what_is_left_is_done() {
    only_what_is_left_is_done(&Shop::on_postgres());
}

// proves U3
#[test]
fn a_run_goes_on_from_a_step() {
    let shop = Shop::new();
    let old = failed_run(&shop);
    let id = id_of(&old);
    fs::write(shop.path("us-is-up"), "").unwrap();
    let replay = |step: &str| shop.json(&["run", "replay", id, "--from", step, "--wait"])["status"].clone();
    assert_eq!(replay("ship"), "completed");
    assert_eq!(did(&shop), ["open", "ship eu i7", "ship us i7", "ship ap i7", "tell 3", "close"]);
    assert_eq!(replay("ship[2]"), "completed");
    assert_eq!(did(&shop), ["open", "ship us i7", "ship ap i7", "tell 3", "close"]);
    assert_eq!(replay("ship us"), "completed", "by the name that people see");
    did(&shop);
    assert_eq!(replay("build"), "completed");
    assert_eq!(did(&shop)[0], "build", "from the first on is the whole");
    let refused =
        |args: &[&str], words: &[&str]| shop.run(&[&["run", "replay", id], args].concat()).expect(2, words);
    refused(&["--from", "tell"], &["ship[2]", "is failed", "replay from there"]);
    refused(&["--from", "shpi"], &["no step", "did you mean `ship`?"]);
    refused(&["--failed", "--input", "env=y"], &["saw the old input"]);
    refused(&["--from", "ship", "--input", "env=y"], &["saw the old input"]);
    shop.run(&["run", "replay", id, "--failed", "--from", "ship"]).expect(2, &["cannot be used with"]);
    let waiting = shop.json(&["run", "start", "shop.toml", "--input", "env=x"]);
    let waiting = id_of(&waiting);
    shop.run(&["run", "replay", waiting, "--failed"]).expect(2, &["once it has ended"]);
    let command = shop.queue(&[], "true");
    shop.ok(&["run", "cancel", &command]);
    assert_eq!(shop.run(&["run", "replay", &command, "--failed"]).code, Some(2));
    shop.verifies();
}

// proves U3: the version is the old run's, if anybody knows it
#[test]
fn a_replay_is_of_the_version_that_the_run_had() {
    let shop = Shop::new();
    fs::create_dir(shop.path("books")).unwrap();
    fs::write(shop.path("books/shop.toml"), SHOP).unwrap();
    let old = shop.ends(3, &["run", "start", "shop", "--playbooks", "books", "--input", "env=x", "--wait"]);
    let id = id_of(&old);
    shop.run(&["run", "replay", id, "--failed"]).expect(2, &["is not known any more", "`run start shop`"]);
    assert_eq!(shop.spawn(&["worker", "--playbooks", "books", "--until-idle"]).end(), Some(0));
    fs::write(shop.path("books/shop.toml"), SHOP.replace("tell", "say")).unwrap();
    assert_eq!(shop.spawn(&["worker", "--playbooks", "books", "--until-idle"]).end(), Some(0));
    let new = shop.json(&["run", "replay", id, "--failed"]);
    assert_eq!(new["playbook"], old["playbook"], "another one came since");
    assert!(items(&shop, &new).iter().any(|(key, _)| key == "tell"));
    shop.verifies();
}

// proves U3
#[test]
fn over_http_a_run_goes_on_too() {
    let shop = Shop::new();
    let old = failed_run(&shop);
    let id = id_of(&old);
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let post = |body: &str| {
        let asked = std::process::Command::new("curl")
            .args(["-s", "--noproxy", "*", "-H", "content-type: application/json", "-d", body])
            .arg(format!("{url}/v1/runs/{id}/replay"))
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&asked.stdout).unwrap()
    };
    let run = post(r#"{"failed": true}"#);
    assert_eq!((&run["retry_of"], &run["items"]["step"]["completed"]), (&json!(id), &json!(2)), "{run}");
    let page = shop.curl(&url, &format!("/v1/runs/{}/items", id_of(&run)));
    assert_eq!(page["items"][0]["output"]["image"], "i7", "{page}");
    let events = shop.curl(&url, &format!("/v1/runs/{}/events", id_of(&run)));
    assert_eq!(events["events"][0]["payload"]["copied"], json!(["build", "ship[1]"]));
    assert_eq!(post(r#"{"from": "tell"}"#)["errors"][0]["pointer"], "/from");
    assert_eq!(post(r#"{"from": "ship", "input": {"env": "y"}}"#)["errors"][0]["pointer"], "/input");
    assert_eq!(post(r#"{"from": "ship", "failed": true}"#)["errors"][0]["pointer"], "/from");
    let whole = post(r#"{"input": {"env": "y"}}"#);
    assert_eq!((&whole["input"]["env"], &whole["items"]["step"]["completed"]), (&json!("y"), &Value::Null));
    shop.asks(&url, &["run", "replay", id, "--from", "ship"]).expect(0, &[]);
    shop.verifies();
}

/// The advice that is printed is one that works.
// proves U3
#[test]
fn what_is_advised_instead_of_a_retry_works() {
    let shop = Shop::new();
    let old = failed_run(&shop);
    let id = id_of(&old);
    shop.run(&["run", "retry", id])
        .expect(5, &[&format!("`waypost run replay {id} --failed` goes on where it failed")]);
    let schedule = "[[schedule]]\nname = \"flaky\"\ncadence = \"1h\"\nfirst = \"latest\"\nbackoff = []\nexec = [\"false\"]\n";
    fs::write(shop.path("waypost.toml"), schedule).unwrap();
    let (_server, _) = shop.serve(&["serve"]);
    let mut run = Value::Null;
    eventually("it fails for good", SOON, || {
        let runs = shop.json(&["run", "list", "--lifecycle", "cron", "--status", "FAILED"]);
        let is_it = |run: &&Value| shop.show(id_of(run))["input"]["job_name"] == "flaky";
        run = runs.as_array().unwrap().iter().find(is_it).cloned().unwrap_or_default();
        run.is_object()
    });
    let id = id_of(&run);
    let words =
        ["an execution is its scheduler's", &format!("waypost run retry {id}"), "schedule trigger flaky"];
    shop.run(&["run", "replay", id]).expect(2, &words);
    let said = shop.ok(&["run", "retry", id]);
    assert!(said.contains("is executed again"), "{said}");
    shop.ok(&["schedule", "trigger", "flaky"]);
}

const ASKS: &str = r#"name = "asks"
lifecycle = "job"

[[step]]
name = "ask"
exec = ["sh", "-c", "echo ask >> did; [ -e asked ] || echo '{\"outcome\": \"pause\", \"reason\": \"esx1\", \"blockers\": {\"esx1\": {\"choices\": [\"skip\"]}}}' > $WAYPOST_OUTPUT; touch asked"]

[[step]]
name = "use"
exec = ["sh", "-c", "echo use $0 >> did; [ -e up ]", "{{ run.resolutions.esx1.decision }}"]
"#;

// proves U3: decisions included
#[test]
fn what_people_decided_stays_decided() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        fs::write(shop.path("asks.toml"), ASKS).unwrap();
        let run = shop.ends(6, &["run", "start", "asks.toml", "--wait"]);
        let id = id_of(&run);
        assert_eq!(shop.run(&["run", "resume", id, "--resolve", "esx1=skip", "--wait"]).code, Some(3));
        assert_eq!(did(&shop), ["ask", "ask", "use skip"]);
        fs::write(shop.path("up"), "").unwrap();
        let new = shop.json(&["run", "replay", id, "--failed", "--wait"]);
        assert_eq!((&new["status"], did(&shop)), (&json!("completed"), vec!["use skip".to_owned()]));
        let decision = &new["details"]["maintenance_blocker_resolutions"]["esx1"];
        assert_eq!(
            (&decision["by"], &decision["attempt"]),
            (&json!("tester"), &json!(0)),
            "of no pause of this run"
        );
        shop.verifies();
    }
}

// proves U3
#[test]
fn what_was_left_out_because_of_what_failed_is_done_then() {
    let shop = Shop::new();
    let steps = [
        ("check", "continue_on_failure = true\nexec = [\"test\", \"-e\", \"ok\"]".to_owned()),
        ("ship", format!("when = \"steps.check.ok\"\n{}", leaves("ship"))),
        ("alarm", format!("when = \"not steps.check.ok\"\n{}", leaves("alarm"))),
        (
            "tell {{ item }}",
            format!("id = \"tell\"\nfor_each = \"[1, 2]\"\nwhen = \"steps.check.ok\"\n{}", leaves("tell $0")),
        ),
    ];
    let steps: Vec<(&str, &str)> = steps.iter().map(|(name, more)| (*name, more.as_str())).collect();
    let text = playbook("maybe", "job", &steps);
    fs::write(shop.path("maybe.toml"), text).unwrap();
    let old = shop.ends(3, &["run", "start", "maybe.toml", "--wait"]);
    assert_eq!(did(&shop), ["alarm"]);
    fs::write(shop.path("ok"), "").unwrap();
    let done = shop.json(&["run", "replay", id_of(&old), "--failed", "--wait"]);
    assert_eq!(
        (done["status"].as_str(), did(&shop)),
        (Some("completed"), ["ship", "tell 1", "tell 2"].map(str::to_owned).to_vec())
    );
    shop.verifies();
}

/// `a` fails until `up` is there; `b1` and `b2` do not wait for it.
const BRANCHES: &str = r#"name = "branches"
lifecycle = "job"

[[step]]
name = "a"
needs = []
exec = ["sh", "-c", "until [ -e b ]; do sleep 0.01; done; echo a >> did; [ -e up ]"]

[[step]]
name = "after a"
needs = ["a"]
exec = ["sh", "-c", "echo after a >> did"]

[[step]]
name = "b1"
needs = []
exec = ["sh", "-c", "echo b1 >> did"]

[[step]]
name = "b2"
needs = ["b1"]
exec = ["sh", "-c", "echo b2 >> did; touch b"]

[[step]]
name = "last"
needs = ["after a", "b2"]
exec = ["sh", "-c", "echo last >> did"]
"#;

// proves U3, U5: what waits for a step runs again with it, and nothing else that is done
#[test]
fn a_replay_from_a_step_goes_by_what_waits_for_it() {
    let shop = Shop::new();
    fs::write(shop.path("branches.toml"), BRANCHES).unwrap();
    let ran = shop.run(&["run", "start", "branches.toml", "--wait", "-o", "json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert_eq!(did(&shop), ["b1", "b2", "a"]);
    let old: Value = serde_json::from_str(&ran.out).unwrap();
    let id = old["run_id"].as_str().unwrap();
    fs::write(shop.path("up"), "").unwrap();
    let replay = |step: &str| {
        let new = shop.json(&["run", "replay", id, "--from", step, "--wait"]);
        assert_eq!(new["status"], "completed", "{step}: {new}");
        let mut done = did(&shop);
        done.sort();
        done
    };
    assert_eq!(replay("a"), ["a", "after a", "last"]);
    assert_eq!(replay("b2"), ["a", "after a", "b2", "last"], "what failed runs too");
    shop.run(&["run", "replay", id, "--from", "after a"])
        .expect(2, &["\"after a\" waits for \"a\", which is failed", "replay from there"]);
    shop.verifies();
}

// proves U3: parts that may be under way at once do not wait for one another; one after the other, they do
#[test]
fn a_replay_from_a_part_of_a_list_goes_by_how_its_parts_run() {
    for (parallel, expected) in
        [("parallel = 3", &["part 2", "tell"][..]), ("", &["part 2", "part 3", "tell"])]
    {
        let shop = Shop::new();
        let parts = format!("id = \"part\"\nfor_each = \"[1, 2, 3]\"\n{parallel}\n{}", leaves("part $0"));
        let text = playbook("parts", "job", &[("part {{ item }}", &parts), ("tell", &leaves("tell"))]);
        fs::write(shop.path("parts.toml"), text).unwrap();
        let old = shop.json(&["run", "start", "parts.toml", "--wait"]);
        did(&shop);
        let new = shop.json(&["run", "replay", id_of(&old), "--from", "part[2]", "--wait"]);
        assert_eq!(
            (&new["status"], did(&shop)),
            (&json!("completed"), expected.iter().map(|it| (*it).to_owned()).collect())
        );
        shop.run(&["run", "replay", id_of(&old), "--failed"])
            .expect(2, &["failed: nothing of the run failed"]);
        shop.verifies();
    }
}

/// A step that said that nothing more is needed has completed: what failed beside it is done again, and it is not.
// proves U3
#[test]
fn a_step_that_finished_early_is_not_done_again() {
    let ends = r#"exec = ["sh", "-c", "echo enough >> did; echo '{\"outcome\": \"finish\", \"output\": 7}' > $WAYPOST_OUTPUT"]"#;
    let fails = |name: &str| format!("exec = [\"sh\", \"-c\", \"echo {name} >> did; test -e mended\"]");
    let text = format!(
        "name = \"early\"\nlifecycle = \"job\"\n[[step]]\nname = \"check\"\ncontinue_on_failure = true\n{}\n[[step]]\nname = \"enough\"\n{ends}\n\
         [[step]]\nname = \"beside\"\nneeds = []\ncontinue_on_failure = true\n{}\n[[step]]\nname = \"rest\"\nneeds = [\"enough\"]\n{}\n",
        fails("check"),
        fails("beside"),
        leaves("rest"),
    );
    for shop in [Shop::new(), Shop::on_postgres()] {
        fs::write(shop.path("early.toml"), &text).unwrap();
        let old = shop.ends(3, &["run", "start", "early.toml", "--wait"]);
        let mut first = did(&shop);
        first.sort();
        assert_eq!(first, ["beside", "check", "enough"]);
        fs::write(shop.path("mended"), "").unwrap();
        let new = shop.ends(0, &["run", "replay", id_of(&old), "--failed", "--wait"]);
        let mut again = did(&shop);
        again.sort();
        assert_eq!(again, ["beside", "check"]);
        let all =
            [("check", "completed"), ("enough", "completed"), ("beside", "completed"), ("rest", "skipped")];
        assert_eq!(items(&shop, &new), pairs(&all));
        shop.verifies();
    }
}
