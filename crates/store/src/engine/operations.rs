//! A run of lifecycle `operation` works on its parent. When it settles, the parent is free again, in the same write.

use waypost_kernel::{Actor, Ask, Phase, Request};

use super::edit::{Edit, Extra};
use super::tx::{Saved, Tx};
use crate::seam::error::Result;
use crate::tokens::who;

const OPERATION: &str = "operation";

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
