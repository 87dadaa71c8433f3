//! `waypost dev`: everything in one process, for one person.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::reload::Watched;
use super::serve;
use crate::output::{BAD_INPUT, Failed, Result};
use crate::place::Place;
use crate::worker::slots;

#[derive(Debug, Args)]
#[command(
    after_help = "Playbooks, lifecycles and waypost.toml are taken up when they change; one that is wrong is told of, and what was loaded before stays in force. What is under way goes on as it began.\n\nExamples:\n  waypost dev\n  waypost dev --playbooks playbooks --lifecycles lifecycles"
)]
pub struct Flags {
    /// Where to listen, on this machine only; port 0 is any that is free.
    #[arg(long, env = "WAYPOST_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Runs at once.
    #[arg(long, default_value_t = 4, value_parser = slots)]
    slots: usize,
    /// Playbooks that runs may name.
    #[arg(long, value_name = "DIR")]
    playbooks: Option<PathBuf>,
    /// Lifecycles of your own, `*.toml`: added when it starts, and when they change.
    #[arg(long, value_name = "DIR")]
    lifecycles: Option<PathBuf>,
}

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    if !flags.listen.ip().is_loopback() {
        let message = format!(
            "listen: {}: dev runs whatever it is told to, so it listens on loopback only; use serve",
            flags.listen
        );
        return Err(Failed::new(BAD_INPUT, message));
    }
    let store = place.only_database("dev").await?;
    let (listener, address) = serve::bind(flags.listen).await?;
    let hello = format!(
        "listening on http://{address}\n\n  export WAYPOST_URL=http://{address}\n  waypost run start -- echo hi\n  \
         waypost run list\n\nThe console: http://{address}/\nThe API: http://{address}/reference\nCtrl-C stops it; runs are kept."
    );
    let watched = Watched::new(flags.playbooks.clone(), flags.lifecycles);
    let flags = serve::Flags {
        listen: flags.listen,
        require_tokens: false,
        no_worker: false,
        queues: vec!["default".to_owned()],
        slots: flags.slots,
        lease: Duration::from_secs(60),
        grace: Duration::from_secs(10),
        playbooks: flags.playbooks,
        allow_commands: true,
        // A person started it to do what they ask for: as their shell would.
        pass_env: vec!["*".to_owned()],
    };
    serve::serve((store, place.projection()?), listener, flags, (&hello, Some(watched))).await.map(|()| 0)
}
