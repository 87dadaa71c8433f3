//! Bulk changes: where targets come from, what becomes of each, and how they are changed.
//!
//! `source` reads rows, `row` makes targets of them (values computed, guardrails judged, what is unchanged counted), `gather` stores
//! them as a run's preview, `operation` is what runs of their own do about them: gather, roll back, reconcile. `work` is one holder's pass over the targets of a run, `call` one call,
//! `verdict` what its answer means, `permits` how fast calls are made, `dead_letters` what is done about those that failed, `alone` that a rule has one run at a time,
//! `fresh` that a preview is not too old, `stop` that nothing is changed where one target is past a guardrail.

mod alone;
mod call;
pub mod dead_letters;
mod fresh;
pub mod gather;
mod operation;
mod permits;
pub mod row;
pub mod source;
mod stop;
mod today;
pub mod totals;
pub(crate) mod verdict;
mod work;

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::Instant;
use waypost_store::{Claimed, NewRun, RunRow, Store};

pub use alone::{has_targets, is_bulk};
pub(crate) use fresh::VALID_FOR;
pub use operation::{asked_about, give_up, is_reconciliation, operation_of, preview_of, reconciled};

use crate::interpret::Parting;
use crate::lease::Lease;
use crate::pipeline::Shared;
use crate::playbook::{Playbook, Rule};
use crate::proposals::check_entry;

/// Refuses a command that would change targets of a rule which others are changing, or as an old preview showed them, and one that
/// decides on an entry of the inbox without its proposal, unless that is meant. Asked before the command by whoever takes it from a person.
pub async fn check_command(
    store: &dyn Store,
    run: &RunRow,
    command: &str,
    is_meant: bool,
) -> waypost_store::Result<()> {
    check_entry(run, command, is_meant)?;
    fresh::check_fresh(store, run, command, is_meant).await?;
    alone::check_alone(store, run, command, is_meant).await
}

/// Says on a bulk change who asked for it and through what, unless that is said. A request whose key stands for all of it is left as it came: sent again by somebody
/// else, or from elsewhere, it would be another one.
pub fn with_origin(mut new: NewRun, is_bulk: bool, source: &str) -> NewRun {
    if is_bulk && (new.idempotency_key.is_none() || new.asked.is_some()) {
        for (name, value) in [(ACTOR, new.by.clone()), (SOURCE, source.to_owned())] {
            new.metadata.entry(name).or_insert(value.into());
        }
    }
    new
}

/// In a run's metadata: who asked for it, and through what.
const ACTOR: &str = "actor";
const SOURCE: &str = "source";

/// The metadata of a run that comes of another one by itself: whoever asked for that one is behind it. The same whichever worker asks.
fn origin_by(parent: &RunRow, source: &str) -> Map<String, Value> {
    let actor = parent.metadata.get(ACTOR).cloned().unwrap_or_else(|| parent.id().into());
    Map::from_iter([(ACTOR.to_owned(), actor), (SOURCE.to_owned(), source.into())])
}

/// Metadata without who asked and through what: whoever repeats the run is another one.
pub(crate) fn without_origin(metadata: &Map<String, Value>) -> Map<String, Value> {
    let kept = metadata.iter().filter(|(name, _)| ![ACTOR, SOURCE].contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What runs of one origin are known by: a run that was given no such id is known by its own.
fn correlation_of(parent: &RunRow) -> String {
    parent.correlation_id.clone().unwrap_or_else(|| parent.id().to_owned())
}

/// What a worker does with a run of a rule: it changes the targets, or gathers them for the run that this one is for.
pub(crate) async fn perform(
    shared: &Shared,
    claimed: &Claimed,
    lease: (&Arc<Lease>, Instant),
    playbook: &Arc<Playbook>,
    rule: &Rule,
) -> Parting {
    if operation::name_of(&claimed.run).is_some() {
        return operation::perform(shared, claimed, lease, playbook, rule).await;
    }
    work::perform(shared, claimed, lease, playbook, rule).await
}
