//! Ids of requirements: each has one line in docs/requirements.md, and `proves D7` names one of those.

use std::collections::BTreeMap;

use super::rust::{self, Kind};
use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const REQUIREMENTS: &str = "docs/requirements.md";

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let Some(requirements) = tree.get(REQUIREMENTS) else {
        return vec![complaint(REQUIREMENTS, 1, "requirements", "is missing: write it".to_owned())];
    };
    let mut complaints = Vec::new();
    let mut first_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, id) in listed_ids(&requirements.text) {
        let first_line = *first_lines.entry(id).or_insert(line);
        if first_line != line {
            let message = format!("{id} is in line {first_line} already: give this one a number of its own");
            complaints.push(complaint(REQUIREMENTS, line, id, message));
        }
    }
    for file in tree.rust_files() {
        for token in rust::tokens(&file.text).iter().filter(|token| token.kind == Kind::Comment) {
            for (at, line) in token.text.lines().enumerate() {
                for id in claimed_ids(line).into_iter().filter(|id| !first_lines.contains_key(id)) {
                    let message = format!("proves {id}, but {REQUIREMENTS} has no such line: mend the id");
                    complaints.push(complaint(&file.path, token.line + at, id, message));
                }
            }
        }
    }
    complaints
}

/// The line and the id of each row of a table that begins with an id.
fn listed_ids(text: &str) -> Vec<(usize, &str)> {
    let mut listed = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let first_cell = line.strip_prefix('|').and_then(|row| row.split('|').next()).map_or("", str::trim);
        if looks_like_id(first_cell) {
            listed.push((at + 1, first_cell));
        }
    }
    listed
}

/// The ids of `proves D7, D8 and X1`; nothing in a sentence such as "this proves that".
fn claimed_ids(comment: &str) -> Vec<&str> {
    let Some((_, claim)) = comment.split_once("proves ") else { return Vec::new() };
    let words = claim.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty() && *word != "and");
    words.take_while(|word| looks_like_id(word)).collect()
}

fn looks_like_id(word: &str) -> bool {
    let letters = word.chars().take_while(char::is_ascii_alphabetic).count();
    (1..=2).contains(&letters) && word[letters..].starts_with(|c: char| c.is_ascii_digit())
}

#[test]
fn proven_requirements_are_listed_and_each_is_once() {
    assert_clean(&complaints(&Tree::repository()));
}

#[test]
fn unknown_and_repeated_requirements_are_found() {
    let listed = "D8 and |D8| are no rows.\n\n| id | what is required |\n|---|---|\n| D7 | as D8 |\n\
                  | R15 | a |\n| D7 | b |\n";
    let source = "// proves D7, J9 and X0\nfn a() {}\n// proves that 1 is odd\n/// proves d7\n\
                  const B: &str = \"// proves D99\"; // proves R15 (see D99)\n/* a\nproves D8 */";
    let tree = Tree::planted(&[(REQUIREMENTS, listed), ("crates/kernel/tests/it/a.rs", source)]);
    let expected = [
        "docs/requirements.md:7 D7",
        "crates/kernel/tests/it/a.rs:1 J9",
        "crates/kernel/tests/it/a.rs:1 X0",
        "crates/kernel/tests/it/a.rs:4 d7",
        "crates/kernel/tests/it/a.rs:7 D8",
    ];
    assert_eq!(found(&complaints(&tree)), expected);
    assert_eq!(found(&complaints(&Tree::planted(&[]))), ["docs/requirements.md:1 requirements"]);
}
