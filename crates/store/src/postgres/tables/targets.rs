//! Targets of a run: those that are named, and those that are due, in one statement.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::{PgTx, rows};
use crate::columns::{IN_ORDER, of_each_role};
use crate::engine::{ItemsIn, StoredItem, Targets, TargetsOf};
use crate::postgres::link::fault::Result as Outcome;
use crate::postgres::sql::{Columns, args, stamp};
use crate::seam::error::Result;

pub async fn targets(tx: &mut PgTx, ask: &TargetsOf<'_>) -> Result<Targets> {
    let TargetsOf { stored, kind, keys, ready, take } = ask;
    let mut found = Targets::default();
    // Those that are being tried are remembered, as this process wrote them.
    let recalled = tx.recalled.get(&stored.rid).map(Vec::as_slice).unwrap_or_default();
    let mut known: HashMap<&str, &StoredItem> = recalled.iter().map(|it| (it.row.key.as_str(), it)).collect();
    let mut unknown: Vec<&str> = Vec::new();
    for key in keys.iter().filter(|key| !key.contains('\0')) {
        match known.remove(*key).filter(|it| it.row.kind == **kind) {
            Some(it) => found.named.push(it.clone()),
            None => unknown.push(key),
        }
    }
    let sql = format!(
        "SELECT u.what, {} FROM waypost.targets($1, $2, $3, $4, $5, $6) u CROSS JOIN LATERAL (SELECT (u.it).*) i",
        *rows::ITEM_SELECTED
    );
    let (now, take) = (stamp(tx.now), *take as i32);
    let read = tx.query(&sql, args![stored.rid, *kind, unknown, *ready, now, take]).await?;
    for row in &read {
        let it = |row: &Row| -> Outcome<(i32, StoredItem)> {
            Ok((Columns(row).get(0)?, rows::item_from(row, 1, &stored.row.lifecycle)?))
        };
        let (what, it) = tx.read(it(row))?;
        match what {
            0 => found.named.push(it),
            1 => found.due.push(it),
            _ => {
                let next = found.next.map_or(it.item.not_before, |next| next.min(it.item.not_before));
                found.next = Some(next);
            }
        }
    }
    Ok(found)
}

pub async fn items_in(tx: &mut PgTx, ask: &ItemsIn<'_>) -> Result<Vec<(usize, StoredItem)>> {
    let ItemsIn { stored, kind, status, code, from, limit } = ask;
    let first = "rid = $1 AND kind = $2 AND status = $3 AND not_before IS NULL AND place >= $5 AND NOT discarded AND ($4 IS NULL OR error_code = $4)";
    let first = of_each_role("waypost.items", first, IN_ORDER, "$6");
    let sql = format!(
        "SELECT i.place, {} FROM waypost.items i WHERE i.rid = $1 AND i.kind = $2 AND i.key IN ({first}) ORDER BY i.place LIMIT $6",
        *rows::ITEM_SELECTED
    );
    let (from, limit) = (*from as i32, *limit as i64);
    let read = tx.query(&sql, args![stored.rid, *kind, *status, *code, from, limit]).await?;
    let it = |row: &Row| -> Outcome<(usize, StoredItem)> {
        let place: i32 = Columns(row).get(0)?;
        Ok((place.unsigned_abs() as usize, rows::item_from(row, 1, &stored.row.lifecycle)?))
    };
    let found: Outcome<Vec<(usize, StoredItem)>> = read.iter().map(it).collect();
    tx.read(found)
}
