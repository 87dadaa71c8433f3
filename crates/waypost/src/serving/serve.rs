//! `waypost serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use waypost_server::App;
use waypost_store::{Database, Store};
use waypost_worker::playbook::Playbooks;
use waypost_worker::projection::Projection;
use waypost_worker::schedules::SchedulerOptions;
use waypost_worker::webhooks::Github;
use waypost_worker::{PassedEnv, Stage};

use super::crew::{Crew, Files};
use super::reload::{Generations, Watched};
use crate::alert;
use crate::output::{BAD_INPUT, ERROR, Failed, Result, tell};
use crate::place::Place;
use crate::worker::{duration, listen, log_to_stderr, slots};

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "On loopback no token is needed; any other address needs one (`waypost token create`).\n\nSIGTERM: takes no more requests, answers those under way, lets what runs end (--grace), gives the rest back.\n\nExamples:\n  waypost serve\n  waypost serve --listen 0.0.0.0:7070 --no-worker\n  waypost serve --allow-commands --slots 4"
)]
pub struct Flags {
    /// Where to listen; port 0 is any that is free.
    #[arg(long, env = "WAYPOST_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Ask for tokens on loopback too: behind a proxy, everybody comes from there.
    #[arg(long)]
    pub require_tokens: bool,
    /// Do not work runs here: leave them to `waypost worker`.
    #[arg(long)]
    pub no_worker: bool,
    /// Work from this queue; may be given several times.
    #[arg(long = "queue", default_value = "default")]
    pub queues: Vec<String>,
    /// Runs at once.
    #[arg(long, default_value_t = 1, value_parser = slots)]
    pub slots: usize,
    /// How long a lease of the server's own worker lasts without a heartbeat.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub lease: Duration,
    /// How long running commands may take to end after a signal.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub grace: Duration,
    /// A folder with playbooks that runs may name: `*.toml`, and folders with a `playbook.toml`.
    #[arg(long, value_name = "DIR")]
    pub playbooks: Option<PathBuf>,
    /// Execute commands that runs bring along. Whoever may start such runs may then run anything here.
    #[arg(long)]
    pub allow_commands: bool,
    /// Hand this variable of the environment on to commands; may be given several times, and end with `*`. Without it they get
    /// PATH, HOME, the language and the like, and never what opens Waypost.
    #[arg(long, value_name = "NAME", value_parser = PassedEnv::check)]
    pub pass_env: Vec<String>,
}

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    let store = place.only_database("serve").await?;
    check_tokens(&*store, &flags).await?;
    let (listener, address) = bind(flags.listen).await?;
    let hello = format!("listening on http://{address}");
    serve((store, place.projection()?), listener, flags, (&hello, None)).await.map(|()| 0)
}

/// Whoever reaches a server without tokens could do anything with it.
async fn check_tokens(store: &dyn Store, flags: &Flags) -> Result {
    if !flags.needs_tokens() {
        return Ok(());
    }
    let now = store.now().await?;
    if store.tokens(None).await?.iter().any(|token| token.counts_at(now)) {
        return Ok(());
    }
    let instead = match flags.listen.ip().is_loopback() {
        true => "leave out --require-tokens",
        false => "listen on loopback: 127.0.0.1:PORT, [::1]:PORT",
    };
    let message = format!(
        "listen: {} needs tokens, and there are none: make one with `waypost token create NAME --role admin`, or {instead}",
        flags.listen
    );
    Err(Failed::new(BAD_INPUT, message))
}

impl Flags {
    fn needs_tokens(&self) -> bool {
        self.require_tokens || !self.listen.ip().is_loopback()
    }

    pub fn passed_env(&self) -> PassedEnv {
        PassedEnv::basics().and(self.pass_env.iter().cloned())
    }
}

/// What the system takes from the server for a client that does not read: by itself up to 4 MiB of each.
const SEND_BYTES: u32 = 128 * 1024;
/// Connections that wait to be taken.
const BACKLOG: u32 = 1_024;

pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let bound = async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // As a listener of its own does: the address of a server that was killed is free at once.
        socket.set_reuseaddr(true)?;
        // Those that are taken have what the listener has.
        socket.set_send_buffer_size(SEND_BYTES)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error: std::io::Error| {
        Failed::new(ERROR, format!("cannot listen on {address}: {error}; name another with --listen"))
    })
}

/// The API, the loops and the worker, until a signal. With folders to watch, what changes in them is taken up.
pub async fn serve(
    (store, projection): (Arc<dyn Database>, Option<Arc<Projection>>),
    listener: TcpListener,
    flags: Flags,
    (hello, watched): (&str, Option<Watched>),
) -> Result {
    log_to_stderr();
    let (stage, shutdown) = watch::channel(Stage::Working);
    listen(&Arc::new(stage))?;
    let name =
        format!("serve on {}", listener.local_addr().map_or_else(|_| "?".to_owned(), |it| it.to_string()));
    if let Some(watched) = &watched {
        watched.add_lifecycles(&*store).await?;
    }
    let files = Files::read(&*store, &flags).await?;
    let alerts = alert::declared()?;
    let options = waypost_server::Options {
        needs_tokens: flags.needs_tokens(),
        github: github(&files.playbooks)?,
        projection: projection.clone(),
        alerts: alerts.clone(),
        own_schedules: files.scheduled.own.iter().map(|schedule| schedule.name.clone()).collect(),
        ..waypost_server::Options::default()
    };
    raise_open_files(options.connections);
    let app = App::new(store.clone(), options, shutdown.clone());
    let fired = fired(&files.scheduled);
    let crew = Crew { store, projection, alerts, flags, app: app.clone(), name };
    let working = Generations::begin(crew, files, watched, shutdown).await?;
    tell(&format!("{hello}\n{fired}"));
    let ((), worked) = tokio::join!(waypost_server::serve(app, listener), working.run());
    worked
}

/// What people look for when nothing happens at the hour.
fn fired(scheduled: &SchedulerOptions) -> String {
    let own: Vec<&str> = scheduled.own.iter().map(|schedule| schedule.name.as_str()).collect();
    match (own.is_empty(), scheduled.carried) {
        (true, false) => "fires no schedules but its own pruning".to_owned(),
        (true, true) => "fires schedules that were applied".to_owned(),
        (false, false) => format!("fires schedules of waypost.toml: {}", own.join(", ")),
        (false, true) => {
            format!("fires schedules of waypost.toml: {}; and those that were applied", own.join(", "))
        }
    }
}

/// Beside connections: those that are told that there is no room, the database's own, and what the worker opens.
const OTHER_FILES: u64 = 512;

/// Each connection is an open file, and the limit that a shell gives is mostly far below what the system allows.
fn raise_open_files(connections: usize) {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let has = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    if let Some(has) = has.filter(|has| *has < needed) {
        tell(&format!(
            "warning: this process may have {has} files open, and {connections} connections need {needed}: raise the limit (ulimit -Hn, LimitNOFILE=)"
        ));
    }
}

/// `[github]` of `waypost.toml`. A secret that cannot be read is told of now, not when the first delivery comes.
fn github(playbooks: &Playbooks) -> Result<Option<Arc<Github>>> {
    let file = Path::new("waypost.toml");
    if !file.exists() {
        return Ok(None);
    }
    let bad = |message: String| Failed::new(BAD_INPUT, message);
    let github = Github::load(file, playbooks).map_err(|problems| bad(problems.to_string()))?;
    if let Some(github) = &github {
        github.secret().map_err(|error| bad(format!("{}: {error}", file.display())))?;
    }
    Ok(github.map(Arc::new))
}
