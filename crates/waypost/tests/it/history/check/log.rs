//! What the log of a run may look like, and who may have written it.

use std::collections::BTreeMap;

use super::super::record::{Answer, Ask, Call, EventRow, Moment};
use super::facts::{Facts, Phase};

pub fn seq_gap_free(facts: &Facts<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for (run_id, events) in &facts.events {
        for (at, event) in events.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| events[before]);
            if event.seq != at as u64 + 1 {
                violations.push(format!("{run_id}: event {} stands at place {}", event.seq, at + 1));
            } else if event.from.as_deref() != before.map(|before| before.to.as_str()) {
                violations.push(format!("{run_id}: event {} leads from {:?}", event.seq, event.from));
            }
        }
        let last = events.last().map(|event| (event.seq, event.to.as_str()));
        let row = facts.runs.get(run_id).map(|run| (run.seq, run.status.as_str()));
        if last != row {
            violations.push(format!("{run_id}: its log ends with {last:?}, its row says {row:?}"));
        }
    }
    for run_id in facts.runs.keys().filter(|run_id| !facts.events.contains_key(*run_id)) {
        violations.push(format!("{run_id} has no event"));
    }
    violations
}

pub fn moves_are_declared(facts: &Facts<'_>) -> Vec<String> {
    let is_declared = |event: &EventRow| {
        let lifecycle = facts.runs.get(event.run_id.as_str()).map(|run| run.lifecycle.as_str());
        let (is_job, is_cron) = (lifecycle == Some("job"), lifecycle == Some("cron"));
        let (from, to) = (event.from.as_deref(), event.to.as_str());
        if from == Some(to) {
            return true;
        }
        match (from, is_job) {
            (None, false) if !is_cron => to == "queued",
            (Some("queued"), false) => matches!(to, "claimed" | "cancelled"),
            (Some("claimed"), false) => matches!(to, "running" | "cancelled"),
            (Some("running"), false) => matches!(to, "success" | "failed" | "cancelled"),
            (None, true) => to == "pending",
            (Some("pending"), true) => matches!(to, "running" | "cancelled"),
            (Some("running"), true) => matches!(to, "completed" | "failed" | "cancelled" | "paused"),
            (Some("paused"), true) => matches!(to, "pending" | "cancelled"),
            // What servers plan for themselves.
            (None, false) if is_cron => to == "RUNNING",
            (Some("RUNNING"), false) => matches!(to, "SUCCESS" | "FAILED"),
            (Some("FAILED"), false) => to == "RUNNING",
            _ => false,
        }
    };
    let events = facts.history.tables.events.iter().filter(|event| !is_declared(event));
    events.map(|event| format!("{}: {:?} to {}", event.run_id, event.from, event.to)).collect()
}

pub fn one_end_per_run(facts: &Facts<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for (run_id, events) in &facts.events {
        let ends = events.iter().filter(|event| event.enters(Phase::Settled)).count();
        if ends > 1 {
            violations.push(format!("{run_id} ended {ends} times"));
        }
        if let Some(after) = events.iter().find(|event| event.was() == Some(Phase::Settled)) {
            violations.push(format!("{run_id}: {} by {:?} after its end", after.command, after.by));
        }
    }
    violations
}

/// By the log: whatever a worker wrote lies between its claim and what took the run from it. By the clock: no lease was
/// renewed after somebody else had been given the run.
pub fn no_former_holder(facts: &Facts<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for (run_id, events) in &facts.events {
        let mut holder: Option<&str> = None;
        for event in events {
            if event.is_grant() {
                holder = Some(&event.by);
            } else if event.actor == "worker" && holder != Some(&event.by) {
                let (seq, command, by) = (event.seq, &event.command, &event.by);
                violations
                    .push(format!("{run_id}: event {seq} ({command}) is {by}'s, the holder is {holder:?}"));
            }
            if event.is() != Phase::Held || event.command == "release" {
                holder = None;
            }
        }
    }
    let mut given: BTreeMap<&str, Vec<(u64, Moment, &str)>> = BTreeMap::new();
    for (worker, call) in &facts.grants {
        let Answer::Claims(granted) = &call.answer else { continue };
        for grant in granted.iter().filter_map(|grant| Some((grant.run_id.as_str(), grant.fence?))) {
            given.entry(grant.0).or_default().push((grant.1, call.answered, worker));
        }
    }
    let renewed = |call: &Call| {
        let Ask::Heartbeat { worker, run_id } = &call.ask else { return None };
        let given = given.get(run_id.as_str())?;
        let mine = given.iter().find(|(_, _, other)| other == worker)?.0;
        let (_, _, other) =
            given.iter().find(|(fence, answered, _)| *fence > mine && *answered < call.invoked)?;
        Some(format!("{run_id}: {worker}'s lease was renewed after {other} had it"))
    };
    violations.extend(facts.done().filter_map(renewed));
    violations
}

pub fn no_fence_twice(facts: &Facts<'_>) -> Vec<String> {
    let mut fences: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    let mut violations = Vec::new();
    for (worker, call) in &facts.grants {
        let Answer::Claims(granted) = &call.answer else { continue };
        for (run_id, fence) in granted.iter().filter_map(|grant| Some((grant.run_id.as_str(), grant.fence?)))
        {
            if let Some(other) = fences.entry(run_id).or_default().insert(fence, worker) {
                violations.push(format!("{run_id}: fence {fence} was given to {other} and {worker}"));
            }
        }
    }
    for (run_id, fences) in &fences {
        let events = facts.events_of(run_id);
        let place = |worker: &str| events.iter().position(|event| event.is_grant() && event.by == worker);
        let places: Vec<usize> = fences.values().filter_map(|worker| place(worker)).collect();
        if !places.is_sorted() {
            violations.push(format!("{run_id}: the fences {fences:?} do not rise along its log"));
        }
        if let (Some((last, _)), Some(row)) = (fences.last_key_value(), facts.runs.get(run_id))
            && row.fence < *last
        {
            violations.push(format!("{run_id}: fence {last} was given, its row has {}", row.fence));
        }
    }
    violations
}
