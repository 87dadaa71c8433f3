//! Runs of agents as documents in a folder, seen from outside: by one command, and beside processes that are killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Running, Shop, eventually};

const WORKERS: usize = 2;
const RUNS: usize = 6;
const SOON: Duration = Duration::from_secs(60);
/// Leases of 2 s, and what is left to work.
const DRAINED: Duration = Duration::from_secs(300);

const PLAYBOOK: &str = r#"
name = "archivist-violin"
lifecycle = "agent"
[[step]]
name = "load-context"
exec = ["sleep", "0.05"]
[[step]]
name = "execute-agent"
exec = ["sleep", "0.1"]
[[step]]
name = "finalize"
exec = ["true"]
"#;

/// `./scripts/soak projection` asks for more.
fn kills() -> usize {
    std::env::var("WAYPOST_KILLS").map_or(4, |text| text.parse().unwrap())
}

fn document(shop: &Shop, id: &str, name: &str) -> Option<Value> {
    let path: PathBuf = shop.path(".waypost/objects/runs").join(id).join(name);
    let text = fs::read(path).ok()?;
    Some(serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name} is whole: {error}")))
}

fn agent_shop() -> Shop {
    let shop = Shop::new();
    fs::write(shop.path("agent.toml"), PLAYBOOK).unwrap();
    shop
}

// proves A2, A3 and A7
#[test]
fn one_command_takes_an_agents_run_to_its_documents() {
    let shop = agent_shop();
    let ran = shop.run(&["run", "start", "agent.toml", "--wait", "-o", "json"]);
    ran.expect(0, &["requested → queued → running → completed"]);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let status = document(&shop, id, "status.json").unwrap();
    assert_eq!(
        (&status["agent_slug"], &status["status"], &status["trigger"], &status["current_step"]),
        (&json!("archivist-violin"), &json!("completed"), &json!("manual"), &json!("finalize"))
    );
    assert_eq!(document(&shop, id, "manifest.json").unwrap()["finished_at"], status["finished_at"]);
    assert_eq!(document(&shop, id, "steps/1.json").unwrap()["name"], "load-context");
    fs::remove_file(shop.path(".waypost/objects/runs").join(id).join("manifest.json")).unwrap();
    assert!(shop.ok(&["projection", "rebuild", "--all"]).starts_with("1 run: 1 object written to file:///"));
    assert!(shop.ok(&["projection", "rebuild", "--all"]).starts_with("1 run: 0 objects"));
}

#[test]
fn what_cannot_be_rebuilt_is_told() {
    let shop = agent_shop();
    let id = shop.queue(&[], "true");
    shop.run(&["projection", "rebuild", &id]).expect(2, &["a deploy run is not written to the object store"]);
    shop.run(&["projection", "rebuild", "run_nobody"]).expect(4, &["run_nobody"]);
    shop.run(&["projection", "rebuild"]).expect(2, &["--all"]);
    let mut command = shop.command(&["projection", "rebuild", "--all"]);
    let ran = command.env("WAYPOST_OBJECT_STORE", "gopher://secret").output().unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(told.contains("WAYPOST_OBJECT_STORE") && told.contains("s3://bucket/prefix"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

/// Whoever reads status.json again and again.
#[derive(Default)]
struct Reader {
    seen: BTreeMap<String, Value>,
    changes: usize,
}

impl Reader {
    fn look(&mut self, shop: &Shop, ids: &[String]) -> usize {
        for id in ids {
            let Some(status) = document(shop, id, "status.json") else {
                assert!(!self.seen.contains_key(id), "it was there");
                continue;
            };
            if status["status"] == "completed" {
                let manifest = document(shop, id, "manifest.json").expect("the manifest is there before");
                assert_eq!(manifest["finished_at"], status["finished_at"]);
            }
            let before = self.seen.insert(id.clone(), status.clone()).unwrap_or_default();
            if before != status {
                self.changes += 1;
                check(&before, &status);
            }
        }
        self.seen.values().filter(|status| is_terminal(status)).count()
    }
}

fn is_terminal(status: &Value) -> bool {
    status["status"] == "completed" || status["status"] == "failed"
}

fn check(before: &Value, after: &Value) {
    let order = ["requested", "queued", "running", "completed", "failed"];
    let place = |status: &Value| order.iter().position(|name| status["status"] == *name);
    assert!(!is_terminal(before), "a terminal document does not change: {before} → {after}");
    assert!(place(before) <= place(after), "{before} → {after}");
    assert!(before["steps_completed"].as_u64() <= after["steps_completed"].as_u64(), "{before} → {after}");
}

fn worker(shop: &Shop) -> Running {
    shop.spawn(&["worker", "--allow-commands", "--lease", "2s", "--slots", "2", "--grace", "1s"])
}

// proves A4
#[test]
fn processes_that_are_killed_move_no_document_back() {
    let shop = agent_shop();
    let mut workers: Vec<Running> = (0..WORKERS).map(|_| worker(&shop)).collect();
    let mut reader = Reader::default();
    let mut ids: Vec<String> = Vec::new();
    for kill in 0..kills() {
        // Always some that are not done: a kill meets somebody who writes.
        while ids.len() < RUNS || ids.len() - reader.look(&shop, &ids) < RUNS / 2 {
            ids.push(shop.ok(&["run", "start", "agent.toml"]).trim().to_owned());
        }
        let goal = reader.changes + 3;
        eventually("documents go on", SOON, || {
            reader.look(&shop, &ids);
            reader.changes >= goal
        });
        workers[kill % WORKERS].kill();
        workers[kill % WORKERS] = worker(&shop);
    }
    eventually("every run has its last document", DRAINED, || reader.look(&shop, &ids) == ids.len());
    let count = |name: &str| reader.seen.values().filter(|status| status["status"] == name).count();
    println!(
        "{} kills, {} runs, {} completed, {} failed, {} changes of documents",
        kills(),
        ids.len(),
        count("completed"),
        count("failed"),
        reader.changes
    );
    assert!(count("completed") > 0);
    drop(workers);
    shop.verifies();
}
