//! No path of one machine is mentioned anywhere.

use super::tree::{Complaint, Tree, assert_clean, complaint, found};

/// In parts, lest this file complain of itself.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("artif", "actory")];

fn complaints(tree: &Tree) -> Vec<Complaint> {
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
fn no_path_of_one_machine_is_mentioned() {
    assert_clean(&complaints(&Tree::repository()));
}

#[test]
fn paths_of_one_machine_are_found() {
    let [first, second, third] = [MACHINE_PATHS[0], MACHINE_PATHS[1], MACHINE_PATHS[2]];
    let text =
        format!("see {first}main\nsee notes{first}main\nHOME={second}\n{}.example", third.to_uppercase());
    let tree = Tree::planted(&[("docs/a.md", &text)]);
    let expected =
        [format!("docs/a.md:1 {first}"), format!("docs/a.md:3 {second}"), format!("docs/a.md:4 {third}")];
    assert_eq!(found(&complaints(&tree)), expected);
}
