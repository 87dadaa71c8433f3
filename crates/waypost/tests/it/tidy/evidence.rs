//! The list of evidence has every file with the commit that it is of, and every soak that there is.

use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const LIST: &str = "docs/evidence/README.md";
const SOAK: &str = "scripts/soak";

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let text = |path: &str| tree.get(path).map_or("", |file| file.text.as_str());
    let list = text(LIST);
    let row = |name: &str| list.lines().find(|line| line.starts_with(&format!("| [{name}]({name}.txt) |")));
    let todo = "./scripts/soak list writes it";
    let mut complaints = Vec::new();
    for file in tree
        .files
        .iter()
        .filter(|file| file.path.starts_with("docs/evidence/") && file.has_extension(&["txt"]))
    {
        let name = file.name().trim_end_matches(".txt");
        let mut lines = file.text.lines();
        let command = lines.next().and_then(|line| line.strip_prefix("./scripts/soak "));
        let commit =
            lines.next().and_then(|line| line.strip_prefix("commit ")).and_then(|line| line.get(..12));
        let Some(commit) = commit.filter(|_| command == Some(name)) else {
            let message = format!("does not begin with ./scripts/soak {name} and its commit");
            complaints.push(complaint(&file.path, 1, name, message));
            continue;
        };
        if !row(name).is_some_and(|row| row.contains(&format!("`{commit}`"))) {
            complaints.push(complaint(LIST, 1, name, format!("has not {name} of {commit}: {todo}")));
        }
    }
    let missing = list.lines().find_map(|line| line.strip_prefix("Not recorded yet: ")).unwrap_or("");
    let missing: Vec<&str> = missing.trim_end_matches('.').split(", ").collect();
    for name in soaks(text(SOAK)) {
        if row(name).is_none() && !missing.contains(&name) {
            complaints.push(complaint(LIST, 1, name, format!("has nothing about {name}: {todo}")));
        }
    }
    complaints
}

/// The names of the script's usage; some of them are no soaks, but lists of others.
fn soaks(script: &str) -> impl Iterator<Item = &str> {
    let usage = script.lines().filter_map(|line| line.strip_prefix("#   ./scripts/soak "));
    let names = usage.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| !["list", "history"].contains(name))
}

#[test]
fn all_evidence_is_listed_with_its_commit() {
    let tree = Tree::repository();
    assert!(soaks(&tree.get(SOAK).unwrap().text).count() > 20);
    assert_clean(&complaints(&tree));
}

#[test]
fn stale_lists_of_evidence_are_found() {
    let soak = "#   ./scripts/soak list   all\n#   ./scripts/soak a   one\n#   ./scripts/soak b  two\n#   ./scripts/soak c  three\n\
                #   ./scripts/soak d  four\n";
    let of = |name: &str, commit: char| {
        format!("./scripts/soak {name}\ncommit {}\n", String::from(commit).repeat(40))
    };
    let row = |name: &str, commit: char| {
        format!("| [{name}]({name}.txt) | `{}` |\n", String::from(commit).repeat(12))
    };
    let list = format!("{}{}Not recorded yet: c.\n", row("a", '1'), row("b", '1'));
    let files = [("a", of("a", '1')), ("b", of("b", '2')), ("e", of("e", '1')), ("f", of("a", '1'))];
    let files: Vec<(String, String)> =
        files.into_iter().map(|(name, text)| (format!("docs/evidence/{name}.txt"), text)).collect();
    let mut planted = vec![(SOAK, soak), (LIST, list.as_str())];
    planted.extend(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let expected = [
        format!("{LIST}:1 b"),
        format!("{LIST}:1 e"),
        "docs/evidence/f.txt:1 f".to_owned(),
        format!("{LIST}:1 d"),
    ];
    assert_eq!(found(&complaints(&Tree::planted(&planted))), expected);
}
