//! Rows as callers see them: the run object of the API and the CLI is made here, once for all stores.

use std::sync::{Arc, LazyLock};

use serde::Serialize;
use serde_json::{Map, Value, json};
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::Lifecycle;
use waypost_kernel::time::Civil;
use waypost_kernel::waiting::Waiting;
use waypost_kernel::{Failure, Run, Time, fold};
use waypost_schema::{Kind as Api, needed};

use crate::columns::{self, COLUMNS, Cell, DERIVED, LONG, NAME, columns};
use crate::json::wire;
use crate::rules::room;
use crate::seam::verbs::Parts;

/// What the kernel decides on, and what is stored beside it.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub run: Run,
    pub lifecycle: Arc<Lifecycle>,
    pub tenant: String,
    pub queue: String,
    pub priority: i16,
    pub schedule_at: Option<Time>,
    pub concurrency_key: Option<String>,
    pub correlation_id: Option<String>,
    pub idempotency_key: Option<String>,
    pub parent_run_id: Option<String>,
    pub retry_of: Option<String>,
    /// What the run is, for people.
    pub title: Option<String>,
    pub playbook: Option<String>,
    /// `{"command": […], "directory": "…", "retries": n}`: what `run start -- COMMAND` brings along.
    pub carried: Option<Value>,
    pub input: Arc<Value>,
    pub metadata: Arc<Map<String, Value>>,
    pub details: Arc<Map<String, Value>>,
    /// Why it waits, if that was asked for: none of a run that does not.
    pub waits: Option<Box<Option<Waiting>>>,
    /// Its place among those that wait for the same concurrency key, or without one in its queue, from 1; if that was asked for.
    pub queue_position: Option<u64>,
}

/// Of a row that is not filled yet.
static NO_INPUT: LazyLock<Arc<Value>> = LazyLock::new(Arc::default);

/// Most runs have none of it, and share that.
pub(crate) fn shared(members: Map<String, Value>) -> Arc<Map<String, Value>> {
    static NONE: LazyLock<Arc<Map<String, Value>>> = LazyLock::new(Arc::default);
    if members.is_empty() { NONE.clone() } else { Arc::new(members) }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// Its place among the events of all runs, in the order of their commits.
    pub position: u64,
    pub run_id: String,
    /// Of its run.
    pub tenant: String,
    pub lifecycle: String,
    pub seq: u64,
    pub at: Time,
    pub command: String,
    pub from: Option<String>,
    pub to: String,
    pub actor: String,
    pub by: String,
    pub level: String,
    pub message: String,
    pub payload: Value,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemRow {
    pub kind: String,
    pub key: String,
    pub name: String,
    pub status: String,
    pub attempts: u32,
    pub max_retries: u32,
    pub try_no: u32,
    pub throttled: u32,
    pub waited_ms: u32,
    pub in_doubt: bool,
    pub progress: u8,
    pub not_before: Option<Time>,
    pub discarded: bool,
    pub reruns: bool,
    pub role: Role,
    pub failure: Option<Failure>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
    pub output: Value,
    pub details: Map<String, Value>,
}

impl RunRow {
    /// A row to be filled column by column.
    pub(crate) fn blank(lifecycle: Arc<Lifecycle>, state: waypost_kernel::StateId) -> RunRow {
        RunRow::of(fold::blank(&lifecycle, state), lifecycle)
    }

    /// A row without anything beside the run.
    pub(crate) fn of(run: Run, lifecycle: Arc<Lifecycle>) -> RunRow {
        RunRow {
            run,
            lifecycle,
            tenant: String::new(),
            queue: String::new(),
            priority: 0,
            schedule_at: None,
            concurrency_key: None,
            correlation_id: None,
            idempotency_key: None,
            parent_run_id: None,
            retry_of: None,
            title: None,
            playbook: None,
            carried: None,
            input: NO_INPUT.clone(),
            metadata: shared(Map::new()),
            details: shared(Map::new()),
            waits: None,
            queue_position: None,
        }
    }

    pub fn id(&self) -> &str {
        &self.run.id
    }

    pub fn status(&self) -> &str {
        &self.lifecycle.state(self.run.state).name
    }

    pub fn phase(&self) -> waypost_kernel::Phase {
        self.lifecycle.phase(self.run.state)
    }

    pub fn outcome(&self) -> Option<waypost_kernel::Outcome> {
        self.lifecycle.state(self.run.state).outcome
    }

    /// The run object: what `GET /v1/runs/{id}` and `run show -o json` print.
    pub fn object(&self) -> Value {
        let shown = COLUMNS.iter().map(|column| &**column).filter(|column| column.is_shown());
        self.with_waiting(columns::members(self, shown.chain(DERIVED)))
    }

    fn with_waiting(&self, mut members: Map<String, Value>) -> Value {
        if let Some(waits) = &self.waits {
            members.insert("waiting".into(), wire::waiting(waits.as_ref().as_ref()));
        }
        members
            .extend(self.queue_position.map(|position| (wire::QUEUE_POSITION.to_owned(), position.into())));
        members.into()
    }

    /// Why it waits, as far as it was asked for.
    pub fn waiting(&self) -> Option<&Waiting> {
        self.waits.as_deref()?.as_ref()
    }

    /// The same as a list shows it: without the members that were not asked for.
    pub fn listed(&self, parts: Parts) -> Value {
        let shown = COLUMNS.iter().map(|column| &**column).filter(|column| column.is_shown());
        let shown = shown.chain(DERIVED).filter(|column| !parts.leaves_out(column.name));
        self.with_waiting(columns::members(self, shown))
    }

    /// What [`RunRow::listed`] gives, to be written out: nothing is copied. `with_engine`: with what only Waypost's own workers and
    /// command line are shown.
    pub fn written(&self, parts: Parts, with_engine: bool) -> impl Serialize + '_ {
        let columns = SORTED.iter().copied().filter(move |column| !parts.leaves_out(column.name));
        let waits = self.waits.as_deref().map(|waits| ("waiting", wire::waiting(waits.as_ref())));
        let engine = with_engine.then(|| ("engine", wire::engine(self)));
        let position = self.queue_position.map(|position| (wire::QUEUE_POSITION, position.into()));
        let more = waits.into_iter().chain(engine).chain(position).collect();
        columns::Object { row: self, columns, more }
    }

    /// How long its parts are that may be large.
    pub fn part_bytes(&self) -> usize {
        let members = |members: &Map<String, Value>| serde_json::to_vec(members).map_or(0, |text| text.len());
        let value = |value: &Value| serde_json::to_vec(value).map_or(0, |text| text.len());
        let carried = self.carried.as_ref().map_or(0, value);
        value(&self.input) + members(&self.metadata) + members(&self.details) + carried
    }

    /// What those parts take in memory.
    pub fn weight(&self) -> usize {
        let maps = [&self.metadata, &self.details];
        let maps = maps.into_iter().filter(|map| !map.is_empty()).map(|map| room::weight_of(&**map));
        let values = self.carried.iter().chain([&*self.input]).map(room::weight_of);
        maps.chain(values).sum()
    }

    /// How many items it has, of all kinds.
    pub(crate) fn item_count(&self) -> usize {
        self.run.tallies.iter().flat_map(|tally| &tally.by_state).sum::<u32>() as usize
    }

    /// Takes a count of its items, and of those that stay where they are. An error names what its lifecycle does not know.
    pub(crate) fn count_items(
        &mut self,
        (kind, status): (&str, &str),
        count: u32,
        staying: u32,
    ) -> Result<(), (&'static str, String)> {
        let place = self.lifecycle.items.iter().position(|known| *known.name == *kind);
        let place = place.ok_or_else(|| ("kind", kind.to_owned()))?;
        let state = self.lifecycle.items[place].state_named(status);
        let state = usize::from(state.ok_or_else(|| ("item", status.to_owned()))?.0);
        self.run.tallies[place].by_state[state] = count;
        self.run.tallies[place].staying[state] = staying;
        Ok(())
    }

    /// Takes counts of its items as [kind, status, count, staying] each. An error names what its lifecycle does not know.
    pub(crate) fn take_tally(&mut self, text: &str) -> Result<(), (&'static str, String)> {
        let counted: Vec<(String, String, u32, u32)> =
            serde_json::from_str(text).map_err(|_| ("tally", text.to_owned()))?;
        counted
            .iter()
            .try_for_each(|(kind, status, count, staying)| self.count_items((kind, status), *count, *staying))
    }

    /// The same, to be kept with the row. None: they are so few that they are counted when they are needed, and steps pay nothing.
    pub(crate) fn tally(&self) -> Option<String> {
        if !self.has_tally() {
            return None;
        }
        let kinds = self.lifecycle.items.iter().zip(&*self.run.tallies);
        let counts = kinds.flat_map(|(kind, tally)| {
            let states = kind.states.iter().zip(tally.by_state.iter().zip(&tally.staying));
            let there = states.filter(|(_, (count, _))| **count > 0);
            there.map(|(state, (count, staying))| json!([&*kind.name, &*state.name, count, staying]))
        });
        Some(Value::Array(counts.collect()).to_string())
    }

    /// Whether it has so many items that their counts are kept.
    pub(crate) fn has_tally(&self) -> bool {
        const KEPT_FROM: usize = 64;
        self.item_count() >= KEPT_FROM
    }

    pub(crate) fn item_counts(&self) -> Value {
        let mut counts = Map::new();
        for (kind, tally) in self.lifecycle.items.iter().zip(&*self.run.tallies) {
            let states = kind.states.iter().zip(&tally.by_state).filter(|(_, count)| **count > 0);
            let by_status: Map<String, Value> =
                states.map(|(state, count)| (state.name.to_string(), json!(count))).collect();
            if !by_status.is_empty() {
                counts.insert(kind.name.to_string(), Value::Object(by_status));
            }
        }
        Value::Object(counts)
    }
}

/// What everybody sees of a run, in the order that objects on the wire have.
static SORTED: LazyLock<Vec<&'static columns::Column<RunRow>>> = LazyLock::new(|| {
    let shown = COLUMNS.iter().map(|column| &**column).filter(|column| column.is_shown());
    let mut sorted: Vec<_> = shown.chain(DERIVED).collect();
    sorted.sort_unstable_by_key(|column| column.name);
    sorted
});

impl EventRow {
    /// The same, to be written out.
    pub fn written(&self) -> impl Serialize + '_ {
        columns::Object { row: self, columns: EVENT_COLUMNS.iter(), more: Vec::new() }
    }

    pub fn object(&self) -> Value {
        columns::object(self, EVENT_COLUMNS)
    }
}

impl ItemRow {
    /// The same, to be written out.
    pub fn written(&self) -> impl Serialize + '_ {
        columns::Object { row: self, columns: ITEM_COLUMNS.iter(), more: Vec::new() }
    }

    pub fn object(&self) -> Value {
        columns::object(self, ITEM_COLUMNS)
    }
}

columns! { pub(crate) EVENT_COLUMNS: Column of EventRow {
    derived(needed("event_id", NAME, "The event's id."), |it| Cell::Text(format!("evt-{}", it.position).into()));
    field(position, "The event's place among those of all runs; its id in the stream.");
    field(run_id, "The run that the event is about.");
    field(tenant, "The tenant that the run belongs to.");
    field(lifecycle, "The run's lifecycle.");
    field(seq, "The event's number in its run: 1, 2, 3 and so on.");
    field(at, "When it happened, by the database's clock.");
    field(command, "What moved the run, or `note`.");
    field(from, "The state before the event; null for the first.");
    field(to, "The state after the event.");
    field(actor, "What kind of caller asked for it: client, operator, worker or engine.");
    field(by, "The name of who asked for it.", LONG);
    field(level, "How important the event is: debug, info, warn or error.");
    field(message, "What happened, for people.", LONG);
    field(payload, "What happened, for programs.");
} }

columns! { pub(crate) ITEM_COLUMNS: Column of ItemRow {
    field(kind, "The item's kind: step, task, target, or what the lifecycle calls it.");
    field(key, "The item's key, unique in its run and kind.");
    field(name, "The item's name, for people.");
    field(status, "The state that the item is in.");
    field(attempts, "How many retries were used, of `max_retries`.");
    field(max_retries, "How many retries the item may use.");
    field(try_no, "A number that rises after every known answer.");
    field(throttled, "How many answers, since the item was last retried by a person, made it wait without using a retry.");
    field(waited_ms, "For how long they made it wait in all, in milliseconds.");
    field(in_doubt, "Whether an answer under this `try_no` was lost, so that the change may have been made: the number stays until an answer settles it.");
    field(progress, "How far the item is, in percent.", Api::Integer(0, 100));
    field(not_before, "When the item is tried next.");
    field(discarded, "Whether somebody gave the item up.");
    field(reruns, "Whether a resume of the run makes the item begin again although it was done.");
    field(role, "What the item's failure means to the run: it ends its course (`step`), or not (`optional`); a `cleanup` begins whatever failed.");
    part(error_code = failure ? code, "Why the item failed, as a code.", NAME, or Failure Failure::new("", ""));
    part(error_msg = failure ? message, "Why the item failed, in words.", LONG);
    field(started_at, "When work on the item began.");
    field(finished_at, "When the item was settled.");
    nullable(output, "What the item gave.");
    field(details, "An object that is kept beside the item.");
} }

/// `2026-02-14T08:00:00.000Z`: always three decimals, so that text sorts as time does. Written by hand: every row has
/// half a dozen of these, and the formatting machinery took a tenth of a claim.
pub fn iso(time: Time) -> String {
    let Civil { year, month, day, hour, minute, second, micros } = Civil::of(time);
    if !(0..=9_999).contains(&year) {
        return time.to_string();
    }
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, digits: usize, mut value: u32| {
        for place in (at..at + digits).rev() {
            text[place] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(0, 4, year as u32);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, hour);
    put(14, 2, minute);
    put(17, 2, second);
    put(20, 3, micros / 1_000);
    String::from_utf8_lossy(&text).into_owned()
}

/// As [`Time::parse`] reads it.
pub fn parse_time(text: &str) -> Option<Time> {
    Time::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_forms_that_people_and_databases_write() {
        let expected = parse_time("2026-02-14T08:00:00.000Z").unwrap_or_default();
        assert_eq!(iso(expected), "2026-02-14T08:00:00.000Z");
        for text in [
            "2026-02-14 08:00:00",
            "2026-02-14T10:00:00+02:00",
            "2026-02-14T06:30:00.0-0130",
            "2026-02-14 08:00:00+00",
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "2026-02-14",
            "2026-02-30T00:00:00Z",
            "2026-02-14T08:00:00.Z",
            "2026-02-14T08:00:00X",
            "yesterday",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
