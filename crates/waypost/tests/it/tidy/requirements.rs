//! Ids of requirements: each has one line in docs/requirements.md, `proves D7` names one of those, and its line has the tests that say so.

use std::collections::BTreeMap;

use super::rust::{self, Kind, Token};
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
    let proofs = proofs(tree);
    for (at, line) in requirements.text.lines().enumerate() {
        if let Some((id, _, proved_by)) = cells(line)
            && !list_of(proved_by).eq(proofs.get(id).map_or(NOT_YET, |list| list))
        {
            let message =
                "the tests that prove it are others: UPDATE=1 cargo nextest run requirements".to_owned();
            complaints.push(complaint(REQUIREMENTS, at + 1, id, message));
        }
    }
    complaints
}

const NOT_YET: &str = "not yet";

/// The id of a requirement, what it is and the tests that prove it.
fn cells(line: &str) -> Option<(&str, &str, &str)> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(3, " | ");
    let (id, required, proved_by) = (cells.next()?, cells.next()?, cells.next()?);
    looks_like_id(id).then_some((id, required, proved_by))
}

/// Without the words about what is left: `in part (the form of ids): …`.
fn list_of(proved_by: &str) -> &str {
    let rest = proved_by.strip_prefix("in part (").and_then(|rest| rest.split_once("): "));
    rest.map_or(proved_by, |(_, list)| list)
}

/// What a file has of a requirement.
#[derive(Default)]
struct Proofs {
    is_whole_file: bool,
    tests: Vec<String>,
}

/// For each id, the tests whose comments name it: by file, and in the order of the file.
fn proofs(tree: &Tree) -> BTreeMap<String, String> {
    let mut named: BTreeMap<String, BTreeMap<&str, Proofs>> = BTreeMap::new();
    for file in tree.rust_files() {
        let Some(path) = file.path.strip_prefix("crates/") else { continue };
        let tokens = rust::tokens(&file.text);
        for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Comment) {
            for id in token.text.lines().flat_map(claimed_ids) {
                let proofs = named.entry(id.to_owned()).or_default().entry(path).or_default();
                match subject(&tokens, at) {
                    Some(test) => proofs.tests.push(test.to_owned()),
                    None => proofs.is_whole_file = true,
                }
            }
        }
    }
    let listed = |(path, proofs): (&str, Proofs)| match proofs.is_whole_file {
        true => format!("`{path}` (whole file)"),
        false => {
            let names: Vec<String> = proofs.tests.iter().map(|test| format!("`{test}`")).collect();
            format!("`{path}`: {}", names.join(", "))
        }
    };
    let joined = |files: BTreeMap<&str, Proofs>| files.into_iter().map(listed).collect::<Vec<_>>().join("; ");
    named.into_iter().map(|(id, files)| (id, joined(files))).collect()
}

/// The function that a comment stands above; none if it is in the file's first lines, which are about all of it.
fn subject<'t>(tokens: &[Token<'t>], comment: usize) -> Option<&'t str> {
    if tokens[..comment].iter().all(|token| token.kind == Kind::Comment) {
        return None;
    }
    let rest = &tokens[comment..];
    let at = rest.iter().position(|token| token.is_word("fn"))?;
    rest.get(at + 1).map(|name| name.text)
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
    let Some((before, claim)) = comment.split_once("proves ") else { return Vec::new() };
    // A comment about such comments.
    if before.ends_with('`') {
        return Vec::new();
    }
    let words = claim.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty() && *word != "and");
    words.take_while(|word| looks_like_id(word)).collect()
}

fn looks_like_id(word: &str) -> bool {
    let letters = word.chars().take_while(char::is_ascii_alphabetic).count();
    (1..=2).contains(&letters) && word[letters..].starts_with(|c: char| c.is_ascii_digit())
}

/// The page with the lists as they should be.
fn updated(text: &str, proofs: &BTreeMap<String, String>) -> String {
    let line = |line: &str| match cells(line) {
        Some((id, required, proved_by)) => {
            let list = proofs.get(id).map_or(NOT_YET, |list| list);
            let words = proved_by.strip_suffix(list_of(proved_by)).filter(|_| list != NOT_YET).unwrap_or("");
            format!("| {id} | {required} | {words}{list} |\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn proven_requirements_are_listed_and_each_is_once() {
    let mut tree = Tree::repository();
    if std::env::var_os("UPDATE").is_some() {
        let text = updated(&tree.get(REQUIREMENTS).expect("the page").text, &proofs(&tree));
        std::fs::write(tree.root.join(REQUIREMENTS), text).unwrap();
        tree = Tree::repository();
    }
    assert_clean(&complaints(&tree));
}

#[test]
fn lists_of_tests_are_those_that_say_so() {
    let source = "//! About.\n// proves D1\n\nuse a;\n\n/// Words.\n// proves D2 and D1: some of it\n#[test]\nfn first() {}\n\n\
                  // proves D2 and D3\n#[tokio::test]\nasync fn second() { fn third() {} }\n";
    let other = "use a;\n// proves D3\nfn fourth() {}\n";
    let page = |d2: &str, d3: &str| {
        format!(
            "| id | what is required | proved by |\n|---|---|---|\n| D1 | a | `a/tests/it/a.rs` (whole file) |\n\
             | D2 | b or c | {d2} |\n| D3 | d | {d3} |\n| D4 | e | not yet |\n"
        )
    };
    let (d2, d3) =
        ("`a/tests/it/a.rs`: `first`, `second`", "`a/tests/it/a.rs`: `second`; `b/src/b.rs`: `fourth`");
    let tree = |page: &str| {
        Tree::planted(&[
            (REQUIREMENTS, page),
            ("crates/a/tests/it/a.rs", source),
            ("crates/b/src/b.rs", other),
        ])
    };
    let right = page(&format!("in part (words): {d2}"), d3);
    assert!(complaints(&tree(&right)).is_empty());
    let stale = page("in part (words): `a/tests/it/a.rs`: `first`, `gone`", "not yet");
    let found = found(&complaints(&tree(&stale)));
    assert_eq!(found, ["docs/requirements.md:4 D2", "docs/requirements.md:5 D3"]);
    assert_eq!(updated(&stale, &proofs(&tree(&stale))), right);
    let nothing = Tree::planted(&[(REQUIREMENTS, &right)]);
    assert!(updated(&right, &proofs(&nothing)).contains("| D2 | b or c | not yet |"));
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
