//! Applied targets that an operation has undone outside. The run follows with its last one, in the same write.

use std::sync::Arc;

use serde_json::{Map, json};
use waypost_kernel::item::{Item, ItemAsk, decide_items};
use waypost_kernel::lifecycle::{Actor, Outcome, Phase};
use waypost_kernel::request::With;
use waypost_kernel::{Ask, Code, Refusal, Request};

use super::{item_changes, kind_of};
use crate::engine::edit::{Edit, Extra, ItemChange, Stored};
use crate::engine::operations::OPERATION;
use crate::engine::tx::{ItemsOf, Saved, Tx};
use crate::rules::intake::{cleaned_name, merge};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::{RunRow, iso};
use crate::seam::targets::{RollBackTargets, check_count};
use crate::tokens::who;

/// Others write the run at the same time.
const ROUNDS: usize = 24;

/// Gives the run whose targets they are. What was rolled back before stays so. One transaction.
pub(crate) async fn roll_back_targets<T: Tx>(tx: &mut T, write: &RollBackTargets) -> Result<Arc<RunRow>> {
    check_count("keys", write.keys.len())?;
    for _ in 0..ROUNDS {
        let operation = tx.runs(&[&write.held.run_id]).await?.pop();
        let operation = operation.ok_or_else(|| StoreError::no_run(&write.held.run_id))?;
        let parent = operation.row.parent_run_id.clone();
        let parent =
            parent.ok_or_else(|| StoreError::invalid("run_id", "it is no operation on another run"))?;
        // From here on nobody else moves the operation: who has its lease keeps it until this is written.
        let open = tx.lock_children(&parent, OPERATION).await?;
        if !open.contains(&(operation.row.id().to_owned(), operation.row.run.seq)) {
            check_lease(&operation, write)?;
            continue;
        }
        check_lease(&operation, write)?;
        let stored = tx.runs(&[&parent]).await?.pop();
        // Whoever names another tenant's run as a parent is no operation on it.
        let stored = stored.filter(|stored| stored.row.tenant == operation.row.tenant);
        let stored = stored.ok_or_else(|| StoreError::no_run(&parent))?;
        let edit = decide(tx, stored, write).await?;
        let row = edit.stored.row.clone();
        if !edit.is_changed() || tx.save(vec![edit]).await?.first() != Some(&Saved::Lost) {
            return Ok(row);
        }
    }
    Err(StoreError::Unavailable("the run changed each time; try again".into()))
}

fn check_lease(operation: &Stored, write: &RollBackTargets) -> Result<()> {
    let row = &operation.row;
    let is_its =
        row.run.lease.as_ref().is_some_and(|lease| !lease.is_vacant() && lease.token == write.held.token);
    if row.phase() == Phase::Held && is_its {
        return Ok(());
    }
    Err(Refusal {
        code: Code::LeaseLost,
        message: "the lease is not yours (any more)".into(),
        current: row.status().into(),
        requested: String::new(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    }
    .into())
}

async fn decide<T: Tx>(tx: &mut T, stored: Stored, write: &RollBackTargets) -> Result<Edit> {
    let lifecycle = stored.row.lifecycle.clone();
    let kind = kind_of(&stored)?;
    let names = write.keys.iter().map(|key| (&*kind.name, key.as_str())).collect();
    let found = tx.items(&[ItemsOf { stored: &stored, names, failed: Vec::new() }]).await?;
    let reverted = kind.states.iter().find(|state| state.outcome == Some(Outcome::Reverted));
    let Some(reverted) = reverted else {
        return Err(StoreError::invalid("run_id", format!("a {} is not rolled back", kind.name)));
    };
    let mut asks: Vec<(Item, ItemAsk<'_>)> = Vec::new();
    for key in &write.keys {
        let Some(it) = found.iter().find(|it| it.row.key == *key) else {
            return Err(StoreError::invalid("keys", format!("there is no {} {key:?}", kind.name)));
        };
        if it.row.status != *reverted.name && asks.iter().all(|(known, _)| *known.key != **key) {
            asks.push((it.item.clone(), ItemAsk { to: &reverted.name, ..ItemAsk::default() }));
        }
    }
    let by = cleaned_name(&write.by);
    let engine = who(Actor::Engine, &by);
    let change = decide_items(&lifecycle, &stored.row.run, &engine, None, (&asks, &[]), tx.now())?;
    // The row's own time becomes that of the rollback.
    let items = item_changes(&change, |key, it| {
        let was = found.iter().find(|found| found.row.key == key);
        let applied_at = was.and_then(|was| was.item.finished_at).map(iso);
        let patch = Map::from_iter([("applied_at".to_owned(), json!(applied_at))]);
        let mut details = was.map(|was| was.row.details.clone()).unwrap_or_default();
        merge(&mut details, &patch);
        ItemChange { details: Some(details), patch, ..it }
    });
    let mut edit = Edit::new(stored);
    if !change.is_repeat(edit.run()) {
        edit.items.extend(items);
        edit.add(change, Extra::default());
    }
    follow(tx, &by, &mut edit)?;
    Ok(edit)
}

/// The run itself is rolled back once none of its targets is applied any more.
fn follow<T: Tx>(tx: &T, by: &str, edit: &mut Edit) -> Result<()> {
    let lifecycle = edit.row().lifecycle.clone();
    let ends = lifecycle.transitions_from(edit.run().state).find(|row| {
        row.by.contains(Actor::Engine) && lifecycle.state(row.to).outcome == Some(Outcome::Reverted)
    });
    let is_left = lifecycle.items.first().is_some_and(|kind| edit.run().tallies[0].counts(kind).ok > 0);
    let Some(row) = ends.filter(|_| !is_left) else { return Ok(()) };
    let ask = Ask::Command { name: &row.command, with: With::default() };
    let request = Request { who: who(Actor::Engine, by), ask };
    let change = waypost_kernel::decide(&lifecycle, edit.run(), &request, tx.now())?;
    edit.add(change, Extra::default());
    Ok(())
}
