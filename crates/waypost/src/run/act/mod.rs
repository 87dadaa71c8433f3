//! What people ask of a run.

pub mod blockers;
pub mod operate;

use clap::Args;
use serde_json::{Map, Value};
use waypost_kernel::Refusal;
use waypost_kernel::lifecycle::{Outcome, Phase};
use waypost_kernel::text::shell_word;
use waypost_kernel::text::terminal::plain;
use waypost_kernel::waiting::{Asks, command_line, next_command, waits_for_people};
use waypost_store::{CommandWrite, RunRow, Store, StoreError, iso};
use waypost_worker::playbook::Playbooks;
use waypost_worker::replay::{execution_words, is_execution, schedule_of};
use waypost_worker::schedules;
use waypost_worker::targets::check_command;

use crate::output::{BAD_INPUT, Failed, Format, PARKED, REFUSED, Result, print, tell};
use crate::place::{Opened, suggested, tenant};
use crate::run::follow::is_unanswered;
use crate::run::follow::wait::{OwnWorker, Waiting};
use crate::run::ids::find;
use crate::run::look::waits;
use crate::run::{user, who};

const QUEUE: &str = "queue";
const RETRY: &str = "retry";

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
    #[command(flatten)]
    going_on: GoingOn,
}

/// What every command takes that lets a run go on.
#[derive(Debug, Args)]
struct GoingOn {
    /// Why: kept in the run's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which of a run's items a command is for.
#[derive(Debug, Args)]
struct Chosen {
    /// Only these of its items; may be given several times.
    #[arg(long = "target", value_name = "KEY")]
    targets: Vec<String>,
}

impl Chosen {
    fn items(self) -> Option<Vec<String>> {
        Some(self.targets).filter(|targets| !targets.is_empty())
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "A rule that has a run queued or under way refuses a second one, and names it. A preview that is older than its playbook allows (24h) is refused too.\n\nExamples:\n  waypost run start prices.toml\n  waypost run show @1\n  waypost run queue @1 --wait"
)]
pub struct Queue {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Queue it although its preview is too old, or its rule has another run that is queued or under way: it waits for that one.
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
    #[command(flatten)]
    chosen: Chosen,
    /// Retry it although its rule has another run that is queued: that one waits for it. One that is under way is waited for all the same.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    going_on: GoingOn,
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
    /// Without the decisions that are missing, where the command asks for some.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    going_on: GoingOn,
}

pub async fn cancel(store: &dyn Store, flags: Cancel) -> Result {
    let command = CommandWrite { graceful: flags.graceful, ..asking("cancel", flags.reason) };
    stop(store, &flags.run, command, flags.output).await
}

pub async fn pause(store: &dyn Store, flags: Pause) -> Result {
    stop(store, &flags.run, asking("pause", Some(flags.reason)), flags.output).await
}

async fn stop(store: &dyn Store, id: &str, command: CommandWrite, output: Format) -> Result {
    let (run, name) = (find(store, id).await?, command.name.clone());
    let run = answered(&run, &name, store.command(given_to(&run, command)).await)?;
    // Whoever is to do it may be gone.
    let run = match output {
        Format::Table => store.explain(vec![run]).await?.remove(0),
        _ => run,
    };
    tell_of(&run, output)
}

pub async fn resume(opened: Opened, flags: Resume) -> Result<u8> {
    let GoingOn { reason, waiting } = flags.going_on;
    waiting.check()?;
    let store = opened.store();
    let (run, now) = (find(&*store, &flags.run).await?, store.now().await?);
    let given = decisions(&flags.resolutions, &run)?;
    let is_asked = given.is_empty() && !flags.force;
    if is_asked && is_unanswered(&run, now) {
        // Nobody has to do anything about it.
        return match waiting.follows() {
            true => waiting.go_on(opened, run, OwnWorker::of(Playbooks::default())).await,
            false => Err(Failed::new(REFUSED, unanswered(&run))),
        };
    }
    let resolutions = if is_asked { blockers::ask_about(&run, now)? } else { given };
    let command = CommandWrite { force: flags.force, resolutions, ..asking("resume", reason) };
    let (run, worker) = ask(&*store, &run, command, &waiting).await?;
    let open: Vec<&str> = blockers::answerable(&run, now).into_iter().map(|(subject, _)| subject).collect();
    if run.phase() != Phase::Parked || open.is_empty() || is_unanswered(&run, now) {
        if is_unanswered(&run, now) {
            tell(&unanswered(&run));
        }
        return waiting.go_on(opened, run, worker).await;
    }
    // What was decided is kept; there is nothing to follow yet.
    print(&match waiting.output {
        Format::Table => format!("{} keeps it and waits for decisions about {}", run.id(), open.join(", ")),
        format => format.object(&run.object()),
    })?;
    Ok(PARKED)
}

pub async fn queue(opened: Opened, flags: Queue) -> Result<u8> {
    flags.waiting.check()?;
    let store = opened.store();
    let run = find(&*store, &flags.run).await?;
    check_command(&*store, &run, QUEUE, flags.force).await?;
    let command = CommandWrite { force: flags.force, ..asking(QUEUE, flags.reason) };
    let (run, worker) = ask(&*store, &run, command, &flags.waiting).await?;
    flags.waiting.go_on(opened, run, worker).await
}

/// Of a run that nobody answered in time.
fn unanswered(run: &RunRow) -> String {
    let until = run.run.expires_at.map(iso).unwrap_or_default();
    let id = run.id();
    let watch = suggested(&format!("run watch {id}"));
    format!(
        "{id}: nobody answered until {until}: the next worker or server goes on with it without an answer\n  {watch}"
    )
}

pub async fn retry(opened: Opened, flags: Retry) -> Result<u8> {
    let GoingOn { reason, waiting } = flags.going_on;
    waiting.check()?;
    let store = opened.store();
    let run = find(&*store, &flags.run).await?;
    check_command(&*store, &run, RETRY, flags.force).await?;
    let command =
        CommandWrite { items: flags.chosen.items(), force: flags.force, ..asking(RETRY, reason.clone()) };
    match ask(&*store, &run, command, &waiting).await {
        Ok((run, worker)) => waiting.go_on(opened, run, worker).await,
        // An execution of a schedule: its scheduler alone retries it, but its plan can be executed again.
        Err(failed) if failed.code == REFUSED => {
            match schedules::again(&*store, run.id(), who(reason)).await? {
                Some(1..) => {
                    let history = suggested(&format!("schedule history {}", shell_word(schedule_of(&run))));
                    let words = format!("the plan of {} is executed again; see `{history}`", run.id());
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
    let GoingOn { reason, waiting } = flags.going_on;
    waiting.check()?;
    let store = opened.store();
    let items = flags.chosen.items();
    let run = find(&*store, &flags.run).await?;
    check_command(&*store, &run, &flags.command, flags.force).await?;
    let command = CommandWrite { items, force: flags.force, ..asking(&flags.command, reason) };
    let (run, worker) = ask(&*store, &run, command, &waiting).await?;
    if run.lifecycle.operations.iter().any(|(name, _)| **name == *flags.command) {
        let operation = operate::begun(&*store, &run).await?;
        return operate::follow(opened, operation, waiting).await;
    }
    waiting.go_on(opened, run, worker).await
}

/// What to type instead of a command that was refused, from the lifecycle's own table.
fn instead(run: &RunRow, command: &str, refusal: &Refusal) -> Option<String> {
    let lifecycle = &run.lifecycle;
    let mut known: Vec<&str> = lifecycle.transitions.iter().map(|row| &*row.command).collect();
    known.extend(lifecycle.operations.iter().map(|(name, _)| &**name));
    known.sort_unstable();
    known.dedup();
    // The command line's own verbs are no typing errors, though a lifecycle may have none of them.
    if !known.contains(&command) && !["cancel", "pause", "resume", "retry"].contains(&command) {
        let others = waypost_schema::instead_of(command, &known);
        return Some(format!("no command of {}; {others}", lifecycle.name));
    }
    let is_allowed = refusal.allowed.iter().any(|it| **it == *command);
    if command == "retry" && !is_allowed {
        return Some(instead_of_retry(run));
    }
    let open: Vec<String> = run.undecided().into_iter().map(|(subject, _)| subject.to_owned()).collect();
    let asks = Asks { open: &open, is_partly_decided: false };
    let next = match is_allowed {
        true => Some(command.into()),
        false => next_command(lifecycle, &run.run).filter(|_| waits_for_people(lifecycle, run.run.state)),
    };
    let line = command_line(lifecycle, &run.run, &next?, &asks);
    let why = if is_allowed && line.contains(" --force") { "it asks for no decision: " } else { "" };
    let line = suggested(line.strip_prefix("waypost ").unwrap_or(&line));
    Some(format!("{why}{line}"))
}

fn asking(name: &str, reason: Option<String>) -> CommandWrite {
    CommandWrite { tenant: tenant().into(), name: name.into(), by: user(), reason, ..CommandWrite::default() }
}

fn given_to(run: &RunRow, command: CommandWrite) -> CommandWrite {
    CommandWrite { run_id: run.id().to_owned(), ..command }
}

/// Gives a command to a run that goes on after it: with whoever works it here, if nobody else is to.
async fn ask(
    store: &dyn Store,
    run: &RunRow,
    command: CommandWrite,
    waiting: &Waiting,
) -> Result<(RunRow, OwnWorker)> {
    let name = command.name.clone();
    let worker = OwnWorker::of(Playbooks::default());
    if waiting.here {
        worker.check(run.playbook.as_deref(), run.carried.as_ref())?;
    }
    answered(run, &name, waiting.command(store, given_to(run, command), worker).await)
}

/// A refusal with what can be done instead.
fn answered<T>(run: &RunRow, name: &str, answer: std::result::Result<T, StoreError>) -> Result<T> {
    match answer {
        Err(StoreError::Refused(refusal)) => {
            let hint = instead(run, name, &refusal);
            let failed = Failed::from(StoreError::Refused(refusal));
            Err(hint.into_iter().fold(failed, |failed, hint| failed.with_hint(&hint)))
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
            "`{}` goes on where it failed, in a new run; without --failed it begins anew",
            suggested(&format!("run replay {id} --failed"))
        ),
        _ => format!("`{}` starts a new run with the same input", suggested(&format!("run replay {id}"))),
    }
}

pub fn tell_of(run: &RunRow, output: Format) -> Result {
    print(&match output {
        // Whoever holds the run may be gone: until when that shows, and what follows then.
        Format::Table if run.run.intent.is_some() => {
            let asked = || waypost_kernel::waiting::asked(&run.lifecycle, &run.run);
            let words = waits::in_full(run).or_else(asked).unwrap_or_default();
            format!("{}: {}", run.id(), plain(&words))
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
