//! The targets of a bulk change: gathered into a preview, tried many at a time, retried, given up or rolled back. They are items of
//! the run's first kind.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waypost_kernel::item::Tried;
use waypost_kernel::{Catalog, Failure, Lifecycle, Outcome, Span, Time};

use super::error::{Result, StoreError};
use super::run::{ItemRow, RunRow};
use super::verbs::{Held, Renewed};

/// Of one call: targets that are added, results, targets that are taken.
pub const MOST_TARGETS: usize = 1_000;

/// Where in a run's details the state of its gathering is.
pub(crate) const PREVIEW: &str = "preview";

/// The next batch of a gathering.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddTargets {
    pub tenant: String,
    pub run_id: String,
    pub by: String,
    /// How many rows of the source came before. Fewer than are gathered already: nothing is written, and the answer says where to
    /// go on.
    pub at: u64,
    /// How many rows of the source these are, whatever became of each.
    pub rows: u64,
    pub targets: Vec<NewTarget>,
    /// Rows that would change nothing.
    pub unchanged: u64,
    /// Where a gatherer goes on that knows nothing else.
    pub cursor: Option<Value>,
    /// What it has summed up so far, in place of what it said before.
    pub totals: Map<String, Value>,
    /// The preview is complete: the run may be queued.
    pub last: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTarget {
    /// Unique in its run: one that is there already is left alone.
    pub key: String,
    /// For people; the key if it is not given.
    pub name: Option<String>,
    pub before: Value,
    pub after: Value,
    pub destination: Option<String>,
    /// A guardrail stops it: it fails with this instead of being tried.
    pub violation: Option<Failure>,
    pub max_retries: Option<u32>,
    pub details: Map<String, Value>,
}

/// How far a gathering is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    pub rows: u64,
    pub targets: u64,
    pub unchanged: u64,
    /// Targets that a guardrail stops.
    pub stopped: u64,
    pub ready: bool,
    pub cursor: Option<Value>,
    pub totals: Map<String, Value>,
}

/// What came of tries, what is tried next, and whether the run ends with that.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkTargets {
    pub held: Held,
    pub by: String,
    pub results: Vec<TargetResult>,
    pub take: usize,
    /// How long throttled answers may make a target wait in all.
    pub give_up_after: Span,
    pub end: End,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    Later,
    /// When no target is open any more. As what, their states say.
    WhenDone,
    /// Now: what is open fails with this.
    Stop(Failure),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TargetResult {
    pub key: String,
    /// Of the try: a report of an earlier one changes nothing.
    pub try_no: u32,
    pub tried: Tried,
    pub output: Option<Value>,
}

#[derive(Clone, Debug)]
pub struct Worked {
    /// To be tried now.
    pub taken: Vec<ItemRow>,
    /// Of results that came too late: these targets are not what they report about any more.
    pub ignored: Vec<String>,
    /// When there is another one to be taken; not after `now`: at once. None: none waits.
    pub next_due: Option<Time>,
    /// How many targets the run has in each state.
    pub counts: BTreeMap<String, u32>,
    /// Those that are to be tried, or are being tried.
    pub open: u32,
    /// The run, if it has ended.
    pub ended: Option<RunRow>,
    /// As a heartbeat tells; none if the run has ended.
    pub renewed: Option<Renewed>,
    pub now: Time,
}

/// Failed targets that are not to be retried with the others: they stay failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiscardTargets {
    pub tenant: String,
    pub run_id: String,
    pub by: String,
    pub reason: String,
    /// All that failed if none are named.
    pub keys: Option<Vec<String>>,
    /// Only those that failed with this code.
    pub code: Option<String>,
}

/// Applied targets of an operation's parent that are as they were before, outside.
#[derive(Clone, Debug, PartialEq)]
pub struct RollBackTargets {
    /// The operation, by its lease.
    pub held: Held,
    pub by: String,
    pub keys: Vec<String>,
}

/// Failed targets of which; all of a tenant's if nothing else is said. Those that were discarded are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetterFilter {
    pub tenant: String,
    pub run_id: Option<String>,
    pub code: Option<String>,
}

/// Failed targets with one code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetterClass {
    pub code: String,
    pub count: u64,
    /// How many of them are of runs that were rolled back: no retry is for these.
    pub rolled_back: u64,
    pub oldest_at: Option<Time>,
    /// The oldest of them.
    pub sample: DeadLetter,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadLetter {
    pub run_id: String,
    pub key: String,
    pub message: String,
}

/// What goes outside as the idempotency key of a try.
pub fn target_key(run_id: &str, key: &str, try_no: u32) -> String {
    format!("{run_id}:{key}:apply:{try_no}")
}

impl Preview {
    /// None: the run is not one that is gathered.
    pub fn of(details: &Map<String, Value>) -> Option<Preview> {
        let told = details.get(PREVIEW)?.as_object()?;
        let number = |name: &str| told.get(name).and_then(Value::as_u64).unwrap_or_default();
        Some(Preview {
            rows: number("rows"),
            targets: number("targets"),
            unchanged: number("unchanged"),
            stopped: number("stopped"),
            ready: told.get("ready") == Some(&Value::Bool(true)),
            cursor: told.get("cursor").filter(|cursor| !cursor.is_null()).cloned(),
            totals: told.get("totals").and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    }

    pub fn object(&self) -> Value {
        json!({
            "rows": self.rows,
            "targets": self.targets,
            "unchanged": self.unchanged,
            "stopped": self.stopped,
            "ready": self.ready,
            "cursor": self.cursor,
            "totals": self.totals,
        })
    }
}

impl NewTarget {
    const VIOLATION: &'static str = "violation";

    /// What is kept beside the target.
    pub(crate) fn members(&self) -> Map<String, Value> {
        let mut members = self.details.clone();
        members.insert("before".into(), self.before.clone());
        members.insert("after".into(), self.after.clone());
        if let Some(destination) = &self.destination {
            members.insert("destination".into(), json!(destination));
        }
        if let Some(Failure { code, message }) = &self.violation {
            members.insert(Self::VIOLATION.into(), json!({ "code": &**code, "message": &**message }));
        }
        members
    }

    /// What stops a target, if anything does.
    pub fn violation_of(details: &Map<String, Value>) -> Option<Failure> {
        let violation = details.get(Self::VIOLATION)?.as_object()?;
        let text = |name: &str| violation.get(name).and_then(Value::as_str).unwrap_or_default();
        Some(Failure::new(text("code"), text("message")))
    }
}

/// Refuses lists that are too long for one write.
pub(crate) fn check_count(field: &str, count: usize) -> Result<()> {
    if count > MOST_TARGETS {
        let message = format!("has {count} entries; allowed: up to {MOST_TARGETS}");
        return Err(StoreError::invalid(field, message));
    }
    Ok(())
}

/// The kinds of items that a retry of their run takes up again after a failure, and the states in which they wait for that.
/// The kind of a run's targets: its first. Steps are none: they have an order, and one that fails ends the run.
pub(crate) fn kind_of_targets(lifecycle: &Lifecycle) -> Option<&Lifecycle> {
    lifecycle.items.first().filter(|kind| !kind.stops_run).map(|kind| &**kind)
}

pub(crate) fn retried_states(catalog: &Catalog) -> (Vec<String>, Vec<String>) {
    let mut found: Vec<(String, String)> = Vec::new();
    for kind in catalog.iter().flat_map(|lifecycle| &lifecycle.items).filter(|kind| !kind.stops_run) {
        let failed = kind.states.iter().filter(|state| state.outcome == Some(Outcome::Failed));
        let waits = failed.filter(|state| state.follow("retry").is_some());
        found.extend(waits.map(|state| (kind.name.to_string(), state.name.to_string())));
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().unzip()
}
