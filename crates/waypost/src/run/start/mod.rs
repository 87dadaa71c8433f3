//! `waypost run start`, and `run replay`, which starts a run like an old one.

pub mod brought;
mod bulk;
pub mod by_name;
pub mod replay;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use waypost_kernel::Span;
use waypost_store::NewRun;
use waypost_worker::playbook::{MAX_RETRIES, check_variable};
use waypost_worker::targets::with_origin;

use by_name::{Planned, checked, planned};

use crate::output::{BAD_INPUT, ERROR, Failed, Format, Result, print, tell};
use crate::place::{Opened, Place, lifecycles, tenant};
use crate::run::follow::Follower;
use crate::run::follow::wait::Waiting;
use crate::run::user;
use crate::worker::duration;

#[derive(Debug, Args)]
#[command(
    after_help = "With --wait the run is followed, and worked here if no worker takes it: nothing to start first. The exit code is then the run's:\n0 succeeded, 3 failed or cancelled, 6 waits for a person, 124 not done in time.\n\nExamples:\n  waypost run start --wait -- echo hi\n  waypost run start update --input cluster=c1\n  waypost run start update.toml --input cluster=c1 --wait\n  waypost run start update --input cluster=c1 --dry-run\n  waypost run start --wait --retries 2 -- ./deploy.sh staging\n  waypost run start --timeout 10m --env STAGE=eu --dir /srv/app -- ./deploy.sh\n  waypost run start --schedule-at 10m -- ./deploy.sh\n  waypost run start --queue builds --idempotency-key \"$GIT_SHA\" -- make"
)]
pub struct Flags {
    /// A playbook instead of a command: the name of one that the server or a worker has (`waypost playbook list`), or a file.
    #[arg(value_name = "NAME|FILE", required_unless_present = "command", conflicts_with = "command")]
    pub playbook: Option<String>,
    /// Of a command's run; deploy if left out. A playbook has its own.
    #[arg(long, value_name = "NAME")]
    pub lifecycle: Option<String>,
    /// A folder of playbooks that this process has: found by name, and with --wait worked here.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub playbooks: Option<PathBuf>,
    /// Take a name that nobody has yet: the run waits for a worker that has it.
    #[arg(long, requires = "lifecycle", conflicts_with = "command")]
    pub unknown_playbook: bool,
    /// Say what would happen, and write nothing.
    #[arg(long, conflicts_with_all = ["wait", "here", "idempotency_key"])]
    pub dry_run: bool,
    /// Default: the playbook's, or `default`.
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Higher comes first. Default: the playbook's, or 0.
    #[arg(long, allow_hyphen_values = true)]
    pub priority: Option<i16>,
    /// An input by name. A playbook's is read as the type that it declares; elsewhere numbers, true, false and JSON
    /// keep their type. The command reads it on its stdin.
    #[arg(long = "input", value_name = "KEY=VALUE")]
    pub inputs: Vec<String>,
    /// Shown with the run.
    #[arg(long = "metadata", value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// The same key and the same request start one run, however often they are sent.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Runs with the same key are worked one at a time.
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// What the run is, for people.
    #[arg(long)]
    title: Option<String>,
    /// Found again by `run list --text`.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Tries after the first one, at most 100: 5 s after it failed, 10 s after the second, and 10 s after each later one. Steps of a
    /// playbook have their own.
    #[arg(long, default_value_t = 0, conflicts_with = "playbook", value_parser = clap::value_parser!(u32).range(0..=MAX_RETRIES))]
    retries: u32,
    /// The run that this one is a part of: cancelled with it.
    #[arg(long, value_name = "RUN", env = "WAYPOST_RUN_ID", hide_env = true)]
    pub parent: Option<String>,
    /// A variable of the command's environment. It is kept with the run and shown: no secrets. A playbook has `secrets` for those.
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "playbook")]
    env: Vec<String>,
    /// Where the command is executed. Default: this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "playbook")]
    dir: Option<PathBuf>,
    /// How long each try of the command may take, whoever executes it: then it is stopped and has failed with TIMEOUT. --timeout is the
    /// same where nobody waits. Steps of a playbook have their own.
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "playbook")]
    run_timeout: Option<Duration>,
    /// Not before: 2026-02-14T08:00:00Z, or 10m from now. Nobody is asked then: what would pause the run is skipped or fails it.
    #[arg(long, value_name = "TIME")]
    pub schedule_at: Option<String>,
    /// Cancelled if nobody has taken it after this time.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<Duration>,
    #[command(flatten)]
    pub waiting: Waiting,
    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where the run is to be: a database that is not there yet is made only for what can be started.
pub async fn opened(place: &Place, flags: &Flags) -> Result<Opened> {
    if let (Some(playbook), Some(_), false) =
        (&flags.playbook, flags.waiting.timeout, flags.waiting.follows())
    {
        let message = format!(
            "timeout: {playbook}: a playbook and its steps have timeouts of their own; with --wait it is how long to wait"
        );
        return Err(Failed::new(BAD_INPUT, message));
    }
    let check = async |opened: &Opened| {
        let store = opened.store();
        let Planned { new, own, .. } = checked(&*store, &lifecycles(&*store).await?, flags).await?;
        flags.waiting.worker(&new, own).map(|_| ())
    };
    place.opened_after(check).await
}

pub async fn start(opened: Opened, flags: Flags) -> Result<u8> {
    let store = opened.store();
    let catalog = lifecycles(&*store).await?;
    let Planned { new, own, playbook } = planned(&*store, &catalog, &flags).await?;
    let new = match &playbook {
        Some(playbook) => with_origin(new, playbook.rule.is_some(), "cli"),
        None => new,
    };
    let (started, worker) = flags.waiting.enqueue(&*store, new, own).await?;
    let run_id = started.run.id().to_owned();
    if started.replayed {
        tell(&format!("{run_id} was started before with this key"));
    }
    let output = flags.waiting.output;
    if let Some(playbook) = playbook.filter(|playbook| playbook.rule.is_some()) {
        return bulk::started(opened, started.run, &playbook, flags.waiting, worker).await;
    }
    if !flags.waiting.follows() {
        let text = match output {
            Format::Table => run_id,
            format => format.object(&started.run.object()),
        };
        return print(&text).map(|()| 0);
    }
    flags.waiting.follow(opened, Follower::new(run_id, output == Format::Table), worker).await
}

/// What both kinds of runs are given.
pub fn common(flags: &Flags) -> Result<NewRun> {
    let defaults = NewRun::default();
    Ok(NewRun {
        tenant: tenant().to_owned(),
        queue: flags.queue.clone().unwrap_or(defaults.queue),
        priority: flags.priority.unwrap_or(defaults.priority),
        metadata: pairs("metadata", &flags.metadata)?,
        ttl: flags.ttl.map(|ttl| Span::from_ms(ttl.as_millis() as i64)),
        idempotency_key: flags.idempotency_key.clone(),
        concurrency_key: flags.concurrency_key.clone(),
        title: flags.title.clone(),
        correlation_id: flags.correlation_id.clone(),
        by: user(),
        ..defaults
    })
}

pub fn of_command(flags: &Flags) -> Result<NewRun> {
    if flags.command.first().is_none_or(|program| program.trim().is_empty()) {
        let message =
            "command: it begins with an empty word: write the program that is to be executed after `--`";
        return Err(Failed::new(BAD_INPUT, message));
    }
    let directory = match &flags.dir {
        Some(folder) => std::path::absolute(folder),
        None => std::env::current_dir(),
    };
    let directory = directory
        .map_err(|error| Failed::new(ERROR, format!("cannot tell the command's folder: {error}")))?;
    let mut carried = json!({ "command": flags.command, "directory": directory.to_string_lossy() });
    if flags.retries > 0 {
        carried["retries"] = flags.retries.into();
    }
    if let Some(timeout) = flags.run_timeout.or(flags.waiting.timeout.filter(|_| !flags.waiting.follows())) {
        carried["timeout_ms"] = json!(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    }
    let env = split("env", &flags.env)?;
    for (name, _) in &env {
        check_variable(name).map_err(|problem| Failed::new(BAD_INPUT, format!("env: {problem}")))?;
    }
    if !env.is_empty() {
        carried["env"] = json!(env.into_iter().collect::<BTreeMap<_, _>>());
    }
    let input = Value::Object(pairs("input", &flags.inputs)?);
    // A lost worker costs a try, and not the run.
    let max_attempts = flags.retries.saturating_add(1);
    let lifecycle = flags.lifecycle.clone().unwrap_or_else(|| "deploy".to_owned());
    Ok(NewRun { lifecycle, input, max_attempts, carried: Some(carried), ..common(flags)? })
}

/// Where nobody declares types: numbers, true, false and JSON keep theirs.
pub fn pairs(field: &str, given: &[String]) -> Result<Map<String, Value>> {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    Ok(split(field, given)?.into_iter().map(|(key, text)| (key.to_owned(), value(text))).collect())
}

pub fn split<'t>(field: &str, given: &'t [String]) -> Result<Vec<(&'t str, &'t str)>> {
    let pair = |pair: &'t String| {
        let found = pair.split_once('=').filter(|(key, _)| !key.is_empty());
        found.ok_or_else(|| Failed::new(BAD_INPUT, format!("{field}: {pair:?} is not KEY=VALUE")))
    };
    given.iter().map(pair).collect()
}
