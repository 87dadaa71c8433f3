//! What people ask of a run.

pub mod blockers;

use clap::Args;
use serde_json::{Map, Value};
use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::text::terminal::plain;
use waypost_store::{CommandWrite, RunRow, Store, StoreError};
use waypost_worker::replay::{execution_words, is_execution};
use waypost_worker::schedules;

use crate::output::{BAD_INPUT, Failed, Format, PARKED, REFUSED, Result, print};
use crate::place::{Opened, tenant};
use crate::run::follow::wait::Waiting;
use crate::run::ids::find;
use crate::run::{user, who};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run cancel f9aac1c9\n  waypost run cancel f9aac1c9 --reason 'wrong branch'\n  waypost run cancel f9aac1c9 --graceful"
)]
pub struct Cancel {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// After the step that is under way, not at once. Cleanups are done in either case.
    #[arg(long)]
    graceful: bool,
    /// Why: kept in the run's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The step that is under way is stopped and begins again after the resume.\n\nExamples:\n  waypost run pause f9aac1c9 --reason 'change freeze'"
)]
pub struct Pause {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Shown with the run.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "On a terminal you are asked what the run asks: the question of a step, or about each thing that blocks it. Answers can be given one by one: they are kept, and the run goes on with the last (exit code 6 until then). The first answer counts. A run that a person paused asks nothing: it goes on with --force.\n\nExamples:\n  waypost run resume f9aac1c9\n  waypost run resume f9aac1c9 --resolve 'go ahead?=yes'\n  waypost run resume f9aac1c9 --resolve esx1=power_off\n  waypost run resume f9aac1c9 --resolve esx2=skip --reason agreed --wait\n  waypost run resume f9aac1c9 --force"
)]
pub struct Resume {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// An answer: to the question of a step, by the step's name, or about a thing that blocks the run; may be given several times.
    #[arg(long = "resolve", value_name = "STEP=CHOICE", conflicts_with = "force")]
    resolutions: Vec<String>,
    /// Go on without the decisions that are missing. A question gets the choice that its step declares for no answer; without one it is skipped.
    #[arg(long)]
    force: bool,
    /// Why: kept in the run's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Only where the run's lifecycle has a retry. Elsewhere `run replay` starts a new run with the same input. The plan of a schedule's execution that failed for good is executed again.\n\nExamples:\n  waypost run retry f9aac1c9\n  waypost run retry f9aac1c9 --target sku-1 --target sku-2"
)]
pub struct Retry {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Only these of its items; may be given several times.
    #[arg(long = "target", value_name = "KEY")]
    targets: Vec<String>,
    /// Why: kept in the run's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Debug, Args)]
#[command(
    after_help = "`waypost run show RUN` says which commands are allowed now, `waypost lifecycle show NAME` who may give them and when.\n\nExamples:\n  waypost run do rel-rtp27e submit\n  waypost run do rel-rtp27e approve --reason 'tested on staging' --wait"
)]
pub struct Do {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// A command of the run's lifecycle.
    #[arg(value_name = "COMMAND")]
    command: String,
    /// Why: kept in the run's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only these of its items; may be given several times.
    #[arg(long = "target", value_name = "KEY")]
    targets: Vec<String>,
    #[command(flatten)]
    waiting: Waiting,
}

pub async fn cancel(store: &dyn Store, flags: Cancel) -> Result {
    let command = CommandWrite { graceful: flags.graceful, ..asking("cancel", flags.reason) };
    let run = ask(store, &flags.run, command).await?;
    tell_of(&run, flags.output)
}

pub async fn pause(store: &dyn Store, flags: Pause) -> Result {
    let run = ask(store, &flags.run, asking("pause", Some(flags.reason))).await?;
    tell_of(&run, flags.output)
}

pub async fn resume(opened: Opened, flags: Resume) -> Result<u8> {
    flags.waiting.check()?;
    let store = opened.store();
    let run = find(&*store, &flags.run).await?;
    let given = decisions(&flags.resolutions, &run)?;
    let resolutions = match given.is_empty() && !flags.force {
        true => blockers::ask_about(&run, store.now().await?)?,
        false => given,
    };
    let asks_nothing = run.phase() == Phase::Parked && blockers::open(&run).is_empty();
    let command = CommandWrite { force: flags.force, resolutions, ..asking("resume", flags.reason) };
    let run = ask(&*store, run.id(), command).await.map_err(|failed| {
        if failed.code != REFUSED || flags.force || !asks_nothing {
            return failed;
        }
        failed.with_hint(&format!("it asks for no decision: waypost run resume {} --force", run.id()))
    })?;
    let open = blockers::open(&run);
    if run.phase() != Phase::Parked || open.is_empty() {
        return flags.waiting.go_on(opened, run).await;
    }
    // What was decided is kept; there is nothing to follow yet.
    print(&match flags.waiting.output {
        Format::Table => format!("{} keeps it and waits for decisions about {}", run.id(), open.join(", ")),
        format => format.object(&run.object()),
    })?;
    Ok(PARKED)
}

pub async fn retry(opened: Opened, flags: Retry) -> Result<u8> {
    flags.waiting.check()?;
    let store = opened.store();
    let items = Some(flags.targets).filter(|targets| !targets.is_empty());
    let run = find(&*store, &flags.run).await?;
    let reason = flags.reason.clone();
    let command = CommandWrite { items, ..asking("retry", flags.reason) };
    match ask(&*store, run.id(), command).await {
        Ok(run) => flags.waiting.go_on(opened, run).await,
        // An execution of a schedule: its scheduler alone retries it, but its plan can be executed again.
        Err(failed) if failed.code == REFUSED => {
            match schedules::again(&*store, run.id(), who(reason)).await? {
                Some(1..) => {
                    let words =
                        format!("the plan of {} is executed again; see `waypost schedule history`", run.id());
                    print(&words).map(|()| 0)
                }
                _ => Err(failed),
            }
        }
        Err(failed) => Err(failed),
    }
}

/// Any command of the lifecycle, by its name.
pub async fn give(opened: Opened, flags: Do) -> Result<u8> {
    flags.waiting.check()?;
    let store = opened.store();
    let items = Some(flags.targets).filter(|targets| !targets.is_empty());
    let command = CommandWrite { items, ..asking(&flags.command, flags.reason) };
    let run = find(&*store, &flags.run).await?;
    let run = ask(&*store, run.id(), command)
        .await
        .map_err(|failed| unknown_command(failed, &run, &flags.command))?;
    flags.waiting.go_on(opened, run).await
}

/// A word that the lifecycle has nowhere is a typing error, not a refusal.
fn unknown_command(failed: Failed, run: &RunRow, command: &str) -> Failed {
    let lifecycle = &run.lifecycle;
    let mut known: Vec<&str> = lifecycle.transitions.iter().map(|row| &*row.command).collect();
    known.extend(lifecycle.operations.iter().map(|(name, _)| &**name));
    known.sort_unstable();
    known.dedup();
    if failed.code != REFUSED || known.contains(&command) {
        return failed;
    }
    failed.with_hint(&format!(
        "commands of {}: {}",
        lifecycle.name,
        waypost_schema::instead_of(command, &known)
    ))
}

fn asking(name: &str, reason: Option<String>) -> CommandWrite {
    CommandWrite { tenant: tenant().into(), name: name.into(), by: user(), reason, ..CommandWrite::default() }
}

async fn ask(store: &dyn Store, id: &str, command: CommandWrite) -> Result<RunRow> {
    let run = find(store, id).await?;
    let run_id = run.id().to_owned();
    let name = command.name.clone();
    match store.command(CommandWrite { run_id: run_id.clone(), ..command }).await {
        Err(StoreError::Refused(refusal))
            if name == "retry" && !refusal.allowed.iter().any(|it| **it == *name) =>
        {
            let failed = Failed::from(StoreError::Refused(refusal));
            Err(failed.with_hint(&instead_of_retry(&run)))
        }
        answer => Ok(answer?),
    }
}

/// What works where there is no retry.
fn instead_of_retry(run: &RunRow) -> String {
    let id = run.id();
    match run.outcome() {
        _ if is_execution(run) => execution_words(run),
        Some(Outcome::Failed | Outcome::Cancelled) if run.lifecycle.counted_items().is_some() => format!(
            "waypost run replay {id} --failed goes on where it failed, in a new run; without --failed it begins anew"
        ),
        _ => format!("waypost run replay {id} starts a new run with the same input"),
    }
}

pub fn tell_of(run: &RunRow, output: Format) -> Result {
    print(&match output {
        Format::Table if run.run.intent.is_some() => {
            let worker = run.run.lease.as_ref().and_then(|lease| lease.worker.clone());
            let wanted = run.run.intent.as_ref().map_or("stop", |intent| intent.want.command());
            let worker = worker.as_deref().unwrap_or("the next worker");
            format!("{} is told to {wanted}; {} does it", run.id(), plain(worker))
        }
        Format::Table => format!("{} is {}", run.id(), run.status()),
        format => format.object(&run.object()),
    })
}

fn decisions(given: &[String], run: &RunRow) -> Result<Map<String, Value>> {
    let asked = blockers::of(run);
    let mut decisions = Map::new();
    for pair in given {
        // What is asked about may have an equals sign itself.
        let known = asked.into_iter().flat_map(Map::keys).filter_map(|subject| {
            Some((subject.as_str(), pair.strip_prefix(subject.as_str())?.strip_prefix('=')?))
        });
        let parts = known.max_by_key(|(subject, _)| subject.len()).or_else(|| pair.split_once('='));
        let Some((subject, choice)) =
            parts.filter(|(subject, choice)| !subject.is_empty() && !choice.is_empty())
        else {
            return Err(Failed::new(BAD_INPUT, format!("resolve: {pair:?} is not STEP=CHOICE")));
        };
        if decisions.insert(subject.to_owned(), choice.into()).is_some() {
            return Err(Failed::new(BAD_INPUT, format!("resolve: {subject} is there twice")));
        }
    }
    Ok(decisions)
}
