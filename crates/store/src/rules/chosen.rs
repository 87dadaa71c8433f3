//! Items that a command names: they must be there, and be such as the command is for.

use std::collections::HashSet;

use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Outcome, Phase};
use waypost_kernel::run::Run;

use crate::seam::error::{Result, StoreError};

/// The items of the first kind by key, each once. `find` looks one up.
pub(crate) fn chosen(
    lifecycle: &Lifecycle,
    run: &Run,
    command: &str,
    keys: &[String],
    mut find: impl FnMut(&str, &str) -> Result<Option<Item>>,
) -> Result<Vec<Item>> {
    let invalid = |message: String| StoreError::invalid("items", message);
    let kind =
        lifecycle.items.first().ok_or_else(|| invalid(format!("a {} run has none", lifecycle.name)))?;
    // What would not move at all is refused for that; here it is about which of them do.
    let moves = kind.states.iter().any(|state| state.follow(command).is_some())
        && lifecycle.phase(run.state) != Phase::Held
        && lifecycle.transitions_from(run.state).any(|row| &*row.command == command);
    let mut chosen: Vec<Item> = Vec::with_capacity(keys.len());
    let mut seen = HashSet::with_capacity(keys.len());
    for key in keys.iter().filter(|key| seen.insert(key.as_str())) {
        let item =
            find(&kind.name, key)?.ok_or_else(|| invalid(format!("there is no {} {key:?}", kind.name)))?;
        let state = kind.state(item.state);
        if moves && (state.follow(command).is_none() || item.stays(kind)) {
            let words = if item.discarded { "was discarded" } else { &format!("is {}", state.name) };
            return Err(invalid(format!("{key:?} {words} and no {command} is for it")));
        }
        chosen.push(item);
    }
    Ok(chosen)
}

/// An operation is about items that have succeeded.
pub(crate) fn check_operated(lifecycle: &Lifecycle, command: &str, items: &[Item]) -> Result<()> {
    let Some(kind) = lifecycle.items.first() else { return Ok(()) };
    let is_unfit = |item: &&Item| kind.state(item.state).outcome != Some(Outcome::Succeeded);
    items.iter().find(is_unfit).map_or(Ok(()), |item| {
        let state = &kind.state(item.state).name;
        Err(StoreError::invalid("items", format!("{:?} is {state} and no {command} is for it", item.key)))
    })
}
