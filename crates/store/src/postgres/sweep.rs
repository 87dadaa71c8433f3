//! Time's doing: leases and times to live that ran out. Rows that the kernel leaves alone are stepped over, so
//! that none of them can keep the others waiting.

use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Ask, Request, Time};

use super::children;
use super::fault::Result;
use super::limits;
use super::marks::BEGINNING;
use super::row::{self, Stored};
use super::save::{self, Extra, Pending};
use super::session::{Session, Tx};
use super::sql::{args, stamp};
use super::watch;
use crate::intake;
use crate::seed_words::cancelled_by_system;
use crate::tokens::who;
use crate::verbs::Swept;

const PAGE: i64 = 256;

/// A transaction per page: what is done is done, and nobody waits long for what a sweep has locked.
pub async fn sweep(session: &Session, by: &str, limit: usize) -> Result<Swept> {
    intake::check_name("by", by)?;
    let tx = session.begin().await?;
    let looked = async {
        watch::tidy(&tx).await?;
        watch::look(&tx).await
    };
    let looked = looked.await;
    tx.end(looked).await?;
    let mut swept = Swept::default();
    for what in [Due::Lease, Due::Life] {
        let mut after = BEGINNING;
        while !swept.more {
            let tx = session.begin().await?;
            let page = page(&tx, by, limit, what, after, &mut swept).await;
            match tx.end(page).await? {
                Some(next) => after = next,
                None => break,
            }
        }
    }
    let tx = session.begin().await?;
    let asked = children::ask(&tx, limit.saturating_sub(swept.moved.len())).await;
    let (asked, is_all) = tx.end(asked).await?;
    swept.moved.extend(asked.into_iter().map(|id| (id, Want::Cancel.command().to_owned())));
    swept.more |= !is_all;
    let tx = session.begin().await?;
    let let_in = limits::let_in_all(&tx).await;
    tx.end(let_in).await?;
    Ok(swept)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Lease,
    Life,
}

impl Due {
    async fn read(self, tx: &Tx, after: (Time, i64)) -> Result<Vec<Stored>> {
        let condition = match self {
            Due::Lease => {
                "FROM (SELECT DISTINCT w.rids[1] AS rid FROM waypost.watch w WHERE w.adrift AND w.due_at <= $1) w \
                 JOIN waypost.runs r ON r.rid = w.rid WHERE r.state / 1000 = 3 AND (r.claimed_by IS NULL OR r.stale_after < $1) \
                 AND (r.stale_after, r.rid) > ($2, $3) ORDER BY r.stale_after, r.rid LIMIT $4"
            }
            Due::Life => {
                "FROM waypost.runs r WHERE r.expires_at IS NOT NULL AND r.expires_at <= $1 AND (r.expires_at, r.rid) > ($2, $3) \
                 ORDER BY r.expires_at, r.rid LIMIT $4"
            }
        };
        row::select(tx, condition, args![stamp(tx.now), stamp(after.0), after.1, PAGE]).await
    }

    fn place(self, stored: &Stored) -> (Time, i64) {
        let run = &stored.row.run;
        let at = match self {
            Due::Lease => row::stale_after(run),
            Due::Life => run.expires_at,
        };
        (at.unwrap_or_default(), stored.rid)
    }
}

/// Where the next page begins; nothing at the end.
async fn page(
    tx: &Tx,
    by: &str,
    limit: usize,
    what: Due,
    after: (Time, i64),
    swept: &mut Swept,
) -> Result<Option<(Time, i64)>> {
    let found = what.read(tx, after).await?;
    let next = found.last().map(|last| what.place(last));
    let mut pending = Vec::new();
    let mut commands = Vec::new();
    let mut more = false;
    for stored in found {
        let request = Request { who: who(Actor::Engine, by), ask: Ask::Sweep };
        let Ok(change) = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now)
        else {
            continue;
        };
        let Some(command) = change.events.last().map(|event| event.command.to_string()) else { continue };
        if swept.moved.len() + pending.len() >= limit {
            more = true;
            break;
        }
        let metadata = cancelled_by_system(&stored.row, &change);
        commands.push((stored.rid, stored.row.run.id.to_string(), command));
        let mut one = Pending::new(stored);
        one.add(change, Extra { metadata, ..Extra::default() });
        pending.push(one);
    }
    let saved = save::save(tx, &pending).await?;
    let ended: Vec<&Stored> = pending.iter().map(|it| &it.before).filter(|it| saved.has(it.rid)).collect();
    watch::ashore(tx, &ended).await?;
    swept.more = more;
    swept.moved.extend(
        commands.into_iter().filter(|(rid, _, _)| saved.has(*rid)).map(|(_, id, command)| (id, command)),
    );
    Ok(next.filter(|_| !more))
}
