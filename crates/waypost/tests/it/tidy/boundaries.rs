//! Borders between crates: the kernel stays pure, and only the store speaks SQL.

use super::rust::Kind;
use super::tree::{Complaint, Exception, File, Tree, assert_clean, complaint, except, found};

const KERNEL_MANIFEST: &str = "crates/kernel/Cargo.toml";
const KERNEL_DEPENDENCIES: &[&str] = &["jiff", "serde", "serde_json", "waypost-schema"];

/// Tests, and what serves only them or measures, may look into a database by themselves; the kernel renders
/// guards as SQL but never sends any.
const SQL_FOLDERS: &[&str] = &["crates/store/", "crates/kernel/src/render/", "crates/testkit/", "bench/"];

/// Lower case, single spaces.
const SQL_BEGINNINGS: &[&str] = &[
    "select ",
    "insert into ",
    "delete from ",
    "create table ",
    "create index ",
    "create unique index ",
    "create trigger ",
    "create view ",
    "create or replace ",
    "alter table ",
    "drop table ",
];

/// The subject is the literal, spaces collapsed: a sentence that begins like SQL, for instance.
const SQL_EXCEPTIONS: &[Exception] = &[Exception {
    path: "crates/server/src/console/layout.rs",
    subject: "select a row",
    reason: "what a key does",
}];

fn kernel_complaints(tree: &Tree) -> Vec<Complaint> {
    let Some(manifest) = tree.get(KERNEL_MANIFEST) else {
        return vec![complaint(KERNEL_MANIFEST, 1, "manifest", "is missing".to_owned())];
    };
    let table: toml::Table = match manifest.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![complaint(KERNEL_MANIFEST, 1, "toml", format!("does not parse: {error}"))],
    };
    let mut complaints = Vec::new();
    let mut complain = |subject: &str, problem: &str| {
        let line = 1 + manifest.text.lines().position(|line| line.contains(subject)).unwrap_or(0);
        complaints.push(complaint(KERNEL_MANIFEST, line, subject, format!("{subject}: {problem}")));
    };
    let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
    for name in dependencies.into_iter().flat_map(toml::Table::keys) {
        if !KERNEL_DEPENDENCIES.contains(&name.as_str()) {
            complain(name, "the kernel is pure and its dependencies are few: do this in another crate");
        }
    }
    for section in ["build-dependencies", "target"] {
        if table.contains_key(section) {
            complain(
                section,
                "the kernel is the same on every machine: no build script, no target of its own",
            );
        }
    }
    complaints
}

fn sql_complaints(tree: &Tree) -> Vec<Complaint> {
    let may_hold_sql =
        |file: &&File| file.is_test() || SQL_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| !may_hold_sql(file)) {
        let mut complain = |line, subject: &str| {
            let message = format!("SQL outside the store ({subject}): give the store a verb for it");
            complaints.push(complaint(&file.path, line, subject, message));
        };
        if file.path.starts_with("crates/") && file.has_extension(&["sql"]) {
            complain(1, file.name());
        } else if file.is_rust() {
            for token in file.production_tokens().iter().filter(|token| token.kind == Kind::Text) {
                let text = token.text.split_whitespace().collect::<Vec<_>>().join(" ");
                if looks_like_sql(&text) {
                    complain(token.line, &text);
                }
            }
        }
    }
    complaints
}

fn looks_like_sql(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    SQL_BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
        || text.starts_with("update ") && text.contains(" set ")
}

#[test]
fn the_kernel_depends_on_little() {
    assert_clean(&kernel_complaints(&Tree::repository()));
}

#[test]
fn only_the_store_holds_sql() {
    assert_clean(&except(sql_complaints(&Tree::repository()), SQL_EXCEPTIONS));
}

#[test]
fn new_kernel_dependencies_are_found() {
    let manifest = "[dependencies]\nserde.workspace = true\ntokio = \"1\"\n[build-dependencies]\ncc = \"1\"\n\
                    [dev-dependencies]\ninsta = \"1\"";
    let tree = Tree::planted(&[(KERNEL_MANIFEST, manifest)]);
    let expected = ["crates/kernel/Cargo.toml:3 tokio", "crates/kernel/Cargo.toml:4 build-dependencies"];
    assert_eq!(found(&kernel_complaints(&tree)), expected);
    assert_eq!(found(&kernel_complaints(&Tree::planted(&[]))), ["crates/kernel/Cargo.toml:1 manifest"]);
}

#[test]
fn sql_outside_the_store_is_found() {
    let source = "const A: &str = \"SELECT\n  1\";\nconst B: &str = \"update runs set x = 1\";\n\
                  const C: &str = \"update the settings\"; // \"delete from runs\"\n\
                  #[cfg(test)]\nmod tests { const D: &str = \"select 1\"; }";
    let tree = Tree::planted(&[
        ("crates/store/src/a.rs", source),
        ("crates/kernel/src/render/a.rs", source),
        ("crates/server/tests/it/a.rs", source),
        ("crates/server/src/a.rs", source),
        ("crates/server/src/b.sql", "select 1"),
        ("bench/raw.sql", "select 1"),
    ]);
    let expected = [
        "crates/server/src/a.rs:1 SELECT 1",
        "crates/server/src/a.rs:3 update runs set x = 1",
        "crates/server/src/b.sql:1 b.sql",
    ];
    assert_eq!(found(&sql_complaints(&tree)), expected);
}
