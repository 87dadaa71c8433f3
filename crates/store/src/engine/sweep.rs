//! Leases and times to live that ran out. Rows that the kernel leaves alone are stepped over, so that none
//! of them can keep the others waiting.

use waypost_kernel::decide::has_waited;
use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Ask, Request};

use super::children;
use super::edit::{Edit, Extra, Stored};
use super::operations;
use super::tx::{BEGINNING, Overdue, Room, Saved, Tx};
use crate::rules::cancelled_metadata::cancelled_metadata;
use crate::rules::{decisions, intake};
use crate::seam::error::Result;
use crate::seam::verbs::Swept;
use crate::tokens::who;

const PAGE: usize = 256;

pub(crate) async fn sweep<T: Tx>(tx: &mut T, by: &str, limit: usize) -> Result<Swept> {
    intake::check_name("by", by)?;
    let mut swept = Swept::default();
    for what in [Overdue::Leases(None), Overdue::Lives] {
        let mut after = BEGINNING;
        while !swept.more {
            let found = tx.overdue(what, after, PAGE).await?;
            let Some(last) = found.last() else { break };
            after = (due_at(what, last), last.rid);
            page(tx, by, limit, found, &mut swept).await?;
        }
    }
    let (asked, is_all) = children::ask(tx, limit.saturating_sub(swept.moved.len())).await?;
    swept.moved.extend(asked.into_iter().map(|id| (id, Want::Cancel.command().to_owned())));
    swept.more |= !is_all;
    tx.let_in_all().await?;
    Ok(swept)
}

fn due_at(what: Overdue<'_>, stored: &Stored) -> waypost_kernel::Time {
    let run = &stored.row.run;
    let due_at = match what {
        Overdue::Leases(_) => run.lease.as_ref().map(|lease| lease.until),
        Overdue::Lives => run.expires_at,
    };
    due_at.unwrap_or_default()
}

async fn page<T: Tx>(
    tx: &mut T,
    by: &str,
    limit: usize,
    found: Vec<Stored>,
    swept: &mut Swept,
) -> Result<()> {
    let mut edits = Vec::new();
    let mut moved = Vec::new();
    let mut kept = Vec::new();
    for stored in found {
        let ask = if waits_for_its_queue(tx, &stored).await? { Ask::QueuePaused } else { Ask::Sweep };
        let request = Request { who: who(Actor::Engine, by), ask };
        let decided = waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now());
        let Ok(change) = decided else { continue };
        if change.events.is_empty() && change.after != stored.row.run {
            kept.push(Edit::of(stored, change, Extra::default()));
            continue;
        }
        let Some(command) = change.events.last().map(|event| event.command.to_string()) else { continue };
        if swept.moved.len() + edits.len() >= limit {
            swept.more = true;
            break;
        }
        let metadata = cancelled_metadata(&stored.row, &change);
        let details = decisions::given_up(&stored.row, &change);
        moved.push((stored.row.id().to_owned(), command));
        edits.push(Edit::of(stored, change, Extra { metadata, details, ..Extra::default() }));
    }
    if !kept.is_empty() {
        tx.save(kept).await?;
    }
    let saved = operations::save(tx, edits).await?;
    let won = moved.into_iter().zip(saved).filter(|(_, saved)| *saved != Saved::Lost);
    swept.moved.extend(won.map(|(moved, _)| moved));
    Ok(())
}

/// Whether a run that was given back has nobody to take it because its queue is paused. Asked when it has waited for long.
async fn waits_for_its_queue<T: Tx>(tx: &mut T, stored: &Stored) -> Result<bool> {
    let row = &stored.row;
    let has_waited = row.run.lease.as_ref().is_some_and(|lease| has_waited(lease, tx.now()));
    Ok(has_waited && tx.room(&row.tenant, &row.queue).await? == Room::Paused)
}
