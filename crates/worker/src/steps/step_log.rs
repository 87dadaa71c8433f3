//! The steps of a held run: read once, and from then on kept equal to what was written. Every write is all or
//! none, and a result and the beginning of what follows travel in one.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::sleep;
use waypost_kernel::item::Role;
use waypost_kernel::run::Want;
use waypost_kernel::{Code, Failure, Span};
use waypost_store::{EventRow, ItemRow, ItemWrite, ItemsWrite, Reply, RunRow, Store, StoreError};

use super::state_names::{StateNames, StepState};
use crate::lease::Lease;
use crate::pace;
use crate::report::journal::is_lost;

/// Results that may wait for the next write: a thousand skipped items are a few writes, and none is a large one.
const MAX_WAITING: usize = 500;

/// Events that are read at once when the last of a kind is looked for.
const LOOKED_BACK: u64 = 200;

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The run is another's by now.
    Lost,
    /// Something else is wanted of the run, by people or by an earlier holder that recorded a failure: nothing but cleanups may begin.
    Wanted(Want),
    /// The store refuses what is asked, and would again: the run cannot go on.
    Refused(Failure),
}

impl Halt {
    pub fn refused(error: &StoreError) -> Halt {
        let want = match error {
            StoreError::Refused(refusal) => match refusal.code {
                Code::FailureRecorded => Some(Want::Fail),
                Code::CancelRequested => Some(Want::Cancel),
                Code::PauseRequested => Some(Want::Pause),
                _ => None,
            },
            _ => None,
        };
        let failure = || Failure::new("STEP_REFUSED", &format!("a step could not be stored: {error}"));
        want.map_or_else(|| Halt::Refused(failure()), Halt::Wanted)
    }
}

pub(crate) struct StepLog {
    store: Arc<dyn Store>,
    lease: Arc<Lease>,
    by: String,
    pub names: StateNames,
    rows: Vec<ItemRow>,
    /// Where a key's row is.
    places: HashMap<String, usize>,
    /// Where the items of a `for_each` are, by the key of its step and in their order.
    parts: HashMap<String, Vec<usize>>,
    /// To be written with the next ones.
    waiting: Vec<ItemWrite>,
}

/// How an item is left.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepResult {
    pub failure: Option<Failure>,
    pub output: Option<Value>,
    pub details: Map<String, Value>,
    /// The outside gave an answer, whatever it was.
    pub answered: bool,
    pub retry_in: Option<Span>,
    /// Of one that comes to be with this.
    pub role: Role,
}

/// A step that a run gets while it is under way.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub key: String,
    pub name: String,
    pub retries: u32,
    pub reruns: bool,
    pub role: Role,
    pub details: Map<String, Value>,
}

impl StepLog {
    /// `None`: the lifecycle has no steps.
    pub async fn open(
        store: &Arc<dyn Store>,
        lease: &Arc<Lease>,
        by: &str,
        row: &RunRow,
    ) -> Result<Option<StepLog>, Halt> {
        let Some(names) = StateNames::of_steps(&row.lifecycle) else { return Ok(None) };
        let mut step_log = StepLog {
            store: store.clone(),
            lease: lease.clone(),
            by: by.to_owned(),
            names,
            rows: Vec::new(),
            places: HashMap::new(),
            parts: HashMap::new(),
            waiting: Vec::new(),
        };
        let rows = step_log.read().await?;
        step_log.keep(rows);
        Ok(Some(step_log))
    }

    async fn read(&self) -> Result<Vec<ItemRow>, Halt> {
        let (run_id, kind) = (self.lease.held.run_id.clone(), self.names.kind.clone());
        self.ask(|| self.store.items(run_id.clone(), Some(kind.clone()))).await
    }

    /// A page of the run's log.
    pub async fn events_after(&self, seq: u64) -> Result<Vec<EventRow>, Halt> {
        let run_id = self.lease.held.run_id.clone();
        self.ask(|| self.store.events(run_id.clone(), seq, 1_000)).await
    }

    /// The last of the run's events up to `end` that fits. It is looked for from there back: what is asked for is near.
    pub async fn last_event(
        &self,
        mut end: u64,
        fits: impl Fn(&EventRow) -> bool,
    ) -> Result<Option<EventRow>, Halt> {
        while end > 0 {
            let start = end.saturating_sub(LOOKED_BACK);
            let (mut found, mut after) = (None, start);
            while after < end {
                let page = self.events_after(after).await?;
                let Some(last) = page.last().map(|event| event.seq) else { break };
                let fit = page.into_iter().rfind(|event| event.seq <= end && fits(event));
                (found, after) = (fit.or(found), last);
            }
            if found.is_some() {
                return Ok(found);
            }
            end = start;
        }
        Ok(None)
    }

    /// Asked again while the store is away.
    async fn ask<'s, T>(&'s self, question: impl Fn() -> Reply<'s, T>) -> Result<T, Halt> {
        for retry in 1.. {
            match question().await {
                Ok(answer) => return Ok(answer),
                Err(error @ StoreError::Unavailable(_)) => self.away(&error, retry).await?,
                Err(error) if is_lost(&error) => break,
                Err(error) => {
                    let run_id = &self.lease.held.run_id;
                    tracing::error!(run_id, %error, "the steps of the run cannot be read");
                    return Err(Halt::refused(&error));
                }
            }
        }
        Err(Halt::Lost)
    }

    pub fn row(&self, key: &str) -> Option<&ItemRow> {
        self.places.get(key).map(|at| &self.rows[*at])
    }

    /// The items of a `for_each`, in their order.
    pub fn parts_of(&self, step: &str) -> impl Iterator<Item = &ItemRow> {
        self.parts.get(step).into_iter().flatten().map(|at| &self.rows[*at])
    }

    pub fn state(&self, key: &str) -> StepState {
        self.row(key).map_or(StepState::Open, |row| self.names.state(&row.status))
    }

    pub fn rows(&self) -> &[ItemRow] {
        &self.rows
    }

    /// Whether it is to be done, as far as this end of the run is concerned. A cleanup that failed on the way to a pause
    /// is parked, and left for the next end.
    pub fn is_open(&self, key: &str) -> bool {
        let state = self.state(key);
        !state.is_settled() && state != StepState::Parked
    }

    /// The steps that wait for a person. A cleanup that failed on the way to a pause is parked too, and waits for nobody.
    pub fn parked(&self) -> impl Iterator<Item = &ItemRow> {
        let waits =
            |row: &&ItemRow| row.role != Role::Cleanup && self.names.state(&row.status) == StepState::Parked;
        self.rows.iter().filter(waits)
    }

    /// For templates: it was begun, in this holder's hands or another's, and not left out after a pause.
    pub fn has_run(&self, row: &ItemRow) -> bool {
        row.started_at.is_some() && detail(row, LEFT_OUT) != &Value::Bool(true)
    }

    /// It was begun, here or in the run that this one repeats: what says that nothing more is needed does not keep it from its end.
    pub fn has_begun(&self, row: &ItemRow) -> bool {
        row.started_at.is_some() || detail(row, AGAIN) == &Value::Bool(true)
    }

    pub async fn add(&mut self, added: Vec<Added>) -> Result<(), Halt> {
        let writes: Vec<ItemWrite> = added.into_iter().map(|it| self.write_of_new(it)).collect();
        if writes.is_empty() { Ok(()) } else { self.write(writes).await }
    }

    fn write_of_new(&self, added: Added) -> ItemWrite {
        ItemWrite {
            kind: self.names.kind.clone(),
            key: added.key,
            name: Some(added.name),
            status: self.names.status(StepState::Open).to_owned(),
            max_retries: Some(added.retries),
            reruns: added.reruns,
            role: added.role,
            details: added.details,
            ..ItemWrite::default()
        }
    }

    /// Writes with what waited.
    pub async fn put(&mut self, key: &str, state: StepState, result: StepResult) -> Result<(), Halt> {
        let write = self.write_of(key, state, result);
        self.write(vec![write]).await
    }

    /// Several steps begin, in one write with what waited.
    pub async fn begin(&mut self, begun: Vec<(String, StepResult)>) -> Result<(), Halt> {
        let writes = begun.into_iter().map(|(key, told)| self.write_of(&key, StepState::Held, told));
        let writes = writes.collect();
        self.write(writes).await
    }

    /// Written together with what comes next: see [`StepLog::flush`].
    pub fn put_later(&mut self, key: &str, state: StepState, result: StepResult) {
        let write = self.write_of(key, state, result);
        if let Some(at) = self.places.get(key) {
            let row = &mut self.rows[*at];
            row.status.clone_from(&write.status);
            if let Some(output) = &write.output {
                row.output.clone_from(output);
            }
            row.failure.clone_from(&write.failure);
            row.details.extend(write.details.clone());
        }
        self.waiting.push(write);
    }

    pub async fn flush(&mut self) -> Result<(), Halt> {
        if self.waiting.is_empty() { Ok(()) } else { self.write(Vec::new()).await }
    }

    /// What is to be written with the run's end.
    pub fn take_waiting(&mut self) -> Vec<ItemWrite> {
        std::mem::take(&mut self.waiting)
    }

    /// Before the next result waits too.
    pub async fn make_room(&mut self) -> Result<(), Halt> {
        if self.waiting.len() < MAX_WAITING { Ok(()) } else { self.flush().await }
    }

    fn write_of(&self, key: &str, state: StepState, result: StepResult) -> ItemWrite {
        let retries = state == StepState::Open;
        ItemWrite {
            kind: self.names.kind.clone(),
            key: key.to_owned(),
            status: self.names.status(state).to_owned(),
            command: retries.then(|| "retry".to_owned()),
            failure: result.failure,
            retry_in: result.retry_in,
            answered: result.answered,
            try_no: self.row(key).map(|row| row.try_no),
            role: result.role,
            output: result.output,
            details: result.details,
            ..ItemWrite::default()
        }
    }

    /// What waited has happened, whatever becomes of what follows: refused together, it is written alone.
    async fn write(&mut self, writes: Vec<ItemWrite>) -> Result<(), Halt> {
        let waiting = std::mem::take(&mut self.waiting);
        let both = waiting.iter().cloned().chain(writes.iter().cloned()).collect();
        match self.send(both).await {
            Err(refused @ (Halt::Refused(_) | Halt::Wanted(_)))
                if !waiting.is_empty() && !writes.is_empty() =>
            {
                self.send(waiting).await?;
                Err(refused)
            }
            answer => answer,
        }
    }

    async fn send(&mut self, items: Vec<ItemWrite>) -> Result<(), Halt> {
        let run_id = self.lease.held.run_id.clone();
        let write = ItemsWrite { held: self.lease.held.clone(), by: self.by.clone(), items };
        for retry in 1.. {
            let lease = self.lease.clone();
            let answer = tokio::select! {
                biased;
                () = lease.lost() => return Err(Halt::Lost),
                answer = self.store.put_items(write.clone()) => answer,
            };
            match answer {
                Ok(rows) => {
                    self.keep(rows);
                    return Ok(());
                }
                Err(error) if is_lost(&error) => break,
                Err(error @ StoreError::Unavailable(_)) => self.away(&error, retry).await?,
                Err(error) => {
                    let halt = Halt::refused(&error);
                    match halt {
                        // Nothing begins; whether what is under way is stopped too comes with the next heartbeat.
                        Halt::Wanted(want) => self.lease.wanted(want, true),
                        _ => tracing::error!(run_id, %error, "a step was not accepted"),
                    }
                    return Err(halt);
                }
            }
        }
        self.lease.lose();
        Err(Halt::Lost)
    }

    fn keep(&mut self, rows: Vec<ItemRow>) {
        for row in rows {
            match self.places.get(&row.key) {
                Some(at) => self.rows[*at] = row,
                None => self.learn(row),
            }
        }
    }

    fn learn(&mut self, row: ItemRow) {
        let at = self.rows.len();
        self.places.insert(row.key.clone(), at);
        let number = number(&row);
        let step = detail(&row, "of").as_str().map(str::to_owned);
        self.rows.push(row);
        if let Some(step) = step {
            let parts = self.parts.entry(step).or_default();
            let place = parts.partition_point(|part| self::number(&self.rows[*part]) <= number);
            parts.insert(place, at);
        }
    }

    async fn away(&self, error: &StoreError, retry: u32) -> Result<(), Halt> {
        crate::outage::met(&format!("steps of {} were not accepted", self.lease.held.run_id), error);
        tokio::select! {
            () = self.lease.lost() => Err(Halt::Lost),
            () = sleep(pace::store_away(retry)) => Ok(()),
        }
    }
}

impl StepResult {
    pub fn failed(failure: Failure) -> StepResult {
        StepResult { failure: Some(failure), ..StepResult::default() }
    }

    pub fn with_detail(mut self, key: &str, value: impl Into<Value>) -> StepResult {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// A mark on a step that was settled without being executed since the last pause.
pub(crate) const LEFT_OUT: &str = "left_out";

/// A mark on a step that had begun, and not completed, in the run that this one repeats.
pub(crate) const AGAIN: &str = "again";

/// A mark on an item that is no longer in the list that its step is for.
pub(crate) const DROPPED: &str = "dropped";

/// A mark on what stands for a step whose list was empty. Made anew after a pause, the list may have items.
pub(crate) const NO_ITEMS: &str = "no_items";

pub(crate) fn was_empty(row: &ItemRow) -> bool {
    detail(row, NO_ITEMS) == &Value::Bool(true)
}

pub(crate) fn is_dropped(row: &ItemRow) -> bool {
    detail(row, DROPPED) == &Value::Bool(true)
}

/// Its `when` was not true, or its whole list was left out: of what it saw then, something may be otherwise now.
pub(crate) fn was_not_wanted(row: &ItemRow) -> bool {
    detail(row, LEFT_OUT) == &Value::Bool(true)
}

/// Of a step that was skipped: its `when` or its handler said so, and not the end of its run.
pub(crate) fn was_left_out(row: &ItemRow) -> bool {
    let has = |name: &str| row.details.contains_key(name);
    let was_answered =
        row.started_at.is_some() && row.failure.is_none() && (has("duration_ms") || has("reason"));
    has(LEFT_OUT) || was_answered
}

/// For the log and for people: why a step was left out.
pub(crate) fn because(reason: &str) -> StepResult {
    StepResult::default().with_detail("reason", reason).with_detail(LEFT_OUT, true)
}

fn detail<'r>(row: &'r ItemRow, key: &str) -> &'r Value {
    row.details.get(key).unwrap_or(&Value::Null)
}

/// Of an item of a `for_each`, from 1.
pub(crate) fn number(row: &ItemRow) -> u64 {
    detail(row, "number").as_u64().unwrap_or_default()
}
