//! The `waypost` command: one file per noun.

mod agent;
mod alert;
mod audit;
mod bench;
mod database;
#[cfg(feature = "demo")]
mod demo;
mod destination;
mod dlq;
mod init;
mod lifecycle;
mod output;
mod place;
mod playbook;
mod projection;
mod proposal;
mod queue;
mod run;
mod schedule;
mod serving;
mod shell;
#[cfg(feature = "demo")]
mod simulate;
mod stats;
mod times;
mod token;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use database::{backup, doctor, migrate, verify};
use output::log::Log;
use output::{BAD_INPUT, ERROR, Failed, Format, Result};
use place::Place;
use serving::{dev, serve, worker};
use shell::{completions, man};

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
    #[command(flatten)]
    log: Log,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Write files to begin with: a waypost.toml, a playbook, a lifecycle.
    Init(init::Flags),
    /// Start runs, look at them, and ask things of them.
    #[command(subcommand)]
    Run(run::Verb),
    /// The same as `run list`: runs, newest first.
    #[command(visible_alias = "ps")]
    Ls(run::look::list::List),
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
    /// What people did: who, when, why.
    Audit(audit::Flags),
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
    /// Targets of bulk changes that have failed: what to do about them, try them again, give them up.
    #[command(subcommand)]
    Dlq(dlq::Verb),
    /// Agents: look at them, run them, pause, resume and reset them.
    #[command(subcommand)]
    Agent(agent::Verb),
    /// What agents propose: look at it, approve or reject it.
    #[command(subcommand)]
    Proposal(proposal::Verb),
    /// Alerts: what is wrong, whom to tell, and whom not for a while.
    #[command(subcommand)]
    Alert(alert::Verb),
    /// What bulk changes call: rate limits and breakers.
    #[command(subcommand)]
    Destination(destination::Verb),
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
    /// See what Waypost does: runs that succeed, fail, are retried, cancelled, lost and killed.
    Demo(demo::Flags),
    /// Measure this machine, next to the fewest writes that could do the same work.
    Bench(bench::Flags),
    /// Print the version, as --version does.
    Version,
    /// Print a completion script for your shell.
    Completions(completions::Flags),
    /// Write manual pages, one for each command.
    Man(man::Flags),
    #[cfg(feature = "demo")]
    /// Things to try it on: a cluster, a shop, a language model, and what goes wrong with them.
    #[command(subcommand)]
    Simulate(simulate::Verb),
    /// Between a worker and a command: ends the command when the worker dies.
    #[command(hide = true)]
    Guardian {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error),
    };
    if let Noun::Guardian { command } = cli.noun {
        return waypost_worker::guardian::main(command);
    }
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failed) => {
            failed.tell();
            ExitCode::from(failed.code)
        }
    }
}

/// Help and the version are no errors. The rest is told as all errors are: for people, or for programs.
fn misunderstood(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let typed: Vec<OsString> = std::env::args_os().skip(1).collect();
    let hint = hint(error, &typed);
    if Format::asked() == Format::Table {
        let _ = error.print();
        if let Some(hint) = hint {
            output::tell(&format!("\n  {hint}"));
        }
    } else {
        let message = error.to_string();
        // What is missing stands on lines of its own below what is said of it.
        let first: Vec<&str> =
            message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
        let failed = Failed::new(BAD_INPUT, first.join(" ").trim_start_matches("error: "));
        hint.into_iter().fold(failed, |failed, hint| failed.with_hint(&hint)).tell();
    }
    ExitCode::from(BAD_INPUT)
}

/// `run start echo hi`: a command stands after `--`.
fn hint(error: &clap::Error, typed: &[OsString]) -> Option<String> {
    let words: Vec<&str> = typed.iter().filter_map(|word| word.to_str()).collect();
    let at = words.windows(2).position(|pair| pair == ["run", "start"])?;
    let is_unknown = error.kind() == clap::error::ErrorKind::UnknownArgument;
    if !is_unknown || words.contains(&"--") {
        return None;
    }
    let command = words[at + 2..].join(" ");
    Some(format!("a command and its arguments stand after `--`: waypost run start -- {command}"))
}

fn dispatch(cli: Cli) -> Result<u8> {
    let place = cli.place;
    cli.log.choose()?;
    place.choose_tenant(matches!(&cli.noun, Noun::Token(token::Verb::Create { .. })))?;
    match cli.noun {
        Noun::Init(flags) => init::run(&flags).map(|()| 0),
        Noun::Lifecycle(verb) => block_on(lifecycle::run(&place, verb)).map(|()| 0),
        Noun::Playbook(verb) => block_on(playbook::run(&place, &verb)).map(|()| 0),
        #[cfg(feature = "demo")]
        Noun::Simulate(verb) => simulate::run(verb),
        Noun::Man(flags) => man::run(&flags).map(|()| 0),
        Noun::Completions(flags) => completions::run(&flags).map(|()| 0),
        Noun::Run(verb) => block_on(run::run(&place, verb)),
        Noun::Ls(flags) => block_on(run::run(&place, run::Verb::List(flags))),
        Noun::Version => output::print(&format!("waypost {}", env!("CARGO_PKG_VERSION"))).map(|()| 0),
        Noun::Worker(flags) => block_on(worker::run(&place, flags)),
        Noun::Serve(flags) => block_on(serve::run(&place, flags)),
        Noun::Dev(flags) => block_on(dev::run(&place, flags)),
        Noun::Queue(verb) => block_on(queue::run(&place, verb)).map(|()| 0),
        Noun::Stats(flags) => block_on(stats::run(&place, flags)).map(|()| 0),
        Noun::Audit(flags) => block_on(audit::run(&place, flags)).map(|()| 0),
        Noun::Token(verb) => block_on(token::run(&place, verb)).map(|()| 0),
        Noun::Migrate(flags) => block_on(migrate::run(&place, flags)).map(|()| 0),
        Noun::Doctor(flags) => block_on(doctor::run(&place, flags)),
        Noun::Schedule(verb) => block_on(schedule::run(&place, verb)),
        Noun::Dlq(verb) => block_on(dlq::run(&place, verb)),
        Noun::Agent(verb) => block_on(agent::run(&place, verb)),
        Noun::Proposal(verb) => block_on(proposal::run(&place, verb)),
        Noun::Alert(verb) => block_on(alert::run(&place, verb)),
        Noun::Destination(verb) => block_on(destination::run(&place, verb)).map(|()| 0),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// A line that is wrapped is two commands when it is copied.
    fn long_examples(command: &clap::Command, found: &mut Vec<String>) {
        const ROOM: usize = 78;
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let is_long = |line: &&str| line.starts_with("  waypost") && line.chars().count() > ROOM;
        found.extend(text.lines().filter(is_long).map(str::to_owned));
        command.get_subcommands().for_each(|command| long_examples(command, found));
    }

    // proves U9
    #[test]
    fn examples_of_the_help_stand_on_one_line() {
        let mut found = Vec::new();
        long_examples(&Cli::command(), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// Of what is typed without a name: `<RUN>` alone says little.
    fn without_words(command: &clap::Command, found: &mut Vec<String>) {
        let is_hidden = |argument: &&clap::Arg| argument.get_id() == "help" || argument.get_id() == "version";
        let own = command.get_arguments().filter(|argument| !is_hidden(argument));
        let silent = own.filter(|argument| argument.get_help().is_none() && argument.get_id() != "output");
        found.extend(silent.map(|argument| format!("{} {}", command.get_name(), argument.get_id())));
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.for_each(|command| without_words(command, found));
    }

    // proves U9
    #[test]
    fn arguments_have_words() {
        let mut found = Vec::new();
        without_words(&Cli::command(), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
