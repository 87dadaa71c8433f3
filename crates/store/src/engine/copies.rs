//! Items that a new run has from the one that it repeats. They are read here and decided on by the kernel; what they gave goes from row
//! to row in the database, whose guards compare it.

use std::collections::HashMap;

use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Phase};

use super::edit::{Stored, StoredItem};
use super::tx::{ItemsOf, Tx};
use crate::rules::new_run::item_kind;
use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::{NewItem, NewRun};

/// The run that a new one repeats, and those of its items that the new one has copies of.
#[derive(Debug, Default)]
pub(crate) struct Originals {
    pub run: Option<Stored>,
    /// As items of the new run, by kind and key.
    items: HashMap<(String, String), (NewItem, Item)>,
}

impl Originals {
    /// None: it is no copy.
    pub fn copy(&self, new: &NewItem) -> Option<(NewItem, Item)> {
        self.items.get(&(new.kind.clone(), new.key.clone())).filter(|_| new.copied).cloned()
    }
}

/// What a request for copies is about. Most requests are for none, and nothing is read.
pub(crate) async fn originals<T: Tx>(tx: &mut T, new: &NewRun, lifecycle: &Lifecycle) -> Result<Originals> {
    let copied: Vec<&NewItem> = new.items.iter().filter(|item| item.copied).collect();
    if copied.is_empty() {
        return Ok(Originals::default());
    }
    let old = repeated(tx, new, lifecycle).await?;
    let names = copied.iter().map(|it| (old.row.lifecycle.item_name(&it.kind), it.key.as_str())).collect();
    let found = tx.items(&[ItemsOf { stored: &old, names, failed: Vec::new() }]).await?;
    let mut items = HashMap::new();
    for asked in copied {
        if asked.status.is_some() {
            let message = format!("the copy of {:?} has the state of its original: leave it out", asked.key);
            return Err(StoreError::invalid("items.status", message));
        }
        let is_it = |it: &&StoredItem| {
            it.row.kind == old.row.lifecycle.item_name(&asked.kind) && it.row.key == asked.key
        };
        let original = found.iter().find(is_it).ok_or_else(|| {
            wrong(format!("{} has no {} {:?} that could be copied", old.row.id(), asked.kind, asked.key))
        })?;
        items.insert((asked.kind.clone(), asked.key.clone()), copy(asked, original, lifecycle)?);
    }
    Ok(Originals { run: Some(old), items })
}

async fn repeated<T: Tx>(tx: &mut T, new: &NewRun, lifecycle: &Lifecycle) -> Result<Stored> {
    let Some(id) = new.retry_of.as_deref() else {
        return Err(wrong("there is no copy without `retry_of`, the run that is repeated".into()));
    };
    let mut old = tx.runs(&[id]).await?.pop();
    // As it is now: a remembered row is not good enough, and asking once more reads the table.
    while old.as_ref().is_some_and(|old| old.recalled) {
        old = tx.runs(&[id]).await?.pop();
    }
    let old = old.filter(|old| old.row.tenant == new.tenant);
    let old = old.ok_or_else(|| StoreError::invalid("retry_of", format!("there is no run {id:?} here")))?;
    if old.row.phase() != Phase::Settled {
        let message = format!("{id} is {}: what it did can be copied once it has ended", old.row.status());
        return Err(StoreError::invalid("retry_of", message));
    }
    // Steps of the same name in another playbook are other steps: one of them may ask a person.
    if old.row.playbook != new.playbook || old.row.lifecycle.name != lifecycle.name {
        let message = format!(
            "{id} is a run of another playbook or lifecycle: what it did is nothing that this one does"
        );
        return Err(StoreError::invalid("retry_of", message));
    }
    Ok(old)
}

/// The item as the new run has it: as its original is, and as its request says what it is to the run.
fn copy(asked: &NewItem, original: &StoredItem, lifecycle: &Lifecycle) -> Result<(NewItem, Item)> {
    let (at, kind) = item_kind(&asked.kind, lifecycle)?;
    let item = kind.state_named(&original.row.status).map(|state| Item {
        kind: at,
        state,
        max_retries: asked.max_retries,
        reruns: asked.reruns,
        role: asked.role,
        not_before: None,
        ..original.item.clone()
    });
    let Some(item) = item.filter(|item| item.may_be_copied(kind)) else {
        let why = if asked.reruns { "which a cleanup undid" } else { "and not done or skipped" };
        return Err(wrong(format!(
            "{:?} is {} there, {why}: it is to be done again",
            asked.key, original.row.status
        )));
    };
    let name = if asked.name.is_empty() { original.row.name.clone() } else { asked.name.clone() };
    let details = original.row.details.clone();
    Ok((NewItem { kind: kind.name.to_string(), name, details, ..asked.clone() }, item))
}

fn wrong(message: String) -> StoreError {
    StoreError::invalid("items.copied", message)
}
