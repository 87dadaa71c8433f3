//! Commands by name.

use std::collections::HashMap;
use std::sync::Arc;

use waypost_kernel::event::Change;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, StateId, Transition};
use waypost_kernel::{Actor, Ask, Code, Request};

use super::access::audit;
use super::alone::check_alone;
use super::children;
use super::claim::{Taken, claim_if_may, own_lease};
use super::edit::{Edit, Extra, Stored};
use super::enqueue::insert_prepared;
use super::operations;
use super::proposals;
use super::targets::check_gathered;
use super::tx::{ItemsOf, Saved, Tx};
use crate::rules::children::{AT_ONCE, is_cancel};
use crate::rules::chosen::{check_operated, chosen};
use crate::rules::decisions::Decisions;
use crate::rules::intake;
use crate::seam::access::Who;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{CommandWrite, CommandedClaim, Take};
use crate::statement::Sql;
use crate::tokens::who;

/// A run that others write at the same time is looked at again this often.
const ROUNDS: usize = 24;

/// What came of a command.
pub(super) struct Carried {
    pub row: Arc<RunRow>,
    /// Children are to be asked to cancel.
    pub cancels: bool,
    /// It was so already: nothing was done.
    pub is_repeat: bool,
}

impl Carried {
    pub fn repeat(row: Arc<RunRow>) -> Carried {
        Carried { row, cancels: false, is_repeat: true }
    }
}

/// Carries out a command and writes its entry in the audit log, unless nothing was done. Also gives whether children are to be asked to
/// cancel.
pub(crate) async fn command<T: Tx + Sql>(tx: &mut T, write: &CommandWrite) -> Result<(Arc<RunRow>, bool)> {
    let Carried { row, cancels, is_repeat } = proposals::decide(tx, write).await?;
    if !is_repeat {
        let who = Who::new(&write.tenant, &write.by, write.reason.clone());
        audit(tx, &who, &write.name, row.id()).await?;
    }
    Ok((row, cancels))
}

/// A run after a command, and its claim.
pub(crate) type Commanded = (Arc<RunRow>, Option<Taken>);

/// Carries out a command and claims the run, which nobody else can take in between. Also gives whether children are to be asked to cancel.
pub(crate) async fn command_claimed<T: Tx + Sql>(
    tx: &mut T,
    write: &CommandWrite,
    take: &Take,
) -> Result<(Commanded, bool)> {
    intake::check_name("worker", &take.worker)?;
    let (row, cancels) = command(tx, write).await?;
    let taken = match own_lease(tx, &row, take) {
        Some(taken) => Some(taken),
        None => claim_if_may(tx, &row, take).await?,
    };
    Ok(((row, taken), cancels))
}

/// The same with rows of the caller's own.
pub(crate) fn own_command((row, taken): Commanded) -> Result<CommandedClaim> {
    let claimed = taken.map(Taken::claimed).transpose()?;
    let run = claimed.as_ref().map_or_else(|| Arc::unwrap_or_clone(row), |claimed| claimed.run.clone());
    Ok(CommandedClaim { run, claimed })
}

/// Asks the children of cancelled runs to cancel; those beyond the limit are left to the sweep.
pub(crate) async fn cancel_children<T: Tx>(tx: &mut T) -> Result<()> {
    children::ask(tx, AT_ONCE).await.map(drop)
}

pub(super) async fn carry_out<T: Tx>(tx: &mut T, write: &CommandWrite) -> Result<Carried> {
    for _ in 0..ROUNDS {
        let found = tx.runs(&[&write.run_id]).await?.pop();
        let Some(stored) = found.filter(|stored| stored.row.tenant == write.tenant) else {
            return Err(StoreError::no_run(&write.run_id));
        };
        // People ask about the run as it is now: a remembered row is not good enough, and reading it once more reads the table.
        if stored.recalled {
            continue;
        }
        let decided = decide(tx, &stored, write).await;
        if is_repeat(tx, &stored, write, &decided).await? {
            return Ok(Carried::repeat(stored.row));
        }
        write.check_seq(&stored.row.run)?;
        let (change, extra) = decided?;
        check_alone(tx, &stored, &change, write).await?;
        let operation = operations::begun(tx, &stored, &change, write).await?;
        let cancels = is_cancel(&change.events);
        let edit = Edit::of(stored, change, extra);
        let row = edit.stored.row.clone();
        if operations::save(tx, vec![edit]).await?.first() == Some(&Saved::Lost) {
            continue;
        }
        if let Some(operation) = operation {
            insert_prepared(tx, operation).await?;
        }
        return Ok(Carried { row, cancels, is_repeat: false });
    }
    Err(StoreError::Unavailable(format!("{} changed each time; try again", write.run_id)))
}

/// A command that is sent again is answered as the first time, wherever the run has gone since: either its effect is what the run
/// is in, or the same is what people asked of it last.
async fn is_repeat<T: Tx>(
    tx: &mut T,
    stored: &Stored,
    write: &CommandWrite,
    decided: &Result<(Change, Extra)>,
) -> Result<bool> {
    let run = &stored.row.run;
    let refusal = match decided {
        Ok((change, _)) => return Ok(change.is_repeat(run)),
        Err(StoreError::Refused(refusal)) => refusal,
        Err(_) => return Ok(false),
    };
    let is_past = refusal.code == Code::InvalidTransition && refusal.guard.is_none();
    // What is said beside the command may be something else this time.
    let says_more = write.items.is_some() || !write.resolutions.is_empty();
    if !is_past || says_more || !is_past_command(&stored.row.lifecycle, run.state, &write.name) {
        return Ok(false);
    }
    let last = tx.last_asked(stored).await?;
    Ok(last.is_some_and(|last| {
        (&last.command, &last.by, &last.reason) == (&write.name, &write.by, &write.reason)
    }))
}

/// What was not offered from here was offered before.
fn is_past_command(lifecycle: &Lifecycle, state: StateId, name: &str) -> bool {
    let is_known = |row: &Transition| &*row.command == name;
    // An operation asked for again is another one.
    let is_operation = lifecycle.operations.iter().any(|(operation, _)| **operation == *name);
    !is_operation
        && lifecycle.transitions.iter().any(is_known)
        && !lifecycle.transitions_from(state).any(is_known)
}

async fn decide<T: Tx>(tx: &mut T, stored: &Stored, write: &CommandWrite) -> Result<(Change, Extra)> {
    intake::check_name("by", &write.by)?;
    intake::check_reason(write.reason.as_deref())?;
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
    if let Some(items) = chosen.as_deref().filter(|_| change.after.operating) {
        check_operated(&row.lifecycle, &write.name, items)?;
    }
    check_gathered(row, row.lifecycle.phase(change.after.state))?;
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
    let known: HashMap<(&str, &str), &Item> =
        found.iter().map(|it| ((it.row.kind.as_str(), it.row.key.as_str()), &it.item)).collect();
    let find = |kind: &str, key: &str| Ok(known.get(&(kind, key)).map(|item| (*item).clone()));
    chosen(&row.lifecycle, &row.run, &write.name, keys, find)
}
