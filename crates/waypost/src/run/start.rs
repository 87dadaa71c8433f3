//! `waypost run start`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use waypost_kernel::Span;
use waypost_store::{CommandWrite, NewRun, RunRow, parse_time};
use waypost_worker::playbook::MAX_RETRIES;
use waypost_worker::{Options, Stage, Worker};

use super::brought::of_playbook;
use super::follow::{Follower, Stopped};
use super::{find, user};
use crate::output::{BAD_INPUT, Failed, Format, INTERRUPTED, Result, TIMED_OUT, exit_code, print};
use crate::place::{Opened, tenant};
use crate::worker::duration;

#[derive(Debug, Args)]
#[command(
    after_help = "With --wait this process also works the run: nothing to start first. Its exit code is then the run's:\n0 succeeded, 3 failed or cancelled, 6 waits for a person, 124 not done in time.\n\nExamples:\n  waypost run start --wait -- echo hi\n  waypost run start update.toml --input cluster=c1 --wait\n  waypost run start --wait --retries 2 -- ./deploy.sh staging\n  waypost run start --queue builds --idempotency-key \"build-$GIT_SHA\" -- make release"
)]
pub struct Flags {
    /// A playbook file, instead of a command.
    #[arg(value_name = "PLAYBOOK", required_unless_present = "command", conflicts_with = "command")]
    playbook: Option<PathBuf>,
    /// Of a command's run; a playbook names its own.
    #[arg(long, default_value = "deploy", conflicts_with = "playbook")]
    lifecycle: String,
    /// Default: the playbook's, or `default`.
    #[arg(long)]
    queue: Option<String>,
    /// Higher comes first. Default: the playbook's, or 0.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i16>,
    /// An input by name. A playbook's is read as the type that it declares; elsewhere numbers, true, false and JSON
    /// keep their type. The command reads it on its stdin.
    #[arg(long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
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
    /// Tries after the first one, at most 100: 5 s and 10 s later, then every 10 s. Steps of a playbook have their own.
    #[arg(long, default_value_t = 0, conflicts_with = "playbook", value_parser = clap::value_parser!(u32).range(0..=MAX_RETRIES))]
    retries: u32,
    /// The run that this one is a part of: cancelled with it.
    #[arg(long, value_name = "RUN", env = "WAYPOST_RUN_ID", hide_env = true)]
    parent: Option<String>,
    /// Not before: 2026-02-14T08:00:00Z. Nobody is asked then: what would pause the run is skipped or fails it.
    #[arg(long, value_name = "TIME")]
    schedule_at: Option<String>,
    /// Cancelled if nobody has taken it after this time.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<Duration>,
    /// Work the run here and follow it to its end.
    #[arg(long)]
    wait: bool,
    /// With --wait: give up waiting after this time. The run is cancelled, since this process works it.
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "wait")]
    timeout: Option<Duration>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn start(opened: Opened, flags: Flags) -> Result<u8> {
    let store = opened.store();
    let mut new = match &flags.playbook {
        Some(file) => {
            let (queue, priority) = (flags.queue.clone(), flags.priority);
            let typed = split("input", &flags.inputs)?;
            of_playbook(&*store, file, &typed, common(&flags)?, queue, priority).await?
        }
        None => of_command(&flags)?,
    };
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
    let (run, code) = work(opened, follower, flags.timeout).await?;
    if flags.output != Format::Table {
        print(&flags.output.object(&run.object()))?;
    }
    Ok(code)
}

/// What both kinds of runs are given.
fn common(flags: &Flags) -> Result<NewRun> {
    let schedule_at = flags.schedule_at.as_deref().map(|text| {
        let message = format!("schedule-at: {text:?} is no time; write 2026-02-14T08:00:00Z");
        parse_time(text).ok_or_else(|| Failed::new(BAD_INPUT, message))
    });
    let defaults = NewRun::default();
    Ok(NewRun {
        tenant: tenant().to_owned(),
        queue: flags.queue.clone().unwrap_or(defaults.queue),
        priority: flags.priority.unwrap_or(defaults.priority),
        metadata: pairs("metadata", &flags.metadata)?,
        schedule_at: schedule_at.transpose()?,
        ttl: flags.ttl.map(|ttl| Span::from_ms(ttl.as_millis() as i64)),
        idempotency_key: flags.idempotency_key.clone(),
        concurrency_key: flags.concurrency_key.clone(),
        title: flags.title.clone(),
        correlation_id: flags.correlation_id.clone(),
        by: user(),
        ..defaults
    })
}

fn of_command(flags: &Flags) -> Result<NewRun> {
    let directory = std::env::current_dir().map_err(|error| {
        Failed::new(crate::output::ERROR, format!("cannot tell the current folder: {error}"))
    })?;
    let mut carried = json!({ "command": flags.command, "directory": directory.to_string_lossy() });
    if flags.retries > 0 {
        carried["retries"] = flags.retries.into();
    }
    let input = Value::Object(pairs("input", &flags.inputs)?);
    Ok(NewRun { lifecycle: flags.lifecycle.clone(), input, carried: Some(carried), ..common(flags)? })
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
pub async fn work(opened: Opened, mut follower: Follower, timeout: Option<Duration>) -> Result<(RunRow, u8)> {
    let store = opened.store();
    let run_id = follower.run_id().to_owned();
    let (stage, shutdown) = watch::channel(Stage::Working);
    let options = Options {
        only: Some(run_id.clone()),
        tenant: Some(tenant().to_owned()),
        projection: opened.projection(),
        ..Options::default()
    };
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
