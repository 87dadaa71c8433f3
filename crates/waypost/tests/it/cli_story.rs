//! The way of a newcomer, with nothing but the command line: from the first files to a backup that is restored elsewhere.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Shop, eventually};

/// Each step leaves a line in `did`. The third region fails until `ap-is-up` is there.
const SHIP: &str = r#"name = "ship"
lifecycle = "job"
concurrency_key = "ship-{{ inputs.stage }}"

[inputs.stage]
type = "string"

[[step]]
name = "build"
exec = ["sh", "-c", "echo build >> ../did; echo '{\"output\": {\"regions\": [\"eu\", \"us\", \"ap\"]}}' > $WAYPOST_OUTPUT"]

[[step]]
name = "go ahead?"
ask = "ship {{ steps.build.output.regions | length }} regions of {{ inputs.stage }}?"
choices = ["yes", "no"]

[[step]]
name = "ship {{ item }}"
id = "ship"
for_each = "steps.build.output.regions"
parallel = 3
when = "steps['go ahead?'].output.choice == 'yes'"
exec = ["sh", "-c", "echo ship $0 >> ../did; [ $0 != ap ] || [ -e ../ap-is-up ]", "{{ item }}"]

[[step]]
name = "tell"
exec = ["sh", "-c", "echo tell >> ../did"]
"#;

fn did(shop: &Shop) -> Vec<String> {
    let text = fs::read_to_string(shop.path("did")).unwrap_or_default();
    let _ = fs::remove_file(shop.path("did"));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn id(run: &Value) -> &str {
    run["run_id"].as_str().unwrap()
}

// proves U1 and U3 and U4 and U5 and U7 and U10
#[test]
fn from_the_first_files_to_a_backup_restored_elsewhere() {
    let shop = Shop::new();
    shop.ok(&["init"]);
    shop.ok(&["playbook", "check", "playbooks/deploy.toml"]);
    fs::write(shop.path("playbooks/ship.toml"), SHIP).unwrap();
    shop.ok(&["playbook", "check", "playbooks/ship.toml"]);
    shop.ok(&["lifecycle", "add", "lifecycles/release.toml"]);
    let mut worker = shop.spawn(&["worker", "--playbooks", "playbooks", "--allow-commands", "--slots", "4"]);
    eventually("the worker's playbooks are known", Duration::from_secs(30), || {
        shop.ok(&["playbook", "list"]).contains("ship")
    });

    let start = ["run", "start", "ship", "--input", "stage=prod", "--wait"];
    let asked = shop.run(&start);
    asked.expect(6, &["ship 3 regions of prod?", "--resolve 'go ahead?=yes|no'"]);
    let parked = shop.runs().remove(0);
    assert_eq!(
        (parked["status"].as_str(), parked["concurrency_key"].as_str()),
        (Some("paused"), Some("ship-prod"))
    );
    assert_eq!(did(&shop), ["build"]);

    let answered =
        ["run", "resume", id(&parked), "--resolve", "go ahead?=yes", "--reason", "agreed", "--wait"];
    shop.run(&answered).expect(3, &["ship ap"]);
    assert_eq!(did(&shop), ["ship ap", "ship eu", "ship us"], "one fails, and those beside it end");
    assert_eq!(shop.show(id(&parked))["status"], "failed");

    fs::write(shop.path("ap-is-up"), "").unwrap();
    let again = shop.json(&["run", "replay", id(&parked), "--failed", "--wait"]);
    assert_eq!(
        (again["status"].as_str(), again["retry_of"].as_str()),
        (Some("completed"), Some(id(&parked)))
    );
    assert_eq!(did(&shop), ["ship ap", "tell"], "what was done stays done, the answer included");

    let start =
        ["run", "start", "--lifecycle", "release", "-o", "json", "--", "sh", "-c", "echo rolled >> did"];
    let draft: Value = serde_json::from_str(&shop.ok(&start)).unwrap();
    assert_eq!(draft["status"], "draft");
    shop.ok(&["run", "do", id(&draft), "submit"]);
    shop.run(&["run", "do", id(&draft), "approve"]).expect(5, &["reason"]);
    shop.ok(&["run", "do", id(&draft), "approve", "--reason", "tested", "--wait"]);
    assert_eq!(shop.show(id(&draft))["status"], "live");
    assert_eq!(did(&shop), ["rolled"]);

    shop.ok(&["backup", "saved.db"]);
    worker.signal("TERM");
    assert_eq!(worker.end(), Some(0));
    let elsewhere = Shop::new();
    let saved = shop.path("saved.db");
    elsewhere.ok(&["restore", saved.to_str().unwrap()]);
    elsewhere.verifies();
    let ids = |shop: &Shop| shop.runs().iter().map(|run| id(run).to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&elsewhere), ids(&shop));
    assert_eq!(elsewhere.show(id(&draft))["status"], "live");
}
