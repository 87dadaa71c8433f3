//! `waypost init`: files to begin with. Each is one template beside this file, as it is written.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::output::{ERROR, Failed, REFUSED, Result, print};

/// Where each goes, and what stands in it.
const FILES: [(&str, &str); 3] = [
    ("waypost.toml", include_str!("waypost.toml")),
    ("playbooks/deploy.toml", include_str!("deploy.toml")),
    ("lifecycles/release.toml", include_str!("release.toml")),
];

#[derive(Debug, Args)]
#[command(after_help = "Nothing is overwritten.\n\nExamples:\n  waypost init\n  waypost init ops")]
pub struct Flags {
    /// The folder to write to; it is made if it is not there.
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
}

pub fn run(flags: &Flags) -> Result {
    let folder = &flags.folder;
    let there: Vec<String> =
        FILES.iter().map(|(name, _)| folder.join(name)).filter(|file| file.exists()).map(shown).collect();
    if !there.is_empty() {
        let message = format!(
            "nothing was written: {} would be overwritten; name another folder: waypost init DIR",
            there.join(", ")
        );
        return Err(Failed::new(REFUSED, message));
    }
    for (name, text) in FILES {
        let file = folder.join(name);
        write(&file, text).map_err(|error| Failed::new(ERROR, format!("{}: {error}", file.display())))?;
    }
    print(&next(folder))
}

/// Never over what somebody else has just written.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(file)?.write_all(text.as_bytes())
}

fn shown(file: impl AsRef<Path>) -> String {
    file.as_ref().display().to_string()
}

fn next(folder: &Path) -> String {
    let enter = if folder == Path::new(".") { String::new() } else { format!("  cd {}\n", folder.display()) };
    format!(
        "waypost.toml              schedules, retention, webhooks: examples to uncomment\n\
         playbooks/deploy.toml     a playbook: build, ask a person, deploy\n\
         lifecycles/release.toml   a lifecycle of your own\n\
         \n\
         Next:\n\
         {enter}  waypost playbook check playbooks/deploy.toml\n  \
         waypost run start playbooks/deploy.toml --wait\n  \
         waypost lifecycle add lifecycles/release.toml\n  \
         waypost dev --playbooks playbooks --lifecycles lifecycles"
    )
}
