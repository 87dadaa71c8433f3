//! Time's doing: leases and times to live that ran out. Rows that the kernel leaves alone are stepped over, so
//! that none of them can keep the others waiting.

use rusqlite::params;
use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Ask, Request};

use super::children;
use super::limits;
use super::row;
use super::save::{self, Extra};
use super::session::Tx;
use crate::error::Result;
use crate::intake;
use crate::seed_words::cancelled_by_system;
use crate::verbs::Swept;

const PAGE: usize = 256;

pub fn sweep(tx: &Tx<'_>, by: &str, limit: usize) -> Result<Swept> {
    intake::check_name("by", by)?;
    let mut swept = Swept::default();
    let held = "SELECT due_at, rid FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND due_at <= ?1 \
                AND (due_at, rid) > (?2, ?3) ORDER BY due_at, rid LIMIT ?4";
    pages(tx, by, limit, held, &mut swept)?;
    let expiring = "SELECT expires_at, rid FROM run_now INDEXED BY run_expiring WHERE expires_at IS NOT NULL AND expires_at <= ?1 \
                    AND (expires_at, rid) > (?2, ?3) ORDER BY expires_at, rid LIMIT ?4";
    pages(tx, by, limit, expiring, &mut swept)?;
    let (asked, is_all) = children::ask(tx, limit.saturating_sub(swept.moved.len()))?;
    swept.moved.extend(asked.into_iter().map(|id| (id, Want::Cancel.command().to_owned())));
    swept.more |= !is_all;
    limits::let_in_all(tx)?;
    Ok(swept)
}

fn pages(tx: &Tx<'_>, by: &str, limit: usize, sql: &str, swept: &mut Swept) -> Result<()> {
    let mut after = (i64::MIN, 0);
    loop {
        let found = row::places(tx, sql, params![tx.now.ms(), after.0, after.1, PAGE as i64])?;
        let Some(last) = found.last() else { return Ok(()) };
        after = *last;
        for (_, rid) in found {
            if swept.moved.len() >= limit {
                swept.more = true;
                return Ok(());
            }
            let Some(mut stored) = row::by_rid(tx, rid)? else { continue };
            let request = Request { who: tx.who(Actor::Engine, by), ask: Ask::Sweep };
            let Ok(change) = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)
            else {
                continue;
            };
            let Some(command) = change.events.last().map(|event| event.command.to_string()) else { continue };
            let metadata = cancelled_by_system(&stored.row, &change);
            save::save(tx, &mut stored, change, &Extra { metadata, ..Extra::default() })?;
            swept.moved.push((stored.row.run.id.to_string(), command));
        }
    }
}
