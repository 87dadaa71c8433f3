//! What every noun shares: exit codes, tables that fit, and writing to a pipe that may close early.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};

/// Exit codes are a contract: scripts branch on them.
pub const ERROR: u8 = 1;
pub const BAD_INPUT: u8 = 2;
pub const NOT_FOUND: u8 = 4;

#[derive(Debug)]
pub struct Failed {
    pub code: u8,
    pub message: String,
}

pub type Result<T = ()> = std::result::Result<T, Failed>;

impl Failed {
    pub fn new(code: u8, message: impl Into<String>) -> Failed {
        Failed { code, message: message.into() }
    }
}

/// Data goes to stdout. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> Result {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
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

/// A table without lines, as wide as the terminal.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    // Cells are padded on both sides; a table that is pasted or piped needs neither edge.
    let lines: Vec<String> =
        table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n")
}
