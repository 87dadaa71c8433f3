//! Limits, concurrency keys and pauses, at every position of the log.
//!
//! A run takes a slot where its log leads into a held state, and frees it where it leads out; that of its queue also while nobody has
//! it. What was the limit then is
//! known by the calls that set it: a claim that began after such a call was answered must heed it; one that was under
//! way may go either way.

use std::collections::{BTreeMap, BTreeSet};

use super::super::record::{Answer, Ask, Call, EventRow};
use super::facts::{Facts, Phase};
use super::register::{Register, window};

const ANY_NUMBER: u64 = u64::MAX;

pub fn limits(facts: &Facts<'_>) -> Vec<String> {
    over(facts, &queue_slots(facts), false)
}

pub fn limits_by_hand(facts: &Facts<'_>) -> Vec<String> {
    over(facts, &queue_slots(facts), true)
}

pub fn keys(facts: &Facts<'_>) -> Vec<String> {
    over(facts, &key_slots(facts), false)
}

pub fn keys_by_hand(facts: &Facts<'_>) -> Vec<String> {
    over(facts, &key_slots(facts), true)
}

/// What runs share: how many may be held, and which of them a run needs a slot of.
struct Slots<'a> {
    at_most: BTreeMap<&'a str, Register<u64>>,
    otherwise: u64,
    of: BTreeMap<&'a str, &'a str>,
    /// Runs that were given back need none.
    of_queues: bool,
}

fn queue_slots<'a>(facts: &Facts<'a>) -> Slots<'a> {
    let mut at_most: BTreeMap<&str, Register<u64>> = BTreeMap::new();
    for call in &facts.history.calls {
        if let Ask::QueueLimit { queue, at_most: limit } = &call.ask {
            let register = at_most.entry(queue).or_insert_with(|| Register::new(ANY_NUMBER));
            register.add(limit.unwrap_or(ANY_NUMBER), call);
        }
    }
    let of = facts.history.tables.runs.iter().map(|run| (run.run_id.as_str(), run.queue.as_str()));
    Slots { at_most, otherwise: ANY_NUMBER, of: of.collect(), of_queues: true }
}

fn key_slots<'a>(facts: &Facts<'a>) -> Slots<'a> {
    let mut at_most: BTreeMap<&str, Register<u64>> = BTreeMap::new();
    for call in &facts.history.calls {
        if let Ask::KeyLimit { key, at_most: limit } = &call.ask {
            at_most.entry(key).or_insert_with(|| Register::new(1)).add(*limit, call);
        }
    }
    let key =
        |run: &'a super::super::record::RunRow| Some((run.run_id.as_str(), run.concurrency_key.as_deref()?));
    Slots {
        at_most,
        otherwise: 1,
        of: facts.history.tables.runs.iter().filter_map(key).collect(),
        of_queues: false,
    }
}

#[derive(Default)]
struct Held {
    claimed: u64,
    by_hand: u64,
}

/// Entries into a held state with no slot left. If only those that SQL users began take one too many, then that is
/// their doing, whoever came after them.
fn over(facts: &Facts<'_>, slots: &Slots<'_>, by_hand: bool) -> Vec<String> {
    let mut held: BTreeMap<&str, Held> = BTreeMap::new();
    let mut holds_by_hand: BTreeMap<&str, bool> = BTreeMap::new();
    let mut vacant: BTreeSet<&str> = BTreeSet::new();
    let mut violations = Vec::new();
    for event in &facts.history.tables.events {
        let Some(name) = slots.of.get(event.run_id.as_str()) else { continue };
        let now = held.entry(name).or_default();
        let stays = event.was() == Some(Phase::Held) && event.is() == Phase::Held;
        let is_left = stays && (event.command == "release" || event.actor == "engine");
        let is_vacated = slots.of_queues && is_left && vacant.insert(&event.run_id);
        let is_taken = stays && event.command == "take-over";
        let is_regained = slots.of_queues && is_taken && vacant.remove(event.run_id.as_str());
        if slots.of_queues && event.enters(Phase::Held) && event.actor != "worker" {
            // Begun for whoever comes.
            vacant.insert(&event.run_id);
            continue;
        }
        if event.enters(Phase::Held) || is_regained {
            let is_by_hand = facts.is_by_hand(event);
            let at_most = allowed(facts, slots, name, event);
            let is_over = now.claimed + now.by_hand >= at_most;
            let is_their_doing = is_by_hand || now.claimed < at_most;
            if is_over && is_their_doing == by_hand {
                let (run_id, by, others) = (&event.run_id, &event.by, now.claimed + now.by_hand);
                let at = event.position;
                violations.push(format!("{name}: {by} began {run_id} beside {others} of {at_most}, at {at}"));
            }
            holds_by_hand.insert(&event.run_id, is_by_hand);
            *(if is_by_hand { &mut now.by_hand } else { &mut now.claimed }) += 1;
        } else if event.was() == Some(Phase::Held) && event.is() != Phase::Held || is_vacated {
            if !is_vacated && vacant.remove(event.run_id.as_str()) {
                continue;
            }
            let was_by_hand = holds_by_hand.remove(event.run_id.as_str()).unwrap_or(false);
            let count = if was_by_hand { &mut now.by_hand } else { &mut now.claimed };
            *count = count.saturating_sub(1);
        }
    }
    violations
}

/// The most that may have been allowed while the claim was under way. Who never asked is another check's.
fn allowed(facts: &Facts<'_>, slots: &Slots<'_>, name: &str, entry: &EventRow) -> u64 {
    let Some(call) = facts.grants.get(entry.by.as_str()) else { return ANY_NUMBER };
    let Some(register) = slots.at_most.get(name) else { return slots.otherwise };
    let (from, until) = window(call);
    register.possible(from, until).copied().max().unwrap_or(ANY_NUMBER)
}

pub fn pauses(facts: &Facts<'_>) -> Vec<String> {
    in_pause(facts, false)
}

pub fn pauses_by_hand(facts: &Facts<'_>) -> Vec<String> {
    in_pause(facts, true)
}

fn in_pause(facts: &Facts<'_>, by_hand: bool) -> Vec<String> {
    let mut queues: BTreeMap<&str, Register<bool>> = BTreeMap::new();
    for call in &facts.history.calls {
        if let Ask::Pause { queue, paused } = &call.ask {
            queues.entry(queue).or_insert_with(|| Register::new(false)).add(*paused, call);
        }
    }
    let mut violations = Vec::new();
    for event in facts.history.tables.events.iter().filter(|event| event.enters(Phase::Held)) {
        let register = facts.runs.get(event.run_id.as_str()).and_then(|run| queues.get(run.queue.as_str()));
        let (Some(register), Some(call)) = (register, facts.grants.get(event.by.as_str())) else { continue };
        let (from, until) = window(call);
        let is_paused = register.possible(from, until).all(|paused| *paused);
        if is_paused && facts.is_by_hand(event) == by_hand {
            violations.push(format!("{} began {} in a paused queue: {}", event.by, event.run_id, told(call)));
        }
    }
    violations
}

fn told(call: &Call) -> String {
    let told = if matches!(call.answer, Answer::Unknown { .. }) { "unknown" } else { "answered" };
    format!("called at {} µs, {told} at {} µs", call.invoked, call.answered)
}
