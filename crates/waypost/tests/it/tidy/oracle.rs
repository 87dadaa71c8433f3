//! The oracle of the differential test is worth something only while it runs none of the code that it judges, and nothing
//! of it belongs into the product.

use super::rust::{self, Kind};
use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const ORACLE: &str = "crates/testkit/src/oracle/";
const STORE: &str = "waypost_store";
const TESTKIT: &str = "waypost-testkit";
const SIMULATORS: &str = "waypost-simulate";

/// The seam is data and traits, whose names begin with a capital; a function or a module is one of the store's rules.
fn borrowed_rules(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.rust_files().filter(|file| file.path.starts_with(ORACLE)) {
        let code = rust::code(&file.text);
        let after_store = |at: &usize| code[*at].is_word(STORE);
        for begin in (0..code.len()).filter(after_store) {
            let path = code[begin + 1..].iter().take_while(|token| {
                token.kind == Kind::Word || [":", "{", "}", ","].iter().any(|punct| token.is_punct(punct))
            });
            // A path in an expression names one thing; a `use` may name several.
            let is_use = begin > 0 && code[begin - 1].is_word("use");
            let words =
                path.filter(|token| token.kind == Kind::Word).take(if is_use { usize::MAX } else { 1 });
            for word in words.filter(|word| !word.text.starts_with(char::is_uppercase)) {
                let message = format!(
                    "the oracle takes `{}` from the store: write what it means here once more",
                    word.text
                );
                complaints.push(complaint(&file.path, word.line, word.text, message));
            }
        }
    }
    complaints
}

/// What the product is built with that only tests or the demonstration need: none may depend on the testkit outside its
/// tests, and the simulators come with a feature alone. Read in the manifests: compiling a second binary would show the
/// same at the price of a build.
fn shipped_for_tests(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let manifests =
        tree.files.iter().filter(|file| file.name() == "Cargo.toml" && file.path.starts_with("crates/"));
    for manifest in manifests {
        let Ok(table) = manifest.text.parse::<toml::Table>() else { continue };
        let Some(dependencies) = table.get("dependencies") else { continue };
        let mut complain = |name: &str, problem: &str| {
            complaints.push(complaint(&manifest.path, 1, name, format!("{name}: {problem}")));
        };
        if dependencies.get(TESTKIT).is_some() {
            complain(TESTKIT, "the product depends on it: leave it to dev-dependencies");
        }
        let is_optional = |it: &toml::Value| it.get("optional").and_then(toml::Value::as_bool) == Some(true);
        if dependencies.get(SIMULATORS).is_some_and(|it| !is_optional(it)) {
            complain(SIMULATORS, "the product depends on it without a feature: make it optional");
        }
    }
    complaints
}

#[test]
fn the_oracle_runs_no_rule_of_the_store() {
    let tree = Tree::repository();
    assert!(tree.files.iter().any(|file| file.path.starts_with(ORACLE)), "the oracle has moved: look there");
    assert_clean(&borrowed_rules(&tree));
}

#[test]
fn the_product_has_nothing_that_only_tests_need() {
    assert_clean(&shipped_for_tests(&Tree::repository()));
}

#[test]
fn borrowed_rules_and_shipped_test_code_are_found() {
    let source = "use waypost_store::{Claim, MAX_MANUAL,\n  check_new, codec::token_text};\n\
                  fn a() { waypost_store::iso(now); waypost_store::RunRow::phase(row); } // waypost_store::wire";
    let tree = Tree::planted(&[
        ("crates/testkit/src/oracle/a.rs", source),
        ("crates/testkit/src/cluster.rs", source),
        ("crates/a/Cargo.toml", "[dependencies]\nwaypost-testkit.workspace = true\nwaypost-simulate = \"1\""),
        ("crates/b/Cargo.toml", "[dependencies]\nwaypost-simulate = { workspace = true, optional = true }"),
        ("crates/c/Cargo.toml", "[dev-dependencies]\nwaypost-testkit = \"1\"\nwaypost-simulate = \"1\""),
    ]);
    let expected = [
        "crates/testkit/src/oracle/a.rs:2 check_new",
        "crates/testkit/src/oracle/a.rs:2 codec",
        "crates/testkit/src/oracle/a.rs:2 token_text",
        "crates/testkit/src/oracle/a.rs:3 iso",
    ];
    assert_eq!(found(&borrowed_rules(&tree)), expected);
    let shipped = ["crates/a/Cargo.toml:1 waypost-testkit", "crates/a/Cargo.toml:1 waypost-simulate"];
    assert_eq!(found(&shipped_for_tests(&tree)), shipped);
}
