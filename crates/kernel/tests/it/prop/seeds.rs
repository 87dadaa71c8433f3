//! The invariants that the seeds write down, as predicates over rows, events and items: data, one line each.

use waypost_kernel::item::Item;

use super::world::{Taken, World};
use super::{holds_for, script, subjects};

struct Invariant {
    seed: &'static str,
    lifecycle: &'static str,
    words: &'static str,
    holds: fn(&World, &Taken) -> bool,
}

fn is(world: &World, state: &str) -> bool {
    &*world.lifecycle.state(world.run.state).name == state
}

fn is_one_of(world: &World, states: &[&str]) -> bool {
    states.iter().any(|state| is(world, state))
}

/// Whether the step moved the run from one state to the other.
fn moved(world: &World, taken: &Taken, from: &str, to: &str) -> bool {
    let name = |id| &*world.lifecycle.state(id).name;
    taken.events().iter().any(|event| event.from.map(name) == Some(from) && name(event.to) == to)
}

fn left(world: &World, taken: &Taken, from: &str) -> bool {
    let name = |id| &*world.lifecycle.state(id).name;
    taken.events().iter().any(|event| event.from.map(name) == Some(from) && name(event.to) != from)
}

fn is_item(world: &World, item: &Item, state: &str) -> bool {
    &*world.lifecycle.items[usize::from(item.kind)].state(item.state).name == state
}

fn targets(world: &World, state: &str) -> usize {
    world.items.iter().filter(|item| is_item(world, item, state)).count()
}

fn resumed_rightly(world: &World, taken: &Taken) -> bool {
    !moved(world, taken, "paused", "pending") || world.run.resolved || world.run.forced
}

#[rustfmt::skip]
const INVARIANTS: &[Invariant] = &[
    Invariant { seed: "000", lifecycle: "deploy", words: "queued: claimed_by, started_at, finished_at are null",
        holds: |world, _| !is(world, "queued") || world.run.lease.is_none() && world.run.started_at.is_none() && world.run.finished_at.is_none() },
    Invariant { seed: "000", lifecycle: "deploy", words: "claimed: started_at is set",
        holds: |world, _| !is_one_of(world, &["claimed", "running"]) || world.run.started_at.is_some() },
    Invariant { seed: "000", lifecycle: "deploy", words: "finished_at is set in success, failed, cancelled",
        holds: |world, _| is_one_of(world, &["success", "failed", "cancelled"]) == world.run.finished_at.is_some() },
    Invariant { seed: "000", lifecycle: "deploy", words: "a terminal state has no exit",
        holds: |world, taken| !["success", "failed", "cancelled"].iter().any(|state| left(world, taken, state)) },
    Invariant { seed: "000", lifecycle: "deploy", words: "a run is claimed at most once",
        holds: |world, _| world.run.attempt <= 1 },
    Invariant { seed: "001", lifecycle: "agent", words: "completed and failed are terminal",
        holds: |world, taken| !left(world, taken, "completed") && !left(world, taken, "failed") },
    Invariant { seed: "001", lifecycle: "agent", words: "nothing goes back to requested",
        holds: |world, taken| ["queued", "running"].iter().all(|from| !moved(world, taken, from, "requested")) },
    Invariant { seed: "001", lifecycle: "agent", words: "completed has no error",
        holds: |world, _| !is(world, "completed") || world.run.failure.is_none() },
    Invariant { seed: "001", lifecycle: "agent", words: "started_at is null until running",
        holds: |world, _| !is_one_of(world, &["requested", "queued"]) || world.run.started_at.is_none() },
    Invariant { seed: "002", lifecycle: "cron", words: "attempt >= 1 and max_attempts >= attempt",
        holds: |world, _| world.run.attempt >= 1 && world.run.max_attempts >= world.run.attempt },
    Invariant { seed: "002", lifecycle: "cron", words: "a write to a live lease matches its token and RUNNING",
        holds: |world, taken| {
            let writes = taken.asked.token().is_some() && !taken.events().is_empty();
            let running = &*world.lifecycle.state(taken.before.state).name == "RUNNING";
            let token = taken.before.lease.as_ref().map(|lease| lease.token);
            !writes || running && token == taken.asked.token()
        } },
    Invariant { seed: "002", lifecycle: "cron", words: "SUCCESS is never left",
        holds: |world, taken| !left(world, taken, "SUCCESS") },
    Invariant { seed: "002", lifecycle: "cron", words: "a FAILED row without attempts left has no retry time",
        holds: |world, _| !is(world, "FAILED") || world.run.attempt < world.run.max_attempts || world.run.available_at.is_none() },
    Invariant { seed: "003", lifecycle: "job", words: "1: running has one executor, or a vacant lease that waits for one",
        holds: |world, _| is(world, "running") == world.run.lease.is_some() },
    Invariant { seed: "003", lifecycle: "job", words: "2: paused has a pause_reason",
        holds: |world, _| !is(world, "paused") || world.run.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty()) },
    Invariant { seed: "003", lifecycle: "job", words: "3: paused -> pending has resolutions or is forced",
        holds: resumed_rightly },
    Invariant { seed: "003", lifecycle: "job", words: "4: steps exist before running",
        holds: |world, _| !is(world, "running") || world.items.iter().any(|item| item.kind == 0) },
    Invariant { seed: "003", lifecycle: "job", words: "5: completed_at is set when completed, failed or cancelled",
        holds: |world, _| is_one_of(world, &["completed", "failed", "cancelled"]) == world.run.finished_at.is_some() },
    Invariant { seed: "003", lifecycle: "job", words: "6: started_at is set when running",
        holds: |world, _| !is(world, "running") || world.run.started_at.is_some() },
    Invariant { seed: "004", lifecycle: "rule", words: "queuedAt <= startedAt <= finishedAt",
        holds: |world, _| [Some(world.run.created_at), world.run.started_at, world.run.finished_at].iter().flatten().is_sorted() },
    Invariant { seed: "004", lifecycle: "rule", words: "APPLIED requires that all targets that were asked for succeeded",
        holds: |world, _| {
            let succeeded = targets(world, "APPLIED") + targets(world, "ROLLED_BACK");
            !is(world, "APPLIED") || succeeded > 0 && succeeded + targets(world, "PREVIEW") == world.items.len()
        } },
    Invariant { seed: "004", lifecycle: "rule", words: "APPLIED -> APPLYING and ROLLED_BACK -> APPLYING are no moves",
        holds: |world, taken| !moved(world, taken, "APPLIED", "APPLYING") && !left(world, taken, "ROLLED_BACK") },
    Invariant { seed: "004", lifecycle: "rule", words: "PREVIEW -> APPLYING is no move",
        holds: |world, taken| !moved(world, taken, "PREVIEW", "APPLYING") },
    Invariant { seed: "004", lifecycle: "rule", words: "attempts <= MAX_RETRIES, or FAILED",
        holds: |world, _| world.items.iter().all(|item| item.attempts <= item.max_retries || is_item(world, item, "FAILED")) },
    Invariant { seed: "004", lifecycle: "rule", words: "an APPLIED target has appliedAt",
        holds: |world, _| world.items.iter().all(|item| !is_item(world, item, "APPLIED") || item.finished_at.is_some() && item.failure.is_none()) },
];

fn check(world: &World, taken: &Taken) -> Result<(), String> {
    let of_this = INVARIANTS.iter().filter(|invariant| *invariant.lifecycle == *world.lifecycle.name);
    for Invariant { seed, words, holds, .. } in of_this {
        if !holds(world, taken) {
            return Err(format!("seed {seed}: {words}\n{:?}\n{:?}", world.run, world.items));
        }
    }
    Ok(())
}

// proves J2, R14, C3 and C4
#[test]
fn the_invariants_of_the_seeds_hold() {
    for lifecycle in subjects::all() {
        if INVARIANTS.iter().any(|invariant| *invariant.lifecycle == *lifecycle.name) {
            holds_for(lifecycle, 48, script::any_script(50..300), check);
        }
    }
}
