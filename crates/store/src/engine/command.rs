//! Commands by name.

use std::sync::Arc;

use waypost_kernel::event::Change;
use waypost_kernel::item::Item;
use waypost_kernel::{Actor, Ask, Request};

use super::access::audit;
use super::children;
use super::edit::{Edit, Extra, Stored};
use super::operations;
use super::tx::{ItemsOf, Saved, Tx};
use crate::rules::children::{AT_ONCE, is_cancel};
use crate::rules::chosen::chosen;
use crate::rules::decisions::Decisions;
use crate::rules::intake;
use crate::seam::access::Who;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::CommandWrite;
use crate::statement::Sql;
use crate::tokens::who;

/// A run that others write at the same time is looked at again this often.
const ROUNDS: usize = 24;

/// Carries out a command and writes its entry in the audit log. Also gives whether children are to be asked to cancel.
pub(crate) async fn command<T: Tx + Sql>(tx: &mut T, write: &CommandWrite) -> Result<(Arc<RunRow>, bool)> {
    let (row, cancels) = carry_out(tx, write).await?;
    let who = Who::new(&write.tenant, &write.by, write.reason.clone());
    audit(tx, &who, &write.name, row.id()).await?;
    Ok((row, cancels))
}

/// Asks the children of cancelled runs to cancel; those beyond the limit are left to the sweep.
pub(crate) async fn cancel_children<T: Tx>(tx: &mut T) -> Result<()> {
    children::ask(tx, AT_ONCE).await.map(drop)
}

pub(super) async fn carry_out<T: Tx>(tx: &mut T, write: &CommandWrite) -> Result<(Arc<RunRow>, bool)> {
    for _ in 0..ROUNDS {
        let found = tx.runs(&[&write.run_id]).await?.pop();
        let Some(stored) = found.filter(|stored| stored.row.tenant == write.tenant) else {
            return Err(StoreError::no_run(&write.run_id));
        };
        // People ask about the run as it is now: a remembered row is not good enough, and reading it once more reads the table.
        if stored.recalled {
            continue;
        }
        write.check_seq(&stored.row.run)?;
        intake::check_name("by", &write.by)?;
        intake::check_reason(write.reason.as_deref())?;
        let (change, extra) = decide(tx, &stored, write).await?;
        if change.is_repeat(&stored.row.run) {
            return Ok((stored.row, false));
        }
        let cancels = is_cancel(&change.events);
        let edit = Edit::of(stored, change, extra);
        let row = edit.stored.row.clone();
        if operations::save(tx, vec![edit]).await?.first() == Some(&Saved::Lost) {
            continue;
        }
        return Ok((row, cancels));
    }
    Err(StoreError::Unavailable(format!("{} changed each time; try again", write.run_id)))
}

async fn decide<T: Tx>(tx: &mut T, stored: &Stored, write: &CommandWrite) -> Result<(Change, Extra)> {
    let row = &stored.row;
    let chosen = match &write.items {
        Some(keys) => Some(chosen_items(tx, stored, write, keys).await?),
        None => None,
    };
    let decisions = Decisions::of(row, write, tx.now())?;
    if decisions.is_repeat {
        return Ok((Change { events: Vec::new(), after: row.run.clone() }, Extra::default()));
    }
    let with = write.with(chosen.as_deref(), &decisions);
    let actor = write.actor.unwrap_or(Actor::Operator);
    let request = Request { who: who(actor, &write.by), ask: Ask::Command { name: &write.name, with } };
    let change = waypost_kernel::decide(&row.lifecycle, &row.run, &request, tx.now())?;
    let details = decisions.patch(row, &change);
    Ok((change, Extra { details, ..Extra::default() }))
}

async fn chosen_items<T: Tx>(
    tx: &mut T,
    stored: &Stored,
    write: &CommandWrite,
    keys: &[String],
) -> Result<Vec<Item>> {
    let row = &stored.row;
    let found = match row.lifecycle.items.first() {
        Some(kind) => {
            let names = keys.iter().map(|key| (&*kind.name, key.as_str())).collect();
            tx.items(&[ItemsOf { stored, names, failed: Vec::new() }]).await?
        }
        None => Vec::new(),
    };
    let find = |kind: &str, key: &str| {
        Ok(found.iter().find(|it| it.row.kind == kind && it.row.key == key).map(|it| it.item.clone()))
    };
    chosen(&row.lifecycle, &row.run, &write.name, keys, find)
}
