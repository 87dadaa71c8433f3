//! What a new run and new items start as, from what was asked for.

use std::sync::Arc;

use serde_json::Map;
use waypost_kernel::item::{Item, Role};
use waypost_kernel::lifecycle::{Kind, Outcome, Phase};
use waypost_kernel::tenant::local_name;
use waypost_kernel::{Catalog, Lifecycle, Run};
use waypost_store::{NewItem, NewRun, PLACEHOLDER, Result, RunRow, StoreError};

use super::follow::needs_an_item;
use crate::oracle::state::Entry;

pub fn unknown_lifecycle(run: &NewRun, catalog: &Catalog) -> StoreError {
    let runs = catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run);
    let mut known: Vec<&str> = runs.map(|lifecycle| &*lifecycle.name).collect();
    known.dedup();
    let version = run.version.map(|version| format!(" version {version}")).unwrap_or_default();
    let message = format!("there is no {:?}{version}; there are: {}", run.lifecycle, known.join(", "));
    StoreError::invalid("lifecycle", message)
}

/// The items of a new run, as asked for; or the one that a lifecycle needs before it can be claimed.
/// `old` is the run that it repeats, with its items.
pub fn first_items(run: &NewRun, lifecycle: &Lifecycle, old: Option<&Entry>) -> Result<Vec<(NewItem, Item)>> {
    let mut found: Vec<(NewItem, Item)> = Vec::new();
    for new in &run.items {
        let (_, kind) = item_kind(&new.kind, lifecycle)?;
        let named = NewItem { kind: kind.name.to_string(), ..new.clone() };
        if found.iter().any(|(known, _)| known.kind == named.kind && known.key == new.key) {
            return Err(StoreError::invalid("items.key", format!("{:?} stands twice", new.key)));
        }
        found.push(match new.copied {
            true => copied(named, run, lifecycle, old)?,
            false => (named, first_item(new, lifecycle)?),
        });
    }
    let items: Vec<Item> = found.iter().map(|(_, item)| item.clone()).collect();
    if let Some(kind) = lifecycle.items.first().filter(|_| needs_an_item(lifecycle, &items)) {
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
    Ok(found)
}

/// The copy of an item of the run that is repeated: it is done or was skipped there, and nothing undid it.
fn copied(new: NewItem, run: &NewRun, lifecycle: &Lifecycle, old: Option<&Entry>) -> Result<(NewItem, Item)> {
    let wrong = |message: String| StoreError::invalid("items.copied", message);
    let Some(id) = &run.retry_of else {
        return Err(wrong("there is no copy without `retry_of`, the run that is repeated".into()));
    };
    let old = old.filter(|old| old.row.tenant == run.tenant);
    let old = old.ok_or_else(|| StoreError::invalid("retry_of", format!("there is no run {id:?} here")))?;
    if old.row.phase() != Phase::Settled {
        let message = format!("{id} is {}: what it did can be copied once it has ended", old.row.status());
        return Err(StoreError::invalid("retry_of", message));
    }
    if (&old.row.playbook, &old.row.lifecycle.name) != (&run.playbook, &lifecycle.name) {
        return Err(StoreError::invalid("retry_of", format!("{id} is of another playbook or lifecycle")));
    }
    if new.status.is_some() {
        let message = format!("the copy of {:?} has the state of its original: leave it out", new.key);
        return Err(StoreError::invalid("items.status", message));
    }
    let (at, kind) = item_kind(&new.kind, lifecycle)?;
    let old_kind = item_kind(&new.kind, &old.row.lifecycle)?.0;
    let original = old.items.iter().find(|item| item.kind == old_kind && *item.key == *new.key);
    let original = original
        .ok_or_else(|| wrong(format!("{id} has no {} {:?} that could be copied", kind.name, new.key)))?;
    let status = &old.row.lifecycle.items[usize::from(old_kind)].state(original.state).name;
    let ended = kind.state_named(status).filter(|state| {
        matches!(kind.state(*state).outcome, Some(Outcome::Succeeded | Outcome::Skipped)) && kind.stops_run
    });
    let Some(state) = ended.filter(|_| !new.reruns && new.role != Role::Cleanup) else {
        let why = if new.reruns { "which a cleanup undid" } else { "and not done or skipped" };
        return Err(wrong(format!("{:?} is {status} there, {why}: it is to be done again", new.key)));
    };
    let item = Item {
        kind: at,
        state,
        max_retries: new.max_retries,
        reruns: false,
        role: new.role,
        not_before: None,
        ..original.clone()
    };
    Ok((new, item))
}

/// An item before its first event.
fn first_item(new: &NewItem, lifecycle: &Lifecycle) -> Result<Item> {
    let (at, kind) = item_kind(&new.kind, lifecycle)?;
    let state = match &new.status {
        None => kind.initial.first().copied(),
        Some(name) => kind.state_named(name).filter(|state| kind.initial.contains(state)),
    };
    let Some(state) = state else {
        let names: Vec<&str> = kind.initial.iter().map(|state| &*kind.state(*state).name).collect();
        let message = format!("a new {} starts as {}", kind.name, names.join(" or "));
        return Err(StoreError::invalid("items.status", message));
    };
    let mut item = Item::new(at, &new.key, state);
    item.max_retries = new.max_retries;
    item.reruns = new.reruns;
    item.role = new.role;
    Ok(item)
}

pub fn item_kind<'l>(name: &str, lifecycle: &'l Lifecycle) -> Result<(u8, &'l Arc<Lifecycle>)> {
    let is_it = |kind: &Arc<Lifecycle>| &*kind.name == name || local_name(&kind.name) == name;
    let at = lifecycle.items.iter().position(is_it);
    let Some(at) = at else {
        let known: Vec<&str> = lifecycle.items.iter().map(|kind| &*kind.name).collect();
        let message = format!("a {} run has no {name:?}; it has: {}", lifecycle.name, known.join(", "));
        return Err(StoreError::invalid("items.kind", message));
    };
    Ok((at as u8, &lifecycle.items[at]))
}

/// The row of a new run: what was asked for, and what the kernel made of it.
pub fn row_of(new: &NewRun, run: Run, lifecycle: Arc<Lifecycle>) -> RunRow {
    RunRow {
        waits: None,
        queue_position: None,
        run,
        lifecycle,
        tenant: new.tenant.clone(),
        queue: new.queue.clone(),
        priority: new.priority,
        schedule_at: new.schedule_at,
        concurrency_key: new.concurrency_key.clone(),
        correlation_id: new.correlation_id.clone(),
        idempotency_key: new.idempotency_key.clone(),
        parent_run_id: new.parent_run_id.clone(),
        retry_of: new.retry_of.clone(),
        title: new.title.clone().or_else(|| title_of(new)),
        playbook: new.playbook.clone(),
        carried: new.carried.clone(),
        input: Arc::new(new.input.clone()),
        metadata: Arc::new(new.metadata.clone()),
        details: Arc::new(new.details.clone()),
    }
}

/// What a run is called that nobody named: its command's words, or its playbook.
fn title_of(new: &NewRun) -> Option<String> {
    let command =
        new.carried.as_ref().map(|carried| &carried["command"]).and_then(|command| command.as_array());
    if let Some(command) = command.filter(|command| !command.is_empty()) {
        let all: Vec<&str> =
            command.iter().flat_map(|word| word.as_str().unwrap_or_default().split_whitespace()).collect();
        let all = all.join(" ");
        let title: String =
            all.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(80).collect();
        return Some(title).filter(|title| !title.is_empty());
    }
    let playbook = new.playbook.as_ref()?;
    Some(playbook.rsplit_once('@').map_or(playbook.as_str(), |(name, _)| name).to_owned())
}

/// Whether two requests under one idempotency key ask for the same. Who asks is no part of it.
pub fn ask_for_the_same(one: &NewRun, other: &NewRun) -> bool {
    if one.asked.is_some() || other.asked.is_some() {
        return one.asked == other.asked;
    }
    one.lifecycle == other.lifecycle
        && one.version == other.version
        && one.status == other.status
        && one.queue == other.queue
        && one.priority == other.priority
        && one.input == other.input
        && one.metadata == other.metadata
        && one.schedule_at == other.schedule_at
        && one.concurrency_key == other.concurrency_key
        && one.correlation_id == other.correlation_id
        && one.title == other.title
        && one.playbook == other.playbook
        && one.carried == other.carried
        && one.parent_run_id == other.parent_run_id
        && one.items == other.items
        && (one.retry_of == other.retry_of || one.items.iter().all(|item| !item.copied))
}
