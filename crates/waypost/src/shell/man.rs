//! `waypost man DIR`: a page for each command, made of the same declarations as `--help`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_mangen::generate_to;

use crate::output::{ERROR, Failed, Result, print};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  waypost man ~/.local/share/man/man1 && man waypost-run-start")]
pub struct Flags {
    /// Where the pages go; it is made if it is not there.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub fn run(flags: &Flags) -> Result {
    let folder = &flags.folder;
    let written = std::fs::create_dir_all(folder).and_then(|()| generate_to(crate::Cli::command(), folder));
    written.map_err(|error| Failed::new(ERROR, format!("{}: {error}", folder.display())))?;
    print(&format!("man -l {}", folder.join("waypost.1").display()))
}
