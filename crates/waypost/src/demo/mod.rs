//! `waypost demo`: runs that go well and badly, by real workers, real leases and real processes, in a database of
//! their own.

mod acts;
mod cluster;
mod narrator;
mod process;
mod report;
mod stage;

use std::path::Path;

use clap::Args;
use tokio::sync::watch;
use waypost_worker::Stage as Shutdown;
use waypost_worker::loops::Supervisor;

use crate::output::{ERROR, Failed, Result, print};
use acts::Act;
use stage::Stage;

#[derive(Debug, Args)]
#[command(
    after_help = "Uses a temporary folder and leaves nothing behind. Exits 0 if every run ended as announced.\n\nExamples:\n  waypost demo\n  waypost demo --once 2>/dev/null"
)]
pub struct Flags {
    /// Play the runs and end.
    #[arg(long)]
    once: bool,
}

pub async fn run(flags: Flags) -> Result<u8> {
    // Both ways to call it play once, until there is a console to stay open for.
    let Flags { once: _ } = flags;
    let folder = tempfile::Builder::new()
        .prefix("waypost-demo-")
        .tempdir()
        .map_err(|error| Failed::new(ERROR, format!("no folder for the demo's database: {error}")))?;
    let mut stage = Stage::open(folder.path()).await?;
    let (end, shutdown) = watch::channel(Shutdown::Working);
    let supervisor = Supervisor::new(stage.store.clone(), "demo", shutdown.clone());
    tokio::spawn(supervisor.start().await?.run(None));
    let narrated = tokio::spawn(narrator::narrate(stage.store.clone(), shutdown));
    let played = tokio::select! {
        played = all(&mut stage, folder.path()) => played,
        _ = tokio::signal::ctrl_c() => Err(Failed::new(crate::output::INTERRUPTED, "interrupted")),
    };
    stage.dismiss_workers().await;
    end.send_replace(Shutdown::Now);
    let _ = narrated.await;
    let report = report::of(&*stage.store, &played?).await?;
    print(&report.text)?;
    Ok(if report.as_announced { 0 } else { ERROR })
}

async fn all(stage: &mut Stage, folder: &Path) -> Result<Vec<Act>> {
    let mut acts = acts::play(stage).await?;
    acts.extend(cluster::play(stage, folder).await?);
    Ok(acts)
}
