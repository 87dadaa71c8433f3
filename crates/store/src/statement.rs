//! Statements that stand once for both databases. They are written in PostgreSQL's words; what SQLite says otherwise is
//! rendered: parameters, lists, and what it has no use for (locks, casts).
//!
//! - `@lock(…)`: how the rows are locked. SQLite's writer is alone.
//! - `= ANY ($1)`, `@ids($1)`: a list of texts as a condition, and as rows `i(id)`.
//! - `@rows(a text, b time)`: the statement's table of values as rows `u(a, b)`.
//! - [`Words`]: how the rows of runs are found.

use waypost_kernel::Time;

use crate::seam::error::{Result, StoreError};

/// A transaction that takes such statements.
#[allow(async_fn_in_trait, reason = "see `engine::Tx`")]
pub(crate) trait Sql {
    /// Gives the rows that were found, or that `RETURNING` names.
    async fn query(&mut self, statement: Statement<'_>) -> Result<Vec<Cells>>;
}

#[derive(Debug)]
pub(crate) struct Statement<'s> {
    pub sql: &'s str,
    pub values: Vec<Arg>,
    /// What `@rows` stands for.
    pub rows: Vec<Vec<Arg>>,
}

/// A value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    Text(Option<String>),
    Texts(Vec<String>),
    Time(Option<Time>),
    Int(Option<i64>),
    Bool(bool),
}

macro_rules! into_arg {
    ($($from:ty => |$it:ident| $arg:expr;)*) => {
        $(impl From<$from> for Arg {
            fn from($it: $from) -> Arg {
                $arg
            }
        })*
    };
}

into_arg! {
    &str => |text| Arg::Text(Some(text.to_owned()));
    &String => |text| Arg::Text(Some(text.clone()));
    String => |text| Arg::Text(Some(text));
    Option<&str> => |text| Arg::Text(text.map(str::to_owned));
    &Option<String> => |text| Arg::Text(text.clone());
    &[String] => |texts| Arg::Texts(texts.to_vec());
    &Vec<String> => |texts| Arg::Texts(texts.clone());
    Vec<String> => |texts| Arg::Texts(texts);
    Time => |time| Arg::Time(Some(time));
    Option<Time> => |time| Arg::Time(time);
    usize => |number| Arg::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)));
    u64 => |number| Arg::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)));
    u32 => |number| Arg::Int(Some(i64::from(number)));
    bool => |is| Arg::Bool(is);
}

/// The values of a statement, or of one of its rows.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::statement::Arg::from($value)),*]
    };
}
pub(crate) use values;

/// A row that was found.
#[derive(Debug)]
pub(crate) struct Cells(pub Vec<Cell>);

#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Time(Time),
}

impl Cells {
    pub fn get<T: FromCell>(&self, at: usize) -> Result<T> {
        let read = self.0.get(at).cloned().and_then(T::from_cell);
        read.ok_or_else(|| StoreError::Unusable(format!("a row cannot be read: column {at} of {:?}", self.0)))
    }

    /// Of a row that cannot be read otherwise: what a column says, for people.
    pub fn name(&self, at: usize) -> String {
        match self.0.get(at) {
            Some(Cell::Text(text)) => format!("{text:?}"),
            Some(cell) => format!("{cell:?}"),
            None => "without a name".to_owned(),
        }
    }
}

pub(crate) trait FromCell: Sized {
    fn from_cell(cell: Cell) -> Option<Self>;
}

macro_rules! from_cell {
    ($($type:ty: $($cell:pat => $value:expr),+;)*) => {
        $(impl FromCell for $type {
            fn from_cell(cell: Cell) -> Option<$type> {
                match cell {
                    $($cell => Some($value),)+
                    _ => None,
                }
            }
        })*
    };
}

from_cell! {
    String: Cell::Text(text) => text;
    Time: Cell::Time(time) => time, Cell::Int(ms) => Time::from_ms(ms);
    bool: Cell::Bool(is) => is, Cell::Int(number) => number != 0;
    u64: Cell::Int(number) => number.unsigned_abs();
    i64: Cell::Int(number) => number;
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: Cell) -> Option<Option<T>> {
        match cell {
            Cell::Null => Some(None),
            cell => T::from_cell(cell).map(Some),
        }
    }
}

/// Finds rows.
pub(crate) async fn query<T: Sql>(tx: &mut T, sql: &str, values: Vec<Arg>) -> Result<Vec<Cells>> {
    tx.query(Statement { sql, values, rows: Vec::new() }).await
}

/// The same, for each row of a table of values; none if that is empty.
pub(crate) async fn query_rows<T: Sql>(
    tx: &mut T,
    sql: &str,
    values: Vec<Arg>,
    rows: Vec<Vec<Arg>>,
) -> Result<Vec<Cells>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    tx.query(Statement { sql, values, rows }).await
}

/// Of a column of `@rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Time,
    Int,
}

/// How a database is told of runs: `@RUN`, found by `@IS_RUN` for an execution `e`; `@UNSETTLED`; `@STALE` before an instant;
/// and the names of states, `@STATES`.
pub(crate) type Words = [(&'static str, &'static str); 5];

pub(crate) const POSTGRES: Words = [
    ("@RUN", "waypost.runs r"),
    ("@IS_RUN", "r.run_id = e.run_id"),
    ("@UNSETTLED", "r.state < 5000"),
    ("@STALE", "r.claimed_by IS NOT NULL AND r.stale_after"),
    ("@STATES", "waypost.lifecycle_states s"),
];

pub(crate) const SQLITE: Words = [
    ("@RUN", "run_born b CROSS JOIN run_now r"),
    ("@IS_RUN", "b.run_id = e.run_id AND r.rid = b.rid"),
    ("@UNSETTLED", "r.state & 7 <> 4"),
    ("@STALE", "r.state & 7 = 2 AND r.claimed_by IS NOT NULL AND r.due_at"),
    ("@STATES", "state_codes s"),
];

/// As PostgreSQL takes it, with the kinds of the columns of `@rows`: they come after the `count` other values.
pub(crate) fn for_postgres(sql: &str, count: usize) -> (String, Vec<Kind>) {
    let sql = replaced(sql, &POSTGRES);
    let sql = expand(&sql, "@lock(", str::to_owned);
    let sql = expand(&sql, "@ids(", |list| format!("unnest({list}) AS i(id)"));
    let mut kinds = Vec::new();
    let sql = expand(&sql, "@rows(", |columns| {
        let names;
        (names, kinds) = columns_of(columns);
        let values: Vec<String> = (1..=kinds.len()).map(|at| format!("${}", count + at)).collect();
        format!("unnest({}) AS u({})", values.join(", "), names.join(", "))
    });
    (sql, kinds)
}

/// As SQLite takes it: lists and `@rows` are texts of JSON, the latter as the value after the `count` others.
pub(crate) fn for_sqlite(sql: &str, count: usize) -> String {
    let sql = replaced(sql, &SQLITE);
    let sql = expand(&sql, "@lock(", |_| String::new());
    let sql = expand(&sql, "= ANY (", |list| format!("IN (SELECT value FROM json_each({list}))"));
    let sql = expand(&sql, "@ids(", |list| format!("(SELECT value AS id FROM json_each({list})) AS i"));
    let sql = expand(&sql, "@rows(", |columns| {
        let names = columns_of(columns).0.into_iter().enumerate();
        let columns: Vec<String> = names.map(|(at, name)| format!("value ->> {at} AS {name}")).collect();
        format!("(SELECT {} FROM json_each(${})) AS u", columns.join(", "), count + 1)
    });
    ["waypost.", "::text", "::json", "::timestamptz"]
        .iter()
        .fold(sql, |sql, word| sql.replace(word, ""))
        .replace('$', "?")
}

fn replaced(sql: &str, words: &Words) -> String {
    words.iter().fold(sql.to_owned(), |sql, (word, means)| sql.replace(word, means))
}

fn columns_of(columns: &str) -> (Vec<&str>, Vec<Kind>) {
    let kind = |kind: &str| match kind {
        "time" => Kind::Time,
        "int" => Kind::Int,
        _ => Kind::Text,
    };
    let columns = columns.split(',').filter_map(|column| column.trim().split_once(' '));
    columns.map(|(name, of)| (name, kind(of))).unzip()
}

/// Puts something else in the place of a mark with what stands in its brackets.
fn expand(sql: &str, mark: &str, mut means: impl FnMut(&str) -> String) -> String {
    let mut made = String::with_capacity(sql.len() + 64);
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(mark) {
        let (inside, behind) = after.split_once(')').unwrap_or((after, ""));
        made.push_str(before);
        made.push_str(&means(inside));
        rest = behind;
    }
    made.push_str(rest);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_told_to_each_database_in_its_own_words() {
        let sql = "UPDATE waypost.executions AS e SET wake_at = u.at FROM @rows(id text, at time) WHERE e.id = u.id \
                   AND e.kind = $1 AND NOT e.schedule = ANY ($2) @lock(FOR UPDATE)";
        let (postgres, kinds) = for_postgres(sql, 2);
        assert_eq!(
            postgres,
            "UPDATE waypost.executions AS e SET wake_at = u.at FROM unnest($3, $4) AS u(id, at) WHERE e.id = u.id \
             AND e.kind = $1 AND NOT e.schedule = ANY ($2) FOR UPDATE"
        );
        assert_eq!(kinds, [Kind::Text, Kind::Time]);
        assert_eq!(
            for_sqlite(sql, 2),
            "UPDATE executions AS e SET wake_at = u.at FROM (SELECT value ->> 0 AS id, value ->> 1 AS at FROM json_each(?3)) AS u \
             WHERE e.id = u.id AND e.kind = ?1 AND NOT e.schedule IN (SELECT value FROM json_each(?2)) "
        );
    }
}
