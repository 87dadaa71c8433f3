//! A command, whoever names it: its surroundings, its end, and the outcome it may have written.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::process::{Process, Started};
use super::{Answer, Exit, Try, output};
use crate::actions::{Call, Exec, Mask, OUTPUT, read_outcome};
use crate::options::Options;

/// Processes that a command left behind may write to its output this much longer: `tee` in a shell's pipe.
const LINGER: Duration = Duration::from_secs(2);

/// `None`: it was stopped, and what it left behind means nothing.
pub(crate) async fn execute(
    it: &Try<'_>,
    exec: &Exec,
    call: &Call,
    mask: &Mask,
    options: &Options,
) -> Option<Answer> {
    let failed =
        |problem: String| Some(Answer { exit: Some(Exit::NotStarted(problem)), ..Answer::default() });
    // What the command writes there is not masked yet.
    let own = Permissions::from_mode(0o700);
    let folder = match tempfile::Builder::new().prefix("waypost-").permissions(own).tempdir() {
        Ok(folder) => folder,
        Err(error) => return failed(format!("no folder for temporary files: {error}")),
    };
    let outcome_path = folder.path().join("outcome.json");
    let input = call.envelope().to_string().into_bytes();
    let started =
        Process::start(&exec.command, options.guardian.as_deref(), input, Some(it.lease), |command| {
            command.env_clear().envs(options.passed_env.variables());
            if !exec.folder.as_os_str().is_empty() {
                command.current_dir(&exec.folder);
            }
            // The contract's own come last: nobody may stand in for them.
            command.envs(exec.env.iter().map(|(name, value)| (name, value.open())));
            command.envs(call.environment(&outcome_path));
        });
    let Started { mut process, out, err } = match started {
        Ok(started) => started,
        Err(error) => return failed(cannot_start(exec, &error)),
    };
    let (enough, told_enough) = oneshot::channel();
    let step = it.step.map(str::to_owned);
    let listener = output::Listener::new(it.journal.clone(), mask.clone(), it.board.cloned(), step);
    let output = tokio::spawn(output::record(out, err, listener, told_enough));
    let ended = tokio::select! {
        biased;
        () = process.ended() => true,
        () = it.stopped() => false,
    };
    if !ended {
        process.stop(it.lease, it.grace).await;
    }
    // Its guardian ended it in the place of this worker, which was stopped when the lease's time was over.
    let ended = ended && !(process.is_cut_off() && it.lease.is_killed());
    process.stand_in(format!("{OUTPUT}={}", outcome_path.display())).await;
    let (status, last_line) = wind_up(it, process, output, enough).await;
    let exit = match status {
        Ok(status) => exit_of(status),
        Err(error) => Exit::NotStarted(format!("its end could not be learnt: {error}")),
    };
    let outcome = || read_outcome(&outcome_path, mask);
    ended.then(|| Answer { exit: Some(exit), outcome: outcome(), last_line, is_unknown: false })
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

fn cannot_start(exec: &Exec, error: &std::io::Error) -> String {
    let program = exec.command.first().map_or("", String::as_str);
    let folder = Path::new(&exec.folder);
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        return format!("cannot start {program}: no folder {}", folder.display());
    }
    format!("cannot start {program}: {error}")
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

#[cfg(test)]
mod tests;
