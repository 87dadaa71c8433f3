//! `waypost playbook …`.

mod check;
mod library;
mod new;

use std::path::PathBuf;

use clap::Subcommand;

use crate::output::{Format, Result};
use crate::place::Place;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check playbooks: file, line, field and mend for everything that is wrong with them.
    #[command(
        after_help = "Examples:\n  waypost playbook check update.toml\n  waypost playbook check playbooks/*.toml -o json\n  waypost playbook check release.toml --lifecycle release-lifecycle.toml"
    )]
    Check {
        /// Files of playbooks.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The file of a lifecycle of your own that the playbooks name.
        #[arg(long, value_name = "FILE")]
        lifecycle: Vec<PathBuf>,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Playbooks that servers and workers have: `run start NAME` starts them.
    #[command(
        after_help = "Examples:\n  waypost playbook list\n  waypost playbook list --playbooks ./playbooks\n  waypost playbook list --versions -o json"
    )]
    List {
        /// Those of a folder, instead.
        #[arg(long, value_name = "DIR")]
        playbooks: Option<PathBuf>,
        /// Older versions too.
        #[arg(long, conflicts_with = "playbooks")]
        versions: bool,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// One playbook: what it takes, what it does, and its text.
    #[command(
        after_help = "Examples:\n  waypost playbook show update\n  waypost playbook show update@3f2a\n  waypost playbook show ./update.toml -o json"
    )]
    Show {
        /// A name, a version of it (NAME@HASH; the beginning of a hash is enough), or a file.
        #[arg(value_name = "NAME|FILE")]
        playbook: String,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Write a playbook to begin with: sound, with comments.
    #[command(
        after_help = "Examples:\n  waypost playbook new update\n  waypost playbook new update playbooks/update.toml --lifecycle deploy"
    )]
    New {
        /// What it is called.
        #[arg(value_name = "NAME")]
        name: String,
        /// Where to write it; NAME.toml if left out. A file that is there already stays as it is.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// What its runs move along.
        #[arg(long, default_value = "job", value_name = "NAME")]
        lifecycle: String,
    },
}

pub async fn run(place: &Place, verb: &Verb) -> Result {
    match verb {
        Verb::Check { files, lifecycle, output } => {
            check::check(files, &check::catalog(place.known_lifecycles().await?, lifecycle)?, *output)
        }
        Verb::List { playbooks, versions, output } => {
            library::list(place, playbooks.as_deref(), *versions, *output).await
        }
        Verb::Show { playbook, output } => library::show(place, playbook, *output).await,
        Verb::New { name, file, lifecycle } => new::write(place, name, file.as_deref(), lifecycle).await,
    }
}
