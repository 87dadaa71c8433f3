//! What the dependency tree may hold, by deny.toml: what `cargo deny check bans licenses sources` would say, with nothing to install.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const LOCK: &str = "Cargo.lock";
/// What ships is few crates: a smaller tree leaves less to audit and builds sooner on a small machine. Those that only tests want
/// (an S3 server, property tests) are checked like the others, but nobody installs them.
const MAX_SHIPPED: usize = 329;
/// One of the systems that it ships for, named so that every machine counts alike.
const SHIPS_FOR: &str = "x86_64-unknown-linux-gnu";

/// Where crates.io's packages come from, as cargo calls it whichever mirror it asks.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

struct Policy {
    licences: Vec<String>,
    banned: Vec<String>,
    /// Places beside crates.io, as cargo calls them.
    sources: Vec<String>,
}

/// All that deny.toml may say. What this test does not know it could not see to.
const KNOWN: &[(&str, &[&str])] = &[
    ("graph", &["all-features"]),
    ("licenses", &["allow", "confidence-threshold", "unused-allowed-license"]),
    ("bans", &["deny", "wildcards", "allow-wildcard-paths", "multiple-versions"]),
    ("sources", &["unknown-registry", "unknown-git", "allow-registry", "allow-git"]),
    ("advisories", &["yanked", "unmaintained"]),
];

impl Policy {
    fn read(tree: &Tree) -> Policy {
        let deny: toml::Table = tree.get("deny.toml").expect("deny.toml").text.parse().unwrap();
        let list = |value: &toml::Value, name: fn(&toml::Value) -> &toml::Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|entry| name(entry).as_str().unwrap().to_owned()).collect()
        };
        for (table, keys) in &deny {
            let known = KNOWN.iter().find(|(known, _)| known == table).map_or(&[][..], |(_, keys)| keys);
            for key in keys.as_table().unwrap().keys() {
                assert!(known.contains(&&**key), "deny.toml says {table}.{key}: see to it in this test");
            }
        }
        // These mean what this test does: others would ask for something else.
        for (table, key, value) in [
            ("bans", "wildcards", "deny"),
            ("bans", "multiple-versions", "allow"),
            ("sources", "unknown-registry", "deny"),
            ("sources", "unknown-git", "deny"),
        ] {
            assert_eq!(deny[table][key].as_str(), Some(value), "deny.toml: {table}.{key}");
        }
        let places =
            |key: &str| deny["sources"].get(key).map_or(Vec::new(), |found| list(found, |entry| entry));
        let registries = places("allow-registry").into_iter().map(|url| format!("registry+{url}"));
        Policy {
            licences: list(&deny["licenses"]["allow"], |entry| entry),
            banned: list(&deny["bans"]["deny"], |entry| &entry["crate"]),
            sources: registries
                .chain(places("allow-git").into_iter().map(|url| format!("git+{url}")))
                .collect(),
        }
    }
}

fn complaints(packages: &[Value], policy: &Policy) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut complain = |subject: &str, message: String| complaints.push(complaint(LOCK, 1, subject, message));
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("no licence");
        if !is_accepted(licence, &policy.licences) {
            let todo = "do without it, or add a licence to deny.toml and say why";
            complain(name, format!("{name} is under {licence}, which deny.toml does not allow: {todo}"));
        }
        // One of the workspace's own has none.
        let from = package["source"].as_str().filter(|from| *from != CRATES_IO);
        if let Some(from) =
            from.filter(|from| !policy.sources.iter().any(|known| from.starts_with(known.as_str())))
        {
            complain(
                name,
                format!("{name} comes from {from}, which deny.toml does not allow: take it from crates.io"),
            );
        }
        // Only our own crates: what others ask for is theirs, and the lock file says which one it is.
        let own = package["dependencies"].as_array().filter(|_| package["source"].is_null());
        for wanted in own.into_iter().flatten().filter(|it| it["req"] == "*" && it["path"].is_null()) {
            let wanted = wanted["name"].as_str().unwrap();
            complain(wanted, format!("{name} takes any version of {wanted}: name one"));
        }
        if policy.banned.iter().any(|banned| banned == name) {
            complain(
                name,
                format!("{name} is banned by deny.toml: `cargo tree -i {name}` says who wants it"),
            );
        }
    }
    complaints
}

fn too_many(shipped: usize) -> Option<Complaint> {
    let message = || {
        format!("the program has {shipped} packages in it, {MAX_SHIPPED} are allowed: switch features off")
    };
    (shipped > MAX_SHIPPED).then(|| complaint(LOCK, 1, "count", message()))
}

/// Whether an SPDX expression can be met with the allowed licences. AND binds closer than OR; the old `/`
/// is an OR; `A WITH B` is a licence of its own.
fn is_accepted(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let met = any_of(&mut rest, allowed);
    met && rest.is_empty()
}

fn any_of(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = all_of(rest, allowed);
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        met |= all_of(rest, allowed);
    }
    met
}

fn all_of(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &[String]) -> bool {
    let (licence, after) = match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let met = any_of(rest, allowed);
            if let [")", after @ ..] = *rest {
                *rest = after;
            }
            return met;
        }
        [licence, "WITH", exception, after @ ..] => (format!("{licence} WITH {exception}"), after),
        [licence, after @ ..] => ((*licence).to_owned(), after),
        [] => return false,
    };
    *rest = after;
    allowed.contains(&licence)
}

/// What cargo says of the locked tree. Offline first: the answer is on disk once the workspace is built, but for crates of other
/// systems.
fn asked(tree: &Tree, arguments: &[&str]) -> Vec<u8> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let ask = |more: &[&str]| {
        let mut command = Command::new(&cargo);
        command.args(arguments).arg("--locked").args(more);
        command.current_dir(&tree.root).output().unwrap()
    };
    let mut output = ask(&["--offline"]);
    if !output.status.success() {
        output = ask(&[]);
    }
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn packages(tree: &Tree) -> Vec<Value> {
    let mut parsed: Value =
        serde_json::from_slice(&asked(tree, &["metadata", "--format-version", "1"])).unwrap();
    match parsed["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("cargo metadata gave no list of packages but {other}"),
    }
}

/// How many packages are linked into the program with its default features: neither what builds it nor what tests it.
fn shipped(tree: &Tree) -> usize {
    let arguments = [
        "tree", "-p", "waypost", "-e", "normal", "--prefix", "none", "--format", "{p}", "--target", SHIPS_FOR,
    ];
    let listed = String::from_utf8(asked(tree, &arguments)).unwrap();
    listed.lines().map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len()
}

#[test]
fn dependencies_are_few_and_freely_licensed() {
    let tree = Tree::repository();
    let mut complaints = complaints(&packages(&tree), &Policy::read(&tree));
    complaints.extend(too_many(shipped(&tree)));
    assert_clean(&complaints);
}

#[test]
fn foreign_licences_banned_crates_and_too_many_are_found() {
    let policy = Policy {
        licences: vec!["MIT".to_owned(), "Zlib".to_owned()],
        banned: vec!["b".to_owned()],
        sources: vec!["git+https://example.com/mine".to_owned()],
    };
    let package = |name: &str, licence: Value| serde_json::json!({ "name": name, "license": licence });
    let packages =
        vec![package("a", "GPL-3.0".into()), package("b", "MIT".into()), package("c", Value::Null)];
    assert_eq!(
        found(&complaints(&packages, &policy)),
        ["Cargo.lock:1 a", "Cargo.lock:1 b", "Cargo.lock:1 c"]
    );
    assert!(too_many(MAX_SHIPPED).is_none());
    let complaints: Vec<_> = too_many(MAX_SHIPPED + 1).into_iter().collect();
    assert_eq!(found(&complaints), ["Cargo.lock:1 count"]);
}

#[test]
fn foreign_sources_and_open_versions_are_found() {
    let policy = Policy {
        licences: vec!["MIT".to_owned()],
        banned: Vec::new(),
        sources: vec!["git+https://example.com/mine".to_owned()],
    };
    let wanted =
        |name: &str, req: &str, path: Value| serde_json::json!({ "name": name, "req": req, "path": path });
    let any = [
        wanted("any", "*", Value::Null),
        wanted("some", "^1", Value::Null),
        wanted("own", "*", "/own".into()),
    ];
    let package = |name: &str, source: Value| serde_json::json!({ "name": name, "license": "MIT", "source": source, "dependencies": any });
    let packages = [
        package("ours", Value::Null),
        package("usual", CRATES_IO.into()),
        package("mine", "git+https://example.com/mine?rev=1#1".into()),
        package("forked", "git+https://example.com/theirs#1".into()),
        package("private", "registry+https://example.com/index".into()),
    ];
    let expected = ["Cargo.lock:1 any", "Cargo.lock:1 forked", "Cargo.lock:1 private"];
    assert_eq!(found(&complaints(&packages, &policy)), expected);
}

#[test]
fn licence_expressions_are_read_as_spdx_does() {
    let allowed = ["MIT", "Zlib"].map(str::to_owned);
    let cases = [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT/GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND Zlib", true),
        ("GPL-3.0 OR MIT AND Zlib", true),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", false),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
        ("MIT WITH something", false),
        ("MIT Zlib", false),
        ("", false),
    ];
    for (expression, expected) in cases {
        assert_eq!(is_accepted(expression, &allowed), expected, "{expression}");
    }
}
