//! Every codebase that we admire grew one giant file, because nothing failed when it did.

use super::rust;
use super::tree::{Complaint, Exception, File, Tree, assert_clean, complaint, except, found};

const MAX_FILE_LINES: usize = 600;
const MAX_KERNEL_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 70;

const SOURCES: &[&str] = &["rs", "sql", "js", "css", "sh", "py"];

/// Tables of data only; the subject is "file" or the function's name.
const EXCEPTIONS: &[Exception] = &[];

fn complaints(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in &tree.files {
        complaints.extend(long_file(file));
        if file.is_rust() {
            complaints.extend(long_functions(file));
        }
    }
    complaints
}

fn long_file(file: &File) -> Option<Complaint> {
    // Scripts may have no extension.
    if !file.has_extension(SOURCES) && !file.text.starts_with("#!/") {
        return None;
    }
    let max = match file.crate_of_source() {
        Some("kernel") => MAX_KERNEL_FILE_LINES,
        _ => MAX_FILE_LINES,
    };
    let lines = file.text.lines().count();
    (lines > max).then(|| {
        let message =
            format!("{lines} lines, {max} are allowed here: give its second subject a file of its own");
        complaint(&file.path, max + 1, "file", message)
    })
}

fn long_functions(file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for function in rust::functions(&file.text) {
        let lines = function.last_line - function.first_line + 1;
        if lines > MAX_FUNCTION_LINES {
            let message = format!(
                "fn {} has {lines} lines, {MAX_FUNCTION_LINES} are allowed: name a part of it and move that out",
                function.name
            );
            complaints.push(complaint(&file.path, function.first_line, function.name, message));
        }
    }
    complaints
}

#[test]
fn files_and_functions_are_short() {
    assert_clean(&except(complaints(&Tree::repository()), EXCEPTIONS));
}

#[test]
fn long_files_and_functions_are_found() {
    let lines = |count| "x\n".repeat(count);
    let function = |inner| format!("\nfn long() {{\n{}}}\n", "1;\n".repeat(inner));
    let tree = Tree::planted(&[
        ("crates/kernel/src/fits.rs", &lines(400)),
        ("crates/kernel/src/long.rs", &lines(401)),
        ("crates/kernel/tests/it/main.rs", &lines(600)),
        ("crates/store/src/schema.sql", &lines(601)),
        ("scripts/long", &format!("#!/bin/sh\n{}", lines(600))),
        ("docs/guide.md", &lines(601)),
        ("crates/store/src/fits.rs", &function(68)),
        ("crates/store/src/function.rs", &function(69)),
    ]);
    let expected = [
        "crates/kernel/src/long.rs:401 file",
        "crates/store/src/schema.sql:601 file",
        "scripts/long:601 file",
        "crates/store/src/function.rs:2 long",
    ];
    assert_eq!(found(&complaints(&tree)), expected);
}
