//! `waypost run rollback` and `run reconcile`: a run of its own does it.

use clap::Args;
use serde_json::Value;
use waypost_store::{CommandWrite, RunRow, Store};
use waypost_worker::playbook::Playbooks;
use waypost_worker::targets::{check_command, operation_of, reconciled};

use super::{answered, asking, given_to};
use crate::output::{BAD_INPUT, Failed, Format, Result, print, tell};
use crate::place::{Opened, suggested};
use crate::run::follow::Follower;
use crate::run::follow::wait::{OwnWorker, Waiting};
use crate::run::ids::{find, short};
use crate::run::look::operations;

#[derive(Debug, Args)]
#[command(
    after_help = "Each target is undone outside first, by the playbook's [rollback], or by its [apply] with the value of before. A target that others changed since is undone too, and named in the report.\n\nExamples:\n  waypost run rollback @1 --all --wait\n  waypost run rollback @1 --target sku-1 --target sku-2 --wait"
)]
pub struct Rollback {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Only this applied target; may be given several times.
    #[arg(long = "target", value_name = "KEY", conflicts_with = "all")]
    targets: Vec<String>,
    /// All applied targets.
    #[arg(long, visible_alias = "yes")]
    all: bool,
    /// Although its rule has another run that is queued or under way: it waits for that one.
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
    after_help = "Each applied target is read by the playbook's [fetch] and compared with what was applied, as far as [reconcile] tolerance allows. Nothing is changed outside. Mismatches are no failure: exit code 0. Targets that could not be read: 3.\n\nExamples:\n  waypost run reconcile @1 --wait\n  waypost run reconcile @1 --wait -o json"
)]
pub struct Reconcile {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Only this applied target; may be given several times.
    #[arg(long = "target", value_name = "KEY")]
    targets: Vec<String>,
    /// Why: kept in the run's log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

pub async fn rollback(opened: Opened, flags: Rollback) -> Result<u8> {
    if flags.targets.is_empty() && !flags.all {
        return Err(Failed::new(BAD_INPUT, "target: name some, or say --all"));
    }
    let command = CommandWrite { force: flags.force, ..asking("rollback", flags.reason) };
    operate(opened, command, (&flags.run, flags.targets), flags.waiting).await
}

pub async fn reconcile(opened: Opened, flags: Reconcile) -> Result<u8> {
    let command = asking("reconcile", flags.reason);
    operate(opened, command, (&flags.run, flags.targets), flags.waiting).await
}

async fn operate(
    opened: Opened,
    command: CommandWrite,
    (run, targets): (&str, Vec<String>),
    waiting: Waiting,
) -> Result<u8> {
    waiting.check()?;
    let store = opened.store();
    let items = Some(targets).filter(|targets| !targets.is_empty());
    let run = find(&*store, run).await?;
    check_command(&*store, &run, &command.name, command.force).await?;
    let command = CommandWrite { items, ..command };
    let name = command.name.clone();
    let run = answered(&run, &name, store.command(given_to(&run, command)).await)?;
    let operation = begun(&*store, &run).await?;
    follow(opened, operation, waiting).await
}

/// The operation that a command of this run has begun.
pub async fn begun(store: &dyn Store, run: &RunRow) -> Result<RunRow> {
    let none = || Failed::new(BAD_INPUT, format!("{} has no operation", run.id()));
    operation_of(store, run).await?.ok_or_else(none)
}

pub async fn follow(opened: Opened, operation: RunRow, waiting: Waiting) -> Result<u8> {
    let format = waiting.output;
    if !waiting.follows() {
        if format == Format::Table {
            let watch = suggested(&format!("run watch {}", short(operation.id())));
            tell(&format!("a worker does it: {watch}"));
            print(operation.id())?;
        } else {
            print(&format.object(&operation.object()))?;
        }
        return Ok(0);
    }
    let follower = Follower::new(operation.id().to_owned(), format == Format::Table);
    let (run, code) = waiting.followed(opened, follower, OwnWorker::of(Playbooks::default())).await?;
    match format {
        Format::Table => print(&operations::listed(&run).unwrap_or_default())?,
        format => print(&format.object(&report(&run)))?,
    }
    Ok(code)
}

/// What a reconciliation found; of anything else, the run.
fn report(run: &RunRow) -> Value {
    reconciled(run).unwrap_or_else(|| run.object())
}
