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

use tokio::time::Instant;
use waypost_store::{Claimed, NewRun, RunRow, Store};

pub use alone::{has_targets, is_bulk};
pub(crate) use fresh::VALID_FOR;
pub use operation::{asked_about, give_up, is_reconciliation, operation_of, preview_of, reconciled};

use crate::interpret::Parting;
use crate::lease::Lease;
use crate::pipeline::Shared;
use crate::playbook::{Playbook, Rule};

/// Refuses a command that would change targets of a rule which others are changing, or as an old preview showed them, unless that is
/// meant. Asked before the command by whoever takes it from a person.
pub async fn check_command(
    store: &dyn Store,
    run: &RunRow,
    command: &str,
    is_meant: bool,
) -> waypost_store::Result<()> {
    fresh::check_fresh(store, run, command, is_meant).await?;
    alone::check_alone(store, run, command, is_meant).await
}

/// Says on a bulk change who asked for it and through what, unless that is said. A request whose key stands for all of it is left as it came: sent again by somebody
/// else, or from elsewhere, it would be another one.
pub fn with_origin(mut new: NewRun, playbook: &Playbook, source: &str) -> NewRun {
    if playbook.rule.is_some() && (new.idempotency_key.is_none() || new.asked.is_some()) {
        for (name, value) in [("actor", new.by.clone()), ("source", source.to_owned())] {
            new.metadata.entry(name).or_insert(value.into());
        }
    }
    new
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
