//! What every noun shares: exit codes, formats, errors, and writing to a pipe that may close early. All that is written passes
//! [`print()`] or [`tell`], where nothing that others wrote is obeyed by a terminal.

mod fit;
pub mod log;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use waypost_kernel::text::terminal;
use waypost_kernel::{Code, Outcome, Phase};
use waypost_store::{RunRow, StoreError};

pub use fit::{Column, cut, fitted};
pub use table::{cell, cells, coloured, status, status_in_small_letters, table, table_within, width};

/// Exit codes are a contract: scripts branch on them.
pub const ERROR: u8 = 1;
pub const BAD_INPUT: u8 = 2;
pub const RUN_FAILED: u8 = 3;
pub const NOT_FOUND: u8 = 4;
pub const REFUSED: u8 = 5;
pub const PARKED: u8 = 6;
pub const TIMED_OUT: u8 = 124;
pub const INTERRUPTED: u8 = 130;

#[derive(Clone, Debug)]
pub struct Failed {
    pub code: u8,
    pub message: String,
    /// The same for programs, as the API tells it.
    problem: Option<Box<Map<String, Value>>>,
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
        if self == Format::Jsonl { on_one_line(value) } else { pretty(value) }
    }

    /// As it stands on the command line, for what goes wrong before the command line is understood, or long after.
    fn of(arguments: impl IntoIterator<Item = OsString>) -> Format {
        let own = arguments.into_iter().take_while(|argument| argument != "--");
        let own: Vec<String> = own.map(|argument| argument.to_string_lossy().into_owned()).collect();
        let mut asked = Format::Table;
        for (at, argument) in own.iter().enumerate() {
            let given = match argument.as_str() {
                "-o" | "--output" => own.get(at + 1).map(String::as_str),
                other => other.strip_prefix("--output=").or_else(|| other.strip_prefix("-o")),
            };
            match given.map(|given| given.trim_start_matches('=')) {
                Some("json") => asked = Format::Json,
                Some("jsonl") => asked = Format::Jsonl,
                _ => {}
            }
        }
        asked
    }

    /// What this process was asked for.
    pub fn asked() -> Format {
        static ASKED: OnceLock<Format> = OnceLock::new();
        *ASKED.get_or_init(|| Format::of(std::env::args_os().skip(1)))
    }
}

impl Failed {
    pub fn new(code: u8, message: impl Into<String>) -> Failed {
        Failed { code, message: message.into(), problem: None }
    }

    /// The same with a line more for people.
    #[must_use]
    pub fn with_hint(self, hint: &str) -> Failed {
        Failed { message: format!("{}\n  {hint}", self.message), ..self }
    }

    /// For people, or as an object for programs if those asked.
    pub fn tell(&self) {
        tell(&match Format::asked() {
            Format::Table => self.message.clone(),
            _ => on_one_line(&self.object()),
        });
    }

    fn object(&self) -> Value {
        let code = match self.code {
            BAD_INPUT => "INVALID_INPUT",
            NOT_FOUND => "NOT_FOUND",
            REFUSED => "REFUSED",
            _ => "ERROR",
        };
        let mut object = json!({ "code": code, "detail": self.message, "exit_code": self.code });
        if let (Some(problem), Value::Object(object)) = (&self.problem, &mut object) {
            object.extend((**problem).clone());
        }
        object
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        let code = match &error {
            StoreError::Refused(refusal) if refusal.code == Code::InvalidInput => BAD_INPUT,
            StoreError::Refused(_)
            | StoreError::Changed { .. }
            | StoreError::Outdated(_)
            | StoreError::Denied(_) => REFUSED,
            StoreError::NotFound { .. } => NOT_FOUND,
            StoreError::Invalid { .. } | StoreError::KeyReused { .. } => BAD_INPUT,
            StoreError::Unavailable(_) | StoreError::Unusable(_) => ERROR,
        };
        let message = error.to_string();
        Failed { code, message, problem: Some(Box::new(waypost_server::problem_object(error))) }
    }
}

/// How a run that was waited for ends the command.
pub fn exit_code(run: &RunRow) -> u8 {
    match (run.phase(), run.outcome()) {
        (Phase::Settled, Some(Outcome::Succeeded | Outcome::Skipped)) => 0,
        (Phase::Settled, _) => RUN_FAILED,
        // Both wait for a person: one for a decision, the other to be asked for at all.
        (Phase::Parked | Phase::Draft, _) => PARKED,
        _ => ERROR,
    }
}

/// `1 run`, `2 runs`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// The terminal was closed: that nothing can be written to it is no error from now on.
pub fn reader_is_gone() {
    READER_IS_GONE.store(true, Ordering::Relaxed);
}

/// Data goes to stdout. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> Result {
    if text.is_empty() {
        return Ok(());
    }
    let text = terminal::screened(text);
    let mut out = anstream::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    match written.and_then(|()| out.flush()) {
        Err(error)
            if error.kind() != io::ErrorKind::BrokenPipe && !READER_IS_GONE.load(Ordering::Relaxed) =>
        {
            Err(Failed::new(ERROR, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Progress and hints go to stderr. Nobody there to read them is no error.
pub fn tell(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = writeln!(err, "{}", terminal::screened(text));
}

/// A list in the format that was asked for; the table is only made if it is wanted.
pub fn print_list(values: Vec<Value>, format: Format, table: impl FnOnce() -> String) -> Result {
    print(&match format {
        Format::Json => pretty(&Value::Array(values)),
        Format::Jsonl => values.iter().map(on_one_line).collect::<Vec<_>>().join("\n"),
        Format::Table => table(),
    })
}

pub fn pretty(value: &Value) -> String {
    terminal::json(format!("{value:#}"))
}

fn on_one_line(value: &Value) -> String {
    terminal::json(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_known_before_the_command_line_is() {
        let of = |line: &str| Format::of(line.split(' ').map(OsString::from));
        for (line, format) in [
            ("run list", Format::Table),
            ("run list -o json", Format::Json),
            ("run list --output jsonl --nonsense", Format::Jsonl),
            ("run list --output=json", Format::Json),
            ("run list -ojson", Format::Json),
            ("run list -o=jsonl", Format::Jsonl),
            ("run start -- tool -o json", Format::Table),
        ] {
            assert_eq!(of(line), format, "{line}");
        }
    }
}
