//! What readers of the feed and of streams saw, against the log as it is in the end.

use super::super::record::{Reading, Seen};
use super::facts::Facts;

pub fn feed(facts: &Facts<'_>) -> Vec<String> {
    all(facts, Reading::Feed)
}

pub fn streams(facts: &Facts<'_>) -> Vec<String> {
    all(facts, Reading::Stream)
}

fn all(facts: &Facts<'_>, how: Reading) -> Vec<String> {
    let readers = facts.history.seen.iter().filter(|seen| seen.how == how);
    readers.flat_map(|seen| one(facts, seen)).collect()
}

fn one(facts: &Facts<'_>, seen: &Seen) -> Vec<String> {
    let reader = &seen.reader;
    let mut violations = Vec::new();
    for pair in seen.events.windows(2).filter(|pair| pair[0].0 >= pair[1].0) {
        violations.push(format!("{reader}: {} came after {}", pair[1].0, pair[0].0));
    }
    let positions: std::collections::BTreeSet<u64> = seen.events.iter().map(|event| event.0).collect();
    // What a reset says that it leaves out is left out by right.
    let is_left_out =
        |position: u64| seen.resets.iter().any(|(after, until)| (after + 1..=*until).contains(&position));
    for event in &facts.history.tables.events {
        if !positions.contains(&event.position) && !is_left_out(event.position) {
            let (position, run_id, seq) = (event.position, &event.run_id, event.seq);
            violations.push(format!("{reader} did not see {position} ({run_id}, event {seq})"));
        }
    }
    for (position, run_id, seq) in &seen.events {
        let is = facts.by_position.get(position).map(|event| (&event.run_id, event.seq));
        if is != Some((run_id, *seq)) {
            violations.push(format!("{reader} saw {run_id}, event {seq} at {position}, where {is:?} stands"));
        }
    }
    violations
}
