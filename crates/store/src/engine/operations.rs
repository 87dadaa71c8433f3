//! A run of lifecycle `operation` works on its parent. It begins with the command that asks for it, and when it settles, the parent
//! is free again: each in one write.

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::{Actor, Ask, Phase, Request};

use super::edit::{Edit, Extra, Stored};
use super::enqueue::{NewRow, prepare};
use super::tx::{Saved, Tx};
use crate::seam::error::Result;
use crate::seam::verbs::{CommandWrite, NewRun};
use crate::tokens::who;

pub(super) const OPERATION: &str = "operation";

/// The run that carries out what a command begins, not written yet; none if the command begins nothing.
pub(super) async fn begun<T: Tx>(
    tx: &mut T,
    parent: &Stored,
    change: &Change,
    write: &CommandWrite,
) -> Result<Option<NewRow>> {
    let row = &parent.row;
    if row.run.operating || !change.after.operating {
        return Ok(None);
    }
    let applied = row.lifecycle.items.first().zip(row.run.tallies.first());
    let applied = applied.map_or(0, |(kind, tally)| tally.counts(kind).ok);
    let mut input = Map::from_iter([
        (OPERATION.to_owned(), Value::from(write.name.as_str())),
        ("count".to_owned(), Value::from(applied)),
    ]);
    input.extend(write.items.as_ref().map(|keys| ("targets".to_owned(), json!(keys))));
    input.extend(write.reason.as_ref().map(|reason| ("reason".to_owned(), json!(reason))));
    // One that moves its run changes what the run changed: it waits for others with that key, and they for it.
    let moves = row.lifecycle.transitions.iter().any(|edge| *edge.command == *write.name);
    let of = row.title.as_ref().map(|title| format!("{} of {title}", write.name));
    let new = NewRun {
        tenant: row.tenant.clone(),
        lifecycle: OPERATION.to_owned(),
        queue: row.queue.clone(),
        priority: row.priority,
        input: Value::Object(input),
        concurrency_key: row.concurrency_key.clone().filter(|_| moves),
        correlation_id: row.correlation_id.clone(),
        parent_run_id: Some(row.id().to_owned()),
        title: of.or_else(|| Some(write.name.clone())),
        playbook: row.playbook.clone(),
        carried: row.carried.clone(),
        by: write.by.clone(),
        ..NewRun::default()
    };
    prepare(tx, new).await.map(Some)
}

/// Writes edits, and with each operation that settles what that means to its parent.
pub(super) async fn save<T: Tx>(tx: &mut T, edits: Vec<Edit>) -> Result<Vec<Saved>> {
    if edits.is_empty() {
        return Ok(Vec::new());
    }
    if !edits.iter().any(settles_an_operation) {
        return tx.save(edits).await;
    }
    let mut lost = Vec::new();
    let mut parents = Vec::new();
    for parent in parents_of(&edits) {
        let open = tx.lock_children(&parent, OPERATION).await?;
        let is_open = |edit: &Edit| open.contains(&(edit.row().id().to_owned(), edit.before().seq));
        let ending: Vec<&Edit> = edits.iter().filter(|edit| ends_operation_of(edit, &parent)).collect();
        lost.extend(ending.iter().filter(|edit| !is_open(edit)).map(|edit| edit.row().id().to_owned()));
        if open.len() == ending.len() && ending.iter().all(|edit| is_open(edit)) {
            parents.push(parent);
        }
    }
    let count = edits.len();
    let places: Vec<usize> =
        (0..count).filter(|at| !lost.iter().any(|id| id == edits[*at].row().id())).collect();
    let mut edits: Vec<Edit> =
        edits.into_iter().filter(|edit| !lost.iter().any(|id| id == edit.row().id())).collect();
    for parent in parents {
        free(tx, &parent, &mut edits).await?;
    }
    let mut answers = vec![Saved::Lost; count];
    let saved = tx.save(edits).await?;
    places.into_iter().zip(saved).for_each(|(at, saved)| answers[at] = saved);
    Ok(answers)
}

fn parents_of(edits: &[Edit]) -> Vec<String> {
    let ending = edits.iter().filter(|edit| settles_an_operation(edit));
    let mut parents: Vec<String> = ending.filter_map(|edit| edit.row().parent_run_id.clone()).collect();
    parents.sort_unstable();
    parents.dedup();
    parents
}

/// The parent of operations that have all ended.
async fn free<T: Tx>(tx: &mut T, parent: &str, edits: &mut Vec<Edit>) -> Result<()> {
    let at = match edits.iter().position(|edit| edit.row().id() == parent) {
        Some(at) => at,
        None => {
            let Some(stored) = tx.runs(&[parent]).await?.pop() else { return Ok(()) };
            edits.push(Edit::new(stored));
            edits.len() - 1
        }
    };
    let edit = &mut edits[at];
    let request = Request { who: who(Actor::Engine, "engine"), ask: Ask::OperationEnded };
    let change = waypost_kernel::decide(&edit.row().lifecycle, edit.run(), &request, tx.now())?;
    if !change.is_repeat(edit.run()) {
        edit.add(change, Extra::default());
    }
    if !edits[at].is_changed() {
        edits.remove(at);
    }
    Ok(())
}

fn ends_operation_of(edit: &Edit, parent: &str) -> bool {
    settles_an_operation(edit) && edit.row().parent_run_id.as_deref() == Some(parent)
}

fn settles_an_operation(edit: &Edit) -> bool {
    let row = edit.row();
    let settles = row.phase() == Phase::Settled && edit.phase_before() != Phase::Settled;
    settles && row.parent_run_id.is_some() && &*row.lifecycle.name == OPERATION
}
