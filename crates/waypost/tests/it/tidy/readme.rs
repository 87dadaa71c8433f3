//! The commands that README.md shows are executed, in its order, from the root of the repository.

use std::path::Path;
use std::process::{Command, Stdio};

use super::tree::{Complaint, Tree, assert_clean, complaint, found};

const README: &str = "README.md";
const FROM_SOURCE: &str = "cargo run --release -- ";
const INSTALLED: &str = "waypost ";

/// Not executed: what fetches or installs, and the command that would run this very test.
const LEFT_TO_THE_READER: &[&str] = &["git ", "cd ", "cargo install ", "./scripts/test"];

#[derive(Debug)]
struct Shown {
    line: usize,
    command: String,
}

fn complaints(tree: &Tree, binary: &Path) -> Vec<Complaint> {
    let Some(readme) = tree.get(README) else {
        return vec![complaint(README, 1, "README", "is missing: write it".to_owned())];
    };
    let mut complaints = Vec::new();
    // Not in the reader's own `.waypost`, whatever is in there.
    let database = tempfile::tempdir().unwrap();
    for Shown { line, command } in shown_commands(&readme.text) {
        if LEFT_TO_THE_READER.iter().any(|prefix| command.starts_with(prefix)) {
            continue;
        }
        let result = if command.starts_with(FROM_SOURCE) || command.starts_with(INSTALLED) {
            execute(&command, &tree.root, database.path(), binary)
        } else {
            Err("is a command that the tidy test cannot run: teach tidy/readme.rs how to run it".to_owned())
        };
        if let Err(problem) = result {
            complaints.push(complaint(README, line, &command, format!("`{command}` {problem}")));
        }
    }
    complaints
}

/// The commands of all shell blocks; a backslash at its end joins a line with the next.
fn shown_commands(readme: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    let (mut fenced, mut is_shell, mut joins) = (false, false, false);
    for (at, line) in readme.lines().enumerate() {
        let line = line.trim();
        if let Some(language) = line.strip_prefix("```") {
            fenced = !fenced;
            is_shell = fenced && ["sh", "bash", "shell", "console"].contains(&language.trim());
            joins = false;
        } else if is_shell && !line.is_empty() && !line.starts_with('#') {
            let part = line.trim_end_matches('\\');
            match shown.last_mut().filter(|_| joins) {
                Some(last) => last.command.push_str(part),
                None => shown.push(Shown { line: at + 1, command: part.to_owned() }),
            }
            joins = part.len() < line.len();
        }
    }
    shown
}

/// A shell runs the line, so that quotes and pipes mean what they mean to the reader.
fn execute(command: &str, root: &Path, database: &Path, binary: &Path) -> Result<(), String> {
    let expected = expected_exit_code(command)?;
    let command = command.replace(FROM_SOURCE, INSTALLED);
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("waypost() {{ \"$0\" \"$@\"; }}\n{command}"))
        .arg(binary)
        .current_dir(root)
        .env("WAYPOST_DATABASE_URL", format!("sqlite://{}/waypost.db", database.display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("did not start: {error}"))?;
    if output.status.code() == Some(expected) {
        return Ok(());
    }
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!(
        "ended with {}, not with exit code {expected}: mend it, or write `# exit N` behind it\n{stdout}{stderr}",
        output.status
    ))
}

/// A line may say `# exit 5` at its end; 0 otherwise.
fn expected_exit_code(command: &str) -> Result<i32, String> {
    match command.rsplit_once("# exit ") {
        Some((_, code)) => {
            code.trim().parse().map_err(|_| "has no number after `# exit`: write it alone there".to_owned())
        }
        None => Ok(0),
    }
}

#[test]
fn readme_commands_run() {
    assert_clean(&complaints(&Tree::repository(), Path::new(env!("CARGO_BIN_EXE_waypost"))));
}

#[test]
fn readme_commands_that_fail_are_found() {
    let readme = "```sh\n# a comment\ngit clone x\n./scripts/test\nwaypost -c 'exit 0' | cat\n\
                  cargo run --release -- -c \\\n  'exit 3'   # exit 3\nwaypost -c 'exit 4'\n\
                  waypost -c 'exit 0'  # exit 5\nmake\n```\n```toml\nmake = 1\n```\n```sh\ncargo build\n```\n";
    let tree = Tree::planted(&[(README, readme)]);
    let expected = [
        "README.md:8 waypost -c 'exit 4'",
        "README.md:9 waypost -c 'exit 0'  # exit 5",
        "README.md:10 make",
        "README.md:16 cargo build",
    ];
    assert_eq!(found(&complaints(&tree, Path::new("sh"))), expected);
    assert_eq!(found(&complaints(&Tree::planted(&[]), Path::new("sh"))), ["README.md:1 README"]);
}
