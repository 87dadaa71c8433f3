//! What a new run and new items start as, from what was asked for.

use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::item::{Item, Role};
use waypost_kernel::{Catalog, Lifecycle};

use crate::rules::follow::needs_an_item;
use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::{NewItem, NewRun};

/// The words for a lifecycle that is not there.
pub fn unknown_lifecycle(run: &NewRun, catalog: &Catalog) -> StoreError {
    let seen = catalog.of_tenant(&run.tenant);
    let mut known: Vec<&str> = seen
        .iter()
        .filter(|lifecycle| lifecycle.kind == waypost_kernel::lifecycle::Kind::Run)
        .map(|lifecycle| &*lifecycle.name)
        .collect();
    known.dedup();
    let version = run.version.map(|version| format!(" version {version}")).unwrap_or_default();
    StoreError::invalid(
        "lifecycle",
        format!("there is no {:?}{version}; there are: {}", run.lifecycle, known.join(", ")),
    )
}

/// The item of a run that came without any. A playbook's step must not be called so: it would be taken for that one.
pub const PLACEHOLDER: &str = "(run)";

/// The items of a new run, as asked for; or the one that a lifecycle needs before it can be claimed. `copy` gives those that the run
/// has from the one that it repeats.
pub fn first_items(
    items: &[NewItem],
    lifecycle: &Lifecycle,
    copy: impl Fn(&NewItem) -> Option<(NewItem, Item)>,
) -> Result<Vec<(NewItem, Item)>> {
    let mut found = Vec::new();
    for new in items {
        if let Some(copied) = copy(new) {
            found.push(copied);
            continue;
        }
        let name = if new.name.is_empty() { &new.key } else { &new.name };
        let kind = lifecycle.item_name(&new.kind).to_owned();
        found.push((NewItem { kind, name: name.clone(), ..new.clone() }, first_item(new, lifecycle)?));
    }
    let items: Vec<Item> = found.iter().map(|(_, item)| item.clone()).collect();
    if needs_an_item(lifecycle, &items)
        && let Some(kind) = lifecycle.items.first()
    {
        let new = NewItem {
            kind: kind.name.to_string(),
            key: PLACEHOLDER.into(),
            name: "run".into(),
            status: None,
            max_retries: 3,
            reruns: false,
            role: Role::Step,
            details: Map::new(),
            copied: false,
        };
        let item = first_item(&new, lifecycle)?;
        found.push((new, item));
    }
    let mut keys: Vec<(&str, &str)> =
        found.iter().map(|(new, _)| (new.kind.as_str(), new.key.as_str())).collect();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(StoreError::invalid("items.key", format!("{:?} stands twice", twice[0].1)));
    }
    Ok(found)
}

/// An item before its first event.
pub fn first_item(new: &NewItem, lifecycle: &Lifecycle) -> Result<Item> {
    let (at, kind) = item_kind(&new.kind, lifecycle)?;
    let state = match &new.status {
        None => kind.initial.first().copied(),
        Some(name) => kind.state_named(name).filter(|state| kind.initial.contains(state)),
    };
    let Some(state) = state else {
        let names: Vec<&str> = kind.initial.iter().map(|state| &*kind.state(*state).name).collect();
        return Err(StoreError::invalid(
            "items.status",
            format!("a new {} starts as {}", kind.name, names.join(" or ")),
        ));
    };
    let mut item = Item::new(at, &new.key, state);
    item.max_retries = new.max_retries;
    item.reruns = new.reruns;
    item.role = new.role;
    Ok(item)
}

pub fn item_kind<'l>(name: &str, lifecycle: &'l Lifecycle) -> Result<(u8, &'l Arc<Lifecycle>)> {
    lifecycle.item_named(name).ok_or_else(|| {
        let known: Vec<&str> = lifecycle.items.iter().map(|kind| &*kind.name).collect();
        let message = format!("a {} run has no {name:?}; it has: {}", lifecycle.name, known.join(", "));
        StoreError::invalid("items.kind", message)
    })
}

const MAX_TITLE_CHARS: usize = 80;

/// What a run is called that nobody gave a title: the words of its command, or the name of its playbook. Lists show it, and must
/// not read whole runs for it.
pub fn title_of(new: &NewRun) -> Option<String> {
    let command = new.carried.as_ref().and_then(|carried| carried.get("command")?.as_array());
    let title = match command.filter(|words| !words.is_empty()) {
        Some(words) => command_line(words),
        None => {
            let playbook = new.playbook.as_deref()?;
            playbook.rsplit_once('@').map_or(playbook, |(name, _)| name).to_owned()
        }
    };
    (!title.is_empty()).then_some(title)
}

/// On one line, however it was written.
fn command_line(words: &[Value]) -> String {
    let mut line = String::new();
    let mut room = MAX_TITLE_CHARS;
    for word in words.iter().filter_map(Value::as_str).flat_map(str::split_whitespace) {
        if !line.is_empty() && room > 0 {
            line.push(' ');
            room -= 1;
        }
        let shown =
            |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
        line.extend(word.chars().take(room).map(shown));
        room = room.saturating_sub(word.chars().count());
        if room == 0 {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves U9
    #[test]
    fn a_run_is_called_by_its_command_or_playbook() {
        for (carried, playbook, title) in [
            (Some(json!({ "command": ["echo", "hi  there"] })), None, Some("echo hi there")),
            (Some(json!({ "command": ["sh", "-c", "make\n  release"] })), None, Some("sh -c make release")),
            (Some(json!({ "command": [] })), None, None),
            (Some(json!({ "playbook": { "file": "f" } })), Some("shop@4d923f"), Some("shop")),
            (None, Some("shop"), Some("shop")),
            (None, None, None),
        ] {
            let new = NewRun { carried, playbook: playbook.map(str::to_owned), ..NewRun::default() };
            assert_eq!(title_of(&new).as_deref(), title);
        }
        let long = json!({ "command": ["x".repeat(50), "y\u{1b}".repeat(50)] });
        let title = title_of(&NewRun { carried: Some(long), ..NewRun::default() }).unwrap_or_default();
        assert_eq!(title.chars().count(), 80);
        assert!(!title.contains('\u{1b}'));
    }
}
