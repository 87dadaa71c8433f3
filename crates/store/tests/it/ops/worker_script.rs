//! The seed's worker, `scripts/odooops/worker_execute.sh`, run for real against psql.
// proves D2, D9

use std::os::unix::fs::symlink;
use std::process::Command;

use super::kit::{Ops, open};

/// As it stands in the seed.
const SCRIPT: &str = include_str!("worker_execute.sh");

struct Ended {
    code: Option<i32>,
    output: String,
}

/// `execute_workflow` is `true` or `false`; the waits are shortened in the script's own variable.
fn run(ops: &Ops, execute_workflow: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let stub = folder.path().join("execute_workflow");
    symlink(format!("/bin/{execute_workflow}"), stub).unwrap();
    let script = folder.path().join("worker_execute.sh");
    std::fs::write(&script, SCRIPT).unwrap();
    let shortened =
        Command::new("sed").args(["-i", "s/^BACKOFF_SECONDS=5$/BACKOFF_SECONDS=0/"]).arg(&script).status();
    assert!(shortened.unwrap().success());
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .arg(&script)
        .env("PATH", path)
        .env("SUPABASE_DB_URL", ops.server.url())
        .output()
        .unwrap();
    let output_text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        !output_text.contains("not found"),
        "jq, psql and hostname are needed for this test: apt-get install jq\n{output_text}"
    );
    Ended { code: output.status.code(), output: output_text }
}

#[test]
fn nothing_to_do() {
    let ops = open();
    let ended = run(&ops, "true");
    assert_eq!((ended.code, ended.output.trim()), (Some(0), "No queued runs available"));
}

#[test]
fn a_workflow_that_succeeds() {
    let ops = open();
    let run_id = ops.queue();
    let ended = run(&ops, "true");
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    assert_eq!(ops.one(&run_id, "status, claimed_by LIKE 'worker-%'"), "success|t");
    assert_eq!(ops.verify(), 1);
}

/// The script claims anew for each try, so it takes three runs to exceed its retries.
#[test]
fn a_workflow_that_fails_three_times() {
    let ops = open();
    let runs: Vec<String> = (0..3).map(|_| ops.queue()).collect();
    let ended = run(&ops, "false");
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    for words in
        ["Retry 1/3 in 0 seconds...", "Retry 2/3 in 0 seconds...", "Max retries exceeded, marking as failed"]
    {
        assert!(ended.output.contains(words), "{}", ended.output);
    }
    let last = ops.one(&runs[2], "status, metadata->>'error', metadata->>'retry_count'");
    assert_eq!(last, "failed|Max retries exceeded|3");
    assert_eq!([ops.status(&runs[0]), ops.status(&runs[1])], ["claimed", "claimed"]);
    assert_eq!(ops.verify(), 3);
}
