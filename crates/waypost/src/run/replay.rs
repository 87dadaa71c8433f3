//! `waypost run replay`: a new run with the same input, or an edited one.

use std::path::Path;

use clap::Args;
use serde_json::Value;
use waypost_kernel::tenant::exactly;
use waypost_store::{NewRun, RunRow};
use waypost_worker::first_steps;
use waypost_worker::playbook::Playbook;

use super::brought::accepted;
use super::ids::find;
use super::start::{pairs, split};
use super::user;
use super::wait::Waiting;
use crate::output::{BAD_INPUT, Failed, Result};
use crate::place::{Opened, lifecycles};

#[derive(Debug, Args)]
#[command(
    after_help = "The old run stays as it is; the new one says which it repeats.\n\nExamples:\n  waypost run replay f9aac1c9 --wait\n  waypost run replay f9aac1c9 --input cluster=c2"
)]
pub struct Replay {
    /// The run: its id, a part of it that no other has, or @1 for the newest.
    #[arg(value_name = "RUN")]
    run: String,
    /// Instead of the old run's input of this name.
    #[arg(long = "input", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    #[command(flatten)]
    waiting: Waiting,
}

pub async fn replay(opened: Opened, flags: Replay) -> Result<u8> {
    flags.waiting.check()?;
    let store = opened.store();
    let old = find(&*store, &flags.run).await?;
    let mut new = like(&old);
    if !flags.inputs.is_empty() && !new.input.is_object() {
        let message = "input: the old run's is no object: nothing in it has a name";
        return Err(Failed::new(BAD_INPUT, message));
    }
    if let Some(carried) = old.carried.as_ref().and_then(|carried| carried.get("playbook")) {
        let catalog = lifecycles(&*store).await?;
        let text = |key: &str| carried[key].as_str().unwrap_or_default();
        let bad = |message: String| Failed::new(BAD_INPUT, message);
        let playbook = Playbook::parse_with(text("text"), Path::new(text("file")), &catalog)
            .map_err(|problems| bad(problems.to_string()))?;
        let inputs = accepted(&playbook, &new.input, &split("input", &flags.inputs)?)?;
        new.items = first_steps(&playbook, &old.lifecycle, &inputs);
        new.input = Value::Object(inputs);
    } else if let Value::Object(input) = &mut new.input {
        input.extend(pairs("input", &flags.inputs)?);
    }
    let run = store.enqueue(vec![new]).await?.remove(0)?.run;
    flags.waiting.go_on(opened, run).await
}

fn like(old: &RunRow) -> NewRun {
    NewRun {
        tenant: old.tenant.clone(),
        // The very one, though the tenant may have one of that name by now.
        lifecycle: exactly(&old.lifecycle.name),
        queue: old.queue.clone(),
        priority: old.priority,
        input: (*old.input).clone(),
        metadata: (*old.metadata).clone(),
        concurrency_key: old.concurrency_key.clone(),
        correlation_id: old.correlation_id.clone(),
        retry_of: Some(old.id().to_owned()),
        title: old.title.clone(),
        playbook: old.playbook.clone(),
        carried: old.carried.clone(),
        max_attempts: old.run.max_attempts,
        by: user(),
        ..NewRun::default()
    }
}
