//! A lifecycle that a user declares works as the shipped ones do: the example of the docs, and DESIGN's own
//! layout of a file.

use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::*;

use crate::shipped::catalog;

pub const RELEASE: &str = include_str!("../../../../docs/examples/lifecycles/release.toml");

/// The snippet of "Lifecycle files", with what it leaves out filled in.
const DESIGN: &str = r#"
name    = "deploy"
version = 1
ids     = "run-{uuid7}"
initial = ["queued"]          # what an INSERT may start in; the database refuses others

[states]
queued    = { phase = "ready", ttl = "never" }
claimed   = { phase = "held", deadline = "5m", on_stale = "expire" }      # from the claim; heartbeats do not extend it
running   = { phase = "held", lease = "60s", on_stale = "lose" }
success   = { phase = "settled", outcome = "succeeded" }
failed    = { phase = "settled", outcome = "failed" }
cancelled = { phase = "settled", outcome = "cancelled" }

# from        command     to           by          guard
transitions = [
  ["queued",   "claim",    "claimed",   "worker",   ""],
  ["claimed",  "start",    "running",   "worker",   ""],
  ["claimed",  "expire",   "cancelled", "engine",   ""],
  ["running",  "succeed",  "success",   "worker",   ""],
  ["running",  "fail",     "failed",    "worker",   ""],
  ["running",  "lose",     "failed",    "engine",   ""],
]
"#;

fn load(text: &str) -> Lifecycle {
    Lifecycle::load(text, &catalog()).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

// proves X1: docs/examples/lifecycles/release.toml is data, and its commands are the lifecycle's own words
#[test]
fn the_example_of_the_docs_loads() {
    let release = load(RELEASE);
    let states: Vec<&str> = release.states.iter().map(|state| &*state.name).collect();
    assert_eq!(
        states[..4],
        ["draft", "review", "approved", "rolling"],
        "docs/examples/lifecycles/release.toml"
    );
    for command in ["submit", "approve", "reject", "promote", "revert"] {
        assert!(release.commands().iter().any(|known| &**known == command), "{command}");
    }
    let kinds: Vec<&str> = release.items.iter().map(|kind| &*kind.name).collect();
    assert_eq!(kinds, ["step"]);
    assert!(release.is_terminal(release.state_named("reverted").unwrap()));
}

#[test]
fn the_layout_of_the_design_loads() {
    let design = load(DESIGN);
    assert_eq!(design.transitions.len(), 6);
    assert_eq!(design.states.len(), 6, "`transitions` below [states] is not a state");
}

/// TOML counts what follows `[states]` as a part of it; written above, it is the file's own. Both mean the same.
#[test]
fn transitions_may_stand_above_or_below_the_states() {
    for text in SHIPPED.iter().map(|(_, text)| *text).chain([RELEASE, DESIGN]) {
        let (head, rest) = text.split_once("[states]").unwrap();
        let (states, transitions) = rest.split_once("transitions = [").unwrap();
        let above = format!("{head}transitions = [{transitions}\n[states]{states}");
        assert_eq!(load(&above), load(text), "{above}");
    }
}

#[test]
fn the_fifth_word_of_a_row_may_be_left_out() {
    assert_eq!(load(&DESIGN.replace(",   \"\"]", "]")), load(DESIGN));
}

#[test]
fn the_example_joins_the_shipped_ones() {
    let mut catalog = catalog();
    let added = catalog.add(RELEASE).unwrap();
    assert_eq!(catalog.add(RELEASE).unwrap(), added, "the same again is the same");
    assert_eq!(catalog.latest("release"), Some(&added));
}
