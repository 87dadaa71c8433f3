//! Targets, many in one write. Every move of a target raises its run's `seq`, so that what was read of targets is what is
//! written, or the write is lost and decided again.

mod discard;
mod gather;
mod roll_back;
mod work;

use waypost_kernel::Lifecycle;

pub(crate) use discard::discard_targets;
pub(crate) use gather::{add_targets, check_gathered};
pub(crate) use roll_back::roll_back_targets;
pub(crate) use work::work_targets;

use super::edit::{ItemChange, Stored};
use crate::seam::error::{Result, StoreError};
use crate::seam::targets::kind_of_targets;

fn kind_of(stored: &Stored) -> Result<&Lifecycle> {
    let lifecycle = &stored.row.lifecycle;
    let none = || StoreError::invalid("run_id", format!("a {} run has no targets", lifecycle.name));
    kind_of_targets(lifecycle).ok_or_else(none)
}

/// What a change writes of the items that it moves, with what is kept beside each.
fn item_changes(
    change: &waypost_kernel::event::Change,
    mut beside: impl FnMut(&str, ItemChange) -> ItemChange,
) -> Vec<ItemChange> {
    let moves =
        change.events.iter().flat_map(|event| event.effect.moved.iter().map(move |it| (event.seq, it)));
    moves
        .filter(|(_, moved)| moved.from.is_some())
        .map(|(seq, moved)| {
            let written = ItemChange {
                item: moved.item.clone(),
                seq: Some(seq),
                stays: moved.stays,
                output: None,
                details: None,
                patch: serde_json::Map::new(),
            };
            beside(&moved.item.key, written)
        })
        .collect()
}
