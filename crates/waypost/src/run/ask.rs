//! What people ask of a run.

use clap::Args;
use waypost_store::{CommandWrite, Store};

use super::{TENANT, find, user};
use crate::output::{Format, Result, pretty, print};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost run cancel run-0192\n  waypost run cancel run-0192 --reason 'wrong branch'"
)]
pub struct Cancel {
    run: String,
    /// After the step that is under way, not at once.
    #[arg(long)]
    graceful: bool,
    #[arg(long)]
    reason: Option<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn cancel(store: &dyn Store, flags: Cancel) -> Result {
    let run = find(store, &flags.run).await?;
    let command = CommandWrite {
        tenant: TENANT.into(),
        run_id: run.id().to_owned(),
        name: "cancel".into(),
        by: user(),
        reason: flags.reason,
        graceful: flags.graceful,
        ..CommandWrite::default()
    };
    let run = store.command(command).await?;
    print(&match flags.output {
        Format::Table if run.run.intent.is_some() => {
            let worker = run.run.lease.as_ref().and_then(|lease| lease.worker.clone());
            format!(
                "{} is told to stop; {} ends it",
                run.id(),
                worker.as_deref().unwrap_or("the next worker")
            )
        }
        Format::Table => format!("{} is {}", run.id(), run.status()),
        Format::Json | Format::Jsonl => pretty(&run.object()),
    })
}
