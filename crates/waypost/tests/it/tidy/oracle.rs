//! The oracle of the differential test is worth something only while it runs none of the code that it judges, and nothing
//! of it belongs into the product.

use super::rust::{self, Kind};
use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const ORACLE: &str = "crates/testkit/src/oracle/";
const STORE: &str = "waypost_store";
const TESTKIT: &str = "waypost-testkit";
const FOR_TESTS_ONLY: &[&str] = &["lifecycles", "oracle", "postgres"];

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

/// Features of the testkit that a crate asks for outside its tests.
fn shipped_test_features(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let manifests =
        tree.files.iter().filter(|file| file.name() == "Cargo.toml" && file.path.starts_with("crates/"));
    for manifest in manifests {
        let Ok(table) = manifest.text.parse::<toml::Table>() else { continue };
        let testkit = table.get("dependencies").and_then(|dependencies| dependencies.get(TESTKIT));
        let features = testkit.and_then(|testkit| testkit.get("features")).and_then(toml::Value::as_array);
        for feature in features.into_iter().flatten().filter_map(toml::Value::as_str) {
            if FOR_TESTS_ONLY.contains(&feature) {
                let message =
                    format!("the product asks for the testkit's `{feature}`: leave it to dev-dependencies");
                complaints.push(complaint(&manifest.path, 1, feature, message));
            }
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
    assert_clean(&shipped_test_features(&Tree::repository()));
}

#[test]
fn borrowed_rules_and_shipped_features_are_found() {
    let source = "use waypost_store::{Claim, MAX_MANUAL, \n  check_new, codec::token_text};\n\
                  fn a() { waypost_store::iso(now); waypost_store::RunRow::phase(row); } // waypost_store::wire";
    let tree = Tree::planted(&[
        ("crates/testkit/src/oracle/a.rs", source),
        ("crates/testkit/src/cluster.rs", source),
        ("crates/a/Cargo.toml", "[dependencies]\nwaypost-testkit = { features = [\"oracle\"] }"),
        ("crates/b/Cargo.toml", "[dev-dependencies]\nwaypost-testkit = { features = [\"oracle\"] }"),
    ]);
    let expected = [
        "crates/testkit/src/oracle/a.rs:2 check_new",
        "crates/testkit/src/oracle/a.rs:2 codec",
        "crates/testkit/src/oracle/a.rs:2 token_text",
        "crates/testkit/src/oracle/a.rs:3 iso",
    ];
    assert_eq!(found(&borrowed_rules(&tree)), expected);
    assert_eq!(found(&shipped_test_features(&tree)), ["crates/a/Cargo.toml:1 oracle"]);
}
