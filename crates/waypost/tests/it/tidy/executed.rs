//! What people will copy or start is executed by a test: binaries, examples, playbooks. A test that runs
//! one has to name it, so a name that no test holds is one that no test runs.

use super::rust::Kind;
use super::tree::{Complaint, File, Tree, assert_clean, complaint, found};

struct Offered<'a> {
    path: &'a str,
    /// Some string of a test must contain this, or be `exactly` that.
    part_of: String,
    exactly: Option<String>,
}

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let mut named: Vec<&str> = Vec::new();
    for file in tree.rust_files() {
        named.extend(file.test_tokens().iter().filter(|t| t.kind == Kind::Text).map(|t| t.text));
    }
    let mut offered: Vec<Offered<'_>> = tree.files.iter().flat_map(|file| binaries(tree, file)).collect();
    offered.extend(examples(tree));
    let mut complaints = Vec::new();
    for Offered { path, part_of, exactly } in offered {
        let is_named = |text: &&str| text.contains(&part_of) || exactly.as_deref() == Some(*text);
        if !named.iter().any(is_named) {
            let message = format!("no test names {part_of:?}: write one that executes it");
            complaints.push(complaint(path, 1, &part_of, message));
        }
    }
    complaints
}

/// The binaries of a manifest: its `[[bin]]`s, or `src/main.rs` by the package's name; and `src/bin/*.rs`.
fn binaries<'a>(tree: &Tree, file: &'a File) -> Vec<Offered<'a>> {
    let path = file.path.as_str();
    let mut names = Vec::new();
    if let Some(folder) = path.strip_suffix("Cargo.toml")
        && let Ok(manifest) = file.text.parse::<toml::Table>()
    {
        let name_of = |table: &toml::Value| Some(table.get("name")?.as_str()?.to_owned());
        match manifest.get("bin").and_then(toml::Value::as_array) {
            Some(declared) => names.extend(declared.iter().filter_map(name_of)),
            None if tree.get(&format!("{folder}src/main.rs")).is_some() => {
                names.extend(manifest.get("package").and_then(name_of));
            }
            None => {}
        }
    } else if let Some((_, name)) = path.strip_suffix(".rs").and_then(|path| path.split_once("/src/bin/")) {
        names.push(name.to_owned());
    }
    let offered =
        |name: String| Offered { path, part_of: format!("CARGO_BIN_EXE_{name}"), exactly: Some(name) };
    names.into_iter().map(offered).collect()
}

fn is_example(file: &File) -> bool {
    let path = file.path.as_str();
    let of_crate = file.is_rust() && path.starts_with("crates/") && file.has_component("examples");
    let playbook = path.starts_with("playbooks/") && file.has_extension(&["toml"]);
    of_crate || playbook || path.starts_with("docs/examples/")
}

fn examples(tree: &Tree) -> Vec<Offered<'_>> {
    let all: Vec<&File> = tree.files.iter().filter(|file| is_example(file)).collect();
    let mut offered = Vec::new();
    for file in &all {
        let twins = all.iter().filter(|other| other.name() == file.name()).count();
        // Each seed system may have its `update.toml`; then the folder belongs to the name.
        let folder_and_name = file.path.rsplitn(3, '/').take(2).collect::<Vec<_>>();
        let part = match folder_and_name[..] {
            [name, folder] if twins > 1 => format!("{folder}/{name}"),
            _ => file.name().to_owned(),
        };
        // `cargo run --example NAME` has no extension.
        let exactly = part.strip_suffix(".rs").map(str::to_owned);
        offered.push(Offered { path: &file.path, part_of: part, exactly });
    }
    offered
}

#[test]
fn binaries_examples_and_playbooks_are_executed() {
    assert_clean(&complaints(&Tree::repository()));
}

#[test]
fn what_no_test_names_is_found() {
    let tree = Tree::planted(&[
        ("crates/planted/Cargo.toml", "[[bin]]\nname = \"planted-a\"\n[[bin]]\nname = \"planted-b\""),
        ("crates/planted/src/bin/planted-c.rs", ""),
        ("crates/plain/Cargo.toml", "[package]\nname = \"planted-plain\""),
        ("crates/plain/src/main.rs", ""),
        ("crates/planted/examples/planted_d.rs", ""),
        ("crates/planted/examples/planted_e.rs", ""),
        ("playbooks/f/planted.toml", ""),
        ("playbooks/g/planted.toml", ""),
        ("docs/examples/planted.sh", ""),
        (
            "crates/planted/tests/it/main.rs",
            "run(env!(\"CARGO_BIN_EXE_planted-a\"));\nexample(\"planted_d\");\n\
             play(\"playbooks/f/planted.toml\"); // planted.sh",
        ),
    ]);
    let expected = [
        "crates/planted/Cargo.toml:1 CARGO_BIN_EXE_planted-b",
        "crates/planted/src/bin/planted-c.rs:1 CARGO_BIN_EXE_planted-c",
        "crates/plain/Cargo.toml:1 CARGO_BIN_EXE_planted-plain",
        "crates/planted/examples/planted_e.rs:1 planted_e.rs",
        "playbooks/g/planted.toml:1 g/planted.toml",
        "docs/examples/planted.sh:1 planted.sh",
    ];
    assert_eq!(found(&complaints(&tree)), expected);
}
