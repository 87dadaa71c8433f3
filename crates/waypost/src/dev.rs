//! `waypost dev`: everything in one process, for one person.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::output::{BAD_INPUT, Failed, Result};
use crate::place::Place;
use crate::serve;
use crate::worker::slots;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  waypost dev\n  waypost dev --listen 127.0.0.1:0 --playbooks playbooks")]
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
         waypost run list\n\nThe API: http://{address}/reference\nCtrl-C stops it; runs are kept."
    );
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
    serve::serve((store, place.projection()?), listener, &flags, &hello).await.map(|()| 0)
}
