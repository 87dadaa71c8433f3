//! `waypost worker`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use waypost_kernel::{Span, Time};
use waypost_store::{DEFAULT_TENANT, EVERY_TENANT, Store, WorkerRow};
use waypost_worker::playbook::Playbooks;
use waypost_worker::schedules::SchedulerOptions;
use waypost_worker::{Options, PassedEnv, Stage, Worker};

use super::worker_metrics::{self, Measured};
use crate::agent;
pub use crate::output::log::log_to_stderr;
use crate::output::{BAD_INPUT, ERROR, Failed, Format, Result, cells, print_list, table, tell};
use crate::place::{Place, lifecycles, named_tenant, suggested};
use crate::run::age;

#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM: takes nothing more, waits for what runs (--grace), gives the rest back. Twice: at once.\n\nExamples:\n  waypost worker --playbooks ./playbooks\n  waypost worker --allow-commands\n  waypost worker --queue builds --queue deploys --slots 4 --allow-commands"
)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Take from this queue; may be given several times.
    #[arg(long = "queue", default_value = "default")]
    queues: Vec<String>,
    /// How long a lease lasts without a heartbeat.
    #[arg(long, default_value = "60s", value_parser = duration)]
    lease: Duration,
    /// Runs at once.
    #[arg(long, default_value_t = 1, value_parser = slots)]
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
    /// Hand this variable of the environment on to commands; may be given several times, and end with `*`. Without it they get
    /// PATH, HOME, the language and the like, and never what opens Waypost.
    #[arg(long, value_name = "NAME", value_parser = PassedEnv::check)]
    pass_env: Vec<String>,
    /// Show this worker's metrics at http://ADDRESS/metrics; port 0 is any that is free. Off loopback whoever reaches it may read them.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// End when nothing is due and nothing is running.
    #[arg(long, hide = true)]
    until_idle: bool,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Who works: what each worker takes, how busy it is, and when it gave its last sign of life.
    #[command(
        after_help = "A worker gives a sign of life every 15 seconds. After 45 seconds without one it does not count as live; after 10 minutes it is not listed, unless it holds runs.\n\nExamples:\n  waypost worker list\n  waypost worker list -o json"
    )]
    List {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

/// As the API takes them.
const MOST_SLOTS: usize = 1_000_000;

/// How many runs a worker works at once.
pub fn slots(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a worker without a slot takes no run: give 1 or more".into()),
        Ok(slots @ 1..=MOST_SLOTS) => Ok(slots),
        _ => Err(format!("a whole number from 1 to {MOST_SLOTS} is needed")),
    }
}

/// `60s`, `5m`: the spans of lifecycle files.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    let span = Span::parse(text).filter(|span| *span > Span::ZERO);
    let span = span.ok_or_else(|| "write a whole number and a unit: 500ms, 60s, 5m, 24h, 7d".to_owned())?;
    Ok(Duration::from_micros(span.micros().unsigned_abs()))
}

const NOTHING_TO_EXECUTE: &str = "this worker has nothing that it may execute: give --playbooks DIR, or --allow-commands to let it run what runs bring along";

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    if let Some(Verb::List { output }) = flags.verb {
        return list(place, output).await.map(|()| 0);
    }
    if !flags.allow_commands && flags.playbooks.is_none() && !Path::new("waypost.toml").exists() {
        return Err(Failed::new(BAD_INPUT, NOTHING_TO_EXECUTE));
    }
    log_to_stderr();
    let opened = place.opened().await?;
    let store = opened.store();
    let agents = agent::declared(&*store).await?;
    let playbooks = playbooks(&*store, flags.playbooks.as_deref()).await?.and(agents.playbooks);
    if !flags.allow_commands && playbooks.is_empty() && flags.playbooks.is_none() {
        return Err(Failed::new(BAD_INPUT, NOTHING_TO_EXECUTE));
    }
    let options = Options {
        tenant: named_tenant().map(str::to_owned),
        queues: flags.queues,
        slots: flags.slots,
        lease: flags.lease,
        grace: flags.grace,
        allow_commands: flags.allow_commands,
        playbooks,
        projection: opened.projection()?,
        passed_env: PassedEnv::basics().and(flags.pass_env),
        ..Options::default()
    };
    let options = if agents.agents.is_empty() { options } else { agent::taking(options) };
    let (stage, shutdown) = watch::channel(Stage::Working);
    let stage = Arc::new(stage);
    listen(&stage)?;
    if flags.until_idle {
        tokio::spawn(stop_when_idle(store.clone(), options.queues.clone(), stage));
    }
    let slots = options.slots;
    let worker = Worker::new(store, options);
    if let Some(address) = flags.metrics {
        let measured = Measured { name: worker.name().to_owned(), slots, counts: worker.counts() };
        let bound = worker_metrics::listen(address, measured).await?;
        tell(&format!("metrics at http://{bound}/metrics"));
    }
    tell(&format!("{} is working; Ctrl-C stops it", worker.name()));
    let schedules = SchedulerOptions { grace: flags.grace, ..SchedulerOptions::default() };
    let supervised = opened.supervised(worker.name(), Some(schedules), shutdown).await?;
    let summary = supervised.run(Some(worker)).await?.runs;
    tell(&format!(
        "claimed {}, succeeded {}, failed {}, cancelled {}, given back {}, lost {}",
        summary.claimed, summary.succeeded, summary.failed, summary.cancelled, summary.released, summary.lost
    ));
    Ok(0)
}

async fn list(place: &Place, output: Format) -> Result {
    let opened = place.opened_to_read().await?;
    let store = opened.store();
    let workers = store.workers(named_tenant().map(str::to_owned)).await?;
    let now = store.now().await?;
    let objects = workers.iter().map(WorkerRow::object).collect();
    print_list(objects, output, || as_table(&workers, now))
}

fn as_table(workers: &[WorkerRow], now: Time) -> String {
    if workers.is_empty() {
        return format!("no workers; start one: {}", suggested("worker --allow-commands"));
    }
    // Who has no tenants does not see that there are any.
    let has_tenants = workers.iter().any(|it| ![EVERY_TENANT, DEFAULT_TENANT].contains(&it.tenant.as_str()));
    let rows = workers.iter().map(|it| {
        let seen = it.seen_at.map(|at| age(now - at));
        let state = match &seen {
            Some(_) if it.is_live(now) => "live".to_owned(),
            Some(_) => "silent".to_owned(),
            None => "unknown".to_owned(),
        };
        let takes = match &it.only {
            Some(run_id) => format!("only {run_id}"),
            None => it.queues.join(", "),
        };
        let slots = it.slots.map_or_else(|| it.busy.to_string(), |slots| format!("{}/{slots}", it.busy));
        let figures = [
            it.name.clone(),
            state,
            takes,
            executes(it),
            slots,
            it.started_at.map(|at| age(now - at)).unwrap_or_default(),
            seen.unwrap_or_default(),
            it.version.clone().unwrap_or_default(),
        ];
        let tenant = has_tenants.then(|| it.tenant.clone());
        cells(tenant.into_iter().chain(figures))
    });
    let names = ["tenant", "worker", "state", "queues", "executes", "busy", "up", "seen", "version"];
    table(&names[usize::from(!has_tenants)..], rows)
}

fn executes(worker: &WorkerRow) -> String {
    let Some(can) = &worker.can else {
        return if worker.seen_at.is_some() { "anything".to_owned() } else { String::new() };
    };
    let own: Vec<&str> =
        can.playbooks.iter().filter(|name| !name.contains('@')).map(String::as_str).collect();
    let mut words: Vec<String> = own.iter().take(SHOWN).map(|name| (*name).to_owned()).collect();
    if own.len() > SHOWN {
        words.push(format!("{} more", own.len() - SHOWN));
    }
    words.extend(can.carried.then(|| "commands".to_owned()));
    words.join(", ")
}

/// Of a worker's playbooks.
const SHOWN: usize = 5;

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
