//! The `waypost` command: one file per noun.

mod backup;
mod bench;
mod completions;
#[cfg(feature = "demo")]
mod demo;
mod dev;
mod doctor;
mod lifecycle;
mod migrate;
mod output;
mod place;
mod playbook;
mod projection;
mod queue;
mod run;
mod schedule;
mod serve;
#[cfg(feature = "demo")]
mod simulate;
mod stats;
mod token;
mod verify;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::{ERROR, Failed, Result};
use place::Place;

/// A quarter of what this process does under load is allocating: decision 14.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "demo")]
const TRY: &str = "Try:\n  waypost demo\n  waypost run start --wait -- echo hi\n  waypost run list";
#[cfg(not(feature = "demo"))]
const TRY: &str = "Try:\n  waypost run start --wait -- echo hi\n  waypost run list";

/// One engine that takes long-running work through a declared lifecycle, and never loses, doubles or fakes a
/// step of it.
#[derive(Debug, Parser)]
#[command(
    name = "waypost",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = TRY
)]
struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Start runs, look at them, and ask things of them.
    #[command(subcommand)]
    Run(run::Verb),
    /// Work runs of queues until told to stop.
    Worker(worker::Flags),
    /// Answer HTTP requests, take care of leases and schedules, and work.
    Serve(serve::Flags),
    /// The same for one machine, and with nothing to set up: runs whatever runs bring along.
    Dev(dev::Flags),
    /// Look at queues, pause and resume them.
    #[command(subcommand)]
    Queue(queue::Verb),
    /// How it goes: queue depth, active runs, success rate, mean durations.
    Stats(stats::Flags),
    /// Look at lifecycles, add your own.
    #[command(subcommand)]
    Lifecycle(lifecycle::Verb),
    /// Make, list and revoke tokens for servers that others reach.
    #[command(subcommand)]
    Token(token::Verb),
    /// Bring the database's schema up to date.
    Migrate(migrate::Flags),
    /// Look the database over, and say what to do about what is found.
    Doctor(doctor::Flags),
    /// Check playbooks before they run.
    #[command(subcommand)]
    Playbook(playbook::Verb),
    /// What fires when: apply, look, pause, trigger, run.
    #[command(subcommand)]
    Schedule(schedule::Verb),
    /// Runs as documents of the object store.
    #[command(subcommand)]
    Projection(projection::Verb),
    /// Replay the whole log and report every difference from what is stored.
    Verify(verify::Flags),
    /// Copy the database while others work with it.
    Backup(backup::Flags),
    /// Put a copy back, and check it.
    Restore(backup::RestoreFlags),
    #[cfg(feature = "demo")]
    /// See what Waypost does: twelve runs that succeed, fail, are retried, cancelled, lost and killed.
    Demo(demo::Flags),
    /// Measure this machine, next to the fewest writes that could do the same work.
    Bench(bench::Flags),
    /// Print a completion script for your shell.
    Completions(completions::Flags),
    #[cfg(feature = "demo")]
    /// A cluster to try things on: `cluster` serves it, `govc` acts on it.
    #[command(subcommand, hide = true)]
    Simulate(simulate::Verb),
    /// Between a worker and a command: ends the command when the worker dies.
    #[command(hide = true)]
    Guardian {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Noun::Guardian { command } = cli.noun {
        return waypost_worker::guardian::main(command);
    }
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            anstream::eprintln!("{}", error.message);
            ExitCode::from(error.code)
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8> {
    let place = cli.place;
    place.choose_tenant(matches!(&cli.noun, Noun::Token(token::Verb::Create { .. })))?;
    match cli.noun {
        Noun::Lifecycle(verb) => block_on(lifecycle::run(&place, verb)).map(|()| 0),
        Noun::Playbook(verb) => block_on(playbook::run(&place, &verb)).map(|()| 0),
        #[cfg(feature = "demo")]
        Noun::Simulate(verb) => simulate::run(verb),
        Noun::Completions(flags) => completions::run(&flags).map(|()| 0),
        Noun::Run(verb) => block_on(run::run(&place, verb)),
        Noun::Worker(flags) => block_on(worker::run(&place, flags)),
        Noun::Serve(flags) => block_on(serve::run(&place, flags)),
        Noun::Dev(flags) => block_on(dev::run(&place, flags)),
        Noun::Queue(verb) => block_on(queue::run(&place, verb)).map(|()| 0),
        Noun::Stats(flags) => block_on(stats::run(&place, flags)).map(|()| 0),
        Noun::Token(verb) => block_on(token::run(&place, verb)).map(|()| 0),
        Noun::Migrate(flags) => block_on(migrate::run(&place, flags)).map(|()| 0),
        Noun::Doctor(flags) => block_on(doctor::run(&place, flags)),
        Noun::Schedule(verb) => block_on(schedule::run(&place, verb)),
        Noun::Projection(verb) => block_on(projection::run(&place, verb)).map(|()| 0),
        Noun::Verify(flags) => block_on(verify::run(&place, flags)),
        Noun::Backup(flags) => backup::run(&place, &flags),
        Noun::Restore(flags) => block_on(backup::restore(&place, flags)),
        #[cfg(feature = "demo")]
        Noun::Demo(flags) => block_on(demo::run(flags)),
        Noun::Bench(flags) => block_on(bench::run(&place, flags)).map(|()| 0),
        Noun::Guardian { .. } => Ok(0),
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failed::new(ERROR, format!("cannot start: {error}")))?.block_on(work)
}
