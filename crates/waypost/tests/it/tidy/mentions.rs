//! Words that must be right wherever they stand: the specification's ids, and no path of one machine.

use super::rust::{self, Kind};
use super::tree::{Complaint, Tree, assert_clean, complaint, found};

/// Each prefix of the specification with its last number.
const SPEC_IDS: &[(&str, u32)] = &[("X", 11), ("D", 13), ("A", 11), ("C", 11), ("J", 8), ("R", 15)];

/// In parts, lest this file complain of itself.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("artif", "actory")];

fn spec_complaints(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.rust_files() {
        for token in rust::tokens(&file.text).iter().filter(|token| token.kind == Kind::Comment) {
            for (at, line) in token.text.lines().enumerate() {
                for id in claimed_ids(line).into_iter().filter(|id| !is_known(id)) {
                    let message = format!("proves {id}, but the specification has no such row: mend the id");
                    complaints.push(complaint(&file.path, token.line + at, id, message));
                }
            }
        }
    }
    complaints
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

fn is_known(id: &str) -> bool {
    let numbered = |&(prefix, last): &(&str, u32)| (1..=last).any(|number| id == format!("{prefix}{number}"));
    SPEC_IDS.iter().any(numbered)
}

fn machine_complaints(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in &tree.files {
        for (at, line) in file.text.lines().enumerate() {
            for path in MACHINE_PATHS.iter().filter(|path| mentions(line, path)) {
                let message =
                    format!("{path} is of one machine: name it relative to the repository, or not at all");
                complaints.push(complaint(&file.path, at + 1, path, message));
            }
        }
    }
    complaints
}

/// A folder of that name inside another path is nobody's machine.
fn mentions(line: &str, path: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let is_inside = |at: usize| {
        path.starts_with('/')
            && line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '~'))
    };
    line.match_indices(path).any(|(at, _)| !is_inside(at))
}

#[test]
fn proven_spec_ids_exist() {
    assert_clean(&spec_complaints(&Tree::repository()));
}

#[test]
fn no_path_of_one_machine_is_mentioned() {
    assert_clean(&machine_complaints(&Tree::repository()));
}

#[test]
fn unknown_spec_ids_are_found() {
    let source = "// proves D7, J9 and X0\nfn a() {}\n// proves that 1 is odd\n/// proves d7\n\
                  const B: &str = \"// proves D99\"; // proves R15 (see D99)\n/* a\nproves C12 */";
    let tree = Tree::planted(&[("crates/kernel/tests/it/a.rs", source)]);
    let expected =
        ["1 J9", "1 X0", "4 d7", "7 C12"].map(|found| format!("crates/kernel/tests/it/a.rs:{found}"));
    assert_eq!(found(&spec_complaints(&tree)), expected);
}

#[test]
fn paths_of_one_machine_are_found() {
    let [first, second, third] = [MACHINE_PATHS[0], MACHINE_PATHS[1], MACHINE_PATHS[2]];
    let text =
        format!("see {first}main\nsee notes{first}main\nHOME={second}\n{}.example", third.to_uppercase());
    let tree = Tree::planted(&[("docs/a.md", &text)]);
    let expected =
        [format!("docs/a.md:1 {first}"), format!("docs/a.md:3 {second}"), format!("docs/a.md:4 {third}")];
    assert_eq!(found(&machine_complaints(&tree)), expected);
}
