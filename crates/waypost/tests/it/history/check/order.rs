//! What may begin when: times to live, priorities, children of what was cancelled.

use std::collections::BTreeMap;

use super::super::record::{Answer, Ask, Call, EventRow, Moment, NewRun};
use super::facts::{Facts, Phase};

fn made<'a>(facts: &Facts<'a>) -> impl Iterator<Item = (&'a Call, &'a NewRun, &'a str)> {
    facts.done().filter_map(|call| match (&call.ask, &call.answer) {
        (Ask::Enqueue(new), Answer::Made { run_id, .. }) => Some((call, new, run_id.as_str())),
        _ => None,
    })
}

pub fn time_to_live(facts: &Facts<'_>) -> Vec<String> {
    late(facts, false)
}

pub fn time_to_live_by_hand(facts: &Facts<'_>) -> Vec<String> {
    late(facts, true)
}

fn late(facts: &Facts<'_>, by_hand: bool) -> Vec<String> {
    let mut violations = Vec::new();
    for (_, new, run_id) in made(facts) {
        let Some(ttl_ms) = new.ttl_ms else { continue };
        let [born, rest @ ..] = facts.events_of(run_id) else { continue };
        let ends_ms = born.at_ms + ttl_ms;
        let Some(next) = rest.iter().find(|event| event.was() == Some(Phase::Ready)) else { continue };
        if facts.is_by_hand(next) != by_hand {
            continue;
        }
        // A millisecond is what both may be rounded by.
        if next.is() == Phase::Held && next.at_ms > ends_ms + 1 {
            let late = next.at_ms - ends_ms;
            violations.push(format!("{run_id} was begun by {} {late} ms after its time to live", next.by));
        }
        if next.command == "expire" && next.at_ms + 1 < ends_ms {
            violations.push(format!("{run_id} expired {} ms before its time", ends_ms - next.at_ms));
        }
    }
    violations
}

/// A run that could have been claimed during the whole of a claim: known before, touched by nobody until after.
struct Waiting<'a> {
    run_id: &'a str,
    priority: i16,
    since: Moment,
    until: Moment,
}

/// In a queue that has plain runs alone, a claim takes none while a more urgent one waits all the time. Decided only for
/// claims that no fault is near to, and for runs that nobody touched meanwhile; a child may be cancelled with its parent.
pub fn priorities(facts: &Facts<'_>) -> Vec<String> {
    let mut touched: BTreeMap<&str, Moment> = BTreeMap::new();
    let mut touch = |run_id, at: Moment| {
        let first = touched.entry(run_id).or_insert(at);
        *first = at.min(*first);
    };
    for call in &facts.history.calls {
        match &call.ask {
            Ask::Cancel { run_id } | Ask::Begin { run_id, .. } => touch(run_id.as_str(), call.invoked),
            _ => {}
        }
    }
    for event in facts.history.tables.events.iter().filter(|event| event.is_grant()) {
        touch(&event.run_id, facts.grants.get(event.by.as_str()).map_or(0, |call| call.invoked));
    }
    let mut waiting: BTreeMap<&str, Vec<Waiting<'_>>> = BTreeMap::new();
    let is_alone = |new: &NewRun| new.ttl_ms.is_none() && new.parent.is_none();
    for (call, new, run_id) in made(facts).filter(|(_, new, _)| is_alone(new)) {
        let until = touched.get(run_id).copied().unwrap_or(Moment::MAX);
        let (priority, since) = (new.priority, call.answered);
        waiting.entry(&new.queue).or_default().push(Waiting { run_id, priority, since, until });
    }
    let mut violations = Vec::new();
    for (worker, call) in &facts.grants {
        let (Ask::Claim { queues, .. }, Answer::Claims(granted)) = (&call.ask, &call.answer) else {
            continue;
        };
        let [queue] = queues.as_slice() else { continue };
        let (Some(others), false) = (waiting.get(queue.as_str()), is_near_fault(facts, call)) else {
            continue;
        };
        if queue != super::super::plan::PRIORITIES {
            continue;
        }
        for run in granted.iter().filter_map(|grant| facts.runs.get(grant.run_id.as_str())) {
            let better = others.iter().find(|other| {
                other.priority > run.priority && other.since < call.invoked && other.until > call.answered
            });
            if let Some(Waiting { run_id, priority, .. }) = better {
                let (id, own) = (&run.run_id, run.priority);
                violations
                    .push(format!("{worker} was given {id} ({own}) while {run_id} ({priority}) waited"));
            }
        }
    }
    violations
}

fn is_near_fault(facts: &Facts<'_>, call: &Call) -> bool {
    let mut faults = facts.history.faults.iter();
    faults.any(|fault| call.invoked < fault.ended + super::around::AFTERMATH && call.answered > fault.began)
}

/// Longer than any server leaves between two sweeps, by the database's clock.
const SWEPT_MS: u64 = 30_000;

/// A child that was there before anybody asked for its parent's end is not begun any more, long after that was cancelled.
pub fn children(facts: &Facts<'_>) -> Vec<String> {
    let mut asked: BTreeMap<&str, Moment> = BTreeMap::new();
    for call in &facts.history.calls {
        if let Ask::Finish { run_id, .. } | Ask::Cancel { run_id } = &call.ask {
            let first = asked.entry(run_id).or_insert(call.invoked);
            *first = call.invoked.min(*first);
        }
    }
    let mut violations = Vec::new();
    for (call, new, run_id) in made(facts) {
        let Some(parent) = new.parent.as_deref() else { continue };
        let Some(end) = facts.end_of(parent).filter(|end| end.command == "cancel") else { continue };
        if asked.get(parent).is_none_or(|asked| *asked <= call.answered) {
            continue;
        }
        // The parent may have ended as a child itself before anybody asked: what is started under it then is meant to be.
        if facts.events_of(run_id).first().is_some_and(|made| made.at_ms >= end.at_ms) {
            continue;
        }
        let is_late = |event: &&&EventRow| event.enters(Phase::Held) && event.at_ms > end.at_ms + SWEPT_MS;
        if let Some(begun) = facts.events_of(run_id).iter().find(is_late) {
            let late = begun.at_ms - end.at_ms;
            violations.push(format!("{run_id} was begun {late} ms after its parent {parent} was cancelled"));
        }
    }
    violations
}
