//! `waypost demo`: runs that go well and badly, by real workers, real leases and real processes, in a database of
//! their own.

mod acts;
mod agent;
mod cluster;
mod left;
mod narrator;
mod plans;
mod prices;
mod process;
mod report;
mod stage;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use waypost_server::{App, Options};
use waypost_worker::Stage as Shutdown;
use waypost_worker::loops::Supervisor;
use waypost_worker::projection::Projection;
use waypost_worker::projection::objects::Folder;
use waypost_worker::schedules::SchedulerOptions;

use crate::output::{BAD_INPUT, ERROR, Failed, Result, print, tell};
use acts::Act;
use stage::Stage;

#[derive(Debug, Args)]
#[command(
    after_help = "Uses a temporary folder and leaves nothing behind. Exits 0 if every run ended as announced.\n\nExamples:\n  waypost demo\n  waypost demo --once 2>/dev/null"
)]
pub struct Flags {
    /// Play the runs and end, without the console.
    #[arg(long)]
    once: bool,
    /// Where the console is, on this machine only; port 0 is any that is free.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS", conflicts_with = "once")]
    listen: SocketAddr,
}

pub async fn run(flags: Flags) -> Result<u8> {
    if !flags.listen.ip().is_loopback() {
        let message = format!(
            "listen: {}: the demo is for this machine alone: 127.0.0.1:PORT, [::1]:PORT",
            flags.listen
        );
        return Err(Failed::new(BAD_INPUT, message));
    }
    let folder = tempfile::Builder::new()
        .prefix("waypost-demo-")
        .tempdir()
        .map_err(|error| Failed::new(ERROR, format!("no folder for the demo's database: {error}")))?;
    let mut stage = Stage::open(folder.path(), !flags.once).await?;
    let (end, shutdown) = watch::channel(Shutdown::Working);
    let supervisor = Supervisor::new(stage.store.clone(), "demo", shutdown.clone());
    let own = plans::schedules(&*stage.store, folder.path()).await?;
    let supervisor = supervisor.firing(SchedulerOptions { own, ..SchedulerOptions::default() });
    // What front ends read of agents' runs.
    let projection = Arc::new(Projection::new(Arc::new(Folder::new(&folder.path().join("objects")))));
    let supervisor = supervisor.projecting(Some(projection.clone()));
    tokio::spawn(supervisor.start().await?.run(None));
    let console = match flags.once {
        true => None,
        false => Some(open_console(&stage, projection, flags.listen, shutdown.clone()).await?),
    };
    let narrated = tokio::spawn(narrator::narrate(stage.store.clone(), shutdown));
    let played = tokio::select! {
        played = all(&mut stage, folder.path()) => played,
        () = told_to_end() => Err(Failed::new(crate::output::INTERRUPTED, "interrupted")),
    };
    let report = match played {
        Ok(acts) => report::of(&*stage.store, &acts).await,
        Err(failed) => Err(failed),
    };
    if let (Ok(report), Some(address)) = (&report, console) {
        print(&report.text)?;
        tell(&format!("\nLook at them: http://{address}/\nCtrl-C ends the demo, and leaves nothing behind."));
        told_to_end().await;
    }
    stage.dismiss_workers().await;
    end.send_replace(Shutdown::Now);
    let _ = narrated.await;
    let report = report?;
    if console.is_none() {
        print(&report.text)?;
    }
    Ok(if report.as_announced { 0 } else { ERROR })
}

/// By Ctrl-C, or by who started it.
async fn told_to_end() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// The pages of a server, over the database that is played on.
async fn open_console(
    stage: &Stage,
    projection: Arc<Projection>,
    listen: SocketAddr,
    shutdown: watch::Receiver<Shutdown>,
) -> Result<SocketAddr> {
    let (listener, address) = crate::serve::bind(listen).await?;
    let options = Options { projection: Some(projection), ..Options::default() };
    let app = App::new(stage.store.clone(), options, shutdown);
    tokio::spawn(waypost_server::serve(app, listener));
    tell(&format!("The console: http://{address}/"));
    Ok(address)
}

async fn all(stage: &mut Stage, folder: &Path) -> Result<Vec<Act>> {
    let mut acts = acts::play(stage).await?;
    acts.extend(plans::play(stage).await?);
    acts.extend(agent::play(stage, folder).await?);
    acts.extend(cluster::play(stage, folder).await?);
    acts.push(prices::play(stage, folder).await?);
    if stage.stays {
        left::leave(stage, folder).await?;
    }
    Ok(acts)
}
