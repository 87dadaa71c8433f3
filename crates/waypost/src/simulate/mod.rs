//! `waypost simulate`: what tests, demonstrations and tutorials work on.

mod cluster;
mod model;
mod shop;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use waypost_simulate::{FaultKind, Faults, RetryAfter, Subject};

use crate::output::{BAD_INPUT, ERROR, Failed, Result};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Serve the iDRACs of a simulated cluster until killed; its `govc` is put into DIR/bin.
    Cluster(cluster::Flags),
    /// Serve a shop whose prices change in bulk, with its limits, until SIGTERM.
    Shop(shop::Flags),
    /// Serve a language model as OpenAI does, until SIGTERM.
    Model(model::Flags),
    /// What `govc` would do, on the site in the folder that GOVC_URL names.
    #[command(hide = true)]
    Govc {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

pub fn run(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Govc { arguments } => Ok(waypost_simulate::govc(&arguments)),
        Verb::Cluster(flags) => cluster::run(&flags).map(|()| 0),
        Verb::Shop(flags) => crate::block_on(shop::run(flags)).map(|()| 0),
        Verb::Model(flags) => crate::block_on(model::run(flags)).map(|()| 0),
    }
}

/// One line for whoever started it, then nothing until a signal.
async fn until_stopped(line: &Value) -> Result {
    let listen = |kind| signal(kind).map_err(|error| Failed::new(ERROR, format!("no signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    {
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        written.map_err(|error| Failed::new(ERROR, format!("cannot write to stdout: {error}")))?;
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Faults as they are typed, of those that a simulator has.
fn faults(typed: &[String], known: &[FaultKind]) -> Result<Faults> {
    let mut faults = Faults::default();
    for text in typed {
        faults.set(text, known).map_err(|problem| Failed::new(BAD_INPUT, format!("--fault: {problem}")))?;
    }
    Ok(faults)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Serves a simulator until a signal, and says where: `line` has what is its own, by its address.
async fn serve<R>(
    running: io::Result<R>,
    listen: SocketAddr,
    dir: Option<PathBuf>,
    line: impl FnOnce(&R) -> Value,
) -> Result {
    let failed = |error| Failed::new(ERROR, format!("cannot listen on {listen}: {error}"));
    let running = running.map_err(failed)?;
    let mut line = line(&running);
    line["dir"] = json!(dir.map(|dir| dir.canonicalize().unwrap_or(dir)));
    until_stopped(&line).await
}

/// What is wrong with flags is named already; the rest is about the folder.
fn not_opened(error: &io::Error, dir: Option<&Path>) -> Failed {
    match dir {
        _ if error.kind() == io::ErrorKind::InvalidInput => Failed::new(BAD_INPUT, error.to_string()),
        Some(dir) => Failed::new(ERROR, format!("--dir {}: {error}", dir.display())),
        None => Failed::new(ERROR, error.to_string()),
    }
}

/// For the end of a command's help.
fn faults_help(faults: &[FaultKind]) -> String {
    let mut text = "Faults, for --fault NAME=SHARE or NAME=SHARExTIMES (how often the same one is hit; x0 is each time):\n".to_owned();
    for fault in faults {
        let of = if fault.of == Subject::Product { "products" } else { "requests" };
        let times = if fault.times == 0 { String::new() } else { format!(", x{}", fault.times) };
        text.push_str(&format!("  {:<13} of {of}{times}: {}\n", fault.name, fault.what));
    }
    text
}

fn retry_after(text: &str) -> std::result::Result<RetryAfter, String> {
    let found = RetryAfter::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, form)| *form).ok_or_else(|| "seconds, date, none or mixed".to_owned())
}
