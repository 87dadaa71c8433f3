//! `waypost serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use waypost_kernel::Catalog;
use waypost_server::App;
use waypost_store::Store;
use waypost_worker::loops::{Pruner, Sweeper};
use waypost_worker::playbook::{Input, Playbook};
use waypost_worker::{Options, Stage, Worker};

use crate::output::{BAD_INPUT, ERROR, Failed, Result};
use crate::place::Place;
use crate::worker::{duration, listen, log_to_stderr};

#[derive(Debug, Args)]
#[command(
    after_help = "On loopback no token is needed; any other address needs one (`waypost token create`).\n\nSIGTERM: takes no more requests, answers those under way, lets what runs end (--grace), gives the rest back.\n\nExamples:\n  waypost serve\n  waypost serve --listen 0.0.0.0:7070 --no-worker\n  waypost serve --allow-commands --slots 4"
)]
pub struct Flags {
    /// Where to listen; port 0 is any that is free.
    #[arg(long, env = "WAYPOST_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Do not work runs here: leave them to `waypost worker`.
    #[arg(long)]
    pub no_worker: bool,
    /// Work from this queue; may be given several times.
    #[arg(long = "queue", default_value = "default")]
    pub queues: Vec<String>,
    /// Runs at once.
    #[arg(long, default_value_t = 1)]
    pub slots: usize,
    /// How long a lease of the server's own worker lasts without a heartbeat.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub lease: Duration,
    /// How long running commands may take to end after a signal.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub grace: Duration,
    /// Playbooks that runs may name.
    #[arg(long, value_name = "DIR")]
    pub playbooks: Option<PathBuf>,
    /// Execute commands that runs bring along. Whoever may start such runs may then run anything here.
    #[arg(long)]
    pub allow_commands: bool,
}

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    if !flags.listen.ip().is_loopback() {
        let message = format!(
            "listen: {} is not loopback, and without tokens anybody who reaches it could do anything; allowed: 127.0.0.1:PORT, [::1]:PORT",
            flags.listen
        );
        return Err(Failed::new(BAD_INPUT, message));
    }
    let store = place.open_database().await?;
    let (listener, address) = bind(flags.listen).await?;
    anstream::eprintln!("listening on http://{address}");
    serve(store, listener, &flags).await.map(|()| 0)
}

pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error: std::io::Error| {
        Failed::new(ERROR, format!("cannot listen on {address}: {error}; name another with --listen"))
    })
}

/// The API, the loops and the worker, until a signal.
pub async fn serve(store: Arc<dyn Store>, listener: TcpListener, flags: &Flags) -> Result {
    log_to_stderr();
    let (stage, shutdown) = watch::channel(Stage::Working);
    listen(&Arc::new(stage))?;
    let playbooks = match &flags.playbooks {
        Some(folder) => playbooks(folder, &store.lifecycles().await?)?,
        None => Vec::new(),
    };
    let options = waypost_server::Options { playbooks, ..waypost_server::Options::default() };
    let app = App::new(store.clone(), options, shutdown.clone());
    let worker = Worker::new(store.clone(), worker_options(flags));
    let swept = app.clone();
    let sweeper = Sweeper::new(store.clone(), worker.name());
    let sweeper = sweeper.counted(move |moved| {
        swept.metrics.swept.inc_by(moved as u64);
    });
    tokio::spawn(sweeper.run(shutdown.clone()));
    tokio::spawn(Pruner::new(store).run(shutdown.clone()));
    let working = async {
        // Without commands there is nothing yet that it could execute.
        if flags.no_worker || !flags.allow_commands {
            return Ok(());
        }
        worker.run(shutdown).await.map(drop)
    };
    let ((), worked) = tokio::join!(waypost_server::serve(app, listener), working);
    Ok(worked?)
}

fn worker_options(flags: &Flags) -> Options {
    Options {
        queues: flags.queues.clone(),
        slots: flags.slots.max(1),
        lease: flags.lease,
        grace: flags.grace,
        allow_commands: flags.allow_commands,
        ..Options::default()
    }
}

/// Every playbook of a folder, by name. One that is wrong is told of at once, not when somebody asks for it.
fn playbooks(folder: &Path, catalog: &Catalog) -> Result<Vec<waypost_server::Playbook>> {
    let wrong =
        |error: std::io::Error| Failed::new(BAD_INPUT, format!("playbooks: {}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let playbook = Playbook::load_with(&path, catalog);
        let playbook = playbook.map_err(|problems| Failed::new(BAD_INPUT, problems.to_string()))?;
        found.push(waypost_server::Playbook {
            name: playbook.name,
            lifecycle: playbook.lifecycle,
            hash: playbook.hash.to_string(),
            description: playbook.description,
            inputs: playbook.inputs.iter().map(input).collect(),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// A secret's default is a reference, and still nobody's business.
fn input(input: &Input) -> Value {
    json!({
        "name": input.name,
        "type": input.kind.name(),
        "required": input.required,
        "default": input.default.as_ref().filter(|_| !input.secret),
        "description": input.description,
        "secret": input.secret,
    })
}
