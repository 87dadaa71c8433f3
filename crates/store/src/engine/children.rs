//! Children of runs that are cancelled.

use waypost_kernel::{Actor, Request};

use super::edit::{Edit, Extra, Stored};
use super::operations;
use super::tx::{Saved, Tx};
use crate::rules::children::{CancelRequest, PARENT};
use crate::seam::error::Result;
use crate::tokens::who;

const PAGE: usize = 256;

/// Asks the children of all cancelled runs, and theirs. Gives those that were asked; whether that was all that nobody
/// else is busy with.
pub(super) async fn ask<T: Tx>(tx: &mut T, limit: usize) -> Result<(Vec<String>, bool)> {
    let mut asked = Vec::new();
    // Children of these are being written: those that are there are asked, and the next sweep looks again.
    let mut expecting: Vec<String> = Vec::new();
    while let Some((parent, is_all_there)) = tx.cancelled_parent(&expecting).await? {
        if !of_parent(tx, &parent, limit, &mut asked).await? {
            return Ok((asked, false));
        }
        if is_all_there {
            tx.children_told(&parent).await?;
        } else {
            expecting.push(parent);
        }
    }
    Ok((asked, true))
}

/// `false` if some are left, because there are too many or because others changed them meanwhile.
async fn of_parent<T: Tx>(tx: &mut T, parent: &str, limit: usize, asked: &mut Vec<String>) -> Result<bool> {
    let mut found = tx.runs(&[parent]).await?.pop();
    if found.as_ref().is_some_and(|stored| stored.recalled) {
        found = tx.runs(&[parent]).await?.pop();
    }
    let Some(parent) = found else { return Ok(true) };
    let request = CancelRequest::by(&parent.row);
    let mut after = 0;
    loop {
        let found = tx.children(parent.row.id(), after, PAGE).await?;
        let Some(last) = found.last() else { return Ok(true) };
        after = last.rid;
        // Whoever names another tenant's run as a parent is no child of it.
        let own = found.into_iter().filter(|child| child.row.tenant == parent.row.tenant);
        let mut edits: Vec<Edit> = own.filter_map(|child| decide(tx, child, &request)).collect();
        let fits = limit - asked.len();
        let is_all = edits.len() <= fits;
        edits.truncate(fits);
        let ids: Vec<String> = edits.iter().map(|edit| edit.row().id().to_owned()).collect();
        let saved = operations::save(tx, edits).await?;
        let won = ids.iter().zip(&saved).filter(|(_, saved)| **saved != Saved::Lost);
        let before = asked.len();
        asked.extend(won.map(|(id, _)| id.clone()));
        if !is_all || asked.len() - before < ids.len() {
            return Ok(false);
        }
    }
}

/// A child that takes no cancel in its state, or was asked before, is left as it is.
fn decide<T: Tx>(tx: &T, child: Stored, request: &CancelRequest) -> Option<Edit> {
    let ask = Request { who: who(Actor::Operator, PARENT), ask: request.ask() };
    let change = waypost_kernel::decide(&child.row.lifecycle, &child.row.run, &ask, tx.now()).ok()?;
    (!change.events.is_empty()).then(|| Edit::of(child, change, Extra::default()))
}
