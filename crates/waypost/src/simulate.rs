//! `waypost simulate`: the cluster that the demonstration and the tests update.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use waypost_simulate::{Server, Site, World};

use crate::output::{ERROR, Failed, Result};
use crate::worker::duration;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Serve the iDRACs of a simulated cluster until killed; its `govc` is put into DIR/bin.
    Cluster(Cluster),
    /// What `govc` would do, on the site in the folder that GOVC_URL names.
    Govc {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct Cluster {
    /// The site's folder. One that has a site in it is used as it is.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value = "127.0.0.1:0")]
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

pub fn run(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Govc { arguments } => Ok(waypost_simulate::govc(&arguments)),
        Verb::Cluster(flags) => serve(&flags)
            .map(|()| 0)
            .map_err(|error| Failed::new(ERROR, format!("{}: {error}", flags.dir.display()))),
    }
}

fn serve(flags: &Cluster) -> io::Result<()> {
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

fn new_site(flags: &Cluster) -> Site {
    let site = match flags.site {
        Sample::Blockers => Site::with_blockers(),
        Sample::Plain => Site::sample(),
    };
    Site { pace_ms: flags.pace.as_millis() as u64, ..site }
}
