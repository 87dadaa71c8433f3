//! `waypost backup` and `waypost restore`. PostgreSQL has tools of its own for both; what they made is checked here.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use waypost_store::sqlite::backup::{self, Copied};

use super::verify;
use crate::output::{BAD_INPUT, Failed, Format, Result, counted, pretty, print};
use crate::place::{Database, Place};

const BYTES: &str = "{bar:30} {bytes}/{total_bytes} {eta}";

#[derive(Debug, Args)]
#[command(
    after_help = "The copy is of one instant, whoever writes meanwhile, and one file. It is there when it is whole.\n\nExamples:\n  waypost backup waypost-2026-11-16.db\n  waypost backup /backup/waypost.db -o json"
)]
pub struct Flags {
    /// Where the copy goes: a file that is not there yet.
    file: PathBuf,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Stop servers and workers first. What was done after the copy was made is not in it: runs that it shows as waiting or under way are worked (again).\nExits 0 if its log and its rows agree, 1 if not.\n\nExamples:\n  waypost restore waypost-2026-11-16.db\n  waypost restore waypost-2026-11-16.db --replace"
)]
pub struct RestoreFlags {
    /// A copy that `waypost backup` made, or any whole copy of the file.
    file: PathBuf,
    /// Put it in the place of the database that is there, which is kept beside it.
    #[arg(long)]
    replace: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub fn run(place: &Place, flags: &Flags) -> Result<u8> {
    let file = match place.own_database("backup")? {
        Database::Sqlite(file) => file,
        Database::Postgres(_) => {
            return Err(for_postgres(&format!(
                "pg_dump --format=custom --file={} --dbname=\"$WAYPOST_DATABASE_URL\"",
                flags.file.display()
            )));
        }
    };
    there(&file)?;
    let bar = verify::bar_of(BYTES);
    let copied = backup::backup(&file, &flags.file, &|done, total| show(&bar, done, total));
    bar.finish_and_clear();
    let copied = copied?;
    print(&match flags.output {
        Format::Table => format!("{}: {}", flags.file.display(), words(copied)),
        Format::Json => pretty(&shape(copied, &flags.file)),
        Format::Jsonl => shape(copied, &flags.file).to_string(),
    })?;
    Ok(0)
}

pub async fn restore(place: &Place, flags: RestoreFlags) -> Result<u8> {
    let file = match place.own_database("restore")? {
        Database::Sqlite(file) => file,
        Database::Postgres(_) => {
            return Err(for_postgres(&format!(
                "pg_restore --exit-on-error --dbname=\"$WAYPOST_DATABASE_URL\" {}",
                flags.file.display()
            )));
        }
    };
    there(&flags.file)?;
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    if whole(&flags.file).is_some_and(|copy| Some(copy) == whole(&file)) {
        let message = format!("{} is the database itself: name a copy of it", flags.file.display());
        return Err(Failed::new(BAD_INPUT, message));
    }
    let bar = verify::bar_of(BYTES);
    let restored = backup::restore(&flags.file, &file, flags.replace, &|done, total| show(&bar, done, total));
    bar.finish_and_clear();
    let (copied, kept) = restored?;
    if flags.output == Format::Table {
        let kept = kept.map(|kept| format!("; what was there is {}", kept.display())).unwrap_or_default();
        print(&format!("{}: {}{kept}", file.display(), words(copied)))?;
    }
    let store = place.open_database().await?;
    verify::report(&*store, flags.output).await
}

/// A typo must not be answered with an empty database.
fn there(file: &Path) -> Result {
    if file.is_file() {
        return Ok(());
    }
    let words = if file.is_dir() { "it is a folder: name a file" } else { "there is no such file" };
    Err(Failed::new(BAD_INPUT, format!("{}: {words}", file.display())))
}

fn for_postgres(command: &str) -> Failed {
    let message =
        format!("PostgreSQL has tools of its own for this:\n  {command}\n  waypost verify, after a restore");
    Failed::new(BAD_INPUT, message)
}

fn words(copied: Copied) -> String {
    format!("{}, {:.1} MiB", counted(copied.runs, "run"), copied.bytes as f64 / f64::from(1 << 20))
}

fn shape(copied: Copied, file: &Path) -> serde_json::Value {
    json!({ "file": file, "runs": copied.runs, "bytes": copied.bytes })
}

fn show(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}
