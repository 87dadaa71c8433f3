//! Targets of a run: those that are named, and those that are due.

use rusqlite::params;
use waypost_kernel::Time;

use crate::columns::{IN_ORDER, of_each_role};
use crate::engine::{ItemsIn, StoredItem, Targets, TargetsOf};
use crate::seam::run::iso;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::row;

pub fn targets(tx: &Tx<'_>, ask: &TargetsOf<'_>) -> Result<Targets> {
    let TargetsOf { stored, kind, keys, ready, take } = ask;
    let id = stored.row.id();
    let now = iso(tx.now);
    let mut found = Targets::default();
    for key in keys {
        let named = "WHERE run_id = ?1 AND kind = ?2 AND key = ?3";
        found.named.extend(row::items(tx, stored, named, params![id, kind, key])?);
    }
    // One more than is taken, so that it is known whether there are more.
    let mut due = Vec::new();
    for (condition, order) in
        [("not_before <= ?4", "not_before, place"), ("?4 IS NOT NULL AND not_before IS NULL", "place")]
    {
        let limit = (take + 1 - due.len()) as i64;
        if limit > 0 {
            let first = format!("run_id = ?1 AND kind = ?2 AND status = ?3 AND {condition}");
            let first = of_each_role("items", &first, order, "?5");
            let first =
                format!("WHERE run_id = ?1 AND kind = ?2 AND key IN ({first}) ORDER BY {order} LIMIT ?5");
            due.extend(row::items(tx, stored, &first, params![id, kind, ready, now, limit])?);
        }
    }
    if due.len() > *take {
        found.next = due.pop().map(|it| it.item.not_before);
    } else {
        let later = "run_id = ?1 AND kind = ?2 AND status = ?3 AND not_before > ?4";
        let later = of_each_role("items", later, "not_before, place", "1");
        let later =
            format!("SELECT min(not_before) FROM items WHERE run_id = ?1 AND kind = ?2 AND key IN ({later})");
        let later = tx.find(&later, params![id, kind, ready, now], |row| row.get::<_, Option<String>>(0))?;
        found.next = later.flatten().and_then(|at| Time::parse(&at)).map(Some);
    }
    found.due = due;
    Ok(found)
}

pub fn items_in(tx: &Tx<'_>, ask: &ItemsIn<'_>) -> Result<Vec<(usize, StoredItem)>> {
    let ItemsIn { stored, kind, status, code, from, limit } = ask;
    let (id, from, limit) = (stored.row.id(), *from as i64, *limit as i64);
    let first = "run_id = ?1 AND kind = ?2 AND status = ?3 AND not_before IS NULL AND place >= ?5 AND discarded = 0 AND (?4 IS NULL OR error_code = ?4)";
    let first = of_each_role("items", first, IN_ORDER, "?6");
    let condition = format!("WHERE run_id = ?1 AND kind = ?2 AND key IN ({first}) ORDER BY place LIMIT ?6");
    let found = row::items(tx, stored, &condition, params![id, kind, status, code, from, limit])?;
    let places = format!("SELECT place FROM items {condition}");
    let places =
        tx.list(&places, params![id, kind, status, code, from, limit], |row| row.get::<_, i64>(0))?;
    Ok(places.into_iter().map(|place| place as usize).zip(found).collect())
}
