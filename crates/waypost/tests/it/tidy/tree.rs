//! The files that a rule looks at, and what it answers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::rust;

pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        Path::new(&self.path)
            .extension()
            .and_then(|found| found.to_str())
            .is_some_and(|found| extensions.contains(&found))
    }

    pub fn is_rust(&self) -> bool {
        self.has_extension(&["rs"])
    }

    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub fn has_component(&self, name: &str) -> bool {
        self.path.split('/').any(|component| component == name)
    }

    /// Whole files of tests. The store's conformance suite lives in `src` because both stores call it.
    pub fn is_test(&self) -> bool {
        self.has_component("tests") || self.has_component("conformance") || self.name() == "tests.rs"
    }

    /// The crate of `crates/NAME/src/…`; None for a crate's tests, benches and examples.
    pub fn crate_of_source(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(name)
    }

    /// The tokens that ship: no comment, no test.
    pub fn production_tokens(&self) -> Vec<rust::Token<'_>> {
        if self.is_test() { Vec::new() } else { rust::split_tests(&self.text).production }
    }

    /// The tokens of tests, comments left out.
    pub fn test_tokens(&self) -> Vec<rust::Token<'_>> {
        if self.is_test() { rust::code(&self.text) } else { rust::split_tests(&self.text).tests }
    }
}

pub struct Tree {
    pub root: PathBuf,
    pub files: Vec<File>,
}

impl Tree {
    /// This repository: what is tracked, and what would be with the next `git add`.
    pub fn repository() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        // The owner of a CI checkout is often another user; git refuses to read it without this setting.
        let listed = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .expect("the tidy test lists files with git: install it");
        assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
        let mut files = Vec::new();
        for path in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
            // Neither a tracked file that is deleted but not yet committed nor a picture has text to check.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.push(File { path: path.to_owned(), text });
            }
        }
        // An empty list would pass every rule.
        assert!(files.iter().any(|file| file.path == "Cargo.toml"), "git lists no Cargo.toml in {root:?}");
        Tree { root, files }
    }

    /// A tree in memory, for a test that a rule can complain.
    pub fn planted(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Tree { root: std::env::temp_dir(), files: files.iter().map(file).collect() }
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

#[derive(Debug)]
pub struct Complaint {
    pub path: String,
    pub line: usize,
    /// What an exception names: a function, a literal.
    pub subject: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

pub fn complaint(path: &str, line: usize, subject: &str, message: String) -> Complaint {
    Complaint { path: path.to_owned(), line, subject: subject.to_owned(), message }
}

/// A complaint that we live with.
pub struct Exception {
    pub path: &'static str,
    pub subject: &'static str,
    pub reason: &'static str,
}

/// Takes out what is excepted; an exception that excepts nothing is itself a complaint, lest the list
/// outlive its reasons.
pub fn except(complaints: Vec<Complaint>, exceptions: &[Exception]) -> Vec<Complaint> {
    let covers = |e: &Exception, c: &Complaint| e.path == c.path && e.subject == c.subject;
    let mut stale = Vec::new();
    for e in exceptions {
        if !complaints.iter().any(|c| covers(e, c)) {
            let message =
                format!("the exception for `{}` ({}) excepts nothing: delete it", e.subject, e.reason);
            stale.push(complaint(e.path, 1, e.subject, message));
        }
    }
    let kept = complaints.into_iter().filter(|c| !exceptions.iter().any(|e| covers(e, c)));
    kept.chain(stale).collect()
}

#[track_caller]
pub fn assert_clean(complaints: &[Complaint]) {
    let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(complaints.is_empty(), "{} to mend:\n{}", lines.len(), lines.join("\n"));
}

/// The complaints as `path:line subject`, to compare with what a planted tree should give.
pub fn found(complaints: &[Complaint]) -> Vec<String> {
    complaints.iter().map(|c| format!("{}:{} {}", c.path, c.line, c.subject)).collect()
}

#[test]
fn exceptions_silence_one_complaint_each_and_go_stale() {
    let complaints = || vec![complaint("a.rs", 3, "table", String::new())];
    let listed = |subject| [Exception { path: "a.rs", subject, reason: "data" }];
    assert!(except(complaints(), &listed("table")).is_empty());
    assert_eq!(found(&except(complaints(), &listed("gone"))), ["a.rs:3 table", "a.rs:1 gone"]);
}
