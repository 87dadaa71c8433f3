//! Nothing half done, nothing switched off, and no test that waits for real time.

use super::rust::{self, Token};
use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];
const SLEEPS: &[&str] = &["sleep", "sleep_ms", "sleep_until"];

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.rust_files() {
        let mut complain = |token: &Token<'_>, message: &str| {
            complaints.push(complaint(
                &file.path,
                token.line,
                token.text,
                format!("{}: {message}", token.text),
            ));
        };
        for three in rust::code(&file.text).windows(3) {
            if UNFINISHED.contains(&three[0].text) && three[1].is_punct("!") {
                complain(&three[0], "finish it, or leave it out");
            }
            if three[0].is_punct("#") && three[1].is_punct("[") && three[2].is_word("ignore") {
                complain(&three[2], "mend the test or delete it; no run executes it");
            }
        }
        for three in file.test_tokens().windows(3) {
            if is_sleep(three) {
                complain(&three[1], "move the test clock, or wait for a signal");
            }
        }
    }
    complaints
}

/// By path (`thread::sleep`) or imported (`sleep(…)`); a method of that name is the test clock's own.
fn is_sleep(three: &[Token<'_>]) -> bool {
    let [before, word, after] = three else { return false };
    let called = after.is_punct("(") && !before.is_punct(".") && !before.is_word("fn");
    SLEEPS.iter().any(|sleep| word.is_word(sleep)) && (before.is_punct(":") || called)
}

#[test]
fn nothing_is_unfinished_ignored_or_asleep() {
    assert_clean(&complaints(&Tree::repository()));
}

#[test]
fn unfinished_ignored_and_sleeping_code_is_found() {
    let shipped = "fn a() { todo!() }\n// todo!()\nfn b() { unimplemented!(\"c\") }\nfn d() { dbg!(1); }\n\
                   fn e() { thread::sleep(f); }\n#[cfg(test)]\nmod tests {\n#[ignore = \"slow\"]\nfn g() {}\n\
                   fn h() { tokio::time::sleep(f).await; }\n}";
    let test = "use std::thread::sleep;\nfn a() { sleep(b); clock.sleep(b); }\nfn sleep_until(c: d) {}";
    let tree = Tree::planted(&[("crates/worker/src/a.rs", shipped), ("crates/worker/tests/it/a.rs", test)]);
    let expected = [
        "crates/worker/src/a.rs:1 todo",
        "crates/worker/src/a.rs:3 unimplemented",
        "crates/worker/src/a.rs:4 dbg",
        "crates/worker/src/a.rs:8 ignore",
        "crates/worker/src/a.rs:10 sleep",
        "crates/worker/tests/it/a.rs:1 sleep",
        "crates/worker/tests/it/a.rs:2 sleep",
    ];
    assert_eq!(found(&complaints(&tree)), expected);
}
