//! `waypost simulate cluster`: the cluster that the demonstration and the tests update.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use waypost_simulate::{Server, Site, World};

use crate::output::{ERROR, Failed, Result};
use crate::worker::duration;

#[derive(Debug, Args)]
pub struct Flags {
    /// The site's folder. One that has a site in it is used as it is.
    #[arg(long)]
    dir: PathBuf,
    /// Where to listen; port 0 is a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// What a new site looks like.
    #[arg(long, value_enum, default_value_t)]
    site: Sample,
    /// How long downloads, installations, starts and evacuations take in a new site, each.
    #[arg(long, value_parser = duration, default_value = "1s")]
    pace: Duration,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Sample {
    #[default]
    Blockers,
    Plain,
}

pub fn run(flags: &Flags) -> Result {
    serve(flags).map_err(|error| Failed::new(ERROR, format!("{}: {error}", flags.dir.display())))
}

fn serve(flags: &Flags) -> io::Result<()> {
    let world = match World::open(&flags.dir) {
        Ok(world) => world,
        Err(_) => World::create(&flags.dir, &new_site(flags))?,
    };
    let dir = world.folder().canonicalize()?;
    waypost_simulate::install_govc(&dir.join("bin"), &std::env::current_exe()?)?;
    let server = Server::bind(&world, flags.listen)?;
    let url = server.url()?;
    let site = world.site()?;
    let idrac = |host: &waypost_simulate::Host| {
        (host.name.clone(), Value::from(format!("{url}/idrac/{}", host.name)))
    };
    let line = json!({
        "url": url,
        "dir": dir,
        "bin": dir.join("bin"),
        "cluster": site.cluster.name,
        "catalogue": format!("{url}/catalogue.json"),
        "idracs": site.hosts.iter().map(idrac).collect::<Map<_, _>>(),
    });
    writeln!(io::stdout().lock(), "{line}")?;
    server.run()
}

fn new_site(flags: &Flags) -> Site {
    let site = match flags.site {
        Sample::Blockers => Site::with_blockers(),
        Sample::Plain => Site::sample(),
    };
    Site { pace_ms: flags.pace.as_millis() as u64, ..site }
}
