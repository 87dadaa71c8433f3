//! Targets of a bulk change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::event::Change;
use waypost_kernel::item::{Item, ItemAsk, Take, Tried, Tries, decide_items, decide_tries, gather_items};
use waypost_kernel::lifecycle::{Actor, Lifecycle, Outcome, Phase};
use waypost_kernel::request::{Ask, Finish, Request, With};
use waypost_kernel::text::refuse_members;
use waypost_kernel::{Code, Failure, Refusal, Time, counted_end};
use waypost_store::{
    AddTargets, DeadLetter, DeadLetterClass, DeadLetterFilter, DiscardTargets, End, NewTarget, Preview,
    Renewed, Reply, Result, RollBackTargets, RunRow, StoreError, Who, WorkTargets, Worked,
};

use super::rules::intake::{
    check_name, check_reason, check_text, cleaned_failure, cleaned_name, cleaned_output, merge,
};
use super::state::{Beside, Patch, State};
use super::{MemoryStore, who};

impl MemoryStore {
    pub(crate) fn add_targets(&self, write: AddTargets) -> Reply<'_, Preview> {
        self.verb(move |state| state.add_targets(&write))
    }

    pub(crate) fn work_targets(&self, write: WorkTargets) -> Reply<'_, Worked> {
        self.verb(move |state| state.work_targets(&write))
    }

    pub(crate) fn roll_back_targets(&self, write: RollBackTargets) -> Reply<'_, RunRow> {
        self.verb(move |state| state.roll_back_targets(&write))
    }

    pub(crate) fn discard_targets(&self, write: DiscardTargets) -> Reply<'_, u64> {
        self.verb(move |state| {
            let count = state.discard_targets(&write)?;
            let DiscardTargets { tenant, run_id, by, reason, .. } = write;
            state.audit(Who { tenant, by, reason: Some(reason) }, "discard", &run_id);
            Ok(count)
        })
    }

    pub(crate) fn dead_letters(&self, filter: DeadLetterFilter) -> Reply<'_, Vec<DeadLetterClass>> {
        self.verb(move |state| Ok(state.dead_letters(&filter)))
    }
}

fn at_most(field: &str, count: usize) -> Result<()> {
    match count {
        0..=1_000 => Ok(()),
        _ => Err(StoreError::invalid(field, format!("has {count} entries; allowed: up to 1000"))),
    }
}

/// The first kind, if it is not one of steps.
fn targets_of(row: &RunRow) -> Result<&Arc<Lifecycle>> {
    let none = || StoreError::invalid("run_id", format!("a {} run has no targets", row.lifecycle.name));
    row.lifecycle.items.first().filter(|kind| !kind.stops_run).ok_or_else(none)
}

fn once_each<'k>(field: &str, keys: impl Iterator<Item = &'k String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if !seen.insert(key) {
            return Err(StoreError::invalid(field, format!("{key:?} is there twice")));
        }
    }
    Ok(())
}

fn small(field: &str, members: &Map<String, Value>) -> Result<()> {
    refuse_members(field, members, 16 * 1_024)
        .map_err(|error| StoreError::Invalid { field: error.field, message: error.message })
}

fn members(target: &NewTarget) -> Map<String, Value> {
    let mut members = target.details.clone();
    members.insert("before".into(), target.before.clone());
    members.insert("after".into(), target.after.clone());
    if let Some(destination) = &target.destination {
        members.insert("destination".into(), json!(destination));
    }
    if let Some(violation) = &target.violation {
        let told = json!({ "code": &*violation.code, "message": &*violation.message });
        members.insert("violation".into(), told);
    }
    members
}

fn check_batch(write: &AddTargets) -> Result<()> {
    check_name("by", &write.by)?;
    at_most("targets", write.targets.len())?;
    let mut seen = BTreeSet::new();
    for target in &write.targets {
        check_name("targets.key", &target.key)?;
        check_text("targets.name", target.name.as_deref().unwrap_or_default(), 255)?;
        check_text("targets.destination", target.destination.as_deref().unwrap_or_default(), 512)?;
        small("targets.details", &members(target))?;
        if !seen.insert(&target.key) {
            return Err(StoreError::invalid("targets", format!("{:?} is there twice", target.key)));
        }
    }
    let mut notes = write.totals.clone();
    notes.extend(write.cursor.clone().map(|cursor| ("cursor".to_owned(), cursor)));
    small("totals", &notes)
}

impl State {
    fn add_targets(&mut self, write: &AddTargets) -> Result<Preview> {
        check_batch(write)?;
        let number = self.number_of(&write.run_id)?;
        let row = self.row(number)?.clone();
        if row.tenant != write.tenant {
            return Err(StoreError::no_run(&write.run_id));
        }
        let kind = targets_of(&row)?;
        let mut preview = Preview::of(&row.details).unwrap_or_default();
        if write.at < preview.rows || preview.ready {
            return Ok(preview);
        }
        if write.at > preview.rows {
            let message = format!("is {}; the next row is {}", write.at, preview.rows);
            return Err(StoreError::invalid("at", message));
        }
        let known: BTreeSet<String> =
            self.entry(number)?.items.iter().filter(|it| it.kind == 0).map(|it| it.key.to_string()).collect();
        let new: Vec<&NewTarget> = write.targets.iter().filter(|it| !known.contains(&it.key)).collect();
        let mut items = Vec::new();
        for target in &new {
            let mut item = Item::new(0, &target.key, kind.initial[0]);
            item.max_retries = target.max_retries.unwrap_or(3);
            items.push(item);
        }
        let asks = who(Actor::Client, &write.by);
        let change = gather_items(&row.lifecycle, &row.run, &asks, &items, self.now)?;
        preview.rows += write.rows;
        preview.targets += new.len() as u64;
        preview.unchanged += write.unchanged;
        preview.stopped += new.iter().filter(|target| target.violation.is_some()).count() as u64;
        preview.ready = write.last;
        preview.cursor.clone_from(&write.cursor);
        preview.totals.clone_from(&write.totals);
        let details = Map::from_iter([("preview".to_owned(), preview.object())]);
        self.commit_with(number, change, &Patch { details, ..Patch::default() })?;
        for target in new {
            let name = target.name.clone().unwrap_or_else(|| target.key.clone());
            let beside = Beside { name, output: Value::Null, details: members(target) };
            self.entry(number)?.beside.insert((0, target.key.clone()), beside);
        }
        Ok(preview)
    }

    /// Those that are ready: first whose time has come, then those that were never tried.
    fn ready_targets(&self, number: u64, kind: &Lifecycle) -> Vec<Item> {
        let items = self.runs.get(&number).map(|entry| entry.items.as_slice()).unwrap_or_default();
        let ready = items.iter().filter(|item| item.kind == 0 && kind.phase(item.state) == Phase::Ready);
        let mut due: Vec<Item> = ready.cloned().collect();
        // A stable sort: of equal ones the first that was added.
        due.sort_by_key(|item| match item.not_before {
            Some(at) if at <= self.now => (0, at),
            None => (1, self.now),
            Some(at) => (2, at),
        });
        due
    }

    fn work_targets(&mut self, write: &WorkTargets) -> Result<Worked> {
        at_most("results", write.results.len())?;
        at_most("take", write.take)?;
        write.results.iter().try_for_each(|result| check_name("results.key", &result.key))?;
        once_each("results", write.results.iter().map(|result| &result.key))?;
        let number = self.number_of(&write.held.run_id)?;
        let row = self.row(number)?.clone();
        let kind = targets_of(&row)?.clone();
        if row.phase() != Phase::Held && row.run.ended_by == Some(write.held.token) {
            let ignored = write.results.iter().map(|result| result.key.clone()).collect();
            return Ok(Worked { ignored, ..self.worked(number, &kind)? });
        }
        let by = cleaned_name(&write.by);
        let (change, late) = self.tried(number, &kind, write, &by)?;
        let end = self.end_of(&row, &kind, write, &by, &change)?;
        let taken: Vec<String> = change
            .events
            .iter()
            .flat_map(|event| &event.effect.moved)
            .filter(|moved| kind.phase(moved.item.state) == Phase::Held)
            .map(|moved| moved.item.key.to_string())
            .collect();
        if !change.events.is_empty() {
            self.commit(number, change)?;
        } else if row.phase() == Phase::Held {
            self.entry(number)?.row.run = change.after;
        }
        for result in write.results.iter().filter(|result| !late.contains(&result.key)) {
            if let Some(output) = &result.output {
                let beside = self.entry(number)?.beside.entry((0, result.key.clone())).or_default();
                beside.output = cleaned_output(output.clone());
            }
        }
        if let Some(end) = end {
            self.commit(number, end)?;
        }
        let mut worked = self.worked(number, &kind)?;
        let rows = self.entry(number)?.item_rows();
        let row_of =
            |key: &String| rows.iter().find(|row| row.kind == *kind.name && row.key == *key).cloned();
        worked.taken = taken.iter().filter_map(row_of).collect();
        worked.ignored = late;
        Ok(worked)
    }

    fn tried(
        &self,
        number: u64,
        kind: &Lifecycle,
        write: &WorkTargets,
        by: &str,
    ) -> Result<(Change, Vec<String>)> {
        let row = self.row(number)?;
        let entry = self.runs.get(&number);
        let items = entry.map(|entry| entry.items.as_slice()).unwrap_or_default();
        let mut results = Vec::new();
        for result in &write.results {
            let item = items.iter().find(|item| item.kind == 0 && *item.key == *result.key);
            let none = || StoreError::invalid("results", format!("there is no target {:?}", result.key));
            results.push((item.ok_or_else(none)?.clone(), result.try_no, cleaned(&result.tried)));
        }
        let is_reported = |item: &Item| write.results.iter().any(|result| *result.key == *item.key);
        let stops = matches!(write.end, End::Stop(_));
        let due = self.ready_targets(number, kind).into_iter();
        let due = due.filter(|item| item.not_before.is_none_or(|at| at <= self.now));
        let mut take = Vec::new();
        for item in due.take(if stops { 0 } else { write.take }).filter(|item| !is_reported(item)) {
            let beside = entry.and_then(|entry| entry.beside.get(&(0, item.key.to_string())));
            let violation = beside.and_then(|beside| beside.details.get("violation")).map(|told| {
                let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
                Failure::new(&text("code"), &text("message"))
            });
            take.push(Take { item, violation });
        }
        let tries = Tries { results: &results, take: &take, give_up_after: write.give_up_after };
        let asks = who(Actor::Worker, by);
        let (change, late) =
            decide_tries(&row.lifecycle, &row.run, &asks, write.held.token, tries, self.now)?;
        Ok((change, late.iter().map(ToString::to_string).collect()))
    }

    fn end_of(
        &self,
        row: &RunRow,
        kind: &Lifecycle,
        write: &WorkTargets,
        by: &str,
        change: &Change,
    ) -> Result<Option<Change>> {
        let counts = change.after.tallies[0].counts(kind);
        let failure = match &write.end {
            End::Later => return Ok(None),
            End::WhenDone if counts.open > 0 => return Ok(None),
            End::WhenDone => {
                let message = format!("{} of {} {}s failed", counts.failed, counts.total, kind.name);
                Failure::new("ITEMS_FAILED", &message)
            }
            End::Stop(failure) => cleaned_failure(failure),
        };
        let asks = who(Actor::Worker, by);
        let Some(to) = counted_end(&row.lifecycle, &change.after, &asks, self.now) else {
            return Err(StoreError::invalid("end", "the run cannot end with its targets as they are"));
        };
        let to = row.lifecycle.state(to);
        let failure = Some(&failure).filter(|_| to.outcome != Some(Outcome::Succeeded));
        let finish = Finish { to: &to.name, failure, ..Finish::default() };
        let request = Request { who: asks, ask: Ask::Finish { token: write.held.token, finish } };
        Ok(Some(waypost_kernel::decide(&row.lifecycle, &change.after, &request, self.now)?))
    }

    /// How a run stands.
    fn worked(&self, number: u64, kind: &Lifecycle) -> Result<Worked> {
        let row = self.row(number)?;
        let mut counts = BTreeMap::new();
        for (state, count) in kind.states.iter().zip(&row.run.tallies[0].by_state) {
            if *count > 0 {
                counts.insert(state.name.to_string(), *count);
            }
        }
        let is_held = row.phase() == Phase::Held;
        let next = self.ready_targets(number, kind).into_iter().next().filter(|_| is_held);
        Ok(Worked {
            taken: Vec::new(),
            ignored: Vec::new(),
            next_due: next.map(|item| item.not_before.unwrap_or(self.now)),
            counts,
            open: row.run.tallies[0].counts(kind).open,
            ended: (!is_held).then(|| row.clone()),
            renewed: is_held.then(|| Renewed::of(&row.run, self.now)),
            now: self.now,
        })
    }

    fn discard_targets(&mut self, write: &DiscardTargets) -> Result<u64> {
        check_name("by", &write.by)?;
        check_name("reason", write.reason.trim())?;
        check_reason(Some(&write.reason))?;
        let number = self.number_of(&write.run_id)?;
        let row = self.row(number)?.clone();
        if row.tenant != write.tenant {
            return Err(StoreError::no_run(&write.run_id));
        }
        let kind = targets_of(&row)?;
        let items = self.entry(number)?.items.clone();
        let has_failed = |item: &Item| kind.state(item.state).outcome == Some(Outcome::Failed);
        for key in write.keys.iter().flatten() {
            let Some(item) = items.iter().find(|item| item.kind == 0 && *item.key == **key) else {
                return Err(StoreError::invalid("keys", format!("there is no {} {key:?}", kind.name)));
            };
            if !has_failed(item) {
                let message =
                    format!("{key:?} is {}; only what failed is discarded", kind.state(item.state).name);
                return Err(StoreError::invalid("keys", message));
            }
        }
        let meant = |item: &&Item| {
            let code = item.failure.as_ref().map(|failure| &*failure.code);
            item.kind == 0
                && has_failed(item)
                && !item.discarded
                && write.keys.as_ref().is_none_or(|keys| keys.iter().any(|key| **key == *item.key))
                && write.code.as_deref().is_none_or(|asked| code == Some(asked))
        };
        let ask = ItemAsk { discard: true, ..ItemAsk::default() };
        let asks: Vec<(Item, ItemAsk<'_>)> =
            items.iter().filter(meant).map(|item| (item.clone(), ask)).collect();
        if asks.is_empty() {
            return Ok(0);
        }
        let operator = who(Actor::Operator, &write.by);
        let change = decide_items(&row.lifecycle, &row.run, &operator, None, (&asks, &[]), self.now)?;
        self.commit(number, change)?;
        let patch = Map::from_iter([
            ("discarded_at".to_owned(), json!(self.now.to_string())),
            ("discarded_by".to_owned(), json!(write.by)),
            ("discard_reason".to_owned(), json!(write.reason)),
        ]);
        for (item, _) in &asks {
            let beside = self.entry(number)?.beside.entry((0, item.key.to_string())).or_default();
            merge(&mut beside.details, &patch);
        }
        Ok(asks.len() as u64)
    }

    fn roll_back_targets(&mut self, write: &RollBackTargets) -> Result<RunRow> {
        at_most("keys", write.keys.len())?;
        let operation = self.row(self.number_of(&write.held.run_id)?)?.clone();
        let Some(parent) = &operation.parent_run_id else {
            return Err(StoreError::invalid("run_id", "it is no operation on another run"));
        };
        let lease = operation.run.lease.as_ref();
        if !lease.is_some_and(|lease| !lease.is_vacant() && lease.token == write.held.token) {
            return Err(lost(&operation));
        }
        let number = self.number_of(parent)?;
        let row = self.row(number)?.clone();
        if row.tenant != operation.tenant {
            return Err(StoreError::no_run(parent));
        }
        let kind = targets_of(&row)?;
        let reverted = kind.states.iter().find(|state| state.outcome == Some(Outcome::Reverted));
        let Some(reverted) = reverted else {
            return Err(StoreError::invalid("run_id", format!("a {} is not rolled back", kind.name)));
        };
        let items = self.entry(number)?.items.clone();
        let mut asks: Vec<(Item, ItemAsk<'_>)> = Vec::new();
        for key in &write.keys {
            let Some(item) = items.iter().find(|item| item.kind == 0 && *item.key == **key) else {
                return Err(StoreError::invalid("keys", format!("there is no {} {key:?}", kind.name)));
            };
            let is_new = asks.iter().all(|(known, _)| known.key != item.key);
            if kind.state(item.state).name != reverted.name && is_new {
                asks.push((item.clone(), ItemAsk { to: &reverted.name, ..ItemAsk::default() }));
            }
        }
        let by = cleaned_name(&write.by);
        let engine = who(Actor::Engine, &by);
        let change = decide_items(&row.lifecycle, &row.run, &engine, None, (&asks, &[]), self.now)?;
        let left = change.after.tallies[0].counts(kind).ok;
        let leads = row.lifecycle.transitions_from(row.run.state).find(|it| {
            it.by.contains(Actor::Engine) && row.lifecycle.state(it.to).outcome == Some(Outcome::Reverted)
        });
        let mut follows = None;
        if let Some(leads) = leads.filter(|_| left == 0) {
            let ask = Ask::Command { name: &leads.command, with: With::default() };
            let request = Request { who: who(Actor::Engine, &by), ask };
            follows = Some(waypost_kernel::decide(&row.lifecycle, &change.after, &request, self.now)?);
        }
        for change in [Some(change), follows].into_iter().flatten().filter(|change| !change.events.is_empty())
        {
            self.commit(number, change)?;
        }
        for (item, _) in &asks {
            let applied_at = json!(item.finished_at.map(|at| at.to_string()));
            let beside = self.entry(number)?.beside.entry((0, item.key.to_string())).or_default();
            merge(&mut beside.details, &Map::from_iter([("applied_at".to_owned(), applied_at)]));
        }
        Ok(self.row(number)?.clone())
    }

    fn dead_letters(&self, filter: &DeadLetterFilter) -> Vec<DeadLetterClass> {
        let mut classes: BTreeMap<String, DeadLetterClass> = BTreeMap::new();
        for entry in self.runs.values().filter(|entry| entry.row.tenant == filter.tenant) {
            if filter.run_id.as_ref().is_some_and(|id| id != entry.row.id()) {
                continue;
            }
            for item in &entry.items {
                let kind = &entry.row.lifecycle.items[usize::from(item.kind)];
                let state = kind.state(item.state);
                let waits = state.outcome == Some(Outcome::Failed)
                    && state.follow("retry").is_some()
                    && !kind.stops_run
                    && !item.discarded;
                let Some(failure) = item.failure.as_ref().filter(|_| waits) else { continue };
                if filter.code.as_ref().is_some_and(|code| **code != *failure.code) {
                    continue;
                }
                let class = classes.entry(failure.code.to_string()).or_default();
                class.count += 1;
                let run = entry.row.lifecycle.state(entry.row.run.state);
                class.rolled_back += u64::from(run.outcome == Some(Outcome::Reverted));
                if class.oldest_at.is_none_or(|oldest| item.finished_at.is_some_and(|at| at < oldest)) {
                    class.oldest_at = item.finished_at;
                    class.sample = DeadLetter {
                        run_id: entry.row.id().to_owned(),
                        key: item.key.to_string(),
                        message: failure.message.to_string(),
                    };
                }
            }
        }
        let named = |(code, class): (String, DeadLetterClass)| DeadLetterClass { code, ..class };
        let mut found: Vec<DeadLetterClass> = classes.into_iter().map(named).collect();
        found.sort_by_key(|class| std::cmp::Reverse(class.count));
        found
    }
}

fn lost(row: &RunRow) -> StoreError {
    Refusal {
        code: Code::LeaseLost,
        message: "the lease is not yours (any more)".to_owned(),
        current: row.status().into(),
        requested: String::new(),
        allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
        guard: None,
        field: None,
    }
    .into()
}

/// What a worker brings is cut; databases keep milliseconds, rather more than less.
fn cleaned(tried: &Tried) -> Tried {
    let ms = |span: &waypost_kernel::Span| {
        let up = Time::from_ms(span.micros().saturating_add(999).div_euclid(1_000));
        up.min(Time::from_micros(253_402_128_000_000_000)) - Time::default()
    };
    let mut tried = tried.clone();
    match &mut tried {
        Tried::Applied => {}
        Tried::Retry { failure, wait, .. } | Tried::Throttled { failure, wait, .. } => {
            *failure = cleaned_failure(failure);
            *wait = ms(wait);
        }
        Tried::Failed { failure } | Tried::Refused { failure } => *failure = cleaned_failure(failure),
        Tried::Unsent { wait } => *wait = ms(wait),
    }
    tried
}
