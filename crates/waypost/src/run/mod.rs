//! `waypost run …`: one file per kind of verb.

mod ask;
mod blockers;
pub mod brought;
mod follow;
mod look;
mod replay;
mod show;
mod start;

use clap::Subcommand;
use serde_json::Value;
use waypost_kernel::Span;
use waypost_store::{RunRow, Store, Who};

use crate::output::Result;
use crate::place::{Place, tenant};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start a run of a playbook, or of a command: everything after `--`.
    Start(Box<start::Flags>),
    /// Runs, newest first.
    List(look::List),
    /// One run, whole.
    Show(show::Show),
    /// Follow a run until it is settled or waits for a person, and exit with its result.
    Watch(follow::Watch),
    /// What a run's commands printed.
    Logs(follow::Logs),
    /// Everything that happened to a run.
    Events(look::Events),
    /// Ask that a run be cancelled. Waiting runs end at once; running ones are told within a second.
    Cancel(ask::Cancel),
    /// Ask that a run stop and wait for a person.
    Pause(ask::Pause),
    /// Let a run that waits for a person go on.
    Resume(ask::Resume),
    /// Take up again what failed, in the same run.
    Retry(ask::Retry),
    /// Start a new run with the same input, or an edited one.
    Replay(replay::Replay),
}

pub async fn run(place: &Place, verb: Verb) -> Result<u8> {
    let opened = place.opened().await?;
    let store = opened.store();
    match verb {
        Verb::Start(flags) => start::start(opened, *flags).await,
        Verb::List(flags) => look::list(&*store, flags).await.map(|()| 0),
        Verb::Show(flags) => show::show(&*store, flags).await.map(|()| 0),
        Verb::Watch(flags) => follow::watch(&*store, flags).await,
        Verb::Logs(flags) => follow::logs(&*store, flags).await.map(|()| 0),
        Verb::Events(flags) => look::events(&*store, flags).await.map(|()| 0),
        Verb::Cancel(flags) => ask::cancel(&*store, flags).await.map(|()| 0),
        Verb::Pause(flags) => ask::pause(&*store, flags).await.map(|()| 0),
        Verb::Resume(flags) => ask::resume(opened, flags).await,
        Verb::Retry(flags) => ask::retry(opened, flags).await,
        Verb::Replay(flags) => replay::replay(opened, flags).await,
    }
}

/// By id or unique beginning of one.
pub async fn find(store: &dyn Store, id: &str) -> Result<RunRow> {
    Ok(store.run(tenant().into(), id.to_owned()).await?)
}

/// Who the log names for what this process asks for.
pub fn user() -> String {
    let named =
        ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    named.unwrap_or_else(|| "cli".into())
}

/// The same, with a reason, for what is kept in the audit log.
pub fn who(reason: Option<String>) -> Who {
    Who { tenant: tenant().to_owned(), by: user(), reason }
}

/// A length of time as people say it: the two largest units.
pub fn age(span: Span) -> String {
    let ms = span.ms().max(0);
    let seconds = ms / 1_000;
    match seconds {
        0..10 => format!("{seconds}.{}s", ms % 1_000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The lines of an `output` event, each with the stream that it came from.
pub fn output_lines(payload: &Value) -> impl Iterator<Item = (&str, &str)> {
    let lines = payload["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
    lines.iter().filter_map(|line| Some((line.get(0)?.as_str()?, line.get(1)?.as_str()?)))
}
