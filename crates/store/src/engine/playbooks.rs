//! Playbooks that processes offer. What is the latest version already is not written again: a process that starts, and finds what it
//! has, only reads.

use waypost_kernel::{Span, Time};

use super::tx::Tx;
use crate::seam::access::EVERY_TENANT;
use crate::seam::error::{Result, StoreError};
use crate::seam::playbooks::{
    KEPT_VERSIONS, MOST_PLAYBOOK_TEXT, MOST_PLAYBOOKS, OfferedPlaybook, PlaybookFilter, PlaybookRow,
};
use crate::statement::{Cells, Sql, query, values};

pub(crate) async fn offer_playbooks<T: Tx + Sql>(tx: &mut T, playbooks: &[OfferedPlaybook]) -> Result<()> {
    playbooks.iter().try_for_each(OfferedPlaybook::check)?;
    for offered in playbooks {
        let OfferedPlaybook { tenant, name, hash, file, text, by } = offered;
        let sql = "SELECT hash, offered_at FROM waypost.playbooks WHERE tenant = $1 AND name = $2 ORDER BY offered_at DESC, hash DESC LIMIT 1";
        let latest: Option<(String, Time)> = match query(tx, sql, values![tenant, name]).await?.first() {
            Some(row) => Some((row.get(0)?, row.get(1)?)),
            None => None,
        };
        if latest.as_ref().is_some_and(|(known, _)| known == hash) {
            continue;
        }
        // Later than the one before, however coarse the clock is.
        let at = latest.map_or(tx.now(), |(_, at)| tx.now().max(at + Span::from_ms(1)));
        let sql = "INSERT INTO waypost.playbooks(tenant, name, hash, file, text, who, offered_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                   ON CONFLICT (tenant, name, hash) DO UPDATE SET file = excluded.file, text = excluded.text, who = excluded.who, \
                   offered_at = excluded.offered_at";
        query(tx, sql, values![tenant, name, hash, file, text, by, at]).await?;
        let sql = "DELETE FROM waypost.playbooks WHERE tenant = $1 AND name = $2 AND offered_at < (SELECT min(k.offered_at) FROM \
                   (SELECT offered_at FROM waypost.playbooks WHERE tenant = $1 AND name = $2 ORDER BY offered_at DESC LIMIT $3) AS k)";
        query(tx, sql, values![tenant, name, KEPT_VERSIONS]).await?;
        make_room(tx, tenant).await?;
    }
    Ok(())
}

/// All versions that it offered: a run of one that nobody has would wait for ever.
pub(crate) async fn withdraw_playbooks<T: Sql>(
    tx: &mut T,
    tenant: &str,
    by: &str,
    names: &[String],
) -> Result<()> {
    let sql = "DELETE FROM waypost.playbooks WHERE tenant = $1 AND who = $2 AND name = ANY ($3)";
    query(tx, sql, values![tenant, by, names]).await.map(drop)
}

/// Within what one tenant may have; the oldest of those that are no longer the latest leave first.
async fn make_room<T: Sql>(tx: &mut T, tenant: &str) -> Result<()> {
    let sql = "SELECT count(DISTINCT name), coalesce(sum(length(text)), 0), count(*) FROM waypost.playbooks WHERE tenant = $1";
    let superseded = "DELETE FROM waypost.playbooks WHERE tenant = $1 AND (name, hash) IN (SELECT p.name, p.hash FROM waypost.playbooks p \
                      WHERE p.tenant = $1 AND EXISTS (SELECT 1 FROM waypost.playbooks n WHERE n.tenant = p.tenant AND n.name = p.name \
                        AND n.offered_at > p.offered_at) ORDER BY p.offered_at, p.name LIMIT 1)";
    loop {
        let found = query(tx, sql, values![tenant]).await?;
        let Some(row) = found.first() else { return Ok(()) };
        let (names, text, rows): (u64, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if names > MOST_PLAYBOOKS as u64 {
            let message =
                format!("there are {MOST_PLAYBOOKS} names already, which is the most; take some away");
            return Err(StoreError::invalid("playbooks", message));
        }
        if text <= MOST_PLAYBOOK_TEXT as u64 {
            return Ok(());
        }
        if rows == names {
            let message =
                format!("together they have {text} characters; allowed: up to {MOST_PLAYBOOK_TEXT}");
            return Err(StoreError::invalid("playbooks", message));
        }
        query(tx, superseded, values![tenant]).await?;
    }
}

/// By name, of one name the tenant's own before everybody's, of one tenant the latest version first.
pub(crate) async fn playbooks<T: Sql>(tx: &mut T, filter: &PlaybookFilter) -> Result<Vec<PlaybookRow>> {
    let sql = "SELECT p.tenant, p.name, p.hash, p.file, CASE WHEN $6 THEN '' ELSE p.text END, p.who, p.offered_at FROM waypost.playbooks p \
               WHERE ($1 IS NULL OR p.tenant = $1 OR p.tenant = $2) AND ($3 IS NULL OR p.name = $3) \
               AND ($4 IS NULL OR substr(p.hash, 1, length($4)) = $4) AND ($5 OR NOT EXISTS (SELECT 1 FROM waypost.playbooks n \
                 WHERE n.tenant = p.tenant AND n.name = p.name AND (n.offered_at > p.offered_at OR n.offered_at = p.offered_at AND n.hash > p.hash))) \
               ORDER BY p.name, CASE WHEN p.tenant = $2 THEN 1 ELSE 0 END, p.tenant, p.offered_at DESC, p.hash DESC";
    let PlaybookFilter { tenant, name, hash, all_versions, names_only } = filter;
    let all = *all_versions || hash.is_some();
    let found = query(tx, sql, values![tenant, EVERY_TENANT, name, hash, all, *names_only]).await?;
    // One that a hand broke is no playbook; `verify` names it.
    Ok(found.iter().filter_map(|cells| row(cells).ok()).collect())
}

fn row(cells: &Cells) -> Result<PlaybookRow> {
    let offered = OfferedPlaybook {
        tenant: cells.get(0)?,
        name: cells.get(1)?,
        hash: cells.get(2)?,
        file: cells.get(3)?,
        text: cells.get(4)?,
        by: cells.get(5)?,
    };
    Ok(PlaybookRow { offered, offered_at: cells.get(6)? })
}

/// A line for each that cannot be read, or that nobody could have offered.
pub(super) async fn unsound<T: Sql>(tx: &mut T) -> Result<Vec<String>> {
    let sql = "SELECT tenant, name, hash, file, text, who, offered_at FROM waypost.playbooks ORDER BY name, tenant, hash";
    let told = |cells: &Cells| {
        let error = row(cells).and_then(|row| row.offered.check()).err()?;
        Some(format!("playbook {}: its row cannot be used: {error}", cells.name(1)))
    };
    Ok(query(tx, sql, values![]).await?.iter().filter_map(told).collect())
}
