//! Gathering: targets and how far it is, in one write.

use std::collections::HashSet;

use serde_json::{Map, Value};
use waypost_kernel::item::{Item, gather_items};
use waypost_kernel::lifecycle::Actor;
use waypost_kernel::text::{MAX_KEY_BYTES, MAX_NAME_BYTES, refuse_members};
use waypost_kernel::{Code, Phase, Refusal};

use super::kind_of;
use crate::engine::batch::{Decided, Entry, each};
use crate::engine::edit::{Edit, Extra, NewItemRow, Stored};
use crate::engine::tx::{ItemsOf, Tx};
use crate::rules::intake::{check_name, check_text};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::targets::{AddTargets, NewTarget, PREVIEW, Preview, check_count};
use crate::seam::verbs::NewItem;
use crate::tokens::who;

/// Of one target, `before` and `after` with all that is kept beside them: a batch of them is read at once.
const TARGET_BYTES: usize = 16 * 1024;
/// Of a gatherer's own notes in the run's details.
const NOTES_BYTES: usize = 16 * 1024;

struct Gather<'a>(&'a AddTargets);

impl Entry for Gather<'_> {
    type Answer = Preview;
    /// The keys of this batch that are there.
    type Seen = HashSet<String>;

    fn run_id(&self) -> &str {
        &self.0.run_id
    }

    fn check(&self) -> Result<()> {
        let AddTargets { by, targets, cursor, totals, .. } = self.0;
        check_name("by", by)?;
        check_count("targets", targets.len())?;
        let mut keys = HashSet::new();
        for target in targets {
            check(target)?;
            if !keys.insert(&target.key) {
                return Err(StoreError::invalid("targets", format!("{:?} is there twice", target.key)));
            }
        }
        let mut notes = totals.clone();
        notes.extend(cursor.clone().map(|cursor| ("cursor".to_owned(), cursor)));
        refused("totals", &notes, NOTES_BYTES)
    }

    async fn look_up<T: Tx>(tx: &mut T, entries: &[(usize, &Self, &Stored)]) -> Result<Self::Seen> {
        let mut asks = Vec::new();
        for (_, gather, stored) in entries {
            let Ok(kind) = kind_of(stored) else { continue };
            let names: Vec<(&str, &str)> =
                gather.0.targets.iter().map(|target| (&*kind.name, target.key.as_str())).collect();
            if stored.row.item_count() > 0 && !names.is_empty() {
                asks.push(ItemsOf { stored, names, failed: Vec::new() });
            }
        }
        let found = if asks.is_empty() { Vec::new() } else { tx.items(&asks).await? };
        Ok(found.into_iter().map(|it| it.row.key).collect())
    }

    fn decide<T: Tx>(
        &self,
        tx: &T,
        _: usize,
        known: &HashSet<String>,
        edit: &mut Edit,
    ) -> Result<Decided<Preview>> {
        let write = self.0;
        if edit.row().tenant != write.tenant {
            return Err(StoreError::no_run(&write.run_id));
        }
        let kind = kind_of(&edit.stored)?;
        let preview = Preview::of(&edit.row().details).unwrap_or_default();
        if write.at < preview.rows || preview.ready {
            return Ok(Decided::Now(preview));
        }
        if write.at > preview.rows {
            let message = format!("is {}; the next row is {}", write.at, preview.rows);
            return Err(StoreError::invalid("at", message));
        }
        let new: Vec<&NewTarget> =
            write.targets.iter().filter(|target| !known.contains(&target.key)).collect();
        let item = |target: &&NewTarget| {
            let item = Item::new(0, &target.key, kind.initial[0]);
            Item { max_retries: target.max_retries.unwrap_or(item.max_retries), ..item }
        };
        let items: Vec<Item> = new.iter().map(item).collect();
        let who = who(Actor::Client, &write.by);
        let change = gather_items(&edit.row().lifecycle, edit.run(), &who, &items, tx.now())?;
        let stopped = new.iter().filter(|target| target.violation.is_some()).count();
        let preview = Preview {
            rows: preview.rows + write.rows,
            targets: preview.targets + new.len() as u64,
            unchanged: preview.unchanged + write.unchanged,
            stopped: preview.stopped + stopped as u64,
            ready: write.last,
            cursor: write.cursor.clone(),
            totals: write.totals.clone(),
        };
        let (first, seq) = (edit.row().item_count(), change.after.seq);
        let row = |(at, (target, item)): (usize, (&&NewTarget, Item))| NewItemRow {
            place: first + at,
            new: new_item(tx, &kind.name, target, &item),
            item,
            seq,
            copy_of: None,
        };
        let rows: Vec<NewItemRow> = new.iter().zip(items).enumerate().map(row).collect();
        let mut object = preview.object();
        tx.as_stored(&mut object);
        let details = Map::from_iter([(PREVIEW.to_owned(), object)]);
        edit.new_items.extend(rows);
        edit.add(change, Extra { details, ..Extra::default() });
        Ok(Decided::Now(preview))
    }
}

fn new_item<T: Tx>(tx: &T, kind: &str, target: &NewTarget, item: &Item) -> NewItem {
    let mut details = target.members();
    details.values_mut().for_each(|value| tx.as_stored(value));
    NewItem {
        kind: kind.to_owned(),
        key: target.key.clone(),
        name: target.name.clone().unwrap_or_else(|| target.key.clone()),
        status: None,
        max_retries: item.max_retries,
        reruns: false,
        role: item.role,
        details,
        copied: false,
    }
}

fn check(target: &NewTarget) -> Result<()> {
    check_name("targets.key", &target.key)?;
    if let Some(name) = &target.name {
        check_text("targets.name", name, MAX_NAME_BYTES)?;
    }
    if let Some(destination) = &target.destination {
        check_text("targets.destination", destination, MAX_KEY_BYTES)?;
    }
    refused("targets.details", &target.members(), TARGET_BYTES)
}

fn refused(field: &str, members: &Map<String, Value>, most: usize) -> Result<()> {
    let wrong = |error: waypost_kernel::text::TextError| StoreError::Invalid {
        field: error.field,
        message: error.message,
    };
    refuse_members(field, members, most).map_err(wrong)
}

pub(crate) async fn add_targets<T: Tx>(tx: &mut T, write: &AddTargets) -> Result<Preview> {
    let mut answers = each(tx, &[Gather(write)]).await?;
    answers.pop().unwrap_or_else(|| Err(StoreError::no_run(&write.run_id)))
}

/// A run that is gathered leaves its draft to be worked when that is done, and not before.
pub(crate) fn check_gathered(row: &RunRow, after: Phase) -> Result<()> {
    let leaves = row.phase() == Phase::Draft && !matches!(after, Phase::Draft | Phase::Settled);
    match Preview::of(&row.details).filter(|preview| leaves && !preview.ready) {
        None => Ok(()),
        Some(preview) => Err(Refusal {
            code: Code::InvalidTransition,
            message: format!("its preview is not complete: {} rows are gathered so far", preview.rows),
            current: row.status().into(),
            requested: String::new(),
            allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
            guard: None,
            field: None,
        }
        .into()),
    }
}
