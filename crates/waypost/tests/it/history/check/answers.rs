//! What was answered is so: runs, claims, events, items, finishes, cancels.

use std::collections::BTreeMap;

use super::super::record::{Answer, Ask, Call};
use super::facts::{Facts, Phase, phase};

pub fn runs_exist(facts: &Facts<'_>) -> Vec<String> {
    let check = |call: &Call| {
        let (Ask::Enqueue(new), Answer::Made { run_id, .. }) = (&call.ask, &call.answer) else { return None };
        let Some(row) = facts.runs.get(run_id.as_str()) else {
            return Some(format!("{run_id} was answered to {} and is not there", call.client));
        };
        let asked = (&new.lifecycle, &new.queue, new.priority, &new.concurrency_key, &new.parent);
        let is = (&row.lifecycle, &row.queue, row.priority, &row.concurrency_key, &row.parent);
        (asked != is).then(|| format!("{run_id} was asked for as {asked:?} and is {is:?}"))
    };
    facts.done().filter_map(check).collect()
}

pub fn runs_taken_back(facts: &Facts<'_>) -> Vec<String> {
    let check = |call: &Call| match &call.answer {
        Answer::TakenBack { run_id } if facts.runs.contains_key(run_id.as_str()) => {
            Some(format!("{run_id} was rolled back by {} and is there", call.client))
        }
        _ => None,
    };
    facts.history.calls.iter().filter_map(check).collect()
}

/// Only runs whose making was answered are looked for.
pub fn runs_are_found(facts: &Facts<'_>) -> Vec<String> {
    let check = |call: &Call| match (&call.ask, &call.answer) {
        (Ask::Look { run_id }, Answer::Refused { status: status @ 404, code }) => {
            Some(format!("{run_id} was not found at server {:?}: {status} {code}", call.server))
        }
        _ => None,
    };
    facts.history.calls.iter().filter_map(check).collect()
}

pub fn keys_one_run_each(facts: &Facts<'_>) -> Vec<String> {
    let mut made: BTreeMap<&str, Vec<(&str, bool, u64)>> = BTreeMap::new();
    for call in facts.done() {
        if let (Ask::Enqueue(new), Answer::Made { run_id, is_new }) = (&call.ask, &call.answer)
            && let Some(key) = &new.idempotency_key
        {
            made.entry(key).or_default().push((run_id, *is_new, new.body));
        }
    }
    let mut stored: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for run in &facts.history.tables.runs {
        if let Some(key) = &run.idempotency_key {
            stored.entry(key).or_default().push(&run.run_id);
        }
    }
    let mut violations = Vec::new();
    for (key, ids) in stored.iter().filter(|(_, ids)| ids.len() > 1) {
        violations.push(format!("{key} has the runs {ids:?}"));
    }
    for (key, answers) in &made {
        let (first, _, body) = answers[0];
        if answers.iter().any(|(run_id, ..)| *run_id != first) {
            violations.push(format!("{key} was answered with several runs: {answers:?}"));
        }
        if answers.iter().filter(|(_, is_new, _)| *is_new).count() > 1 {
            violations.push(format!("{key} made a new run more than once: {answers:?}"));
        }
        if answers.iter().any(|(.., other)| *other != body) {
            violations.push(format!("{key} was taken with another body: {answers:?}"));
        }
    }
    violations
}

pub fn claims_stand(facts: &Facts<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for (worker, call) in &facts.grants {
        let Answer::Claims(granted) = &call.answer else { continue };
        for grant in granted {
            let events = facts.events_of(&grant.run_id);
            if !events.iter().any(|event| event.is_grant() && event.by == *worker) {
                violations
                    .push(format!("{} was given to {worker}, and its log has no such claim", grant.run_id));
            }
        }
    }
    violations
}

/// Whoever holds a run has been told so, unless the answer was lost. Servers do not tell of what they have planned for themselves.
pub fn claims_are_told(facts: &Facts<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for event in facts.history.tables.events.iter().filter(|event| event.is_grant()) {
        let run_id = &event.run_id;
        if facts.runs.get(run_id.as_str()).is_some_and(|run| run.lifecycle == "cron") {
            continue;
        }
        match facts.grants.get(event.by.as_str()).map(|call| &call.answer) {
            None => violations.push(format!("{run_id} is held by {:?}, who never asked", event.by)),
            Some(Answer::Claims(granted)) if granted.iter().any(|grant| grant.run_id == *run_id) => {}
            Some(Answer::Unknown { .. }) => {}
            Some(answer) => {
                let by = &event.by;
                violations.push(format!("{run_id} is held by {by}, who was answered {answer:?}"));
            }
        }
    }
    violations
}

pub fn events_stand(facts: &Facts<'_>) -> Vec<String> {
    let check = |call: &Call| {
        let (Ask::Note { worker, run_id, message }, Answer::Noted { position }) = (&call.ask, &call.answer)
        else {
            return None;
        };
        let Some(event) = facts.by_position.get(position) else {
            return Some(format!(
                "{run_id}: the event at {position} was answered to {worker} and is not there"
            ));
        };
        let is = (event.run_id.as_str(), event.by.as_str(), event.message.as_deref());
        (is != (run_id, worker, Some(message)))
            .then(|| format!("{run_id}: {message:?} was answered with {position}, which is {is:?}"))
    };
    facts.done().filter_map(check).collect()
}

/// Settled items stay as they are; of the others it is known that they exist.
pub fn items_stand(facts: &Facts<'_>) -> Vec<String> {
    let items: BTreeMap<(&str, &str), &str> = facts
        .history
        .tables
        .items
        .iter()
        .map(|item| ((item.run_id.as_str(), item.key.as_str()), item.status.as_str()))
        .collect();
    let check = |call: &Call| {
        let Ask::Item { run_id, key, status, .. } = &call.ask else { return None };
        match items.get(&(run_id.as_str(), key.as_str())) {
            None => Some(format!("{run_id}: the item {key} was answered and is not there")),
            Some(is) if phase(status) == Phase::Settled && is != status => {
                Some(format!("{run_id}: the item {key} was answered as {status} and is {is}"))
            }
            Some(_) => None,
        }
    };
    facts.done().filter_map(check).collect()
}

pub fn finishes_stand(facts: &Facts<'_>) -> Vec<String> {
    let check = |call: &Call| {
        let Ask::Finish { worker, run_id, status } = &call.ask else { return None };
        let end = facts.end_of(run_id).map(|end| (end.to.as_str(), end.by.as_str()));
        (end != Some((status, worker))).then(|| {
            format!(
                "{run_id}: {worker} was answered {:?}, asked for {status}; its end is {end:?}",
                call.answer
            )
        })
    };
    facts.done().filter_map(check).collect()
}

/// A cancel that was taken wins over whatever comes later.
pub fn cancels_stand(facts: &Facts<'_>) -> Vec<String> {
    lost_cancels(facts, false)
}

/// The same, where an SQL user set the run's last status.
pub fn cancels_by_hand(facts: &Facts<'_>) -> Vec<String> {
    lost_cancels(facts, true)
}

fn lost_cancels(facts: &Facts<'_>, by_hand: bool) -> Vec<String> {
    let check = |call: &Call| {
        let Ask::Cancel { run_id } = &call.ask else { return None };
        let status = facts.runs.get(run_id.as_str()).map(|run| run.status.as_str());
        let is_by_hand = facts.end_of(run_id).is_some_and(|end| end.by == "by hand");
        (status != Some("cancelled") && is_by_hand == by_hand)
            .then(|| format!("{run_id}: its cancel was answered; it is {status:?}"))
    };
    facts.done().filter_map(check).collect()
}

/// A run whose cancel was asked for first is cancelled with its release.
pub fn releases_stand(facts: &Facts<'_>) -> Vec<String> {
    let check = |call: &Call| {
        let Ask::Release { worker, run_id } = &call.ask else { return None };
        let events = facts.events_of(run_id);
        let is_there =
            events.iter().any(|event| matches!(&*event.command, "release" | "cancel") && event.by == *worker);
        (!is_there).then(|| format!("{run_id}: its release by {worker} was answered and is not in its log"))
    };
    facts.done().filter_map(check).collect()
}
