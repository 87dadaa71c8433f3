//! A command that a run brings along: its surroundings, its end, and the outcome it may have written.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::process::{Process, Started};
use super::{Answer, Exit, Try, output};
use crate::outcome::Outcome;
use crate::resolve::Carried;

const MAX_OUTCOME_BYTES: u64 = 1024 * 1024;

/// Processes that a command left behind may write to its output this much longer: `tee` in a shell's pipe.
const LINGER: Duration = Duration::from_secs(2);

/// A run's command has one step.
const STEP: &str = "run";

pub(super) async fn execute(
    it: &Try<'_>,
    carried: &Carried,
    guardian: Option<&[OsString]>,
) -> Option<Answer> {
    let failed =
        |problem: String| Some(Answer { exit: Some(Exit::NotStarted(problem)), ..Answer::default() });
    let folder = match tempfile::Builder::new().prefix("waypost-").tempdir() {
        Ok(folder) => folder,
        Err(error) => return failed(format!("no folder for temporary files: {error}")),
    };
    let outcome_path = folder.path().join("outcome.json");
    let started = Process::start(&carried.command, guardian, input(it), |command| {
        surround(command, it, carried, &outcome_path);
    });
    let Started { mut process, out, err } = match started {
        Ok(started) => started,
        Err(error) => return failed(cannot_start(carried, &error)),
    };
    let (enough, told_enough) = oneshot::channel();
    let output = tokio::spawn(output::record(out, err, it.journal.clone(), told_enough));
    let ended = tokio::select! {
        biased;
        () = process.ended() => true,
        () = it.lease.stopped() => false,
    };
    if !ended {
        process.stop(it.lease, it.grace).await;
    }
    let (status, last_line) = wind_up(it, process, output, enough).await;
    let exit = match status {
        Ok(status) => exit_of(status),
        Err(error) => Exit::NotStarted(format!("its end could not be learnt: {error}")),
    };
    ended.then(|| Answer { exit: Some(exit), outcome: written(&outcome_path), last_line })
}

/// The output is read to its end before the status counts, but nobody who keeps it open keeps the run open.
/// What was read is written, however long the store takes, unless nothing may be written any more.
async fn wind_up(
    it: &Try<'_>,
    process: Process,
    mut output: JoinHandle<Option<String>>,
    enough: oneshot::Sender<()>,
) -> (std::io::Result<ExitStatus>, Option<String>) {
    let early = timeout(LINGER, &mut output).await.ok();
    let status = process.reap().await;
    if let Some(recorded) = early {
        return (status, recorded.ok().flatten());
    }
    if let Ok(recorded) = timeout(LINGER, &mut output).await {
        return (status, recorded.ok().flatten());
    }
    let _ = enough.send(());
    let recorded = tokio::select! {
        recorded = &mut output => recorded.ok().flatten(),
        () = it.lease.given_up() => None,
    };
    output.abort();
    (status, recorded)
}

/// What the command reads on its standard input.
fn input(it: &Try<'_>) -> Vec<u8> {
    let row = it.row;
    json!({
        "run_id": row.id(),
        "input": row.input,
        "metadata": row.metadata,
        "attempt": row.run.attempt,
        "try": it.number,
    })
    .to_string()
    .into_bytes()
}

fn surround(command: &mut Command, it: &Try<'_>, carried: &Carried, outcome_path: &Path) {
    if let Some(folder) = &carried.directory {
        command.current_dir(folder);
    }
    command
        .env("WAYPOST_RUN_ID", it.row.id())
        .env("WAYPOST_STEP", STEP)
        .env("WAYPOST_ATTEMPT", it.row.run.attempt.to_string())
        .env("WAYPOST_IDEMPOTENCY_KEY", it.idempotency_key())
        .env("WAYPOST_OUTPUT", outcome_path);
    if let Some(parent) = it.row.metadata.get("traceparent").and_then(|value| value.as_str()) {
        command.env("TRACEPARENT", parent);
    }
}

fn cannot_start(carried: &Carried, error: &std::io::Error) -> String {
    let program = carried.command.first().map_or("", String::as_str);
    match &carried.directory {
        Some(folder) if !folder.is_dir() => format!("cannot start {program}: no folder {}", folder.display()),
        _ => format!("cannot start {program}: {error}"),
    }
}

/// Shells and guardians tell a signal as 128 + its number.
fn exit_of(status: ExitStatus) -> Exit {
    const LAST_SIGNAL: i32 = 31;
    match (status.code(), status.signal()) {
        (Some(code), _) if (129..=128 + LAST_SIGNAL).contains(&code) => Exit::Signal(code - 128),
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

/// The outcome that the command wrote, if it did.
fn written(path: &Path) -> Option<Result<Outcome, String>> {
    // A pipe put there would be waited for.
    let meta = std::fs::symlink_metadata(path).ok()?;
    if !meta.is_file() {
        return Some(Err("WAYPOST_OUTPUT is not a plain file any more".to_owned()));
    }
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_OUTCOME_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Some(Err(format!("WAYPOST_OUTPUT cannot be read: {error}")));
    }
    if bytes.len() as u64 > MAX_OUTCOME_BYTES {
        return Some(Err(format!("WAYPOST_OUTPUT is larger than {MAX_OUTCOME_BYTES} bytes")));
    }
    (!bytes.trim_ascii().is_empty()).then(|| Outcome::parse(&bytes))
}
