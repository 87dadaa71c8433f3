//! Statements that stand once for both databases, and what else people's changes need.

use std::sync::Arc;
use std::time::SystemTime;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use waypost_kernel::Lifecycle;

use super::PgTx;
use crate::engine::AdminTx;
use crate::postgres::link::fault::{Result as Outcome, damaged};
use crate::postgres::link::session::{PoolKind, Session};
use crate::postgres::sql::{Columns, args, stamp, time};
use crate::seam::error::Result;
use crate::seam::verbs::Pause;
use crate::statement::{Arg, Cell, Cells, Kind, Sql, Statement, for_postgres};

type Typed = (Box<dyn ToSql + Sync + Send>, Type);

fn typed(arg: Arg) -> Typed {
    match arg {
        Arg::Text(text) => (Box::new(text), Type::TEXT),
        Arg::Texts(texts) => (Box::new(texts), Type::TEXT_ARRAY),
        Arg::Time(at) => (Box::new(at.map(stamp)), Type::TIMESTAMPTZ),
        Arg::Int(number) => (Box::new(number), Type::INT8),
        Arg::Bool(is) => (Box::new(is), Type::BOOL),
    }
}

/// A column of the statement's rows.
fn column(rows: &[Vec<Arg>], at: usize, kind: Kind) -> Typed {
    macro_rules! list {
        ($arg:ident, $array:ident, $read:expr) => {{
            let read = |row: &Vec<Arg>| match &row[at] {
                Arg::$arg(value) => value.clone().map($read),
                _ => None,
            };
            (Box::new(rows.iter().map(read).collect::<Vec<_>>()), Type::$array)
        }};
    }
    match kind {
        Kind::Text => list!(Text, TEXT_ARRAY, |text| text),
        Kind::Time => list!(Time, TIMESTAMPTZ_ARRAY, stamp),
        Kind::Int => list!(Int, INT8_ARRAY, |number| number),
    }
}

fn cells(row: &Row) -> Outcome<Cells> {
    let columns = Columns(row);
    let cell = |(at, column): (usize, &tokio_postgres::Column)| {
        let cell = match *column.type_() {
            Type::TEXT => columns.get::<Option<String>>(at)?.map(Cell::Text),
            Type::BOOL => columns.get::<Option<bool>>(at)?.map(Cell::Bool),
            Type::INT4 => columns.get::<Option<i32>>(at)?.map(|number| Cell::Int(number.into())),
            Type::INT8 => columns.get::<Option<i64>>(at)?.map(Cell::Int),
            Type::TIMESTAMPTZ => columns.get::<Option<SystemTime>>(at)?.map(|at| Cell::Time(time(at))),
            ref other => return Err(damaged(&format!("a column of type {other}"))),
        };
        Ok(cell.unwrap_or(Cell::Null))
    };
    row.columns().iter().enumerate().map(cell).collect::<Outcome<_>>().map(Cells)
}

impl Sql for PgTx {
    async fn query(&mut self, statement: Statement<'_>) -> Result<Vec<Cells>> {
        let (sql, kinds) = for_postgres(statement.sql, statement.values.len());
        let mut values: Vec<Typed> = statement.values.into_iter().map(typed).collect();
        values.extend(kinds.iter().enumerate().map(|(at, kind)| column(&statement.rows, at, *kind)));
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        let rows = PgTx::query(self, &sql, &values).await?;
        let cells = rows.iter().map(cells).collect();
        self.read(cells)
    }
}

impl AdminTx for PgTx {
    async fn pause_queue(&mut self, tenant: &str, queue: &str, pause: Option<&Pause>) -> Result<()> {
        let (by, reason) = (pause.map(|pause| pause.by.as_str()), pause.map(|pause| pause.reason.as_str()));
        self.query("SELECT waypost.put_pause($1, $2, $3, $4)", args![tenant, queue, by, reason]).await?;
        self.has_written(pause.is_none());
        Ok(())
    }

    async fn limit_queue(&mut self, tenant: &str, queue: &str, at_most: Option<u32>) -> Result<()> {
        let at_most = at_most.map(storable);
        self.query("SELECT waypost.limit_queue($1, $2, $3)", args![tenant, queue, at_most]).await?;
        self.has_written(true);
        Ok(())
    }

    async fn limit_key(&mut self, tenant: &str, key: &str, at_most: Option<u32>) -> Result<()> {
        self.query("SELECT waypost.lock_keys($1, $2)", args![vec![tenant], vec![key]]).await?;
        let sql = match at_most {
            Some(_) => {
                "INSERT INTO waypost.key_limits(tenant, name, at_most) VALUES ($1, $2, $3) ON CONFLICT (name, tenant) \
                 DO UPDATE SET at_most = excluded.at_most"
            }
            None => "DELETE FROM waypost.key_limits WHERE tenant = $1 AND name = $2 AND $3 IS NULL",
        };
        self.query(sql, args![tenant, key, at_most.map(storable)]).await?;
        let let_in = "SELECT waypost.save_lanes(NULL, NULL, NULL, NULL, $1, $2)";
        self.query(let_in, args![vec![tenant], vec![key]]).await?;
        self.has_written(true);
        Ok(())
    }

    async fn add_lifecycle(&mut self, tenant: &str, source: &str) -> Result<Arc<Lifecycle>> {
        let added = match self.tx() {
            Ok(tx) => tx.add_lifecycle(tenant, source).await,
            Err(fault) => Err(fault),
        };
        self.read(added)
    }
}

fn storable(at_most: u32) -> i32 {
    at_most.min(i32::MAX as u32) as i32
}

impl PgTx {
    /// All of it sees the same instant, and nothing is written.
    pub async fn look(session: &Session) -> Outcome<PgTx> {
        let tx = session.look().await?;
        let now = tx.now;
        Ok(PgTx::at(session, PoolKind::Work, Some(tx), now))
    }
}
