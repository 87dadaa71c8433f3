//! A failed step by name: the run is one that fails, whoever has it then, and nothing begins but cleanups.

use super::cases::FAILURE;
use super::walk::{Walk, seconds};
use waypost_kernel::item::{Item, ItemAsk, Role, add_items, decide_items};
use waypost_kernel::request::With;
use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Code, StateId, Token, Who};

const W1: Token = Token(1);
const W2: Token = Token(2);
/// A step that fails, one after it, one that may fail, and a cleanup.
const ROLES: [Role; 4] = [Role::Step, Role::Step, Role::Optional, Role::Cleanup];

fn to(state: &str) -> ItemAsk<'_> {
    ItemAsk { to: state, ..ItemAsk::default() }
}

fn failing() -> ItemAsk<'static> {
    ItemAsk { failure: Some(&FAILURE), name: Some("Check the hosts"), ..to("failed") }
}

fn working() -> Walk {
    let mut walk = Walk::with_items("job", "pending", "pending", ROLES.len());
    walk.items.iter_mut().zip(ROLES).for_each(|(item, role)| item.role = role);
    walk.claim(W1).unwrap();
    walk
}

fn with_a_failed_step() -> Walk {
    let mut walk = working();
    walk.item(W1, 0, to("running")).unwrap();
    walk.item(W1, 0, failing()).unwrap();
    walk
}

fn want(walk: &Walk) -> Option<Want> {
    walk.run.intent.as_ref().map(|intent| intent.want)
}

fn recorded(walk: &Walk) -> String {
    format!("{}: {}", FAILURE.code, walk.run.failure.as_ref().unwrap().message)
}

#[test]
fn after_a_failed_step_nothing_begins_but_cleanups() {
    let mut walk = with_a_failed_step();
    for (at, state) in [(1, "running"), (1, "completed"), (2, "running"), (2, "completed")] {
        let refusal = walk.item(W1, at, to(state)).unwrap_err();
        assert_eq!(refusal.code, Code::FailureRecorded, "{at} {state}");
        assert!(refusal.message.contains("Check the hosts: "), "{}", refusal.message);
    }
    walk.item(W1, 1, to("skipped")).unwrap();
    walk.item(W1, 2, to("failed")).unwrap();
    walk.item(W1, 3, to("running")).unwrap();
    walk.item(W1, 3, to("completed")).unwrap();
}

#[test]
fn the_run_is_one_that_fails_from_the_same_event_on() {
    let mut walk = with_a_failed_step();
    let intent = walk.events.last().unwrap().effect.intent.clone().unwrap();
    assert_eq!((&*walk.events.last().unwrap().command, intent.want), ("items", Want::Fail));
    assert_eq!(walk.finish(W1, "completed").unwrap_err().code, Code::FailureRecorded);
    walk.finish(W1, "failed").unwrap();
    assert_eq!(recorded(&walk), format!("{}: Check the hosts: {}", FAILURE.code, FAILURE.message));
}

#[test]
fn a_dead_worker_ends_it_as_failed() {
    let mut walk = with_a_failed_step();
    walk.later(seconds(61));
    assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "nobody works on it again");
    walk.sweep();
    assert_eq!((walk.state(), walk.code()), ("failed", &*FAILURE.code));
}

#[test]
fn a_worker_that_leaves_leaves_the_cleanups_to_the_next_one() {
    let mut walk = with_a_failed_step();
    walk.release(W1).unwrap();
    walk.sweep();
    assert_eq!((walk.state(), want(&walk)), ("running", Some(Want::Fail)));
    walk.claim(W2).unwrap();
    assert_eq!(walk.item(W2, 1, to("running")).unwrap_err().code, Code::FailureRecorded);
    walk.item(W2, 3, to("running")).unwrap();
    walk.item(W2, 3, to("completed")).unwrap();
    walk.finish(W2, "failed").unwrap();
    assert_eq!((walk.state(), walk.code()), ("failed", &*FAILURE.code));
}

#[test]
fn what_it_owes_is_done_by_the_next_one_and_nothing_else() {
    let mut walk = working();
    walk.require_cleanup(W1, true).unwrap();
    walk.item(W1, 0, to("running")).unwrap();
    walk.item(W1, 0, failing()).unwrap();
    walk.dies_and_is_taken_over(W2);
    assert_eq!((walk.state(), want(&walk)), ("running", Some(Want::Fail)));
    assert_eq!(walk.item(W2, 1, to("running")).unwrap_err().code, Code::FailureRecorded);
    walk.item(W2, 3, to("running")).unwrap();
    walk.item(W2, 3, to("completed")).unwrap();
    walk.require_cleanup(W2, false).unwrap();
    walk.finish(W2, "failed").unwrap();
    assert_eq!(walk.code(), &*FAILURE.code);
}

#[test]
fn one_that_may_fail_stops_nobody_and_a_cleanup_neither() {
    for at in [2, 3] {
        let mut walk = working();
        walk.item(W1, at, ItemAsk { failure: Some(&FAILURE), ..to("failed") }).unwrap();
        assert_eq!(want(&walk), None);
        walk.item(W1, 1, to("running")).unwrap();
        walk.item(W1, 1, to("completed")).unwrap();
        walk.finish(W1, "completed").unwrap();
    }
}

#[test]
fn a_cancel_that_came_first_stands_and_a_pause_does_not() {
    let reason = With { reason: Some("why"), ..With::default() };
    for (name, wanted) in [("cancel", Want::Cancel), ("pause", Want::Fail)] {
        let mut walk = working();
        walk.item(W1, 0, to("running")).unwrap();
        walk.command(Actor::Operator, name, reason).unwrap();
        walk.item(W1, 0, failing()).unwrap();
        assert_eq!(want(&walk), Some(wanted), "{name}");
        let refusal = walk.item(W1, 1, to("running")).unwrap_err();
        assert_eq!(refusal.code, Code::FailureRecorded, "{name}: whatever is wanted of the run");
        assert!(refusal.message.contains("failed") || wanted == Want::Fail, "{}", refusal.message);
        walk.item(W1, 3, to("running")).unwrap();
    }
    let mut walk = with_a_failed_step();
    assert_eq!(
        walk.command(Actor::Operator, "pause", reason).unwrap_err().code,
        Code::FailureRecorded,
        "it cannot be paused any more"
    );
    walk.cancel().unwrap();
    assert_eq!(want(&walk), Some(Want::Cancel), "as a failure that is owed its cleanup is cancelled");
}

/// In one write as in several: what comes after the failure is after it.
#[test]
fn the_order_within_one_write_counts() {
    let walk = working();
    let who = Who { actor: Actor::Worker, by: "w", fresh: Token(9) };
    let ask = |at: usize, state: &'static str| (walk.items[at].clone(), to(state));
    let decide = |asks: &[(Item, ItemAsk<'_>)]| {
        decide_items(&walk.lifecycle, &walk.run, &who, Some(W1), (asks, &[]), walk.now)
    };
    let change = decide(&[ask(1, "completed"), ask(0, "failed"), ask(3, "running")]).unwrap();
    assert_eq!(change.after.intent.map(|intent| intent.want), Some(Want::Fail));
    let refusal = decide(&[ask(0, "failed"), ask(1, "completed")]).unwrap_err();
    assert_eq!(refusal.code, Code::FailureRecorded);
}

/// What a person failed by hand stops the holder too, though nothing was recorded of the run.
#[test]
fn a_failed_step_that_the_run_does_not_know_of_stops_too() {
    let walk = working();
    let kind = &walk.lifecycle.items[0];
    let state = |name: &str| kind.state_named(name).unwrap();
    let item = |key: &str, state: StateId, role: Role| Item { role, ..Item::new(0, key, state) };
    let who = Who { actor: Actor::Worker, by: "w", fresh: Token(9) };
    let asks = [(item("a", state("pending"), Role::Step), to("running"))];
    for (role, begins) in [(Role::Step, false), (Role::Optional, true), (Role::Cleanup, true)] {
        let failed = [item("b", state("failed"), role)];
        let decided = decide_items(&walk.lifecycle, &walk.run, &who, Some(W1), (&asks, &failed), walk.now);
        assert_eq!(decided.is_ok(), begins, "{role:?}");
    }
    let new = [item("c", state("pending"), Role::Step)];
    let failed = [item("b", state("failed"), Role::Step)];
    add_items(&walk.lifecycle, &walk.run, &who, Some(W1), (&new, &failed), walk.now).unwrap();
}

#[test]
fn a_step_that_failed_without_words_has_a_code() {
    let mut walk = working();
    walk.item(W1, 0, to("failed")).unwrap();
    walk.finish(W1, "failed").unwrap();
    let failure = walk.run.failure.as_ref().unwrap();
    assert_eq!((&*failure.code, &*failure.message), ("STEP_FAILED", "i0: it failed"));
}
