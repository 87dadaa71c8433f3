//! Runs come in.

use std::sync::Arc;

use uuid::Uuid;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Actor, Kind, Lifecycle};
use waypost_kernel::{Span, Time, decide};
use waypost_store::{Enqueued, NewItem, NewRun, Result, RunRow, StoreError};

use super::rules::birth::{ask_for_the_same, first_items, row_of, unknown_lifecycle};
use super::rules::details::check as check_details;
use super::rules::intake::{check_client_key, check_new};
use super::state::{Beside, Entry, State};
use super::who;

impl State {
    /// What somebody else than the engine asks for.
    pub fn enqueue_of_client(&mut self, new: &NewRun) -> Result<Enqueued> {
        check_new(new)?;
        check_client_key(new.idempotency_key.as_deref())?;
        self.enqueue(new)
    }

    pub fn enqueue(&mut self, new: &NewRun) -> Result<Enqueued> {
        check_new(new)?;
        let to_the_millisecond = |at: Time| Time::from_micros(at.micros().div_euclid(1_000) * 1_000);
        let new = &NewRun { schedule_at: new.schedule_at.map(to_the_millisecond), ..new.clone() };
        // What would be refused now is still answered by the run that its key has made.
        if let Some(run) = self.known_as(new)? {
            return Ok(Enqueued { run, replayed: true });
        }
        let lifecycle = self.lifecycle_of(new)?;
        let number = self.insert(new, lifecycle, Birth { actor: new.actor, lease: None })?;
        Ok(Enqueued { run: self.row(number)?.clone(), replayed: false })
    }

    /// The run that the request's key has made.
    pub fn known_as(&mut self, new: &NewRun) -> Result<Option<RunRow>> {
        let Some(number) = self.with_key(new) else { return Ok(None) };
        let entry = self.entry(number)?;
        match ask_for_the_same(&entry.asked, new) {
            true => Ok(Some(entry.row.clone())),
            false => Err(StoreError::KeyReused {
                key: new.idempotency_key.clone().unwrap_or_default(),
                run_id: entry.row.id().to_owned(),
            }),
        }
    }

    pub fn lifecycle_of(&self, new: &NewRun) -> Result<Arc<Lifecycle>> {
        let seen = self.catalog.of_tenant(&new.tenant);
        let found = match new.version {
            None => seen.latest(&new.lifecycle),
            Some(version) => seen.get(&new.lifecycle, version),
        };
        let run = found.filter(|lifecycle| lifecycle.kind == Kind::Run);
        run.cloned().ok_or_else(|| unknown_lifecycle(new, &seen))
    }

    pub fn with_key(&self, new: &NewRun) -> Option<u64> {
        let key = new.idempotency_key.as_ref()?;
        let has =
            |entry: &Entry| entry.row.tenant == new.tenant && entry.row.idempotency_key.as_ref() == Some(key);
        self.runs.iter().find(|(_, entry)| has(entry)).map(|(number, _)| *number)
    }

    /// A new run, its items and its first event. The number is the next one.
    pub fn insert(&mut self, new: &NewRun, lifecycle: Arc<Lifecycle>, birth: Birth) -> Result<u64> {
        self.check_relative("parent_run_id", new, new.parent_run_id.as_deref())?;
        self.check_relative("retry_of", new, new.retry_of.as_deref())?;
        check_details(&lifecycle, &new.details)?;
        let old = new.retry_of.as_ref().and_then(|id| self.number_of(id).ok());
        let old = old.and_then(|number| self.runs.get(&number));
        let first = first_items(new, &lifecycle, old)?;
        let beside = first.iter().map(|(new, item)| ((item.kind, new.key.clone()), Beside::of(new, old)));
        let beside = beside.collect();
        let items: Vec<Item> = first.iter().map(|(_, item)| item.clone()).collect();
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
            repeats: first.iter().any(|(new, _)| new.copied),
        };
        let change = decide::create(&lifecycle, &kernel_new, &who(birth.actor, &new.by), self.now)?;
        let entry = Entry {
            row: row_of(new, change.after.clone(), lifecycle),
            asked: new.clone(),
            items: Vec::new(),
            beside,
            events: Vec::new(),
            ended_with: None,
        };
        self.last_number += 1;
        let number = self.last_number;
        self.runs.insert(number, entry);
        self.commit(number, change)?;
        Ok(number)
    }

    /// A run belongs to, and repeats, runs of its own tenant alone.
    fn check_relative(&self, field: &str, new: &NewRun, id: Option<&str>) -> Result<()> {
        let Some(id) = id else { return Ok(()) };
        let found = self.number_of(id).and_then(|number| self.row(number));
        match found {
            Ok(row) if row.tenant == new.tenant => Ok(()),
            _ => Err(StoreError::invalid(field, format!("there is no run {id:?} here"))),
        }
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
    pub lease: Option<Span>,
}

impl Beside {
    /// A copy has what its original in the old run gave and has.
    fn of(new: &NewItem, old: Option<&Entry>) -> Beside {
        let is_original = |((_, key), _): &(&(u8, String), &Beside)| *key == new.key;
        let original = old.filter(|_| new.copied).and_then(|old| old.beside.iter().find(is_original));
        let Some((_, original)) = original else {
            let name = if new.name.is_empty() { &new.key } else { &new.name };
            return Beside { name: name.clone(), details: new.details.clone(), ..Beside::default() };
        };
        let name = if new.name.is_empty() { &original.name } else { &new.name };
        Beside { name: name.clone(), ..original.clone() }
    }
}
