//! What every noun shares: exit codes, formats, tables that fit, and writing to a pipe that may close early.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde_json::Value;
use waypost_kernel::{Outcome, Phase};
use waypost_store::{RunRow, StoreError};

/// Exit codes are a contract: scripts branch on them.
pub const ERROR: u8 = 1;
pub const BAD_INPUT: u8 = 2;
pub const RUN_FAILED: u8 = 3;
pub const NOT_FOUND: u8 = 4;
pub const REFUSED: u8 = 5;
pub const PARKED: u8 = 6;
pub const TIMED_OUT: u8 = 124;
pub const INTERRUPTED: u8 = 130;

#[derive(Debug)]
pub struct Failed {
    pub code: u8,
    pub message: String,
}

pub type Result<T = ()> = std::result::Result<T, Failed>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Jsonl,
}

impl Format {
    /// One object as JSON: on one line of its own, or indented for people.
    pub fn object(self, value: &Value) -> String {
        if self == Format::Jsonl { value.to_string() } else { pretty(value) }
    }
}

impl Failed {
    pub fn new(code: u8, message: impl Into<String>) -> Failed {
        Failed { code, message: message.into() }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        let code = match &error {
            StoreError::Refused(_) | StoreError::Changed { .. } | StoreError::Denied(_) => REFUSED,
            StoreError::NotFound { .. } => NOT_FOUND,
            StoreError::Invalid { .. } | StoreError::KeyReused { .. } => BAD_INPUT,
            StoreError::Unavailable(_) | StoreError::Unusable(_) => ERROR,
        };
        Failed::new(code, error.to_string())
    }
}

/// How a run that was waited for ends the command.
pub fn exit_code(run: &RunRow) -> u8 {
    match (run.phase(), run.outcome()) {
        (Phase::Settled, Some(Outcome::Succeeded | Outcome::Skipped)) | (Phase::Draft, _) => 0,
        (Phase::Settled, _) => RUN_FAILED,
        (Phase::Parked, _) => PARKED,
        _ => ERROR,
    }
}

/// Data goes to stdout. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> Result {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = anstream::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failed::new(ERROR, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// A list in the format that was asked for; the table is only made if it is wanted.
pub fn print_list(values: Vec<Value>, format: Format, table: impl FnOnce() -> String) -> Result {
    print(&match format {
        Format::Json => pretty(&Value::Array(values)),
        Format::Jsonl => values.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"),
        Format::Table => table(),
    })
}

pub fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

/// A table without lines, as wide as the terminal.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !is_coloured() {
        table.force_no_tty();
    }
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    // Cells are padded on both sides; a table that is pasted or piped needs neither edge.
    let lines: Vec<String> =
        table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n")
}

fn is_coloured() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

pub fn cells(words: impl IntoIterator<Item = String>) -> Vec<Cell> {
    words.into_iter().map(Cell::new).collect()
}

/// A status by its meaning, whatever its lifecycle calls it. The word is always there: colour only helps.
pub fn status(run: &RunRow) -> Cell {
    coloured(run.status(), run.phase(), run.outcome())
}

/// The same for the parts of a run.
pub fn coloured(word: &str, phase: Phase, outcome: Option<Outcome>) -> Cell {
    let colour = match (phase, outcome) {
        (_, Some(Outcome::Succeeded)) => Color::Green,
        (_, Some(Outcome::Failed)) => Color::Red,
        (_, Some(_)) | (Phase::Parked, _) => Color::Yellow,
        (Phase::Held, _) => Color::Cyan,
        _ => Color::Reset,
    };
    Cell::new(word).fg(colour)
}
