//! How long a run was worked: the time that workers held it, and not that in which it waited for them or for people.

use waypost_kernel::{Phase, Span, Time};
use waypost_store::{EventRow, RunRow, Store, WorkBegun};

use super::events::all_events;
use crate::output::Result;

/// A list reads the events of no more runs than this, and of none that has more of them.
const MOST_READ: usize = 50;
const MOST_EVENTS: u64 = 1_000;

/// The same for a list, which has no events at hand. A run that had one holder was worked from its start to its end; of one that changed
/// hands, or that somebody ended from outside, its events are read. None: it never began, or that would be too much to read.
pub async fn of_list(store: &dyn Store, runs: &[RunRow], now: Time) -> Result<Vec<Option<Span>>> {
    let mut read = 0;
    let mut all = Vec::with_capacity(runs.len());
    for run in runs {
        let begun = WorkBegun::from(run);
        let from_events = begun.may_have_waited();
        if from_events && (read == MOST_READ || run.run.seq > MOST_EVENTS) {
            all.push(None);
            continue;
        }
        read += usize::from(from_events);
        all.push(match (run.run.started_at, from_events) {
            (None, _) => None,
            (Some(_), true) => Some(worked(run, &all_events(store, run.id(), 0).await?, now)),
            (Some(_), false) => begun.since_start(now),
        });
    }
    Ok(all)
}

/// From its events; all of them, in order.
pub fn worked(run: &RunRow, events: &[EventRow], now: Time) -> Span {
    let is_held = |state: &str| {
        let known = run.lifecycle.state_named(state);
        known.is_some_and(|state| run.lifecycle.phase(state) == Phase::Held)
    };
    waypost_store::worked(events.iter().map(|event| (is_held(&event.to), event.at)), now)
}

/// Since when it is in its state.
pub fn since(run: &RunRow, events: &[EventRow]) -> Option<Time> {
    let entered = |event: &&EventRow| event.from.as_deref() != Some(event.to.as_str());
    let last = events.iter().rev().find(entered).filter(|event| event.to == run.status());
    last.map(|event| event.at).or(run.run.finished_at)
}
