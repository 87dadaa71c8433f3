//! The `waypost` command: one file per noun.

mod lifecycle;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One engine that takes long-running work through a declared lifecycle, and never loses, doubles or fakes a
/// step of it.
#[derive(Debug, Parser)]
#[command(
    name = "waypost",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Look at lifecycles, and check your own.
    #[command(subcommand)]
    Lifecycle(lifecycle::Verb),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.noun {
        Noun::Lifecycle(verb) => lifecycle::run(verb),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{}", error.message);
            ExitCode::from(error.code)
        }
    }
}
