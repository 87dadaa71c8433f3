//! Runs of agents as documents in a folder, seen from outside, by one command.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Shop, playbook};

fn agent() -> String {
    let steps = [
        ("load-context", r#"exec = ["sleep", "0.05"]"#),
        ("execute-agent", r#"exec = ["sleep", "0.1"]"#),
        ("finalize", r#"exec = ["true"]"#),
    ];
    playbook("archivist-violin", "agent", &steps)
}

fn document(shop: &Shop, id: &str, name: &str) -> Option<Value> {
    let path: PathBuf = shop.path(".waypost/objects/runs").join(id).join(name);
    let text = fs::read(path).ok()?;
    Some(serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name} is whole: {error}")))
}

fn agent_shop() -> Shop {
    let shop = Shop::new();
    fs::write(shop.path("agent.toml"), agent()).unwrap();
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
