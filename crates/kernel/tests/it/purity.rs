//! The kernel decides and computes; it neither looks at the world nor changes it.

use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

/// jiff brings the time zones, compiled in; waypost-schema is held to be as pure by a test of its own.
const DEPENDENCIES: [&str; 4] = ["jiff", "serde", "serde_json", "waypost-schema"];
const MAX_LINES: usize = 400;

/// Whole words, so that `operand` is no `rand`.
const FOREIGN: [&str; 12] = [
    "std::time",
    "std::fs",
    "std::net",
    "std::thread",
    "std::env",
    "std::process",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "rand",
    "tokio",
];

fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
    }
    assert!(sources.len() > 20, "the sources were not found");
    sources
}

fn mentions(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

#[test]
fn the_kernel_depends_on_four_crates() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let manifest = DeTable::parse(&manifest).unwrap();
    let manifest = manifest.get_ref();
    let dependencies = manifest.get("dependencies").unwrap().get_ref().as_table().unwrap();
    let dependencies: Vec<&str> = dependencies.keys().map(|name| name.get_ref().as_ref()).collect();
    assert_eq!(dependencies, DEPENDENCIES);
    assert!(!manifest.contains_key("build-dependencies") && !manifest.contains_key("target"));
}

#[test]
fn the_kernel_names_no_clock_disk_network_or_randomness() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            let foreign = FOREIGN.iter().filter(|word| mentions(line, word));
            found.extend(foreign.map(|word| format!("{}:{}: {word}", path.display(), at + 1)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_kernel_has_no_long_file() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines, {MAX_LINES} are allowed", path.display());
    }
}

#[test]
fn foreign_words_are_found_whole() {
    assert!(
        mentions("use rand::Rng;", "rand") && mentions("let t = std::time::Instant::now();", "std::time")
    );
    assert!(!mentions("let operand = 1; // rand6 randomness", "rand"));
}
