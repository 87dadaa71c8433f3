//! How long a run was worked: the time that workers held it, and not that in which it waited for them or for people.

use waypost_kernel::{Phase, Span, Time};
use waypost_store::{EventRow, RunRow};

/// From its events; all of them, in order.
pub fn worked(run: &RunRow, events: &[EventRow], now: Time) -> Span {
    let is_held = |state: &str| {
        let known = run.lifecycle.state_named(state);
        known.is_some_and(|state| run.lifecycle.phase(state) == Phase::Held)
    };
    let mut worked = Span::ZERO;
    let mut held_since: Option<Time> = None;
    for event in events {
        match (held_since, is_held(&event.to)) {
            (None, true) => held_since = Some(event.at),
            (Some(since), false) => {
                worked = Span::from_micros(worked.micros() + (event.at - since).micros());
                held_since = None;
            }
            _ => {}
        }
    }
    let open = held_since.map_or(Span::ZERO, |since| now - since);
    Span::from_micros(worked.micros() + open.micros())
}

/// Since when it is in its state.
pub fn since(run: &RunRow, events: &[EventRow]) -> Option<Time> {
    let entered = |event: &&EventRow| event.from.as_deref() != Some(event.to.as_str());
    let last = events.iter().rev().find(entered).filter(|event| event.to == run.status());
    last.map(|event| event.at).or(run.run.finished_at)
}
