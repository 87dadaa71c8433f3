//! The check behind `waypost verify`: what the log says a run should be, against what its row says it is. Shared
//! by all stores; they only read the rows.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};
use waypost_kernel::event::Event;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Phase, StateId};
use waypost_kernel::{Run, Time, fold};

use crate::columns::{COLUMNS, Cell, Field, shortened};
use crate::json::codec;
use crate::rules::details;
use crate::rules::follow::Items;
use crate::rules::legal::illegal_moves;
use crate::rules::metadata;
use crate::seam::run::{RunRow, iso};

/// An event's columns, as read.
#[derive(Clone, Debug)]
pub struct Written {
    pub seq: u64,
    pub at: Time,
    pub command: String,
    pub from: Option<String>,
    pub to: String,
    pub actor: String,
    pub by: String,
    pub effect: Option<Value>,
}

/// A run's log is taken in event by event and its items page by page: a run may have a hundred thousand of them. What is kept of
/// each item is where the log left it.
#[derive(Debug)]
pub struct Replay<'l> {
    lifecycle: &'l Lifecycle,
    run_id: &'l str,
    last_seq: u64,
    /// As the events so far made it; none once one did not follow.
    folded: Option<Run>,
    is_broken: bool,
    /// When what came into a state last is due there.
    due: HashMap<StateId, Option<Time>>,
    items: Items,
    metadata: Map<String, Value>,
    details: Map<String, Value>,
    problems: Vec<String>,
}

impl<'l> Replay<'l> {
    pub fn new(lifecycle: &'l Lifecycle, run_id: &'l str) -> Replay<'l> {
        Replay {
            lifecycle,
            run_id,
            last_seq: 0,
            folded: None,
            is_broken: false,
            due: HashMap::new(),
            items: Items::default(),
            metadata: Map::new(),
            details: Map::new(),
            problems: Vec::new(),
        }
    }

    pub fn add(&mut self, written: &Written) {
        let expected = self.last_seq + 1;
        if written.seq != expected {
            self.problems.push(match written.seq {
                seq if seq < expected => format!("event {seq} is in the log twice"),
                seq if seq == expected + 1 => format!("event {expected} is not in the log"),
                seq => format!("events {expected} to {} are not in the log", seq - 1),
            });
        }
        let Some(event) = codec::event_from(self.run_id, written, self.lifecycle) else {
            self.problems.push(format!("event {} cannot be read", written.seq));
            return;
        };
        if let Some(effect) = &written.effect {
            // What cannot be read reads as nothing, and would be compared as that.
            if !effect.is_object() || effect["intent"].is_object() && event.effect.intent.is_none() {
                self.problems.push(format!("what event {} did cannot be read", written.seq));
            }
            // What a run is born with is no patch: a null is kept there.
            let is_birth = event.from.is_none();
            let merge = |into: &mut Members, patch: &Members| details::merge(self.lifecycle, into, patch);
            replay_patch(&mut self.metadata, effect, "metadata", is_birth, |into, patch| {
                _ = metadata::lay_over(into, patch);
            });
            replay_patch(&mut self.details, effect, "details", is_birth, merge);
        }
        self.problems.extend(illegal_moves(self.lifecycle, &event));
        self.problems.extend(begun_after_a_failure(self.lifecycle, &self.items, &event));
        self.problems.extend(begun_early(self.lifecycle, &self.due, &event));
        self.items.follow(self.lifecycle, &event);
        self.last_seq = event.seq;
        if event.from != Some(event.to) {
            self.due.insert(event.to, event.effect.available_at);
        }
        if !self.is_broken {
            self.folded = fold::follow(self.lifecycle, self.folded.take(), &event);
            self.is_broken = self.folded.is_none();
        }
    }

    /// Compares items of the run with what the log made of them: each comes once.
    pub fn compare(&mut self, items: &[Item]) {
        for item in items {
            let kind = &self.lifecycle.items[usize::from(item.kind)];
            let name = format!("{} {}", kind.name, item.key);
            match self.items.take(item.kind, &item.key) {
                Some(replayed) if replayed == item => {}
                Some(replayed) => self.problems.extend(item_fields_that_differ(kind, &name, item, replayed)),
                None => self.problems.push(format!("{name} is there, and not in the log")),
            }
        }
    }

    /// One line per difference, naming the run, the field, what the row has and what the log says.
    pub fn differences(self, row: &RunRow) -> Vec<String> {
        let mut problems = self.problems;
        match self.folded {
            None => problems.push("its events do not follow one another".into()),
            Some(folded) => problems.extend(fields_that_differ(row, &folded)),
        }
        problems.extend(members_that_differ("metadata", &row.metadata, &self.metadata));
        problems.extend(members_that_differ("details", &row.details, &self.details));
        problems.extend(self.items.left().iter().map(|item| {
            let kind = &self.lifecycle.items[usize::from(item.kind)].name;
            format!("{kind} {} is in the log, and not there", item.key)
        }));
        if row.phase() == Phase::Held && row.run.lease.is_none() {
            problems.push("it is held without a lease".into());
        }
        problems.into_iter().map(|problem| format!("{}: {problem}", self.run_id)).collect()
    }
}

fn fields_that_differ(row: &RunRow, folded: &Run) -> Vec<String> {
    let mut stored = row.clone();
    stored.run = fold::without_secrets(&row.run);
    let mut logged = stored.clone();
    logged.run = fold::without_secrets(folded);
    if stored.run == logged.run {
        return Vec::new();
    }
    let mut told = Vec::new();
    told.extend(differs("status", Cell::text(stored.status()), Cell::text(logged.status())));
    told.extend(COLUMNS.iter().filter_map(|it| differs(it.name, (it.get)(&stored), (it.get)(&logged))));
    if told.is_empty() {
        told.extend(differs("items", Cell::json(stored.item_counts()), Cell::json(logged.item_counts())));
    }
    told
}

fn item_fields_that_differ(kind: &Lifecycle, name: &str, stored: &Item, logged: &Item) -> Vec<String> {
    let fields = |item: &Item| {
        [
            ("status", Value::from(&*kind.state(item.state).name)),
            ("attempts", item.attempts.into()),
            ("max_retries", item.max_retries.into()),
            ("try_no", item.try_no.into()),
            ("throttled", item.throttled.into()),
            ("waited_ms", item.waited_ms.into()),
            ("in_doubt", item.in_doubt.into()),
            ("progress", item.progress.into()),
            ("not_before", item.not_before.cell().into_json()),
            ("discarded", item.discarded.into()),
            ("reruns", item.reruns.into()),
            ("role", item.role.name().into()),
            ("failure", item.failure.cell().into_json()),
            ("started_at", item.started_at.cell().into_json()),
            ("finished_at", item.finished_at.cell().into_json()),
        ]
    };
    let pairs = fields(stored).into_iter().zip(fields(logged));
    let told = pairs
        .filter_map(|((field, stored), (_, logged))| differs(field, Cell::json(stored), Cell::json(logged)));
    told.map(|told| format!("{name}: {told}")).collect()
}

fn members_that_differ(name: &str, stored: &Members, logged: &Members) -> Vec<String> {
    let names: BTreeSet<&String> = stored.keys().chain(logged.keys()).collect();
    let of = |members: &Members, key: &str| Cell::json(members.get(key).cloned().unwrap_or(Value::Null));
    let told = names.into_iter().filter_map(|key| {
        let has = |members: &Members| {
            if members.contains_key(key) { said(of(members, key)) } else { "not there".into() }
        };
        (stored.get(key) != logged.get(key))
            .then(|| format!("{name}.{key} is {}, the log says {}", has(stored), has(logged)))
    });
    told.collect()
}

fn differs(field: &str, stored: Cell<'_>, logged: Cell<'_>) -> Option<String> {
    (stored != logged).then(|| format!("{field} is {}, the log says {}", said(stored), said(logged)))
}

/// A value in a line for people.
fn said(cell: Cell<'_>) -> String {
    match cell.into_json() {
        Value::Null => "nothing".into(),
        value => shortened(&value.to_string()).into_owned(),
    }
}

/// A run that waits in its queue is not begun before its time, by nobody.
fn begun_early(lifecycle: &Lifecycle, due: &HashMap<StateId, Option<Time>>, event: &Event) -> Option<String> {
    let from = event.from.filter(|from| lifecycle.phase(*from) == Phase::Ready)?;
    if lifecycle.phase(event.to) != Phase::Held {
        return None;
    }
    let due = due.get(&from)?.filter(|due| due.ms() > event.at.ms())?;
    Some(format!(
        "event {} begins it at {}, and it was not due before {}",
        event.seq,
        iso(event.at),
        iso(due)
    ))
}

/// After a failed step nothing begins but cleanups. The moves of one event happened in their order.
fn begun_after_a_failure(lifecycle: &Lifecycle, items: &Items, event: &Event) -> Option<String> {
    let mut ended: Vec<&Item> = Vec::new();
    for it in &event.effect.moved {
        let kind = &lifecycle.items[usize::from(it.item.kind)];
        if it.item.is_of_course(kind) && kind.begins(it.from, it.item.state) {
            let before = items.ended(it.item.kind);
            let failed =
                before.or_else(|| ended.iter().copied().find(|earlier| earlier.kind == it.item.kind));
            if let Some(failed) = failed {
                let (kind, key) = (&kind.name, &it.item.key);
                return Some(format!(
                    "event {} begins {kind} {key} though {} had failed before",
                    event.seq, failed.key
                ));
            }
        }
        if it.item.ends_course(kind) {
            ended.push(&it.item);
        }
    }
    None
}

type Members = Map<String, Value>;

fn replay_patch(
    into: &mut Members,
    effect: &Value,
    key: &str,
    is_birth: bool,
    merge: impl Fn(&mut Members, &Members),
) {
    if let Value::Object(whole) = &effect[format!("{key}_is")] {
        into.clone_from(whole);
    }
    match &effect[key] {
        Value::Object(whole) if is_birth => into.clone_from(whole),
        Value::Object(patch) => merge(into, patch),
        _ => {}
    }
}
