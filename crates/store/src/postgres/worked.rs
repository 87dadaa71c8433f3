//! How long runs were worked, from their events where their rows do not tell.

use std::collections::HashMap;

use waypost_kernel::{Span, Time};

use crate::postgres::link::fault::Result;
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Columns, args, time};
use crate::seam::run::RunRow;
use crate::seam::worked::{Begun, Look, to_be_read, told, worked};

pub async fn took(tx: &Tx, runs: &[RunRow]) -> Result<Vec<Option<Span>>> {
    let ids: Vec<&str> = runs.iter().map(RunRow::id).collect();
    let sql = "SELECT r.run_id, r.rid FROM waypost.runs r WHERE r.run_id = ANY ($1)";
    let mut rids: HashMap<String, i64> = HashMap::new();
    for row in tx.query(sql, args![ids]).await? {
        rids.insert(Columns(&row).get(0)?, Columns(&row).get(1)?);
    }
    let look = |row: &RunRow| {
        let rid = rids.get(row.id()).copied().unwrap_or_default();
        Look::new(rid, row.run.seq, &Begun::from(row), tx.now)
    };
    of_looks(tx, &runs.iter().map(look).collect::<Vec<_>>()).await
}

pub async fn of_looks(tx: &Tx, looks: &[Look]) -> Result<Vec<Option<Span>>> {
    let rids = to_be_read(looks);
    let mut events: HashMap<i64, Vec<(bool, Time)>> = HashMap::new();
    if !rids.is_empty() {
        let sql = "SELECT e.rid, e.dst / 1000 = 3, e.at FROM waypost.events e WHERE e.rid = ANY ($1) ORDER BY e.rid, e.seq";
        for row in tx.query(sql, args![rids]).await? {
            let columns = Columns(&row);
            events.entry(columns.get(0)?).or_default().push((columns.get(1)?, time(columns.get(2)?)));
        }
    }
    let read = events.into_iter().map(|(rid, events)| (rid, worked(events, tx.now))).collect();
    Ok(told(looks, &read))
}
