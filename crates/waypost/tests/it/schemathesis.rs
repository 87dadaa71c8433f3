//! The OpenAPI document against a real server: schemathesis asks whatever it allows, follows its links, and takes no 5xx
//! and nothing that is not in it. `./scripts/soak schemathesis` asks for more, and by another seed each time.

use std::process::Command;

use crate::support::{Shop, surround};

/// Of each route, and as many stories of links.
const EXAMPLES: &str = "10";

#[track_caller]
fn holds_on(name: &str, shop: &Shop) {
    let token = shop.ok(&["token", "create", "schemathesis", "--role", "admin", "--tenant", "*"]);
    let (_server, url) = shop.serve(&["serve", "--no-worker", "--require-tokens"]);
    let mut schemathesis =
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/schemathesis/run"));
    surround(&mut schemathesis, shop.folder());
    schemathesis.arg(&url).env("WAYPOST_TOKEN", token.trim());
    match std::env::var("WAYPOST_EXAMPLES") {
        Ok(examples) => schemathesis.args(["--max-examples", &examples]),
        Err(_) => schemathesis.args(["--max-examples", EXAMPLES, "--seed", "6"]),
    };
    let ran = schemathesis.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    // Bodies of a megabyte would hide the rest.
    let short: Vec<String> = said.lines().map(|line| line.chars().take(300).collect()).collect();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name}: {}\n{errors}", short.join("\n"));
    let is_told = |line: &&String| {
        ["Seed", "Links", "Scenarios", "generated", "Tested"].iter().any(|it| line.contains(it))
    };
    let told: Vec<&str> = short.iter().filter(is_told).map(|line| line.trim()).collect();
    println!("{name}: {}", told.join("; "));
    for phase in ["Coverage", "Fuzzing", "Stateful"] {
        assert!(said.contains(&format!("✅ {phase}")), "{phase} was left out");
    }
    shop.verifies();
}

#[test]
fn whatever_the_document_allows_is_answered_as_it_says() {
    holds_on("SQLite", &Shop::new());
}

#[test]
fn whatever_the_document_allows_is_answered_as_it_says_on_postgres() {
    holds_on("PostgreSQL", &Shop::on_postgres());
}
