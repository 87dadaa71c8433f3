//! `waypost run replay`: a new run like an old one, all of it or from a step.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use waypost_kernel::Phase;
use waypost_store::NewRun;
use waypost_worker::playbook::Playbook;
use waypost_worker::replay::{CannotReplay, Edit, ReplayFrom, replay as replayed};
use waypost_worker::targets::{has_targets, with_origin};

use super::brought::with_typed;
use super::by_name::folder;
use super::{bulk, pairs, split};
use crate::output::{BAD_INPUT, Failed, Result};
use crate::place::{Opened, lifecycles};
use crate::run::follow::wait::Waiting;
use crate::run::ids::find;
use crate::run::user;

#[derive(Debug, Args)]
#[command(
    after_help = "The old run stays as it is; the new one says which it repeats (retry_of). With --from or --failed the steps before are done from the beginning, with the outputs that they had and what people decided. A step that a cleanup undid runs again in any case.\n\nExamples:\n  waypost run replay f9aac1c9 --failed --wait\n  waypost run replay f9aac1c9 --from 'ship to us'\n  waypost run replay f9aac1c9 --input cluster=c2"
)]
pub struct Replay {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Go on from this step, by its key or its name: `ship`, or one part of it, `ship[2]`. It and all that waits for it run again.
    #[arg(long, value_name = "STEP", conflicts_with = "failed")]
    from: Option<String>,
    /// Do again only what did not complete.
    #[arg(long)]
    failed: bool,
    /// Instead of the old run's input of this name; only of a whole run, since what was done saw the old one.
    #[arg(long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// A folder of playbooks that this process has: with --wait the run is worked here.
    #[arg(long, value_name = "DIR")]
    playbooks: Option<PathBuf>,
    #[command(flatten)]
    waiting: Waiting,
}

pub async fn replay(opened: Opened, flags: Replay) -> Result<u8> {
    flags.waiting.check()?;
    let store = opened.store();
    let old = find(&*store, &flags.run).await?;
    let catalog = lifecycles(&*store).await?;
    let from = match flags.from {
        Some(step) => ReplayFrom::Step(step),
        None if flags.failed => ReplayFrom::Failed,
        None => ReplayFrom::Beginning,
    };
    if !flags.inputs.is_empty() && !old.input.is_object() {
        let message = "input: the old run's is no object: nothing in it has a name";
        return Err(Failed::new(BAD_INPUT, message));
    }
    let (typed, plain) = (split("input", &flags.inputs)?, pairs("input", &flags.inputs)?);
    let edit = |playbook: Option<&Playbook>, input: &mut Value| match (playbook, input) {
        (Some(playbook), input) => *input = with_typed(playbook, input, &typed),
        (None, Value::Object(input)) => input.extend(plain.clone()),
        (None, _) => {}
    };
    let edit: Option<&Edit<'_>> = if flags.inputs.is_empty() { None } else { Some(&edit) };
    let new = replayed(&*store, &catalog, &old, &from, edit).await.map_err(|error| match error {
        CannotReplay::Store(error) => error.into(),
        // As it was asked for.
        CannotReplay::Field("from", message) if flags.failed => {
            Failed::new(BAD_INPUT, format!("failed: {message}"))
        }
        error => Failed::new(BAD_INPUT, error.to_string()),
    })?;
    let own = folder(flags.playbooks.as_deref(), &catalog)?;
    let new = with_origin(NewRun { by: user(), ..new }, has_targets(&old), "cli");
    let (started, worker) = flags.waiting.enqueue(&*store, new, own).await?;
    if started.run.phase() == Phase::Draft && has_targets(&started.run) {
        return bulk::gathered(opened, started.run, flags.waiting, worker).await;
    }
    flags.waiting.go_on_with(opened, started.run, worker).await
}
