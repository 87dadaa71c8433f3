//! Tables as wide as the terminal, and what stands in their cells.

use std::io::{self, IsTerminal};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use waypost_kernel::text::terminal;
use waypost_kernel::{Outcome, Phase};
use waypost_store::RunRow;

/// A table without lines.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    table_within(head, rows, width())
}

/// The same for a width, so that nothing but the arguments decides what it looks like.
pub fn table_within(
    head: &[&str],
    rows: impl IntoIterator<Item = Vec<Cell>>,
    width: Option<usize>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match width {
        Some(width) => {
            // Two columns of a terminal are the padding at its edges.
            let width = u16::try_from(width + 2).unwrap_or(u16::MAX);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    if is_coloured() {
        table.enforce_styling();
    } else {
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

/// How many characters a line of stdout has room for; no limit where it is no terminal. `COLUMNS` says otherwise.
pub fn width() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    };
    named.or_else(of_terminal).filter(|columns| *columns > 0).map(|columns: usize| columns.max(20))
}

fn is_coloured() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A text that somebody else may have written.
pub fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(terminal::plain(text.as_ref()))
}

pub fn cells(words: impl IntoIterator<Item = String>) -> Vec<Cell> {
    words.into_iter().map(cell).collect()
}

/// A status by its meaning, whatever its lifecycle calls it. The word is always there: colour only helps.
pub fn status(run: &RunRow) -> Cell {
    coloured(run.status(), run.phase(), run.outcome())
}

/// In small letters, where states of several lifecycles stand below each other.
pub fn status_in_small_letters(run: &RunRow) -> Cell {
    coloured(&run.status().to_lowercase(), run.phase(), run.outcome())
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
    cell(word).fg(colour)
}
