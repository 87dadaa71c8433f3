//! R4, R5, R8, R9, J5 and J6 by name: retries, waits, discards and reruns of items.

use super::cases::FAILURE;
use super::walk::{Walk, seconds};
use crate::shipped::catalog;
use waypost_kernel::decide::NewRun;
use waypost_kernel::item::{Item, ItemAsk, decide_items};
use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::request::{Finish, With};
use waypost_kernel::{Actor, Ask, Code, Guard, Request, Time, Token, Who, create, decide};

const W1: Token = Token(1);
const W2: Token = Token(2);

fn to(state: &str) -> ItemAsk<'_> {
    ItemAsk { to: state, ..ItemAsk::default() }
}

fn applying(targets: usize) -> Walk {
    let mut walk = Walk::with_items("rule", "QUEUED", "QUEUED", targets);
    walk.claim(W1).unwrap();
    walk
}

// proves R4, R9: three retries after the first try, each burnt, then only FAILED is left
#[test]
fn a_retry_burns_one_of_three() {
    let mut walk = applying(1);
    for retry in 1..=4_u32 {
        let begun = walk.item(W1, 0, to("APPLYING")).unwrap();
        assert_eq!((begun.attempts, begun.try_no), (retry - 1, retry), "a retry is a new key");
        let wait = Some(seconds(2));
        let ask = ItemAsk { failure: Some(&FAILURE), retry_in: wait, answered: true, ..to("QUEUED") };
        let retried = walk.item(W1, 0, ask);
        if retry == 4 {
            let refusal = retried.unwrap_err();
            assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::AttemptsLeft)));
            break;
        }
        let queued = retried.unwrap();
        assert_eq!((queued.attempts, queued.not_before), (retry, Some(walk.now + seconds(2))));
    }
    let failed =
        walk.item(W1, 0, ItemAsk { failure: Some(&FAILURE), answered: true, ..to("FAILED") }).unwrap();
    assert_eq!((failed.attempts, failed.try_no, failed.finished_at), (3, 5, Some(walk.now)));
}

// proves R5: a 429 waits and burns no retry, however often
#[test]
fn a_wait_burns_nothing() {
    let mut walk = applying(1);
    for round in 1..=10_u32 {
        walk.item(W1, 0, to("APPLYING")).unwrap();
        let wait =
            ItemAsk { command: Some("wait"), retry_in: Some(seconds(16)), answered: true, ..to("QUEUED") };
        let waiting = walk.item(W1, 0, wait).unwrap();
        assert_eq!((waiting.attempts, waiting.try_no), (0, round + 1));
        assert_eq!(waiting.not_before, Some(walk.now + seconds(16)));
    }
    let gave_up = walk.item(W1, 0, ItemAsk { failure: Some(&FAILURE), ..to("FAILED") }).unwrap();
    assert_eq!(gave_up.attempts, 0, "QUEUED → FAILED is the give-up");
}

// proves R9: after an unknown answer the same key is sent again
#[test]
fn an_unknown_answer_keeps_its_key() {
    let mut walk = applying(1);
    walk.item(W1, 0, to("APPLYING")).unwrap();
    let cut_off = walk.item(W1, 0, ItemAsk { retry_in: Some(seconds(2)), ..to("QUEUED") }).unwrap();
    assert_eq!((cut_off.attempts, cut_off.try_no), (1, 1));
    walk.item(W1, 0, to("APPLYING")).unwrap();
    // R2: the lease is lost; the engine's move of the target is an unknown answer too.
    let lost = ItemAsk { command: Some("lose"), ..to("QUEUED") };
    let lost = walk.item_by(Actor::Engine, None, 0, lost).unwrap();
    assert_eq!((lost.attempts, lost.try_no), (1, 1));
}

// proves R8, R9: a manual retry starts a new budget under a new key; a discarded target stays FAILED
#[test]
fn a_manual_retry_starts_a_new_budget() {
    let mut walk = applying(2);
    for at in 0..2 {
        walk.item(W1, at, to("APPLYING")).unwrap();
        walk.items[at].attempts = 3;
        walk.item(W1, at, ItemAsk { failure: Some(&FAILURE), answered: true, ..to("FAILED") }).unwrap();
    }
    let retried = walk.item_by(Actor::Engine, None, 0, to("QUEUED")).unwrap();
    assert_eq!((retried.attempts, retried.try_no, retried.finished_at), (0, 2, None));
    let discard = ItemAsk { discard: true, ..ItemAsk::default() };
    let discarded = walk.item_by(Actor::Client, None, 1, discard).unwrap();
    assert!(discarded.discarded && discarded.failure.is_some());
    assert_eq!(&*walk.lifecycle.items[0].state(discarded.state).name, "FAILED");
    let refusal = walk.item_by(Actor::Engine, None, 1, to("QUEUED")).unwrap_err();
    assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::NotDiscarded)));
}

// proves R8: people move no items but through the run; only `discard` is theirs
#[test]
fn people_ask_the_run_and_its_items_follow() {
    let mut walk = applying(2);
    walk.item(W1, 0, to("FAILED")).unwrap();
    for actor in [Actor::Client, Actor::Operator] {
        let progress = ItemAsk { progress: Some(5), ..to("QUEUED") };
        for (at, ask) in [(0, to("QUEUED")), (1, to("APPLYING")), (1, to("FAILED")), (1, progress)] {
            let refusal = walk.item_by(actor, Some(W1), at, ask).unwrap_err();
            assert_eq!((refusal.code, &*refusal.current), (Code::ActorNotAllowed, "APPLYING"));
        }
    }
    walk.item_by(Actor::Client, None, 0, ItemAsk { discard: true, ..ItemAsk::default() }).unwrap();
}

// proves R9: a report that comes late or twice does not count for the next try
#[test]
fn a_report_of_an_earlier_try_changes_nothing() {
    let mut walk = applying(1);
    walk.item(W1, 0, to("APPLYING")).unwrap();
    let first = ItemAsk { answered: true, try_no: Some(1), ..to("QUEUED") };
    assert_eq!(walk.item(W1, 0, first).unwrap().try_no, 2);
    walk.item(W1, 0, to("APPLYING")).unwrap();
    let (row, item) = (walk.run.clone(), walk.items[0].clone());
    for late in [first, ItemAsk { to: "FAILED", failure: Some(&FAILURE), progress: Some(9), ..first }] {
        assert_eq!(walk.later(seconds(1)).item(W1, 0, late).unwrap(), item);
        assert_eq!(walk.run, row, "nothing is written");
    }
    let early = walk.item(W1, 0, ItemAsk { try_no: Some(3), ..first }).unwrap_err();
    assert_eq!(early.code, Code::InvalidInput);
    let second = walk.item(W1, 0, ItemAsk { try_no: Some(2), ..to("APPLIED") }).unwrap();
    assert_eq!(&*walk.lifecycle.items[0].state(second.state).name, "APPLIED");
}

// proves R8: discard is a person's, and of failed targets only
#[test]
fn only_people_discard_and_only_what_failed() {
    let mut walk = applying(1);
    let discard = ItemAsk { discard: true, ..ItemAsk::default() };
    assert_eq!(walk.item_by(Actor::Client, None, 0, discard).unwrap_err().code, Code::InvalidTransition);
    walk.item(W1, 0, to("FAILED")).unwrap();
    assert_eq!(walk.item(W1, 0, discard).unwrap_err().code, Code::InvalidTransition);
    assert_eq!(walk.item_by(Actor::Engine, None, 0, discard).unwrap_err().code, Code::InvalidTransition);
    walk.item_by(Actor::Operator, None, 0, discard).unwrap();
}

// proves R8: a run's retry takes all failed targets but the discarded, or the chosen ones
#[test]
fn a_runs_retry_queues_what_failed_and_was_not_discarded() {
    for (chosen, queued) in [(None, 2), (Some(0..1), 1), (Some(1..3), 1)] {
        let mut walk = applying(3);
        for at in 0..3 {
            walk.item(W1, at, to("FAILED")).unwrap();
        }
        walk.finish(W1, "FAILED").unwrap();
        walk.item_by(Actor::Client, None, 2, ItemAsk { discard: true, ..ItemAsk::default() }).unwrap();
        let items = walk.items.clone();
        let chosen = chosen.map(|range| &items[range]);
        walk.command(Actor::Client, "retry", With { chosen, ..With::default() }).unwrap();
        let state = |name| walk.lifecycle.items[0].state_named(name).unwrap();
        let tally = &walk.run.tallies[0];
        assert_eq!((tally.in_state(state("QUEUED")), tally.in_state(state("FAILED"))), (queued, 3 - queued));
        let named = walk.events.last().unwrap().effect.shifts[0].chosen.as_ref().map(Vec::len);
        assert_eq!(named, chosen.map(|_| queued as usize), "of the chosen, those that can follow");
    }
    let mut walk = applying(1);
    walk.item(W1, 0, to("FAILED")).unwrap();
    walk.finish(W1, "FAILED").unwrap();
    walk.item_by(Actor::Client, None, 0, ItemAsk { discard: true, ..ItemAsk::default() }).unwrap();
    let refusal = walk.command(Actor::Client, "retry", With::default()).unwrap_err();
    assert_eq!(refusal.guard, Some(Guard::SomeItemOpen), "nothing is left to retry");
}

// proves J5: on resume only a step that a cleanup names runs again; J3: paused ones go on
#[test]
fn a_resume_reruns_the_step_that_a_cleanup_names() {
    let mut walk = Walk::with_items("job", "pending", "pending", 4);
    // The births of `with_items` count no rerun, so the mark comes with the first move.
    walk.items[0].reruns = true;
    walk.claim(W1).unwrap();
    for at in 0..2 {
        walk.item(W1, at, to("running")).unwrap();
        walk.item(W1, at, to("completed")).unwrap();
    }
    walk.item(W1, 2, to("running")).unwrap();
    let pause = Finish { to: "paused", reason: Some("blockers"), ..Finish::default() };
    walk.finish_with(W1, pause).unwrap();
    let counts = |walk: &Walk, names: [&str; 3]| {
        names.map(|name| walk.run.tallies[0].in_state(walk.lifecycle.items[0].state_named(name).unwrap()))
    };
    assert_eq!(counts(&walk, ["completed", "paused", "pending"]), [2, 1, 1]);
    walk.command(Actor::Operator, "resume", With { resolved: true, ..With::default() }).unwrap();
    assert_eq!(counts(&walk, ["completed", "paused", "pending"]), [1, 0, 3]);
    let plain = walk.item_by(Actor::Engine, None, 1, to("pending")).unwrap_err();
    assert_eq!(plain.guard, Some(Guard::Reruns));
}

// proves X5: items are fenced by their run's lease, all of a batch or none
#[test]
fn a_batch_of_items_is_all_or_nothing() {
    let mut walk = applying(2);
    let who = Who { actor: Actor::Worker, by: "w1", fresh: W2 };
    let batch: Vec<(Item, ItemAsk<'_>)> =
        vec![(walk.items[0].clone(), to("APPLYING")), (walk.items[1].clone(), to("ROLLED_BACK"))];
    let refused = decide_items(&walk.lifecycle, &walk.run, &who, Some(W1), (&batch, &[]), walk.now);
    assert_eq!(refused.unwrap_err().code, Code::InvalidTransition);
    let both: Vec<(Item, ItemAsk<'_>)> =
        walk.items.iter().map(|item| (item.clone(), to("APPLYING"))).collect();
    let change = decide_items(&walk.lifecycle, &walk.run, &who, Some(W1), (&both, &[]), walk.now).unwrap();
    assert_eq!((change.events.len(), change.events[0].effect.moved.len()), (1, 2));
    walk.dies_and_is_taken_over(W2);
    assert_eq!(walk.item(W1, 0, to("APPLYING")).unwrap_err().code, Code::LeaseLost);
}

// proves J6: a cancel skips pending steps and fails running ones, CANCELLED
#[test]
fn a_cancelled_job_leaves_no_step_open() {
    let mut walk = Walk::with_items("job", "pending", "pending", 3);
    walk.claim(W1).unwrap();
    walk.item(W1, 0, to("running")).unwrap();
    walk.cancel().unwrap();
    walk.later(seconds(61)).sweep();
    let shifts = &walk.events.last().unwrap().effect.shifts;
    let steps = &walk.lifecycle.items[0];
    let told: Vec<(&str, &str, u32, Option<&str>)> = shifts
        .iter()
        .map(|shift| {
            let code = shift.failure.as_ref().map(|failure| &*failure.code);
            (&*steps.state(shift.from).name, &*steps.state(shift.to).name, shift.count, code)
        })
        .collect();
    assert_eq!(told, [("pending", "skipped", 2, None), ("running", "failed", 1, Some("CANCELLED"))]);
}

/// What was not reported as begun is begun and ended at once: by two rows of the table, with the guards of both.
#[test]
fn a_report_that_begins_asks_the_guard_of_the_beginning_too() {
    let shipped = |name: &str| SHIPPED.iter().find(|(of, _)| *of == name).unwrap().1;
    let task = shipped("task").replacen("\"task\"", "\"chore\"", 1).replacen(
        "\"start\",    \"running\",   \"worker\",         \"\"",
        "\"start\",    \"running\",   \"worker\",         \"attempts-left\"",
        1,
    );
    let job =
        shipped("job").replacen("\"job\"", "\"chores\"", 1).replacen("\"step\", \"task\"", "\"chore\"", 1);
    let mut catalog = catalog();
    catalog.add(&task).unwrap();
    let lifecycle = catalog.add(&job).unwrap();
    let kind = &lifecycle.items[0];
    let who = Who { actor: Actor::Worker, by: "w1", fresh: W1 };
    let now = Time::from_ms(1_000);
    let spent = Item { max_retries: 0, ..Item::new(0, "a", kind.initial[0]) };
    let items = [spent.clone(), Item { max_retries: 1, key: "b".into(), ..spent }];
    let new = NewRun { id: "run-1", items: &items, ..NewRun::default() };
    let client = Who { actor: Actor::Client, by: "ann", fresh: W2 };
    let run = create(&lifecycle, &new, &client, now).unwrap().after;
    let claim = Request { who, ask: Ask::Claim { lease: None, start: false } };
    let run = decide(&lifecycle, &run, &claim, now).unwrap().after;
    let report = |item: &Item| {
        let asks = [(item.clone(), to("completed"))];
        decide_items(&lifecycle, &run, &who, Some(W1), (&asks, &[]), now)
    };
    let refusal = report(&items[0]).unwrap_err();
    assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::AttemptsLeft)));
    let moved = &report(&items[1]).unwrap().events[0].effect.moved[0].item;
    assert_eq!((moved.attempts, moved.progress, moved.started_at), (1, 100, Some(now)));
}
