//! Statements that stand once for both databases.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, params_from_iter};
use serde_json::json;
use waypost_kernel::{Span, Time};

use crate::seam::error::Result;
use crate::sqlite::link::fault::Fault;
use crate::sqlite::primitives::Primitives;
use crate::statement::{Arg, Cell, Cells, Sql, Statement, for_sqlite};

/// Rounded up: what is due at an instant must not be looked at before it.
fn ms(time: Time) -> i64 {
    (time + Span::from_micros(999)).ms()
}

fn value(arg: Arg) -> Value {
    match arg {
        Arg::Text(text) => text.map_or(Value::Null, Value::Text),
        Arg::Texts(texts) => Value::Text(json!(texts).to_string()),
        Arg::Time(time) => time.map_or(Value::Null, |time| Value::Integer(ms(time))),
        Arg::Int(number) => number.map_or(Value::Null, Value::Integer),
        Arg::Bool(is) => Value::Integer(i64::from(is)),
    }
}

fn as_json(arg: Arg) -> serde_json::Value {
    match value(arg) {
        Value::Text(text) => text.into(),
        Value::Integer(number) => number.into(),
        _ => serde_json::Value::Null,
    }
}

fn cells(row: &Row<'_>, count: usize) -> rusqlite::Result<Cells> {
    let cell = |at| {
        Ok(match row.get_ref(at)? {
            ValueRef::Integer(number) => Cell::Int(number),
            ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
            _ => Cell::Null,
        })
    };
    (0..count).map(cell).collect::<rusqlite::Result<_>>().map(Cells)
}

impl Sql for Primitives<'_, '_> {
    async fn query(&mut self, statement: Statement<'_>) -> Result<Vec<Cells>> {
        let sql = for_sqlite(statement.sql, statement.values.len());
        let mut values: Vec<Value> = statement.values.into_iter().map(value).collect();
        if !statement.rows.is_empty() {
            let rows = statement.rows.into_iter().map(|row| row.into_iter().map(as_json).collect());
            values.push(Value::Text(serde_json::Value::Array(rows.collect()).to_string()));
        }
        // Executions are written by nobody else (see `writing` in the schema).
        if !sql.starts_with("SELECT") && sql.contains(" executions") {
            self.0.begin_writing()?;
        }
        let found = self.0.prepare(&sql).and_then(|mut statement| {
            let count = statement.column_count();
            statement.query_map(params_from_iter(values), |row| cells(row, count))?.collect()
        });
        Ok(found.map_err(Fault::from)?)
    }
}
