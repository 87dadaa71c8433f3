//! The check behind `waypost verify`: what the log says a run should be, against what its row says it is. Shared
//! by all stores; they only read the rows.

use serde_json::{Map, Value};
use waypost_kernel::event::Event;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::{Lifecycle, Phase};
use waypost_kernel::{Time, fold};

use crate::json::codec;
use crate::rules::details;
use crate::rules::follow::follow;
use crate::rules::intake;
use crate::seam::run::RunRow;

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

#[derive(Debug)]
pub struct Replay<'l> {
    lifecycle: &'l Lifecycle,
    run_id: &'l str,
    events: Vec<Event>,
    items: Vec<Item>,
    metadata: Map<String, Value>,
    details: Map<String, Value>,
    problems: Vec<String>,
}

impl<'l> Replay<'l> {
    pub fn new(lifecycle: &'l Lifecycle, run_id: &'l str) -> Replay<'l> {
        Replay {
            lifecycle,
            run_id,
            events: Vec::new(),
            items: Vec::new(),
            metadata: Map::new(),
            details: Map::new(),
            problems: Vec::new(),
        }
    }

    pub fn add(&mut self, written: &Written) {
        let expected = self.events.last().map_or(1, |last| last.seq + 1);
        if written.seq != expected {
            self.problems.push(format!("event {} follows event {}", written.seq, expected - 1));
        }
        let Some(event) = codec::event_from(self.run_id, written, self.lifecycle) else {
            self.problems.push(format!("event {} cannot be read", written.seq));
            return;
        };
        if let Some(effect) = &written.effect {
            // What a run is born with is no patch: a null is kept there.
            let is_birth = event.from.is_none();
            let merge = |into: &mut Members, patch: &Members| details::merge(self.lifecycle, into, patch);
            replay_patch(&mut self.metadata, effect, "metadata", is_birth, intake::merge);
            replay_patch(&mut self.details, effect, "details", is_birth, merge);
        }
        self.problems.extend(begun_after_a_failure(self.lifecycle, &self.items, &event));
        follow(self.lifecycle, &mut self.items, &event);
        self.events.push(event);
    }

    /// One line per difference, naming the run.
    pub fn differences(self, row: &RunRow, items: &[Item]) -> Vec<String> {
        let mut problems = self.problems;
        match fold::fold(self.lifecycle, &self.events) {
            None => problems.push("its events do not follow one another".into()),
            Some(folded) => {
                let stored = fold::without_secrets(&row.run);
                let folded = fold::without_secrets(&folded);
                if folded != stored {
                    problems.push(format!(
                        "the log says {}, the row says {}",
                        told(&folded, &stored),
                        told(&stored, &folded)
                    ));
                }
            }
        }
        if self.metadata != *row.metadata {
            problems.push("metadata is not what the log says".into());
        }
        if self.details != *row.details {
            problems.push("details are not what the log says".into());
        }
        for item in items {
            match self.items.iter().find(|it| it.kind == item.kind && it.key == item.key) {
                Some(replayed) if replayed == item => {}
                Some(_) => problems.push(format!("item {} is not what the log says", item.key)),
                None => problems.push(format!("item {} is not in the log", item.key)),
            }
        }
        if self.items.len() > items.len() {
            problems.push(format!("{} items of the log are missing", self.items.len() - items.len()));
        }
        if row.phase() == Phase::Held && row.run.lease.is_none() {
            problems.push("it is held without a lease".into());
        }
        problems.into_iter().map(|problem| format!("{}: {problem}", self.run_id)).collect()
    }
}

/// After a failed step nothing begins but cleanups. The moves of one event happened in their order.
fn begun_after_a_failure(lifecycle: &Lifecycle, items: &[Item], event: &Event) -> Option<String> {
    let moved = &event.effect.moved;
    for (at, it) in moved.iter().enumerate() {
        let kind = &lifecycle.items[usize::from(it.item.kind)];
        if !it.item.is_of_course(kind) || !kind.begins(it.from, it.item.state) {
            continue;
        }
        let ended = |item: &&Item| item.kind == it.item.kind && item.ends_course(kind);
        let before = items.iter().find(ended);
        let failed = before.or_else(|| moved[..at].iter().map(|earlier| &earlier.item).find(ended));
        if let Some(failed) = failed {
            let (kind, key) = (&kind.name, &it.item.key);
            return Some(format!(
                "event {} begins {kind} {key} though {} had failed before",
                event.seq, failed.key
            ));
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

/// The fields in which one differs from the other.
fn told(run: &waypost_kernel::Run, other: &waypost_kernel::Run) -> String {
    let (ours, theirs) = (format!("{run:#?}"), format!("{other:#?}"));
    let lines =
        ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| ours != theirs).map(|(ours, _)| ours.trim());
    lines.take(6).collect::<Vec<_>>().join(" ")
}
