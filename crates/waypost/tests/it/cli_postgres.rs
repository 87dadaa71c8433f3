//! The commands on PostgreSQL: the same words and codes, and those that only make sense there.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use waypost_testkit::{Pooler, Postgres};

use crate::support::{Running, Shop};

fn findings(shop: &Shop, code: i32) -> Vec<Value> {
    let ran = shop.run(&["doctor", "-o", "json"]);
    assert_eq!(ran.code, Some(code), "{}{}", ran.out, ran.err);
    serde_json::from_str::<Value>(&ran.out).unwrap().as_array().unwrap().clone()
}

fn finding<'f>(found: &'f [Value], what: &str, health: &str) -> &'f Value {
    let fits = |it: &&Value| it["what"] == what && it["health"] == health;
    found.iter().find(fits).unwrap_or_else(|| panic!("no {health} about {what}: {found:#?}"))
}

#[test]
fn a_run_goes_its_way_on_postgres() {
    let shop = Shop::on_postgres();
    let said =
        shop.ok(&["run", "start", "--wait", "--input", "a=1", "-o", "json", "--", "sh", "-c", "echo hi"]);
    let run: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&run["status"], &run["input"]["a"]), (&json!("success"), &json!(1)));
    let run_id = run["run_id"].as_str().unwrap();
    assert!(shop.ok(&["run", "logs", run_id]).contains("hi"));
    assert_eq!(shop.show(&run_id[..12])["run_id"], run_id);
    let failed = shop.run(&["run", "start", "--wait", "--", "false"]);
    assert_eq!(failed.code, Some(3), "{}", failed.err);
    shop.run(&["run", "show", "run-f"]).expect(4, &["run-f"]);
    shop.run(&["run", "cancel", run_id]).expect(5, &["INVALID_TRANSITION"]);
    shop.verifies();
}

#[test]
fn migrate_makes_the_schema_and_says_what_is() {
    let database = Postgres::start().unwrap();
    let shop = Shop::at(&database.url());
    let status = |shop: &Shop| shop.json(&["migrate", "--status"])[0]["schema"].clone();
    assert_eq!(status(&shop), "missing");
    assert_eq!(shop.json(&["migrate"])[0]["added"], json!([1]));
    assert_eq!(shop.json(&["migrate"])[0]["added"], json!([]), "a second time changes nothing");
    assert_eq!(status(&shop), "current");
    database.psql("INSERT INTO waypost.migrations(version, name) VALUES (99, 'later')").unwrap();
    assert_eq!(status(&shop), "newer than this binary's");
    shop.run(&["run", "list"]).expect(1, &["newer", "upgrade"]);
    let by_hand = Postgres::start().unwrap();
    by_hand.psql(&shop.ok(&["migrate", "--sql"])).unwrap();
    assert_eq!(status(&Shop::at(&by_hand.url())), "current", "what is printed can be run by other means");
}

#[test]
fn doctor_finds_what_is_wrong_and_says_what_to_do() {
    let shop = Shop::on_postgres();
    // The tests' server does not flush, and is told so.
    let found = findings(&shop, 1);
    assert!(finding(&found, "settings", "error")["advice"].as_str().unwrap().contains("fsync"));
    for well in [
        "version",
        "encryption",
        "schema",
        "roles",
        "clock",
        "listen",
        "connections",
        "indexes",
        "guards",
        "tables",
    ] {
        finding(&found, well, "ok");
    }
    shop.psql("DROP INDEX waypost.ready_order; ALTER TABLE waypost.runs DISABLE TRIGGER runs_move");
    shop.psql("INSERT INTO waypost.clock VALUES ('1 hour')");
    let found = findings(&shop, 1);
    assert!(finding(&found, "indexes", "error")["found"].as_str().unwrap().contains("ready_order"));
    assert!(finding(&found, "guards", "error")["found"].as_str().unwrap().contains("runs_move"));
    finding(&found, "clock", "warning");
    let empty = Postgres::start().unwrap();
    let found = findings(&Shop::at(&empty.url()), 1);
    assert_eq!(finding(&found, "schema", "error")["advice"], "run: waypost migrate");
}

/// PgBouncer in transaction mode: commands and a worker go through it, and the worker says that it polls.
#[test]
fn a_worker_behind_a_pooler_works_and_says_that_it_polls() {
    let database = Postgres::start().unwrap();
    let pooler = Pooler::start(&database, 2).unwrap();
    let shop = Shop::at(&pooler.url(&database));
    assert_eq!(shop.json(&["migrate"])[0]["added"], json!([1]));
    let mut command = shop.command(&["worker", "--allow-commands"]);
    let mut worker = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(worker.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("notifications do not arrive")), "the worker ended");
    let run_id = &shop.queue(&[], "echo hi");
    shop.ok(&["run", "watch", run_id]);
    assert_eq!(shop.show(run_id)["status"], "success");
    assert!(shop.ok(&["run", "logs", run_id]).contains("hi"));
    shop.verifies();
    let found = findings(&shop, 1);
    assert!(finding(&found, "pooler", "ok")["found"].as_str().unwrap().contains("PgBouncer"));
    finding(&found, "listen", "warning");
}

#[test]
fn doctor_looks_at_a_file_too() {
    let shop = Shop::new();
    finding(&findings(&shop, 0), "file", "warning");
    assert_eq!(shop.json(&["migrate", "--status"])[0]["schema"], "missing");
    assert!(!shop.database().exists(), "looking makes nothing");
    shop.queue(&[], "true");
    let found = findings(&shop, 0);
    for well in ["version", "file", "schema", "journal", "integrity"] {
        finding(&found, well, "ok");
    }
}
