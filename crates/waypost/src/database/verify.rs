//! `waypost verify`.

use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use waypost_store::Database;

use crate::output::{ERROR, Format, Result, counted, print};
use crate::place::Place;

#[derive(Debug, Args)]
#[command(
    after_help = "Exits 0 if the log and the rows agree, 1 if not.\n\nExamples:\n  waypost verify\n  waypost verify -o json"
)]
pub struct Flags {
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub async fn run(place: &Place, flags: Flags) -> Result<u8> {
    let store = place.only_existing_database("verify").await?;
    report(&*store, flags.output).await
}

/// What the log and the rows of a database say of one another, as the command's answer.
pub async fn report(store: &dyn Database, output: Format) -> Result<u8> {
    let bar = progress_bar();
    let shown = bar.clone();
    let mut verified = store
        .verify(Arc::new(move |done, total| {
            shown.set_length(total);
            shown.set_position(done);
        }))
        .await?;
    bar.finish_and_clear();
    if !verified.unguarded.is_empty() {
        verified.unguarded.push("what hands wrote was not judged: `waypost doctor` says what to do".into());
        verified.differences.append(&mut verified.unguarded);
    }
    let sound = verified.differences.is_empty();
    let own = match verified.housekeeping {
        0 => String::new(),
        own => format!(" ({own} of them the engine's own housekeeping)"),
    };
    print(&match output {
        Format::Table if sound => {
            format!(
                "{}{own} and {}: the log and the rows agree",
                counted(verified.runs, "run"),
                counted(verified.events, "event")
            )
        }
        Format::Table => {
            let differences = verified.differences.join("\n");
            format!(
                "{differences}\n{}{own}, {}, {}",
                counted(verified.runs, "run"),
                counted(verified.events, "event"),
                counted(verified.differences.len() as u64, "difference")
            )
        }
        format => format.object(&json!({
            "runs": verified.runs,
            "housekeeping_runs": verified.housekeeping,
            "events": verified.events,
            "differences": verified.differences,
        })),
    })?;
    Ok(if sound { 0 } else { ERROR })
}

pub fn progress_bar() -> ProgressBar {
    bar_of("{bar:30} {pos}/{len} {msg} {eta}")
}

/// On a terminal's stderr only; elsewhere it draws nothing.
pub fn bar_of(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
