//! Hand-written mistakes, one for each way to break a rule. Each is an edit of a sound file, with the rule and
//! the line that have to be told.

use std::collections::BTreeSet;

use waypost_kernel::lifecycle::{RULES, SHIPPED};

use super::{catalog, judge, table_items, table_rows, table_states};

/// What is written instead of what, in which the rule is then broken on which line.
pub type Edit = (&'static str, &'static str, &'static str, usize);

pub struct Case {
    pub name: String,
    pub text: String,
    pub rule: &'static str,
    pub line: usize,
}

/// A run's lifecycle that uses the whole format.
pub const PARCEL: &str = r#"name    = "parcel"
version = 1
ids     = "parcel-{uuid7}"
initial = ["draft", "queued"]
items   = ["target"]
codes   = { expire = "TOO_LATE" }
operations = { recall = ["done", "partly"] }
decisions = { waiting = "awaits", asked = "questions", given = "answers", critical_count = "grave" }
[states]
draft    = { phase = "draft", ttl = "7d" }
queued   = { phase = "ready" }
taken    = { phase = "held", deadline = "5m", on_stale = "expire" }
running  = { phase = "held", lease = "60s", on_stale = "take-over", max_take_overs = 5 }
halted   = { phase = "parked" }
done     = { phase = "settled", outcome = "succeeded" }
partly   = { phase = "settled", outcome = "partial", keep = "30d" }
failed   = { phase = "settled", outcome = "failed", retry = true }
recalled = { phase = "settled", outcome = "reverted" }

transitions = [
  ["draft", "queue", "queued", "client", "has-items"],
  ["draft", "expire", "failed", "engine", ""],
  ["queued", "claim", "taken", "worker", ""],
  ["taken", "start", "running", "worker", ""],
  ["taken", "expire", "failed", "engine", ""],
  ["running", "complete", "done", "worker", "all-items-ok"],
  ["running", "settle", "partly", "worker", "some-item-failed"],
  ["running", "fail", "failed", "worker", ""],
  ["running", "pause", "halted", "operator, worker", "has-reason"],
  ["running", "cancel", "failed", "client, worker", ""],
  ["running", "lose", "failed", "engine", ""],
  ["halted", "resume", "queued", "operator", "resolved-or-forced"],
  ["failed", "retry", "taken", "worker", "attempts-left"],
  ["done", "recall", "recalled", "engine", "no-item-ok"],
  ["partly", "recall", "recalled", "engine", "no-item-ok"],
]
"#;

/// An item's lifecycle.
pub const PIECE: &str = r#"name    = "piece"
kind    = "item"
version = 1
initial = ["waiting"]

[states]
waiting = { phase = "ready", on_end = "skipped" }
going   = { phase = "held", on_lost = "waiting", on_end = "bad" }
good    = { phase = "settled", outcome = "succeeded" }
bad     = { phase = "settled", outcome = "failed", on_retry = "waiting" }
skipped = { phase = "settled", outcome = "skipped" }

transitions = [
  ["waiting", "start", "going", "worker", ""],
  ["waiting", "skip", "skipped", "worker, engine", ""],
  ["going", "complete", "good", "worker", ""],
  ["going", "fail", "bad", "worker, engine", ""],
  ["going", "lose", "waiting", "engine", ""],
  ["bad", "retry", "waiting", "client, engine", "not-discarded"],
]
"#;

/// The file's own keys and values.
#[rustfmt::skip]
const FILE: &[Edit] = &[
    ("name    = \"parcel\"\n", "\n", "missing-key", 1),
    ("version = 1\n", "\n", "missing-key", 1),
    ("ids     = \"parcel-{uuid7}\"\n", "\n", "missing-key", 1),
    ("initial = [\"draft\", \"queued\"]\n", "\n", "missing-key", 1),
    ("[states]\n", "\n", "missing-key", 1),
    ("transitions = [", "moves = [", "missing-key", 1),
    ("name    = \"parcel\"", "nmae    = \"parcel\"", "unknown-key", 1),
    ("version = 1", "version = 1\nowner = \"me\"", "unknown-key", 3),
    ("name    = \"parcel\"", "name    = 7", "wrong-type", 1),
    ("name    = \"parcel\"", "name    = [\"parcel\"]", "wrong-type", 1),
    ("version = 1", "version = \"1\"", "wrong-type", 2),
    ("version = 1", "version = 1.0", "wrong-type", 2),
    ("version = 1", "version = 2026-02-14", "wrong-type", 2),
    ("ids     = \"parcel-{uuid7}\"", "ids     = true", "wrong-type", 3),
    ("[\"draft\", \"queued\"]", "\"draft\"", "wrong-type", 4),
    ("[\"draft\", \"queued\"]", "[\"draft\", 1]", "wrong-type", 4),
    ("items   = [\"target\"]", "items   = { target = 1 }", "wrong-type", 5),
    ("codes   = { expire = \"TOO_LATE\" }", "codes   = [\"TOO_LATE\"]", "wrong-type", 6),
    ("\"TOO_LATE\"", "408", "wrong-type", 6),
    ("[\"done\", \"partly\"]", "\"done\"", "wrong-type", 7),
    ("[states]\n", "[[states]]\n", "wrong-type", 9),
    ("version = 1", "version = 0", "bad-version", 2),
    ("version = 1", "version = -1", "bad-version", 2),
    ("version = 1", "version = 65536", "bad-version", 2),
    ("version = 1", "version = 99999999999999999999", "bad-number", 2),
    ("parcel-{uuid7}", "parcel", "bad-ids", 3),
    ("parcel-{uuid7}", "parcel-{uuid9}", "bad-ids", 3),
    ("parcel-{uuid7}", "parcel-{uuid7", "bad-ids", 3),
    ("parcel-{uuid7}", "par cel-{uuid7}", "bad-ids", 3),
    ("parcel-{uuid7}", "{uuid7}{uuid7}", "bad-ids", 3),
    ("parcel-{uuid7}", "", "bad-ids", 3),
    ("\"parcel\"", "\"\"", "bad-name", 1),
    ("\"parcel\"", "\"Parcel\"", "bad-name", 1),
    ("\"parcel\"", "\"par cel\"", "bad-name", 1),
    ("\"parcel\"", "\"1parcel\"", "bad-name", 1),
    ("\"parcel\"", "\"p\\u0000\"", "bad-name", 1),
    ("\"parcel\"", "\"посилка\"", "bad-name", 1),
    ("TOO_LATE", "TOO LATE", "bad-name", 6),
    ("[\"draft\", \"queued\"]", "[]", "no-initial", 4),
    ("[\"draft\", \"queued\"]", "[\"draft\", \"qeued\"]", "unknown-state", 4),
    ("[\"draft\", \"queued\"]", "[\"draft\", \"draft\"]", "duplicate-name", 4),
    ("[\"draft\", \"queued\"]", "[\"draft\", \"halted\"]", "initial-phase", 4),
    ("[\"draft\", \"queued\"]", "[\"done\", \"draft\"]", "initial-phase", 4),
    ("[\"draft\", \"queued\"]", "[\"draft\", \"taken\"]", "initial-fold", 4),
    ("[\"target\"]", "[\"tarqet\"]", "unknown-item-kind", 5),
    ("[\"target\"]", "[\"deploy\"]", "unknown-item-kind", 5),
    ("[\"target\"]", "[\"target\", \"target\"]", "duplicate-name", 5),
    ("{ expire = \"TOO_LATE\" }", "{ expier = \"TOO_LATE\" }", "unknown-command", 6),
    ("recall = [\"done\", \"partly\"]", "recall = [\"done\", \"running\"]", "operation-shape", 7),
    ("recall = [\"done\", \"partly\"]", "recall = []", "operation-shape", 7),
    ("recall = [\"done\", \"partly\"]", "recall = [\"done\"], pause = [\"done\"]", "operation-shape", 7),
    ("recall = [\"done\", \"partly\"]", "recall = [\"done\"], finish = [\"done\"]", "reserved-word", 7),
    ("recall = [\"done\", \"partly\"]", "recall = [\"done\", \"done\"]", "duplicate-name", 7),
    ("given = \"answers\"", "given = \"questions\"", "decision-member", 8),
    ("waiting = \"awaits\"", "waiting = \"console_log\"", "decision-member", 8),
    ("waiting = \"awaits\"", "waiting = \"a waits\"", "bad-name", 8),
    ("waiting = \"awaits\"", "waiting = true", "wrong-type", 8),
    (", given = \"answers\"", "", "missing-key", 8),
    ("critical_count", "critical", "unknown-key", 8),
    ("decisions = { waiting = \"awaits\", asked = \"questions\", given = \"answers\", critical_count = \"grave\" }\n", "\n", "guard-without-decisions", 32),
    ("halted   = { phase = \"parked\" }", "halted   = { phase = \"ready\" }", "decisions-without-pause", 8),
    ("codes   = ", "cancelled_metadata = { who = \"somebody\" }\ncodes   = ", "unknown-word", 6),
    ("codes   = ", "cancelled_metadata = { \"w h o\" = \"by\" }\ncodes   = ", "bad-name", 6),
    ("recall = [\"done\", \"partly\"]", "recall = [\"gone\"]", "unknown-state", 7),
    ("recall = [\"done\", \"partly\"]", "recall = [\"done\"], \"take back\" = [\"done\"]", "bad-name", 7),
];

pub fn cases() -> Vec<Case> {
    let cron = SHIPPED.iter().find(|(name, _)| *name == "cron").unwrap().1;
    let tables = [
        ("parcel", PARCEL, FILE),
        ("parcel", PARCEL, table_states::PARCEL_STATES),
        ("parcel", PARCEL, table_rows::PARCEL_ROWS),
        ("cron", cron, table_rows::CRON_ROWS),
        ("piece", PIECE, table_items::PIECE_EDITS),
    ];
    let mut cases = table_items::whole_files();
    for (of, sound, edits) in tables {
        for (old, new, rule, line) in edits {
            assert!(sound.contains(old), "{of} has no {old:?}");
            let name = format!("{of}: {} -> {}", old.trim(), new.trim());
            cases.push(Case { name, text: sound.replacen(old, new, 1), rule, line: *line });
        }
    }
    cases
}

#[test]
fn the_files_that_are_edited_are_sound() {
    for sound in [PARCEL, PIECE] {
        judge(sound, &catalog()).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

// proves X1: a mistake is told with its line, its rule and how to mend it
#[test]
fn every_mistake_is_told_by_its_rule_and_line() {
    let catalog = catalog();
    let mut wrong = Vec::new();
    for case in cases() {
        let told: Vec<(&str, usize)> = match judge(&case.text, &catalog) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.0.iter().map(|problem| (problem.rule, problem.line)).collect(),
        };
        if !told.contains(&(case.rule, case.line)) {
            wrong.push(format!("{}\n  expected {:?}, told {told:?}", case.name, (case.rule, case.line)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_mistake_that_breaks_it() {
    let broken: BTreeSet<&str> = cases().into_iter().map(|case| case.rule).collect();
    // Told by the catalog, which knows the other versions, and of endless lists: see `hostile`.
    let elsewhere = ["version-taken", "too-many-problems"];
    let named = |rule: &&str| broken.contains(rule) || elsewhere.contains(rule);
    let missing: Vec<&str> = RULES.iter().map(|(rule, _)| *rule).filter(|rule| !named(rule)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let names: BTreeSet<&str> = RULES.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(names.len(), RULES.len(), "a rule stands twice");
}
