//! `waypost completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::output::{Result, print};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  waypost completions bash \\\n    > ~/.local/share/bash-completion/completions/waypost\n  waypost completions zsh > ~/.zfunc/_waypost\n  waypost completions fish > ~/.config/fish/completions/waypost.fish"
)]
pub struct Flags {
    /// Your shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub fn run(flags: &Flags) -> Result {
    let mut script = Vec::new();
    generate(flags.shell, &mut crate::Cli::command(), "waypost", &mut script);
    print(&String::from_utf8_lossy(&script))
}
