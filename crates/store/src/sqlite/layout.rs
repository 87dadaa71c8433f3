//! Where the columns of a run are kept: what stays in `run_born`, what moves in `run_now`. That one is small, because
//! every move rewrites it: some columns share a place there.

use std::borrow::Cow;
use std::sync::LazyLock;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use waypost_kernel::{Run, Time, Token};

use crate::columns::{COLUMNS, Cell, Kind, RunColumn, When};
use crate::json::codec;
use crate::seam::run::RunRow;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::statements::Bind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Born,
    Now,
}

/// A column of the file.
#[derive(Debug)]
pub struct FileColumn {
    pub table: Table,
    pub name: &'static str,
    /// What of a run it holds.
    of: Vec<(&'static RunColumn, Share)>,
    /// Whether a move of the run left it as it was.
    is_same: Vec<fn(&Run, &Run) -> bool>,
}

/// How a column of a run shares its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    All,
    WhileHeld,
    WhileNotHeld,
    Bit(i64),
}

impl std::fmt::Debug for RunColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Those that are kept under another name, elsewhere, or with others.
fn place_of(column: &RunColumn) -> (Table, &'static str, Share) {
    match column.name {
        "queued_at" => (Table::Born, "at", Share::All),
        "queue" | "priority" | "concurrency_key" => (Table::Now, column.name, Share::All),
        "lease_token" => (Table::Now, "token", Share::WhileHeld),
        "ended_by" => (Table::Now, "token", Share::WhileNotHeld),
        "stale_after" => (Table::Now, "due_at", Share::WhileHeld),
        "available_at" => (Table::Now, "due_at", Share::WhileNotHeld),
        "requires_cleanup" => (Table::Now, "flags", Share::Bit(1)),
        "cleanup_failed" => (Table::Now, "flags", Share::Bit(2)),
        "operating" => (Table::Now, "flags", Share::Bit(4)),
        "resolved" => (Table::Now, "flags", Share::Bit(8)),
        "forced" => (Table::Now, "flags", Share::Bit(16)),
        name if matches!(column.when, When::Fixed) => (Table::Born, name, Share::All),
        name => (Table::Now, name, Share::All),
    }
}

/// In the order in which a row is read.
pub static LAYOUT: LazyLock<Vec<FileColumn>> = LazyLock::new(|| {
    let mut places: Vec<FileColumn> = Vec::new();
    for column in COLUMNS {
        let (table, name, share) = place_of(column);
        let at = places.iter().position(|place| place.table == table && place.name == name);
        let at = at.unwrap_or_else(|| {
            places.push(FileColumn { table, name, of: Vec::new(), is_same: Vec::new() });
            places.len() - 1
        });
        places[at].of.push((column, share));
        if let When::Moves(is_same) | When::Later(is_same) = column.when {
            places[at].is_same.push(is_same);
        }
    }
    // Of two that share one the value may stay as it is though both change: a token that ends its run.
    for place in &mut places {
        match place.name {
            "token" => place.is_same = vec![|before, after| token(before) == token(after)],
            "due_at" => place.is_same = vec![|before, after| due_at(before) == due_at(after)],
            _ => {}
        }
    }
    places
});

pub type FileColumns = LazyLock<Vec<&'static FileColumn>>;

/// Those that moves write.
pub static MOVING: FileColumns =
    LazyLock::new(|| LAYOUT.iter().filter(|place| !place.is_same.is_empty()).collect());
/// Those that a new run has.
pub static BORN: FileColumns = LazyLock::new(|| of_birth(Table::Born));
pub static NOW: FileColumns = LazyLock::new(|| of_birth(Table::Now));

fn of_birth(table: Table) -> Vec<&'static FileColumn> {
    let is_born = |(column, _): &(&RunColumn, Share)| !matches!(column.when, When::Later(_) | When::Patched);
    LAYOUT.iter().filter(|place| place.table == table && place.of.iter().any(is_born)).collect()
}

fn token(run: &Run) -> Option<Token> {
    run.lease.as_ref().map(|lease| lease.token).or(run.ended_by)
}

/// From when a worker may take it; while it is held, the lease's end.
fn due_at(run: &Run) -> Option<Time> {
    run.lease.as_ref().map_or(run.available_at, |lease| Some(lease.until))
}

/// The bits of `run_now.flags`.
pub fn flags(row: &RunRow) -> i64 {
    LAYOUT.iter().filter(|place| place.name == "flags").map(|place| place.bits(row)).sum()
}

impl FileColumn {
    pub fn differs(&self, before: &Run, after: &Run) -> bool {
        self.is_same.iter().any(|is_same| !is_same(before, after))
    }

    /// Whose members change one by one; `run_born` has what they were at first.
    pub fn is_patched(&self) -> bool {
        self.of.iter().any(|(column, _)| matches!(column.when, When::Patched))
    }

    pub fn is_json(&self) -> bool {
        self.of.iter().any(|(column, _)| column.kind.is_json())
    }

    fn bits(&self, row: &RunRow) -> i64 {
        let bit = |(column, share): &(&RunColumn, Share)| match share {
            Share::Bit(bit) if (column.get)(row) == Cell::Flag(true) => *bit,
            _ => 0,
        };
        self.of.iter().map(bit).sum()
    }

    pub fn put(&self, bind: &mut Bind<'_, '_>, row: &RunRow) -> rusqlite::Result<()> {
        match &self.of[..] {
            [(column, Share::All)] => bind.cell((column.get)(row)),
            [(_, Share::Bit(_)), ..] => bind.put(self.bits(row)),
            shared => {
                let mut cells = shared.iter().map(|(column, _)| (column.get)(row));
                bind.cell(cells.find(|cell| *cell != Cell::Null).unwrap_or(Cell::Null))
            }
        }
    }

    pub fn read(&self, row: &mut RunRow, value: ValueRef<'_>, is_held: bool) -> Result<()> {
        for (column, share) in &self.of {
            let cell = match share {
                Share::All => cell(column.kind, value)?,
                Share::WhileHeld if is_held => cell(column.kind, value)?,
                Share::WhileNotHeld if !is_held => cell(column.kind, value)?,
                Share::WhileHeld | Share::WhileNotHeld => Cell::Null,
                Share::Bit(bit) => Cell::Flag(value.as_i64().map_err(rusqlite::Error::from)? & bit != 0),
            };
            (column.set)(row, cell);
        }
        Ok(())
    }
}

/// What of a stored row a run does not have: a line for each value that cannot be read.
pub fn unread<'v>(run: &RunRow, values: impl Fn(usize) -> Option<&'v str>) -> Vec<String> {
    let columns = LAYOUT.iter().enumerate().flat_map(|(at, place)| {
        place.of.iter().filter(|(column, _)| column.kind.is_json()).map(move |(column, _)| (at, column))
    });
    columns.filter_map(|(at, column)| column.unread(run, values(at)?)).collect()
}

pub fn cell(kind: Kind, value: ValueRef<'_>) -> Result<Cell<'_>> {
    Ok(match (kind, value) {
        (_, ValueRef::Null) => Cell::Null,
        (Kind::Flag, ValueRef::Integer(number)) => Cell::Flag(number != 0),
        (Kind::Int2 | Kind::Int4 | Kind::Int8, ValueRef::Integer(number)) => Cell::Number(number),
        (Kind::Time, ValueRef::Integer(ms)) => Cell::Time(Time::from_ms(ms)),
        (Kind::Time, ValueRef::Text(_)) => Time::parse(&text(value)?).map_or(Cell::Null, Cell::Time),
        // A token that somebody typed in by hand may be one that no worker can have.
        (Kind::Token, value) => Cell::Token(match value {
            ValueRef::Blob(bytes) => {
                bytes.try_into().map_or(Token(0), |bytes| Token(u128::from_be_bytes(bytes)))
            }
            ValueRef::Text(_) => codec::token_from(&text(value)?).unwrap_or(Token(0)),
            _ => Token(0),
        }),
        (Kind::Text | Kind::Json | Kind::Jsonb, value) => Cell::Text(text(value)?),
        _ => return Err(rusqlite::Error::from(FromSqlError::InvalidType).into()),
    })
}

fn text(value: ValueRef<'_>) -> Result<Cow<'_, str>> {
    Ok(lossy(value).map_err(rusqlite::Error::from)?)
}

/// SQLite keeps any bytes as text, and a hand can write some that are none. One such word must not make a whole file unreadable.
fn lossy(value: ValueRef<'_>) -> FromSqlResult<Cow<'_, str>> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(String::from_utf8_lossy(bytes)),
        _ => Err(FromSqlError::InvalidType),
    }
}

/// A text that a hand may have written.
#[derive(Debug, Default)]
pub struct AnyText(pub String);

impl FromSql for AnyText {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<AnyText> {
        Ok(AnyText(lossy(value)?.into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_fits_below_the_bits_that_statements_use_otherwise() {
        assert!(MOVING.len() <= 24, "{}", MOVING.len());
    }
}
