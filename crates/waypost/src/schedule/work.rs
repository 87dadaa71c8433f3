//! `waypost schedule run`: the scheduler as a process of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;
use waypost_kernel::tenant::DEFAULT;
use waypost_store::{Database, Store};
use waypost_worker::loops::Supervisor;
use waypost_worker::playbook::Problems;
use waypost_worker::retention;
use waypost_worker::schedules::{SchedulerOptions, load};
use waypost_worker::{PassedEnv, Stage};

use crate::output::{BAD_INPUT, Failed, Result, tell};
use crate::place::named_tenant;
use crate::worker::{duration, listen, log_to_stderr};

#[derive(Debug, Args)]
pub struct Flags {
    /// Schedules of this process. Default: waypost.toml, if it is there.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Execute schedules that were applied too. Whoever may apply may then run anything here.
    #[arg(long)]
    allow_commands: bool,
    /// Executions at once.
    #[arg(long, default_value_t = 64)]
    slots: usize,
    /// How long executions may take to end after a signal.
    #[arg(long, default_value = "10s", value_parser = duration)]
    grace: Duration,
    /// Hand this variable of the environment on to commands; may be given several times, and end with `*`. Without it they get
    /// PATH, HOME, the language and the like, and never what opens Waypost.
    #[arg(long, value_name = "NAME", value_parser = PassedEnv::check)]
    pass_env: Vec<String>,
}

/// The same with the schedules of a file: `waypost.toml`, if it is there and no other is named.
pub async fn with_schedules(
    store: &dyn Store,
    file: Option<PathBuf>,
    options: SchedulerOptions,
) -> Result<SchedulerOptions> {
    // They are the installation's, whoever's runs this process works.
    let catalog = store.lifecycles().await?.of_tenant(DEFAULT);
    let file = file.or_else(|| Some(PathBuf::from("waypost.toml")).filter(|file| file.exists()));
    let own = match &file {
        Some(file) => {
            load(file, &catalog).map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))?
        }
        None => Vec::new(),
    };
    let bad = |problems: Problems| Failed::new(BAD_INPUT, problems.to_string());
    let retention = file.as_deref().map(|file| retention::load(file, &catalog).map_err(bad)).transpose()?;
    Ok(SchedulerOptions { own, retention, ..options })
}

pub async fn run(store: Arc<dyn Database>, flags: Flags) -> Result<u8> {
    log_to_stderr();
    let options = SchedulerOptions {
        carried: flags.allow_commands,
        tenant: named_tenant().map(str::to_owned),
        slots: flags.slots.max(1),
        grace: flags.grace,
        passed_env: PassedEnv::basics().and(flags.pass_env),
        ..SchedulerOptions::default()
    };
    let (stage, shutdown) = watch::channel(Stage::Working);
    listen(&Arc::new(stage))?;
    let options = with_schedules(&*store, flags.file, options).await?;
    let name = options.name.clone();
    let supervised = Supervisor::new(store, &name, shutdown).firing(options).start().await?;
    tell(&format!("{name} fires schedules; Ctrl-C stops it"));
    let summary = supervised.run(None).await?.executions;
    tell(&format!(
        "executed {}, succeeded {}, failed {}, cancelled {}, given back {}, lost {}",
        summary.claimed, summary.succeeded, summary.failed, summary.cancelled, summary.released, summary.lost
    ));
    Ok(0)
}
