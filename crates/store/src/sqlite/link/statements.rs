//! The statements of a transaction that are used for each of many runs: found by a number instead of by their text, and
//! told only what differs from the run before. Of a hundred values that a run's whole way binds, seventy are the ones that
//! the run before it had.

use std::borrow::Cow;
use std::cell::RefCell;

use rusqlite::types::{Null, ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, Statement, ToSql};

use super::session::Tx;
use crate::columns::Cell;

#[derive(Default)]
pub struct Statements<'c>(RefCell<Vec<Prepared<'c>>>);

struct Prepared<'c> {
    key: u32,
    statement: CachedStatement<'c>,
    bound: Vec<Bound>,
}

/// What a parameter was bound to last; SQLite keeps that from one execution to the next.
#[derive(Clone, Copy, PartialEq)]
enum Bound {
    Other,
    Null,
    Integer(i64),
    Text { length: usize, bytes: [u8; SHORT] },
}

/// Names of commands, actors, queues and most workers.
const SHORT: usize = 23;

impl Bound {
    fn of(value: &ToSqlOutput<'_>) -> Bound {
        match value {
            ToSqlOutput::Borrowed(ValueRef::Null) | ToSqlOutput::Owned(Value::Null) => Bound::Null,
            ToSqlOutput::Borrowed(ValueRef::Integer(number)) | ToSqlOutput::Owned(Value::Integer(number)) => {
                Bound::Integer(*number)
            }
            ToSqlOutput::Borrowed(ValueRef::Text(text)) if text.len() <= SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..text.len()].copy_from_slice(text);
                Bound::Text { length: text.len(), bytes }
            }
            _ => Bound::Other,
        }
    }
}

impl<'c> Statements<'c> {
    fn run<T>(
        &self,
        conn: &'c Connection,
        key: u32,
        sql: impl FnOnce() -> Cow<'static, str>,
        work: impl FnOnce(&mut Bind<'_, 'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut statements = self.0.borrow_mut();
        let place = match statements.iter().position(|known| known.key == key) {
            Some(place) => place,
            None => {
                let statement = conn.prepare_cached(&sql())?;
                // Parameters of a statement that comes from the cache are null.
                let bound = vec![Bound::Null; statement.parameter_count()];
                statements.push(Prepared { key, statement, bound });
                statements.len() - 1
            }
        };
        let Prepared { statement, bound, .. } = &mut statements[place];
        work(&mut Bind { statement, bound, next: 0 })
    }
}

/// Binds one value after the other.
pub struct Bind<'s, 'c> {
    statement: &'s mut Statement<'c>,
    bound: &'s mut [Bound],
    next: usize,
}

impl Bind<'_, '_> {
    pub fn put(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        let place = self.next;
        self.next += 1;
        let bound = Bound::of(&value.to_sql()?);
        if bound != Bound::Other && self.bound.get(place) == Some(&bound) {
            return Ok(());
        }
        let done = self.statement.raw_bind_parameter(place + 1, value);
        if let Some(known) = self.bound.get_mut(place) {
            *known = if done.is_ok() { bound } else { Bound::Other };
        }
        done
    }

    /// Times are milliseconds, tokens bytes.
    pub fn cell(&mut self, cell: Cell<'_>) -> rusqlite::Result<()> {
        match cell {
            Cell::Null => self.put(Null),
            Cell::Flag(flag) => self.put(flag),
            Cell::Number(number) => self.put(number),
            Cell::Time(time) => self.put(time.ms()),
            Cell::Token(token) => self.put(token.0.to_be_bytes()),
            Cell::Text(_) | Cell::Json(_) | Cell::Members(_) => self.put(cell.into_text().as_deref()),
        }
    }

    pub fn execute(&mut self) -> rusqlite::Result<usize> {
        self.statement.raw_execute()
    }
}

impl<'c> Tx<'c> {
    pub fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
        self.conn.prepare_cached(sql)
    }

    /// Gives how many rows were written.
    pub fn execute(&self, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
        self.prepare(sql)?.execute(values)
    }

    /// The first row, if there is one.
    pub fn find<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.prepare(sql)?.query_row(values, read).optional()
    }

    pub fn list<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.prepare(sql)?.query_map(values, read)?.collect()
    }

    /// Runs one of the statements that this transaction keeps.
    pub fn kept_statement<T>(
        &self,
        key: u32,
        sql: impl FnOnce() -> Cow<'static, str>,
        work: impl FnOnce(&mut Bind<'_, 'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.statements.run(self.conn, key, sql, work)
    }
}
