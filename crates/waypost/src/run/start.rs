//! `waypost run start`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use waypost_kernel::Span;
use waypost_store::{NewRun, parse_time};
use waypost_worker::playbook::MAX_RETRIES;

use super::brought::of_playbook;
use super::follow::Follower;
use super::ids::find;
use super::user;
use super::wait::Waiting;
use crate::output::{BAD_INPUT, Failed, Format, Result, print, tell};
use crate::place::{Opened, tenant};
use crate::worker::duration;

#[derive(Debug, Args)]
#[command(
    after_help = "With --wait the run is followed, and worked here if no worker takes it: nothing to start first. The exit code is then the run's:\n0 succeeded, 3 failed or cancelled, 6 waits for a person, 124 not done in time.\n\nExamples:\n  waypost run start --wait -- echo hi\n  waypost run start update.toml --input cluster=c1 --wait\n  waypost run start --wait --retries 2 -- ./deploy.sh staging\n  waypost run start --queue builds --idempotency-key \"$GIT_SHA\" -- make"
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
    #[command(flatten)]
    waiting: Waiting,
    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn start(opened: Opened, flags: Flags) -> Result<u8> {
    flags.waiting.check()?;
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
        tell(&format!("{run_id} was started before with this key"));
    }
    let output = flags.waiting.output;
    if !flags.waiting.follows() {
        let text = match output {
            Format::Table => run_id,
            format => format.object(&started.run.object()),
        };
        return print(&text).map(|()| 0);
    }
    flags.waiting.follow(opened, Follower::new(run_id, output == Format::Table)).await
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
