//! A command that prints one JSON object per line. It waits while nobody asks for more, and ends with its reader.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::jsonl::parsed;
use super::{Asked, MAX_ROW_BYTES, Sender, Trouble};
use crate::actions::{Action, Exec, Mask, find};
use crate::execute::process::{Process, Started};
use crate::pace;
use crate::playbook::{Secrets, Source};

/// A command that lists targets may read a large shop.
const TIMEOUT: Duration = Duration::from_secs(3_600);
/// Of what it says on its standard error.
const MAX_WORDS: u64 = 4 * 1024;

pub async fn read(asked: Asked, to: Sender) {
    let limit = asked.targets.timeout.map_or(TIMEOUT, pace::duration);
    let trouble = match tokio::time::timeout(limit, listen(&asked, &to)).await {
        Ok(Ok(())) => return,
        Ok(Err(problem)) => problem,
        Err(_) => format!("the command did not end within {} s", limit.as_secs()),
    };
    let _ = to.send(Err(Trouble::Source(format!("targets: {trouble}")))).await;
}

fn rendered(asked: &Asked) -> Result<(Exec, Mask), String> {
    let Source::Action(action) = &asked.targets.source else { return Err("there is no command".to_owned()) };
    let context = asked.playbook.context(&asked.scope);
    let needs = asked.playbook.needs(action, &context).map_err(|error| error.to_string())?;
    let secrets = Secrets::resolve(&needs, find)?;
    let rendered = asked.playbook.render(action, &context, &secrets).map_err(|error| error.to_string())?;
    match rendered.action {
        Action::Exec(exec) => Ok((exec, rendered.mask)),
        Action::Http(_) | Action::Output(_) => Err("there is no command".to_owned()),
    }
}

async fn listen(asked: &Asked, to: &Sender) -> Result<(), String> {
    let (exec, mask) = rendered(asked)?;
    let mask = mask.and(&asked.reader.own_secrets);
    let program = exec.command.first().map(String::as_str).unwrap_or_default();
    let reader = &asked.reader;
    // Dropped before its end, it is ended with all that it started.
    let started = Process::start(&exec.command, reader.guardian.as_deref(), Vec::new(), None, |command| {
        command.env_clear().envs(reader.passed_env.variables());
        if !exec.folder.as_os_str().is_empty() {
            command.current_dir(&exec.folder);
        }
        command.envs(exec.env.iter().map(|(name, value)| (name, value.open())));
        command.env("WAYPOST_TENANT", &reader.tenant).env("WAYPOST_RUN_ID", &reader.run_id);
    });
    let Started { mut process, out, err } =
        started.map_err(|error| format!("cannot start {program}: {error}"))?;
    let words = tokio::spawn(last_words(err));
    if !hear(program, out, to).await? {
        return Ok(());
    }
    process.ended().await;
    let status = process.reap().await.map_err(|error| format!("its end could not be learnt: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let words = words.await.unwrap_or_default();
    Err(mask.hide(&format!("{program} failed ({status}): {}", words.trim())).into_owned())
}

/// False: nobody listens any more.
async fn hear(program: &str, out: tokio::process::ChildStdout, to: &Sender) -> Result<bool, String> {
    let (mut out, mut number) = (BufReader::new(out), 0_u64);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut out).take(MAX_ROW_BYTES as u64 + 1);
        let read = limited.read_until(b'\n', &mut line).await;
        if read.map_err(|error| format!("what {program} prints cannot be read: {error}"))? == 0 {
            return Ok(true);
        }
        number += 1;
        let Some(read) = parsed("line", number, &line) else { continue };
        let ends = matches!(read, Err(Trouble::Source(_)));
        if to.send(read).await.is_err() || ends {
            return Ok(false);
        }
    }
}

/// What a failed command says, as far as a message has room for it; the rest is read and dropped.
async fn last_words(err: tokio::process::ChildStderr) -> String {
    let mut err = BufReader::new(err);
    let mut words = Vec::new();
    let _ = (&mut err).take(MAX_WORDS).read_to_end(&mut words).await;
    let _ = tokio::io::copy(&mut err, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&words).into_owned()
}
