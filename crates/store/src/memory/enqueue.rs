//! Runs come in.

use std::sync::Arc;

use uuid::Uuid;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Actor, Kind, Lifecycle};
use waypost_kernel::request::Who;
use waypost_kernel::{Span, Token, decide};

use super::state::{Beside, Entry, State, random_token};
use crate::error::{Result, StoreError};
use crate::fingerprint::fingerprint;
use crate::follow::needs_an_item;
use crate::intake::check_new;
use crate::run::RunRow;
use crate::verbs::{Enqueued, NewItem, NewRun};

/// What a run is called whose only item stands for all of it.
const WHOLE: &str = "run";

impl State {
    pub fn enqueue(&mut self, new: &NewRun) -> Result<Enqueued> {
        check_new(new)?;
        let lifecycle = self.lifecycle_of(new)?;
        let asked = fingerprint(new);
        if let Some(number) = self.with_key(new) {
            let entry = self.entry(number)?;
            if entry.fingerprint == asked {
                return Ok(Enqueued { run: entry.row.clone(), replayed: true });
            }
            return Err(StoreError::KeyReused {
                key: new.idempotency_key.clone().unwrap_or_default(),
                run_id: entry.row.id().to_owned(),
            });
        }
        let number = self.insert(new, lifecycle, asked, Birth::asked(new))?;
        Ok(Enqueued { run: self.row(number)?.clone(), replayed: false })
    }

    pub fn lifecycle_of(&self, new: &NewRun) -> Result<Arc<Lifecycle>> {
        let runs = || self.catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run);
        let mut named = runs().filter(|lifecycle| *lifecycle.name == *new.lifecycle).peekable();
        if named.peek().is_none() {
            let mut names: Vec<&str> = runs().map(|lifecycle| &*lifecycle.name).collect();
            names.sort_unstable();
            names.dedup();
            let message = format!("there is no {:?}; known are {}", new.lifecycle, names.join(", "));
            return Err(StoreError::invalid("lifecycle", message));
        }
        let found = match new.version {
            None => named.max_by_key(|lifecycle| lifecycle.version),
            Some(version) => named.find(|lifecycle| lifecycle.version == version),
        };
        let unknown = || StoreError::invalid("version", format!("{} has no such version", new.lifecycle));
        found.cloned().ok_or_else(unknown)
    }

    pub fn with_key(&self, new: &NewRun) -> Option<u64> {
        let key = new.idempotency_key.as_ref()?;
        let has =
            |entry: &Entry| entry.row.tenant == new.tenant && entry.row.idempotency_key.as_ref() == Some(key);
        self.runs.iter().find(|(_, entry)| has(entry)).map(|(number, _)| *number)
    }

    /// A new run, its items and its first event. The number is the next one.
    pub fn insert(
        &mut self,
        new: &NewRun,
        lifecycle: Arc<Lifecycle>,
        fingerprint: String,
        birth: Birth,
    ) -> Result<u64> {
        let items = new_items(&lifecycle, &new.items)?;
        let id = self.free_id(&lifecycle);
        let kernel_new = decide::NewRun {
            id: &id,
            state: new.status.as_deref(),
            available_at: new.schedule_at,
            ttl: new.ttl,
            lease: birth.lease,
            max_attempts: new.max_attempts,
            reentrant: new.reentrant,
            note: None,
            items: &items,
        };
        let who = Who { actor: birth.actor, by: &new.by, fresh: birth.token };
        let change = decide::create(&lifecycle, &kernel_new, &who, self.now)?;
        let beside = new.items.iter().map(|item| beside(&lifecycle, item)).collect::<Option<_>>();
        let row = row_of(new, change.after.clone(), lifecycle);
        let entry = Entry {
            row,
            fingerprint,
            items: Vec::new(),
            beside: beside.unwrap_or_default(),
            events: Vec::new(),
        };
        self.last_number += 1;
        let number = self.last_number;
        self.runs.insert(number, entry);
        self.commit(number, change)?;
        Ok(number)
    }

    fn free_id(&self, lifecycle: &Lifecycle) -> String {
        loop {
            let random = Uuid::new_v4();
            let made = lifecycle.ids.as_ref().map(|ids| ids.make(self.now, random.as_u128()));
            let id = made.unwrap_or_else(|| random.to_string());
            if self.number_of(&id).is_err() {
                return id;
            }
        }
    }
}

/// Who a run is born by, and with which lease if it is born held.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    pub actor: Actor,
    pub token: Token,
    pub lease: Option<Span>,
}

impl Birth {
    fn asked(new: &NewRun) -> Birth {
        Birth { actor: new.actor, token: random_token(), lease: None }
    }

    pub fn claimed(lease: Option<Span>) -> Birth {
        Birth { actor: Actor::Worker, token: random_token(), lease }
    }
}

fn new_items(lifecycle: &Lifecycle, asked: &[NewItem]) -> Result<Vec<Item>> {
    let mut items: Vec<Item> = Vec::with_capacity(asked.len());
    for new in asked {
        let (at, kind) = kind_named(lifecycle, &new.kind)?;
        if items.iter().any(|item| item.kind == at && *item.key == *new.key) {
            let message = format!("there are two {:?} of kind {}", new.key, new.kind);
            return Err(StoreError::invalid("items", message));
        }
        let state = match &new.status {
            None => kind.initial[0],
            Some(name) => kind.state_named(name).ok_or_else(|| {
                StoreError::invalid("items", format!("{} has no state {name:?}", kind.name))
            })?,
        };
        let item = Item::new(at, &new.key, state);
        items.push(Item { max_retries: new.max_retries, reruns: new.reruns, ..item });
    }
    if needs_an_item(lifecycle, &items) {
        items.push(Item::new(0, WHOLE, lifecycle.items[0].initial[0]));
    }
    Ok(items)
}

pub(super) fn kind_named<'l>(lifecycle: &'l Lifecycle, name: &str) -> Result<(u8, &'l Lifecycle)> {
    let at = lifecycle.items.iter().position(|kind| &*kind.name == name);
    at.map(|at| (at as u8, &*lifecycle.items[at])).ok_or_else(|| {
        let kinds: Vec<&str> = lifecycle.items.iter().map(|kind| &*kind.name).collect();
        let known = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
        StoreError::invalid("kind", format!("{} has no items {name:?}; it has {known}", lifecycle.name))
    })
}

fn beside(lifecycle: &Lifecycle, item: &NewItem) -> Option<((u8, String), Beside)> {
    let (kind, _) = kind_named(lifecycle, &item.kind).ok()?;
    let name = if item.name.is_empty() { &item.key } else { &item.name };
    let beside = Beside { name: name.clone(), details: item.details.clone(), ..Beside::default() };
    Some(((kind, item.key.clone()), beside))
}

fn row_of(new: &NewRun, run: waypost_kernel::Run, lifecycle: Arc<Lifecycle>) -> RunRow {
    RunRow {
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
        playbook: new.playbook.clone(),
        carried: new.carried.clone(),
        input: new.input.clone(),
        metadata: new.metadata.clone(),
        details: new.details.clone(),
    }
}
