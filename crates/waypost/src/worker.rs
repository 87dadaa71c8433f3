//! `waypost worker`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use waypost_kernel::Span;
use waypost_store::Store;
use waypost_worker::playbook::Playbooks;
use waypost_worker::schedules::SchedulerOptions;
use waypost_worker::{Options, Stage, Worker};

use crate::output::{BAD_INPUT, ERROR, Failed, Result};
use crate::place::{Place, lifecycles, named_tenant};

#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM: takes nothing more, waits for what runs (--grace), gives the rest back. Twice: at once.\n\nExamples:\n  waypost worker --playbooks ./playbooks\n  waypost worker --allow-commands\n  waypost worker --queue builds --queue deploys --slots 4 --allow-commands"
)]
pub struct Flags {
    /// Take from this queue; may be given several times.
    #[arg(long = "queue", default_value = "default")]
    queues: Vec<String>,
    /// How long a lease lasts without a heartbeat.
    #[arg(long, default_value = "60s", value_parser = duration)]
    lease: Duration,
    /// Runs at once.
    #[arg(long, default_value_t = 1)]
    slots: usize,
    /// How long running commands may take to end after a signal.
    #[arg(long, default_value = "10s", value_parser = duration)]
    grace: Duration,
    /// A folder with playbooks: `*.toml`, and folders with a `playbook.toml`.
    #[arg(long, value_name = "DIR")]
    playbooks: Option<PathBuf>,
    /// Execute commands and playbooks that runs bring along. Whoever may enqueue may then run anything here.
    #[arg(long)]
    allow_commands: bool,
    /// End when nothing is due and nothing is running.
    #[arg(long, hide = true)]
    until_idle: bool,
}

/// `60s`, `5m`: the spans of lifecycle files.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    let span = Span::parse(text).filter(|span| *span > Span::ZERO);
    let span = span.ok_or_else(|| "write a whole number and a unit: 500ms, 60s, 5m, 24h, 7d".to_owned())?;
    Ok(Duration::from_micros(span.micros().unsigned_abs()))
}

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    if !flags.allow_commands && flags.playbooks.is_none() {
        let message = "this worker has nothing that it may execute: give --playbooks DIR, or --allow-commands to let it run what runs bring along";
        return Err(Failed::new(BAD_INPUT, message));
    }
    log_to_stderr();
    let opened = place.opened().await?;
    let store = opened.store();
    let playbooks = playbooks(&*store, flags.playbooks.as_deref()).await?;
    let options = Options {
        tenant: named_tenant().map(str::to_owned),
        queues: flags.queues,
        slots: flags.slots.max(1),
        lease: flags.lease,
        grace: flags.grace,
        allow_commands: flags.allow_commands,
        playbooks,
        projection: opened.projection(),
        ..Options::default()
    };
    let (stage, shutdown) = watch::channel(Stage::Working);
    let stage = Arc::new(stage);
    listen(&stage)?;
    if flags.until_idle {
        tokio::spawn(stop_when_idle(store.clone(), options.queues.clone(), stage));
    }
    let worker = Worker::new(store, options);
    anstream::eprintln!("{} is working; Ctrl-C stops it", worker.name());
    let schedules = SchedulerOptions { grace: flags.grace, ..SchedulerOptions::default() };
    let supervised = opened.supervised(worker.name(), Some(schedules), shutdown).await?;
    let summary = supervised.run(Some(worker)).await?.runs;
    anstream::eprintln!(
        "claimed {}, succeeded {}, failed {}, cancelled {}, given back {}, lost {}",
        summary.claimed,
        summary.succeeded,
        summary.failed,
        summary.cancelled,
        summary.released,
        summary.lost
    );
    Ok(0)
}

/// What a folder has. One that is wrong is told of at once, not when somebody asks for it.
pub async fn playbooks(store: &dyn Store, folder: Option<&Path>) -> Result<Playbooks> {
    let Some(folder) = folder else { return Ok(Playbooks::default()) };
    let loaded = Playbooks::load(folder, &lifecycles(store).await?);
    loaded.map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))
}

/// The first signal drains, the second stops at once.
pub fn listen(stage: &Arc<watch::Sender<Stage>>) -> Result {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).map_err(|error| Failed::new(ERROR, format!("no signals: {error}")))?;
        let stage = stage.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                stage.send_modify(|stage| {
                    *stage = if *stage == Stage::Working { Stage::Draining } else { Stage::Now };
                });
            }
        });
    }
    Ok(())
}

async fn stop_when_idle(store: Arc<dyn Store>, queues: Vec<String>, stage: Arc<watch::Sender<Stage>>) {
    loop {
        store.changed(Duration::from_millis(200)).await;
        let Ok(rows) = store.queues(named_tenant().map(str::to_owned)).await else { continue };
        let busy = rows.iter().filter(|row| queues.contains(&row.name)).any(|row| row.ready + row.held > 0);
        if !busy {
            stage.send_replace(Stage::Draining);
            return;
        }
    }
}

pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WAYPOST_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
