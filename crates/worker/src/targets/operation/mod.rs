//! What is done about a bulk change by a run of its own: `preview` gathers its targets, `rollback` undoes them, `reconcile` compares
//! them with what is outside. `round` is how many targets are asked about, as fast as their destination allows; `applied` which ones,
//! page by page; `doubt` what failed without a word of the destination's; `later` when a reconciliation comes next,
//! `newer` what later runs of the same rule made of a target.

mod applied;
mod doubt;
mod later;
mod newer;
mod preview;
mod reconcile;
mod report;
mod rollback;
mod round;

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use waypost_kernel::Failure;
use waypost_store::{Claimed, Filter, NewRun, Parts, RunRow, Store, StoreError};

pub(super) use later::plan_first;
pub use preview::{give_up, preview_of};
pub use reconcile::{is_reconciliation, reconciled};

use crate::interpret::{Ending, Parting};
use crate::lease::Lease;
use crate::pipeline::Shared;
use crate::playbook::{Playbook, Rule};

pub(super) const LIFECYCLE: &str = "operation";
/// Of an operation that nobody could carry out.
const UNFIT: &str = "UNFIT";

/// What a run of this kind is to do; none: the run is another one's business.
pub(super) fn name_of(run: &RunRow) -> Option<&str> {
    run.input.get(LIFECYCLE).and_then(Value::as_str).filter(|_| &*run.lifecycle.name == LIFECYCLE)
}

/// The run that a request for an operation is about; none: it is a request for something else. The input of an operation is its own, and not
/// what the playbook of that run declares.
pub fn asked_about(new: &NewRun) -> Option<&str> {
    let is_operation = new.lifecycle == LIFECYCLE && new.input.get(LIFECYCLE).is_some_and(Value::is_string);
    let about = new.parent_run_id.as_deref().or_else(|| new.input.get("run_id").and_then(Value::as_str));
    about.filter(|_| is_operation)
}

/// One holder's work on an operation.
pub(super) struct Operation<'a> {
    pub shared: &'a Shared,
    pub row: &'a RunRow,
    pub lease: &'a Arc<Lease>,
    /// The database's clock at a moment of ours.
    pub clock: (waypost_kernel::Time, Instant),
    pub playbook: &'a Arc<Playbook>,
    pub rule: &'a Rule,
    /// The run that it is about.
    pub parent: RunRow,
}

pub(super) async fn perform(
    shared: &Shared,
    claimed: &Claimed,
    (lease, asked_at): (&Arc<Lease>, Instant),
    playbook: &Arc<Playbook>,
    rule: &Rule,
) -> Parting {
    let row = &claimed.run;
    let Some(parent) = about(row) else { return unfit("it is about no run") };
    let parent = match shared.store.run(row.tenant.clone(), parent.to_owned()).await {
        Ok(parent) => parent,
        Err(StoreError::Unavailable(_)) => return Parting::GiveBack(None),
        Err(error) => return unfit(&error.to_string()),
    };
    let operation = Operation { shared, row, lease, clock: (claimed.now, asked_at), playbook, rule, parent };
    match name_of(row) {
        Some(preview::PREVIEW) => preview::perform(&operation).await,
        Some(rollback::ROLLBACK) => rollback::perform(&operation).await,
        Some(reconcile::RECONCILE) => reconcile::perform(&operation).await,
        other => unfit(&format!("there is no operation {:?}", other.unwrap_or_default())),
    }
}

/// The last operation that a command of this run began: it is the newest of its children of that kind.
pub async fn operation_of(store: &dyn Store, parent: &RunRow) -> waypost_store::Result<Option<RunRow>> {
    let mut filter = Filter {
        tenant: parent.tenant.clone(),
        lifecycle: Some(LIFECYCLE.to_owned()),
        parent: Some(parent.id().to_owned()),
        limit: 100,
        include: Parts { input: true, details: true, ..Parts::NONE },
        ..Filter::default()
    };
    loop {
        let page = store.runs(filter.clone()).await?;
        let is_its = |run: &RunRow| name_of(run) != Some(preview::PREVIEW);
        match (page.runs.into_iter().find(is_its), page.next) {
            (Some(found), _) => return Ok(Some(found)),
            (None, None) => return Ok(None),
            (None, next) => filter.cursor = next,
        }
    }
}

/// A reconciliation that comes by itself is no child: its parent is free until it is due.
fn about(row: &RunRow) -> Option<&str> {
    row.parent_run_id.as_deref().or_else(|| row.input.get("run_id").and_then(Value::as_str))
}

fn unfit(message: &str) -> Parting {
    failed(UNFIT, message)
}

fn failed(code: &str, message: &str) -> Parting {
    Parting::End(Ending::failed(Failure::new(code, message)))
}

impl Operation<'_> {
    fn now(&self) -> waypost_kernel::Time {
        self.clock.0 + crate::pace::span(self.clock.1.elapsed())
    }

    /// Whether a command of its parent's began it: no other operation is under way then.
    fn is_begun_by_parent(&self) -> bool {
        self.parent.run.operating && self.row.parent_run_id.as_deref() == Some(self.parent.id())
    }

    /// How it is left when somebody wants it to end, or the worker stops.
    fn stopped(&self, ending: impl FnOnce(Ending) -> Ending) -> Parting {
        crate::pipeline::wanted(self.lease)
            .filter(|_| !self.lease.is_leaving())
            .map_or(Parting::GiveBack(None), |wanted| Parting::End(ending(wanted)))
    }
}
