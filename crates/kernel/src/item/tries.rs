//! Items that go outside, many at once: what came of their tries, and which of them are tried next.

use super::{Item, ItemAsk, decide_items};
use crate::event::{Change, Effect, Moved};
use crate::guard::Guard;
use crate::lifecycle::{Actor, Lifecycle, Outcome, Phase, StateId, Transition};
use crate::refusal::{Code, Refusal};
use crate::request::Who;
use crate::run::{Failure, Run, Text, Token};
use crate::time::{Span, Time};

/// What came of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    Applied,
    /// It may be tried again, if a retry is left. Without an answer the same key goes out again, until an answer settles what came of it:
    /// a 503 that follows a lost answer says nothing of that one.
    Retry {
        failure: Failure,
        wait: Span,
        answered: bool,
    },
    /// The outside asks for patience: no retry is used, but it does not wait for ever. `answered` as of a retry.
    Throttled {
        failure: Failure,
        wait: Span,
        answered: bool,
    },
    Failed {
        failure: Failure,
    },
    /// Something forbids to try it: it ends where it is ready.
    Refused {
        failure: Failure,
    },
    /// It was not sent.
    Unsent {
        wait: Span,
    },
}

/// An item that is tried next, or that something forbids to try.
#[derive(Clone, Debug)]
pub struct Take {
    pub item: Item,
    pub violation: Option<Failure>,
}

/// What one write says of a run's items.
#[derive(Clone, Copy, Debug)]
pub struct Tries<'a> {
    /// Each item as it is stored, the number of the try, and what came of it.
    pub results: &'a [(Item, u32, Tried)],
    pub take: &'a [Take],
    /// How long throttled answers may make an item wait in all.
    pub give_up_after: Span,
}

/// Decides on all of them as one change with one event; also gives the keys of results that came too late: those of earlier
/// tries, and of items that nobody is trying, unless they say that it is not to be tried. They change nothing.
pub fn decide_tries(
    lifecycle: &Lifecycle,
    run: &Run,
    who: &Who<'_>,
    token: Token,
    tries: Tries<'_>,
    now: Time,
) -> Result<(Change, Vec<Text>), Refusal> {
    let draft = crate::decide::Draft::new(lifecycle, run, who, now);
    let mut asks = Vec::with_capacity(tries.results.len() + tries.take.len());
    let mut late = Vec::new();
    for (item, try_no, tried) in tries.results {
        let kind = kind_of(lifecycle, item);
        let is_tried = kind.is_some_and(|kind| match (kind.phase(item.state), tried) {
            (Phase::Held, _) => true,
            (phase, Tried::Refused { .. }) => phase == Phase::Ready,
            _ => false,
        });
        match kind.filter(|_| is_tried && *try_no <= item.try_no) {
            Some(_) if *try_no < item.try_no => late.push(item.key.clone()),
            Some(kind) => asks.push((item, ask(kind, item, tried, tries.give_up_after))),
            None if is_tried => return Err(super::refuse(&draft, item, Code::InvalidInput, NOT_YET)),
            None => late.push(item.key.clone()),
        }
    }
    for Take { item, violation } in tries.take {
        let to = |row: &&Transition, kind: &Lifecycle| match violation {
            None => kind.phase(row.to) == Phase::Held,
            Some(_) => kind.state(row.to).outcome == Some(Outcome::Failed),
        };
        let ask = kind_of(lifecycle, item).and_then(|kind| {
            let row = worker_rows(kind, item.state).find(|row| to(row, kind))?;
            Some(ItemAsk { failure: violation.as_ref(), ..going(kind, row) })
        });
        asks.push((item, ask));
    }
    let mut decided = Vec::with_capacity(asks.len());
    for (item, ask) in asks {
        let none = || super::refuse(&draft, item, Code::InvalidTransition, "its lifecycle has no such move");
        decided.push((item.clone(), ask.ok_or_else(none)?));
    }
    let change = decide_items(lifecycle, run, who, Some(token), (&decided, &[]), now)?;
    Ok((change, late))
}

/// New items of a draft, and an event that tells of them, even if there are none: whoever gathers them says how far he is.
pub fn gather_items(
    lifecycle: &Lifecycle,
    run: &Run,
    who: &Who<'_>,
    items: &[Item],
    now: Time,
) -> Result<Change, Refusal> {
    let mut draft = crate::decide::Draft::new(lifecycle, run, who, now);
    if draft.phase() != Phase::Draft {
        let message = "its targets are gathered while it is a draft".to_owned();
        return Err(draft.refusal(Code::InvalidTransition, message));
    }
    let mut moved = Vec::with_capacity(items.len());
    for item in items {
        let kind = kind_of(lifecycle, item).filter(|kind| kind.initial.contains(&item.state));
        let Some(kind) = kind.filter(|kind| kind.phase(item.state) == Phase::Draft) else {
            return Err(super::refuse(
                &draft,
                item,
                Code::InvalidInput,
                "status: an item cannot start there",
            ));
        };
        moved.push(Moved { from: None, was_staying: false, stays: item.stays(kind), item: item.clone() });
    }
    draft.stay("items", who.actor, Effect { moved, ..Effect::default() });
    draft.done()
}

const NOT_YET: &str = "try_no: it has not come to that";

fn kind_of<'l>(lifecycle: &'l Lifecycle, item: &Item) -> Option<&'l Lifecycle> {
    lifecycle.items.get(usize::from(item.kind)).map(|kind| &**kind)
}

fn worker_rows(kind: &Lifecycle, from: StateId) -> impl Iterator<Item = &Transition> {
    kind.transitions_from(from).filter(|row| row.by.contains(Actor::Worker))
}

fn going<'k>(kind: &'k Lifecycle, row: &'k Transition) -> ItemAsk<'k> {
    ItemAsk { to: &kind.state(row.to).name, command: Some(&row.command), ..ItemAsk::default() }
}

/// Which of its kind's moves a result asks for: back to where it is ready while it may be tried again, and else to where it ends.
fn ask<'a>(kind: &'a Lifecycle, item: &Item, tried: &'a Tried, give_up_after: Span) -> Option<ItemAsk<'a>> {
    let ends = |outcome: Outcome| {
        worker_rows(kind, item.state).find(move |row| kind.state(row.to).outcome == Some(outcome))
    };
    let back = |counts: bool| {
        worker_rows(kind, item.state).find(move |row| {
            kind.phase(row.to) == Phase::Ready && row.guards.contains(&Guard::AttemptsLeft) == counts
        })
    };
    let (row, failure, wait, answered) = match tried {
        Tried::Applied => (ends(Outcome::Succeeded), None, None, true),
        Tried::Failed { failure } => (ends(Outcome::Failed), Some(failure), None, true),
        // As of one that is not taken, nothing is known of what was sent before.
        Tried::Refused { failure } => (ends(Outcome::Failed), Some(failure), None, false),
        Tried::Retry { failure, wait, answered } if item.attempts < item.max_retries => {
            (back(true), Some(failure), Some(*wait), *answered)
        }
        Tried::Retry { failure, answered, .. } => (ends(Outcome::Failed), Some(failure), None, *answered),
        Tried::Throttled { failure, wait, answered }
            if i64::from(item.waited_with(*wait)) <= give_up_after.ms() =>
        {
            (back(false), Some(failure), Some(*wait), *answered)
        }
        Tried::Throttled { failure, answered, .. } => (ends(Outcome::Failed), Some(failure), None, *answered),
        Tried::Unsent { wait } => (back(false), None, Some(*wait).filter(|wait| *wait > Span::ZERO), false),
    };
    let throttled = matches!(tried, Tried::Throttled { .. }) && wait.is_some();
    let again = matches!(tried, Tried::Retry { .. } | Tried::Throttled { .. });
    Some(ItemAsk {
        failure,
        retry_in: wait,
        answered,
        again,
        unanswered: again && !answered,
        throttled,
        ..going(kind, row?)
    })
}
