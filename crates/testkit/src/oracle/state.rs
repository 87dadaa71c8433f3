//! What is stored, and the one way in which it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::event::{Change, Event};
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Actor, Phase};
use waypost_kernel::request::{Ask, Request, Who};
use waypost_kernel::{Catalog, Lifecycle, Time};
use waypost_store::{
    AgentRow, AlertRow, AuditRow, EventRow, FinishWrite, Message, NewRun, Pause, PlaybookRow, Result,
    Retention, RunRow, SchedulerSign, StoreError, TokenRow, WorkerBeat,
};

use super::children::is_cancel;
use super::destinations::Known;
use super::rules::follow::follow;
use super::rules::{details, intake, messages};
use super::schedules::{Execution, Stored};
use super::who;

/// The lifecycle of rollbacks and reconciliations.
const OPERATION: &str = "operation";

/// What a claim for all tenants asks for, in its own words.
pub(super) type ClaimKind = String;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub catalog: Catalog,
    pub now: Time,
    /// By their number, which is the order of their creation.
    pub runs: BTreeMap<u64, Entry>,
    /// Runs and fences that claims with a key took, by worker and key.
    pub claims: BTreeMap<(String, String), Vec<(u64, u64)>>,
    /// By tenant and name.
    pub queues: BTreeMap<(String, String), Settings>,
    pub key_limits: BTreeMap<(String, String), u32>,
    /// Whom claims of a kind served last, by priority.
    pub served: BTreeMap<(ClaimKind, i16), String>,
    /// Whose children nobody has asked yet.
    pub cancelled_parents: BTreeSet<u64>,
    pub schedules: BTreeMap<String, Stored>,
    pub executions: Vec<Execution>,
    /// In the order of their coming.
    pub playbooks: Vec<PlaybookRow>,
    pub tokens: Vec<TokenRow>,
    /// By tenant and slug.
    pub agents: BTreeMap<(String, String), AgentRow>,
    /// By lifecycle.
    pub retention: BTreeMap<String, Retention>,
    /// With the time of their last sign.
    pub schedulers: BTreeMap<String, (SchedulerSign, Time)>,
    pub audits: Vec<AuditRow>,
    /// Each with when it came first and last.
    pub workers: Vec<(WorkerBeat, Time, Time)>,
    /// With the time at which each came.
    pub messages: Vec<(Message, Time)>,
    /// By the readers' names.
    pub cursors: BTreeMap<String, u64>,
    /// Runs that readers left behind, by the reader's name and the run's id.
    pub left: BTreeMap<(String, String), u64>,
    /// By tenant and name.
    pub destinations: BTreeMap<(String, String), Known>,
    /// By tenant, name and subject.
    pub alerts: BTreeMap<(String, String, String), AlertRow>,
    pub last_number: u64,
    /// The feed position of the last event.
    pub last_position: u64,
    /// Rises with everything that is written.
    pub writes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub row: RunRow,
    /// As it was asked for.
    pub asked: NewRun,
    pub items: Vec<Item>,
    /// By the item's kind and key.
    pub beside: BTreeMap<(u8, String), Beside>,
    pub events: Vec<Logged>,
    /// The finish that it ended with.
    pub ended_with: Option<FinishWrite>,
}

/// What is stored beside an item and nobody decides on.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    pub name: String,
    pub output: Value,
    pub details: Map<String, Value>,
}

/// An event as callers see it, and as the kernel made it.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub row: EventRow,
    pub event: Event,
    pub patch: Patch,
}

/// Merged into the row by a change.
#[derive(Clone, Debug, Default)]
pub(super) struct Patch {
    pub metadata: Map<String, Value>,
    pub details: Map<String, Value>,
}

impl Patch {
    /// As handlers may bring it: cleaned and cut.
    pub fn cleaned(
        lifecycle: &Lifecycle,
        metadata: &Map<String, Value>,
        details: &Map<String, Value>,
    ) -> Patch {
        let (metadata, left_out) = intake::cleaned_metadata(metadata);
        let mut patch = Patch { metadata, details: details::cleaned(lifecycle, details) };
        patch.name_left_out(left_out);
        patch
    }

    fn name_left_out(&mut self, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let known = self.details.get("metadata_left_out").and_then(Value::as_array).cloned();
        let short = |name: String| Value::from(name.chars().take(64).collect::<String>());
        let all = known.into_iter().flatten().chain(names.into_iter().take(100).map(short));
        self.details.insert("metadata_left_out".to_owned(), all.collect());
    }

    pub fn merge_into(&self, row: &mut RunRow) {
        let mut patch = self.clone();
        patch.name_left_out(intake::add_members(Arc::make_mut(&mut row.metadata), &self.metadata));
        let lifecycle = row.lifecycle.clone();
        details::merge(&lifecycle, Arc::make_mut(&mut row.details), &patch.details);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub at_most: Option<u32>,
    pub paused: Option<Pause>,
}

impl State {
    pub fn new(catalog: Catalog, now: Time) -> State {
        State {
            catalog,
            now,
            runs: BTreeMap::new(),
            claims: BTreeMap::new(),
            queues: BTreeMap::new(),
            key_limits: BTreeMap::new(),
            served: BTreeMap::new(),
            retention: BTreeMap::new(),
            schedulers: BTreeMap::new(),
            cancelled_parents: BTreeSet::new(),
            schedules: BTreeMap::new(),
            executions: Vec::new(),
            playbooks: Vec::new(),
            tokens: Vec::new(),
            agents: BTreeMap::new(),
            audits: Vec::new(),
            workers: Vec::new(),
            messages: Vec::new(),
            cursors: BTreeMap::new(),
            left: BTreeMap::new(),
            destinations: BTreeMap::new(),
            alerts: BTreeMap::new(),
            last_number: 0,
            last_position: 0,
            writes: 0,
        }
    }

    pub fn number_of(&self, run_id: &str) -> Result<u64> {
        // The newest first: that is whom one asks for most.
        let found = self.runs.iter().rev().find(|(_, entry)| entry.row.id() == run_id);
        found.map(|(number, _)| *number).ok_or_else(|| StoreError::no_run(run_id))
    }

    pub fn entry(&mut self, number: u64) -> Result<&mut Entry> {
        self.runs.get_mut(&number).ok_or_else(|| StoreError::no_run(&number.to_string()))
    }

    pub fn row(&self, number: u64) -> Result<&RunRow> {
        let entry = self.runs.get(&number);
        entry.map(|entry| &entry.row).ok_or_else(|| StoreError::no_run(&number.to_string()))
    }

    /// What the kernel makes of a request; nothing is written yet.
    pub fn decide(&self, number: u64, who: Who<'_>, ask: Ask<'_>) -> Result<Change> {
        let row = self.row(number)?;
        Ok(waypost_kernel::decide(&row.lifecycle, &row.run, &Request { who, ask }, self.now)?)
    }

    /// Writes a decision: the row, its events and the items that they move, all at once.
    pub fn commit(&mut self, number: u64, change: Change) -> Result<()> {
        self.commit_with(number, change, &Patch::default())
    }

    /// The same, with what is merged into the row; the last event keeps it, so that the log has it too.
    pub fn commit_with(&mut self, number: u64, change: Change, patch: &Patch) -> Result<()> {
        self.writes += 1;
        let mut position = self.last_position;
        let entry = self.entry(number)?;
        let lifecycle = entry.row.lifecycle.clone();
        let was = entry.row.phase();
        let cancelled = is_cancel(&change.events);
        patch.merge_into(&mut entry.row);
        entry.row.run = change.after;
        let last = change.events.last().map(|event| event.seq);
        for event in change.events {
            position += 1;
            follow(&lifecycle, &mut entry.items, &event);
            let patch = if Some(event.seq) == last { patch.clone() } else { Patch::default() };
            entry.log(position, event, patch);
        }
        let settles = was != Phase::Settled && entry.row.phase() == Phase::Settled;
        let parent = entry.row.parent_run_id.clone().filter(|_| settles && &*lifecycle.name == OPERATION);
        self.last_position = position;
        if cancelled {
            self.leave_behind(number);
        }
        parent.map_or(Ok(()), |parent| self.end_operation(&parent))
    }

    /// An operation has settled: unless another one is under way, its parent is free again.
    fn end_operation(&mut self, parent: &str) -> Result<()> {
        let goes_on = self.runs.values().any(|entry| {
            entry.row.parent_run_id.as_deref() == Some(parent)
                && &*entry.row.lifecycle.name == OPERATION
                && entry.row.phase() != Phase::Settled
        });
        let Some(number) = self.number_of(parent).ok().filter(|_| !goes_on) else { return Ok(()) };
        let change = self.decide(number, who(Actor::Engine, "engine"), Ask::OperationEnded)?;
        self.commit(number, change)
    }
}

impl Entry {
    fn log(&mut self, position: u64, event: Event, patch: Patch) {
        let lifecycle = &self.row.lifecycle;
        let state_name = |state| lifecycle.state(state).name.to_string();
        let (level, message) = match &event.note {
            Some(note) => (note.level, note.message.to_string()),
            None => messages::message(lifecycle, &event),
        };
        let payload = match &event.note {
            Some(note) => note.payload.clone(),
            None if event.from.is_some() => {
                messages::payload(lifecycle, self.row.id(), &event, &patch.details)
            }
            None => messages::first_payload(&event, &self.row.metadata),
        };
        let row = EventRow {
            position,
            run_id: self.row.id().to_owned(),
            tenant: self.row.tenant.clone(),
            lifecycle: lifecycle.name.to_string(),
            seq: event.seq,
            at: event.at,
            command: event.command.to_string(),
            from: event.from.map(state_name),
            to: state_name(event.to),
            actor: event.actor.name().to_owned(),
            by: event.by.to_string(),
            level: level.name().to_owned(),
            message,
            payload,
        };
        self.events.push(Logged { row, event, patch });
    }
}
