//! Runs that time or their parent's cancel is to move.

use rusqlite::params;

use crate::engine::turns::short;
use crate::engine::{Overdue, Stored, TimeKey};
use crate::seam::verbs::PAGE_BYTES;
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::row;

const LEASES: &str = "SELECT due_at, rid, queue, tenant FROM run_now INDEXED BY run_held WHERE state & 7 = 2 AND due_at <= ?1 \
  AND (due_at, rid) > (?2, ?3) ORDER BY due_at, rid LIMIT ?4";
const LIVES: &str = "SELECT expires_at, rid, queue, tenant FROM run_now INDEXED BY run_expiring WHERE expires_at IS NOT NULL AND expires_at <= ?1 \
  AND (expires_at, rid) > (?2, ?3) ORDER BY expires_at, rid LIMIT ?4";

/// At least one of them if there is any: a page of runs that this binary cannot read is not the end of the list.
pub fn overdue(tx: &Tx<'_>, what: Overdue<'_>, after: TimeKey, limit: usize) -> Result<Vec<Stored>> {
    let sql = match what {
        Overdue::Leases(_) => LEASES,
        Overdue::Lives => LIVES,
    };
    let is_asked_for = |queue: &str, tenant: &str| match what {
        Overdue::Leases(Some(claim)) => {
            claim.queues.iter().any(|asked| asked == queue)
                && claim.tenant.as_deref().is_none_or(|asked| short(asked) == tenant)
        }
        Overdue::Leases(None) | Overdue::Lives => true,
    };
    let mut after = (after.0.ms(), after.1);
    let mut found = Vec::new();
    while found.is_empty() {
        let values = params![tx.now.ms(), after.0, after.1, limit as i64];
        let page = tx.list(sql, values, |row| {
            let is_asked_for = is_asked_for(row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str()?);
            Ok(((row.get(0)?, row.get(1)?), is_asked_for))
        })?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        let asked_for = page.into_iter().filter(|(_, is_asked_for)| *is_asked_for);
        read_page(tx, asked_for.map(|((_, rid), _)| rid), &mut found)?;
    }
    Ok(found)
}

/// The oldest.
pub fn cancelled_parent(tx: &Tx<'_>) -> Result<Option<String>> {
    let sql = "SELECT p.run_id FROM cancelled_parents p LEFT JOIN run_born b ON b.run_id = p.run_id ORDER BY b.rid LIMIT 1";
    Ok(tx.find(sql, [], |row| row.get(0))?)
}

pub fn children_told(tx: &Tx<'_>, parent: &str) -> Result<()> {
    tx.execute("DELETE FROM cancelled_parents WHERE run_id = ?1", [parent])?;
    Ok(())
}

/// Its children are to be asked, if it has any.
pub fn has_cancelled(tx: &Tx<'_>, parent: &str) -> Result<()> {
    let sql = "INSERT OR IGNORE INTO cancelled_parents(run_id) SELECT ?1 \
               WHERE EXISTS (SELECT 1 FROM run_born WHERE parent_run_id = ?1)";
    tx.execute(sql, [parent])?;
    Ok(())
}

/// At least one of them if there is any, as above.
pub fn children(tx: &Tx<'_>, parent: &str, after: i64, limit: usize) -> Result<Vec<Stored>> {
    let sql = "SELECT b.rid FROM run_born b CROSS JOIN run_now n ON n.rid = b.rid \
               WHERE b.parent_run_id = ?1 AND n.state & 7 <> 4 AND b.rid > ?2 ORDER BY b.rid LIMIT ?3";
    let mut after = after;
    let mut found = Vec::new();
    while found.is_empty() {
        let page: Vec<i64> = tx.list(sql, params![parent, after, limit as i64], |row| row.get(0))?;
        let Some(last) = page.last() else { break };
        after = *last;
        read_page(tx, page.into_iter(), &mut found)?;
    }
    Ok(found)
}

/// As many as a page has room for; whoever asks reads on from the last.
fn read_page(tx: &Tx<'_>, rids: impl Iterator<Item = i64>, found: &mut Vec<Stored>) -> Result<()> {
    let mut bytes = 0;
    for rid in rids {
        found.extend(row::by_rid(tx, rid)?);
        bytes += found.last().map_or(0, Stored::weight);
        if bytes > PAGE_BYTES {
            break;
        }
    }
    Ok(())
}

pub fn open_children(tx: &Tx<'_>, parent: &str, lifecycle: &str) -> Result<Vec<(String, u64)>> {
    let sql = "SELECT b.run_id, n.seq FROM run_born b CROSS JOIN run_now n ON n.rid = b.rid JOIN state_codes s ON s.code = n.state \
               WHERE b.parent_run_id = ?1 AND s.lifecycle = ?2 AND n.state & 7 <> 4";
    Ok(tx.list(sql, [parent, lifecycle], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// By the states in which such runs begin: these are few among all runs. An operation without a key changes nothing.
pub fn live_of_rule(tx: &Tx<'_>, tenant: &str, lifecycle: &str, rule: &str) -> Result<Vec<String>> {
    let sql = "SELECT b.run_id FROM state_codes s CROSS JOIN run_born b INDEXED BY run_births ON b.state = s.code CROSS JOIN run_now n ON n.rid = b.rid \
               WHERE s.initial = 1 AND s.lifecycle IN (?1, 'operation') AND n.state & 7 IN (1, 2) AND b.tenant = ?2 \
               AND (b.playbook = ?3 OR substr(b.playbook, 1, length(?3) + 1) = ?3 || '@') \
               AND (s.lifecycle <> 'operation' OR n.concurrency_key IS NOT NULL) ORDER BY b.rid LIMIT 20";
    Ok(tx.list(sql, [lifecycle, tenant, rule], |row| row.get(0))?)
}
