//! `waypost run start`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use waypost_kernel::Span;
use waypost_store::{CommandWrite, NewRun, RunRow};
use waypost_worker::playbook::{MAX_RETRIES, Playbooks, check_variable};
use waypost_worker::{Options, PassedEnv, Stage, Worker};

use super::by_name::{Planned, planned};
use super::follow::{Follower, Stopped};
use super::{find, user};
use crate::output::{BAD_INPUT, ERROR, Failed, Format, INTERRUPTED, Result, TIMED_OUT, exit_code, print};
use crate::place::{Opened, lifecycles, tenant};
use crate::times::not_before;
use crate::worker::duration;

#[derive(Debug, Args)]
#[command(
    after_help = "With --wait this process also works the run: nothing to start first. Its exit code is then the run's:\n0 succeeded, 3 failed or cancelled, 6 waits for a person, 124 not done in time.\n\nExamples:\n  waypost run start --wait -- echo hi\n  waypost run start update --input cluster=c1\n  waypost run start update.toml --input cluster=c1 --wait\n  waypost run start update --input cluster=c1 --dry-run\n  waypost run start --wait --retries 2 -- ./deploy.sh staging\n  waypost run start --timeout 10m --env STAGE=eu --dir /srv/app --schedule-at 10m -- ./deploy.sh\n  waypost run start --queue builds --idempotency-key \"build-$GIT_SHA\" -- make release"
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
    #[arg(long, conflicts_with_all = ["wait", "idempotency_key"])]
    pub dry_run: bool,
    /// Default: the playbook's, or `default`.
    #[arg(long)]
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
    parent: Option<String>,
    /// A variable of the command's environment. It is kept with the run and shown: no secrets. A playbook has `secrets` for those.
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "playbook")]
    env: Vec<String>,
    /// Where the command is executed. Default: this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "playbook")]
    dir: Option<PathBuf>,
    /// How long each try of the command may take, whoever executes it: then it is stopped and has failed with TIMEOUT. Steps of a
    /// playbook have their own.
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "playbook")]
    run_timeout: Option<Duration>,
    /// Not before: 2026-02-14T08:00:00Z, or 10m from now. Nobody is asked then: what would pause the run is skipped or fails it.
    #[arg(long, value_name = "TIME")]
    pub schedule_at: Option<String>,
    /// Cancelled if nobody has taken it after this time.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<Duration>,
    /// Work the run here and follow it to its end.
    #[arg(long)]
    wait: bool,
    /// With --wait: give up waiting after this time; the run is cancelled, since this process works it. Without: as
    /// --run-timeout.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn start(opened: Opened, flags: Flags) -> Result<u8> {
    let store = opened.store();
    if let (Some(playbook), Some(_), false) = (&flags.playbook, flags.timeout, flags.wait) {
        let message = format!(
            "timeout: {playbook}: a playbook and its steps have timeouts of their own; with --wait it is how long to wait"
        );
        return Err(Failed::new(BAD_INPUT, message));
    }
    let catalog = lifecycles(&*store).await?;
    let Planned { mut new, own, .. } = planned(Some(&*store), &catalog, &flags).await?;
    if let Some(text) = &flags.schedule_at {
        new.schedule_at = Some(not_before("schedule-at", text, store.now().await?)?);
    }
    if let Some(parent) = &flags.parent {
        new.parent_run_id = Some(find(&*store, parent).await?.id().to_owned());
    }
    let started = store.enqueue(vec![new]).await?.remove(0)?;
    let run_id = started.run.id().to_owned();
    if started.replayed {
        anstream::eprintln!("{run_id} was started before with this key");
    }
    if !flags.wait {
        let text = match flags.output {
            Format::Table => run_id,
            format => format.object(&started.run.object()),
        };
        return print(&text).map(|()| 0);
    }
    let follower = Follower::new(run_id, flags.output == Format::Table);
    let (run, code) = work_with(opened, follower, flags.timeout, own).await?;
    if flags.output != Format::Table {
        print(&flags.output.object(&run.object()))?;
    }
    Ok(code)
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
    if let Some(timeout) = flags.run_timeout.or(flags.timeout.filter(|_| !flags.wait)) {
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

/// Works the run in this process and follows it. Another worker may be faster: then it is only followed.
pub async fn work_with(
    opened: Opened,
    mut follower: Follower,
    timeout: Option<Duration>,
    playbooks: Playbooks,
) -> Result<(RunRow, u8)> {
    let store = opened.store();
    let run_id = follower.run_id().to_owned();
    let (stage, shutdown) = watch::channel(Stage::Working);
    let passed_env = PassedEnv::of_person();
    let options = Options { only: Some(run_id.clone()), playbooks, passed_env, ..Options::default() };
    let worker = Worker::new(store.clone(), options);
    let supervised = opened.supervised(worker.name(), None, shutdown).await?;
    let working = tokio::spawn(supervised.run(Some(worker)));
    let gave_up = match follower.follow_until(&*store, timeout).await? {
        Stopped::AtRest => None,
        Stopped::TimedOut => Some((TIMED_OUT, "not done in time")),
        Stopped::Interrupted => Some((INTERRUPTED, "interrupted")),
    };
    if let Some((_, why)) = gave_up {
        // This process is the run's worker: leaving without a word would leave it to nobody.
        let cancel = CommandWrite {
            tenant: tenant().into(),
            run_id: run_id.clone(),
            name: "cancel".into(),
            by: user(),
            reason: Some(why.into()),
            ..CommandWrite::default()
        };
        if store.command(cancel).await.is_ok() {
            follower.follow(&*store).await?;
        }
    }
    stage.send_replace(Stage::Draining);
    let _ = working.await;
    let run = find(&*store, &run_id).await?;
    follower.print_path(&run);
    let code = gave_up.map_or_else(|| exit_code(&run), |(code, _)| code);
    Ok((run, code))
}
