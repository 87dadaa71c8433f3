//! State names, and the words in which lifecycles ask for decisions, are data: they stand in `lifecycles/`, in the `ops` interface and in tests, nowhere else.

use std::collections::BTreeSet;

use super::rust::Kind;
use super::tree::{Complaint, Exception, File, Tree, assert_clean, complaint, except, found};

const ENGINE: &[&str] = &["kernel", "store", "worker", "server"];

/// The subject is the state's name.
const EXCEPTIONS: &[Exception] = &[
    Exception { path: "crates/kernel/src/lifecycle/mod.rs", subject: "partial", reason: OUTCOME },
    Exception { path: "crates/kernel/src/lifecycle/mod.rs", subject: "failed", reason: OUTCOME },
    Exception { path: "crates/kernel/src/lifecycle/mod.rs", subject: "cancelled", reason: OUTCOME },
    Exception { path: "crates/kernel/src/lifecycle/mod.rs", subject: "skipped", reason: OUTCOME },
    Exception {
        path: "crates/worker/src/steps/tasks.rs",
        subject: "failed",
        reason: "a word of the lines by which commands tell their progress",
    },
    Exception { path: "crates/worker/src/retention.rs", subject: "success", reason: KEY },
    Exception { path: "crates/server/src/openapi.rs", subject: "requested", reason: MEMBER },
    Exception { path: "crates/server/src/problem.rs", subject: "requested", reason: MEMBER },
    Exception { path: "crates/store/src/json/wire.rs", subject: "requested", reason: MEMBER },
    Exception { path: "crates/store/src/seam/agents.rs", subject: "paused", reason: AGENT },
    Exception { path: "crates/store/src/seam/agents.rs", subject: "failed", reason: AGENT },
    Exception { path: "crates/server/src/api/wire/shapes.rs", subject: "failed", reason: AGENT },
    Exception { path: "crates/server/src/api/wire/proposals.rs", subject: "pending", reason: COUNTER },
    Exception { path: "crates/server/src/api/wire/proposals.rs", subject: "processed", reason: COUNTER },
    Exception { path: "crates/server/src/api/wire/proposals.rs", subject: "rejected", reason: COUNTER },
    Exception { path: "crates/server/src/api/wire/proposals.rs", subject: "expired", reason: COUNTER },
    Exception { path: "crates/server/src/api/wire/target_requests.rs", subject: "applied", reason: TRIED },
    Exception { path: "crates/server/src/api/targets.rs", subject: "applied", reason: TRIED },
    Exception { path: "crates/store/src/postgres/schema/enter.sql", subject: "expired", reason: MEMBER },
    Exception { path: "crates/kernel/src/alert.rs", subject: "pending", reason: ALERT },
    Exception { path: "crates/server/src/api/wire/shapes.rs", subject: "pending", reason: ALERT },
    Exception { path: "crates/store/src/seam/schedules.rs", subject: "paused", reason: COUNTER },
    Exception { path: "crates/store/src/seam/schedules.rs", subject: "failed", reason: COUNTER },
    Exception { path: "crates/server/src/schedule_metrics.rs", subject: "paused", reason: COUNTER },
    Exception { path: "crates/store/src/json/schedule_wire.rs", subject: "skipped", reason: MEMBER },
    Exception { path: "crates/server/src/console/pages/queues.rs", subject: "paused", reason: MEMBER },
    Exception {
        path: "crates/server/src/console/pages/schedules/one.rs",
        subject: "skipped",
        reason: MEMBER,
    },
    Exception { path: "crates/server/src/console/pages/replay.rs", subject: "failed", reason: MEMBER },
    Exception {
        path: "crates/store/src/postgres/schema/by_hand_items.sql",
        subject: "failed",
        reason: OUTCOME,
    },
    Exception { path: "crates/store/src/sqlite/schema/hand_edits.sql", subject: "failed", reason: OUTCOME },
];
const KEY: &str = "a key of `waypost.toml`, which lifecycles also use for a state";
const COUNTER: &str = "a counter's name, which lifecycles also use for a state";
const MEMBER: &str = "a member of the queue or schedule object, of a request or of a refusal, which a lifecycle also uses for a state";
const AGENT: &str =
    "an agent's state, or a member of the agent object, which lifecycles also use for a state";
const TRIED: &str = "what came of a target's try, which a lifecycle also uses for a state";
const ALERT: &str = "an alert's status as Prometheus calls it, which lifecycles also use for a state";
const OUTCOME: &str = "an outcome's name, which lifecycles also use for a state";

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut names = BTreeSet::new();
    let mut decisions = BTreeSet::new();
    for file in &tree.files {
        if file.path.starts_with("lifecycles/") && file.has_extension(&["toml"]) {
            match state_names(&file.text) {
                Ok(found) => {
                    names.extend(found);
                    decisions.extend(decision_words(&file.text));
                }
                Err(error) => complaints.push(complaint(&file.path, 1, "toml", error)),
            }
        }
    }
    for file in &tree.files {
        let is_engine = file.crate_of_source().is_some_and(|name| ENGINE.contains(&name));
        if !is_engine || file.is_test() || file.has_component("ops") {
            continue;
        }
        for (line, name) in literals(file, &names) {
            let message = format!(
                "the state name {name:?} in engine code: ask for the state's phase or outcome, or take the name \
                 from the lifecycle"
            );
            complaints.push(complaint(&file.path, line, name, message));
        }
        for (line, word) in mentions(file, &decisions) {
            let message = format!(
                "{word:?}, a lifecycle's word for its decisions, in engine code: take it from the lifecycle's \
                 `decisions`"
            );
            complaints.push(complaint(&file.path, line, word, message));
        }
    }
    complaints
}

/// Members of details; they are long enough to be found within other text.
fn decision_words(lifecycle: &str) -> Vec<String> {
    let table: toml::Table = lifecycle.parse().unwrap_or_default();
    let words = table.get("decisions").and_then(toml::Value::as_table);
    words.into_iter().flat_map(toml::Table::values).filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

fn mentions<'a>(file: &File, words: &'a BTreeSet<String>) -> Vec<(usize, &'a str)> {
    let tokens = if file.is_rust() { file.production_tokens() } else { Vec::new() };
    let texts = tokens.iter().filter(|token| token.kind == Kind::Text).map(|token| (token.line, token.text));
    let is_sql = file.has_extension(&["sql"]);
    let lines = file.text.lines().enumerate().filter(|_| is_sql).map(|(at, line)| (at + 1, line));
    let mut found = Vec::new();
    for (line, text) in texts.chain(lines) {
        found.extend(words.iter().filter(|word| text.contains(*word)).map(|word| (line, word.as_str())));
    }
    found
}

fn state_names(lifecycle: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = lifecycle.parse().map_err(|error| format!("does not parse: {error}"))?;
    let states = table.get("states").and_then(toml::Value::as_table).ok_or("has no [states]")?;
    // `transitions = […]` written below the states belongs to their table, as TOML reads it.
    Ok(states.iter().filter(|(_, value)| value.is_table()).map(|(name, _)| name.clone()).collect())
}

fn literals<'a>(file: &File, names: &'a BTreeSet<String>) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    if file.is_rust() {
        for token in file.production_tokens().iter().filter(|token| token.kind == Kind::Text) {
            let is_named = |name: &&String| token.text == **name || token.text.contains(&format!("'{name}'"));
            found.extend(names.iter().filter(is_named).map(|name| (token.line, name.as_str())));
        }
    } else if file.has_extension(&["sql", "js"]) {
        for (at, line) in file.text.lines().enumerate() {
            let is_named =
                |name: &&String| ['\'', '"', '`'].iter().any(|q| line.contains(&format!("{q}{name}{q}")));
            found.extend(names.iter().filter(is_named).map(|name| (at + 1, name.as_str())));
        }
    }
    found
}

#[test]
fn engine_code_names_no_state() {
    assert_clean(&except(complaints(&Tree::repository()), EXCEPTIONS));
}

#[test]
fn state_names_in_engine_code_are_found() {
    let lifecycle = "[decisions]\nasked = \"open_points\"\n[states]\nqueued = { phase = \"ready\" }\nFAILED = { phase = \"settled\" }\n\
                     transitions = [[\"queued\", \"fail\", \"FAILED\", \"worker\", \"\"]]";
    let named = "// \"queued\"\nconst A: &str = \"queued\";\nconst B: &str = \"not queued\";\n\
                 #[cfg(test)]\nmod tests { const C: &str = \"queued\"; }\n\
                 const D: &str = \"status = 'FAILED'\"; const E: &str = \"transitions\";\n\
                 const F: &str = \"$.open_points\";";
    let tree = Tree::planted(&[
        ("lifecycles/a.toml", lifecycle),
        ("lifecycles/broken.toml", "[states"),
        ("crates/kernel/src/a.rs", named),
        ("crates/kernel/tests/it/a.rs", named),
        ("crates/store/src/postgres/claim.sql", "select 1\nwhere status = 'queued'"),
        ("crates/store/src/postgres/ops/runs.sql", "where status = 'queued' and details ? 'open_points'"),
        ("crates/store/src/sqlite/hand_edits.sql", "json_extract(details, '$.open_points')"),
        ("crates/waypost/src/run.rs", named),
    ]);
    let expected = [
        "lifecycles/broken.toml:1 toml",
        "crates/kernel/src/a.rs:2 queued",
        "crates/kernel/src/a.rs:6 FAILED",
        "crates/kernel/src/a.rs:7 open_points",
        "crates/store/src/postgres/claim.sql:2 queued",
        "crates/store/src/sqlite/hand_edits.sql:1 open_points",
    ];
    assert_eq!(found(&complaints(&tree)), expected);
}
