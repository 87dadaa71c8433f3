//! X3 by name: replays and refusals; D4, D8, J2, R1 and R3 with it.

use super::cases::FAILURE;
use super::walk::{NOBODY, Walk, seconds};
use waypost_kernel::item::ItemAsk;
use waypost_kernel::request::{Finish, With};
use waypost_kernel::{Actor, Ask, Code, Guard, Token};

const W1: Token = Token(1);
const W2: Token = Token(2);

pub fn allowed(refusal: &waypost_kernel::Refusal) -> Vec<&str> {
    refusal.allowed.iter().map(|command| &**command).collect()
}

fn running_deploy() -> Walk {
    let mut walk = Walk::new("deploy");
    walk.claim(W1).unwrap();
    walk.note(W1).unwrap();
    walk
}

fn running_job() -> Walk {
    let mut walk = Walk::with_items("job", "pending", "pending", 2);
    walk.claim(W1).unwrap();
    walk
}

/// An APPLYING rule whose targets are applied or failed as told.
pub fn rule(outcomes: &[&str]) -> Walk {
    let mut walk = Walk::with_items("rule", "QUEUED", "QUEUED", outcomes.len());
    walk.claim(W1).unwrap();
    for (at, to) in outcomes.iter().enumerate().filter(|(_, to)| **to != "QUEUED") {
        walk.item(W1, at, ItemAsk { to: "APPLYING", ..ItemAsk::default() }).unwrap();
        walk.item(W1, at, ItemAsk { to, answered: true, ..ItemAsk::default() }).unwrap();
    }
    walk
}

// proves X3: the same finish again answers as the first did, from its own token only
#[test]
fn a_repeated_finish_writes_nothing_and_a_different_one_is_refused() {
    let mut walk = running_deploy();
    walk.finish(W1, "success").unwrap();
    let (row, log) = (walk.run.clone(), walk.events.len());
    assert!(walk.later(seconds(86_400)).finish(W1, "success").unwrap().is_repeat(&row));
    let refusal = walk.finish(W1, "failed").unwrap_err();
    assert_eq!((refusal.code, &*refusal.current), (Code::InvalidTransition, "success"));
    assert_eq!((&*refusal.requested, allowed(&refusal)), ("failed", vec![]));
    assert_eq!(walk.finish(W2, "success").unwrap_err().code, Code::LeaseLost);
    assert_eq!((&walk.run, walk.events.len()), (&row, log));
}

// proves X3: stable code, current state, what is allowed
#[test]
fn a_refusal_says_where_the_run_is_and_what_may_be_asked() {
    let mut walk = running_job();
    let refusal = walk.command(Actor::Client, "pause", With::default()).unwrap_err();
    assert_eq!((refusal.code, &*refusal.current), (Code::ActorNotAllowed, "running"));
    assert_eq!(allowed(&refusal), ["pause", "cancel"]);
    walk.cancel().unwrap();
    let refusal = walk.command(Actor::Operator, "resume", With::default()).unwrap_err();
    assert_eq!((refusal.code, allowed(&refusal)), (Code::InvalidTransition, vec![]));
    let mut rule = rule(&["APPLIED", "FAILED"]);
    rule.finish(W1, "PARTIAL").unwrap();
    let refusal = rule.command(Actor::Client, "queue", With::default()).unwrap_err();
    assert_eq!((refusal.code, &*refusal.current), (Code::InvalidTransition, "PARTIAL"));
    assert_eq!(allowed(&refusal), ["retry", "rollback", "reconcile"]);
}

// proves X3: a repeated command is a no-op
#[test]
fn a_repeated_cancel_answers_as_the_first_did() {
    let mut walk = Walk::new("deploy");
    walk.cancel().unwrap();
    let row = walk.run.clone();
    assert_eq!((walk.state(), walk.code()), ("cancelled", "CANCELLED"));
    assert!(walk.later(seconds(60)).cancel().unwrap().is_repeat(&row));
    assert_eq!(walk.claim(W1).unwrap_err().code, Code::InvalidTransition);
}

// proves D4: the claim's event does not start the run; the worker's first own event does
#[test]
fn the_first_own_event_starts_a_deploy() {
    let mut walk = Walk::new("deploy");
    walk.claim(W1).unwrap();
    walk.renew(W1).unwrap();
    assert_eq!((walk.state(), walk.log(1)), ("claimed", vec!["claim"]));
    let claimed_at = walk.run.started_at;
    walk.later(seconds(30)).note(W1).unwrap();
    assert_eq!((walk.state(), walk.log(1)), ("running", vec!["start"]));
    assert!(walk.events.last().unwrap().note.is_some(), "the event is the note itself");
    assert_eq!(walk.run.started_at, claimed_at);
    walk.note(W1).unwrap();
    assert_eq!(walk.log(2), ["start", "note"]);
}

// proves D8: finishing from claimed is start + finish in one change
#[test]
fn finishing_from_claimed_starts_first() {
    for to in ["success", "failed"] {
        let mut walk = Walk::new("deploy");
        walk.claim(W1).unwrap();
        let change = walk.finish(W1, to).unwrap();
        let names = |id| &*walk.lifecycle.state(id).name;
        let path: Vec<&str> = change.events.iter().map(|event| names(event.to)).collect();
        assert_eq!(path, ["running", to]);
        assert_eq!((walk.run.seq, walk.run.attempt), (4, 1));
        assert!(walk.finish(W1, to).unwrap().events.is_empty());
    }
}

// proves D8: a cancel of queued and claimed is honoured at once
#[test]
fn a_deploy_that_has_not_begun_is_cancelled_at_once() {
    let mut claimed = Walk::new("deploy");
    claimed.claim(W1).unwrap();
    for mut walk in [Walk::new("deploy"), claimed] {
        walk.cancel().unwrap();
        assert_eq!((walk.state(), walk.code()), ("cancelled", "CANCELLED"));
        assert_eq!(walk.finish(W1, "success").unwrap_err().code, Code::LeaseLost);
    }
}

// proves J2, invariants 4 to 6: steps exist before running; started_at and completed_at are set
#[test]
fn a_job_runs_only_with_steps_and_keeps_its_times() {
    let mut bare = Walk::new("job");
    let refusal = bare.claim(W1).unwrap_err();
    assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::HasItems)));
    let mut walk = running_job();
    let started_at = walk.run.started_at;
    assert_eq!(started_at, Some(walk.now));
    let pause = Finish { to: "paused", reason: Some("blockers"), ..Finish::default() };
    walk.later(seconds(9)).finish_with(W1, pause).unwrap();
    walk.command(Actor::Operator, "resume", With { force: true, ..With::default() }).unwrap();
    walk.later(seconds(9)).claim(W2).unwrap();
    assert_eq!((walk.run.started_at, walk.run.attempt), (started_at, 2));
    walk.later(seconds(9)).finish(W2, "completed").unwrap();
    assert_eq!(walk.run.finished_at, Some(walk.now));
}

// proves J2, invariants 2 and 3
#[test]
fn a_pause_needs_a_reason_and_a_resume_resolutions_or_force() {
    let mut walk = running_job();
    for reason in [None, Some("  ")] {
        let pause = Finish { to: "paused", reason, ..Finish::default() };
        let refusal = walk.finish_with(W1, pause).unwrap_err();
        assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::HasReason)));
    }
    let pause = Finish { to: "paused", reason: Some("blockers"), ..Finish::default() };
    walk.finish_with(W1, pause).unwrap();
    assert_eq!((walk.state(), walk.run.reason.as_deref()), ("paused", Some("blockers")));
    assert!(walk.finish_with(W1, pause).unwrap().events.is_empty(), "X3: again");
    let refusal = walk.command(Actor::Operator, "resume", With::default()).unwrap_err();
    assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::ResolvedOrForced)));
    let client = walk.command(Actor::Client, "resume", With { force: true, ..With::default() });
    assert_eq!(client.unwrap_err().code, Code::ActorNotAllowed);
    // Some of what it asks is decided: that is kept, and it goes on waiting.
    let partly = With { partly: true, ..With::default() };
    assert_eq!(walk.command(Actor::Client, "resume", partly).unwrap_err().code, Code::ActorNotAllowed);
    let kept = walk.command(Actor::Operator, "resume", partly).unwrap();
    assert_eq!((kept.events.len(), &*kept.events[0].command, walk.state()), (1, "decide", "paused"));
    assert!(walk.command(Actor::Operator, "resume", With::default()).is_err(), "J2: that is not all");
    walk.command(Actor::Operator, "resume", With { resolved: true, ..With::default() }).unwrap();
    assert_eq!((walk.state(), walk.run.resolved), ("pending", true));
    walk.claim(W2).unwrap();
    walk.finish_with(W2, pause).unwrap();
    let again = walk.command(Actor::Operator, "resume", With::default());
    assert!(again.is_err(), "J3: new blockers need new resolutions");
}

// proves R1: a preview is queued first, with targets; cancelled and expired ones are FAILED
#[test]
fn a_preview_is_queued_before_it_is_applied() {
    let mut empty = Walk::new("rule");
    let refusal = empty.command(Actor::Client, "queue", With::default()).unwrap_err();
    assert_eq!((refusal.code, refusal.guard), (Code::InvalidTransition, Some(Guard::HasItems)));
    let mut walk = Walk::with_items("rule", "PREVIEW", "PREVIEW", 3);
    assert_eq!(walk.claim(W1).unwrap_err().code, Code::InvalidTransition);
    walk.command(Actor::Client, "queue", With::default()).unwrap();
    let queued = walk.lifecycle.items[0].state_named("QUEUED").unwrap();
    assert_eq!((walk.state(), walk.run.tallies[0].in_state(queued)), ("QUEUED", 3));
    walk.cancel().unwrap();
    assert_eq!((walk.state(), walk.code()), ("FAILED", "CANCELLED"));
    let mut old = Walk::with_items("rule", "PREVIEW", "PREVIEW", 1);
    assert!(old.later(seconds(7 * 86_400 - 1)).sweep().events.is_empty());
    old.later(seconds(1)).sweep();
    assert_eq!((old.state(), old.code()), ("FAILED", "EXPIRED"));
}

// proves R3: the outcome counts all targets; open ones count as failed
#[test]
fn the_targets_say_how_a_rule_ends() {
    let cases: [(&[&str], &str); 6] = [
        (&["APPLIED", "APPLIED"], "APPLIED"),
        (&["APPLIED", "FAILED"], "PARTIAL"),
        (&["FAILED", "FAILED"], "FAILED"),
        (&["APPLIED", "QUEUED"], "PARTIAL"),
        (&["QUEUED", "QUEUED"], "FAILED"),
        (&["FAILED", "QUEUED"], "FAILED"),
    ];
    for (outcomes, end) in cases {
        for to in ["APPLIED", "PARTIAL", "FAILED"] {
            let mut walk = rule(outcomes);
            let finish = Finish { to, failure: Some(&FAILURE), ..Finish::default() };
            match walk.finish_with(W1, finish) {
                Ok(_) => assert_eq!((walk.state(), to), (end, end), "{outcomes:?}"),
                Err(refusal) => {
                    assert_ne!(to, end, "{outcomes:?}");
                    assert_eq!(refusal.code, Code::InvalidTransition);
                }
            }
        }
        // R1: a cancel fails the rest, and then the same counts hold.
        let mut walk = rule(outcomes);
        walk.cancel().unwrap();
        walk.release(W1).unwrap();
        assert_eq!(walk.state(), end, "{outcomes:?}");
    }
}

// proves A7: a request that nobody acknowledges within 60 s fails UPSTREAM_UNAVAILABLE
#[test]
fn an_agent_request_that_nobody_takes_fails() {
    let mut walk = Walk::new("agent");
    assert!(walk.later(seconds(59)).sweep().events.is_empty());
    let early = walk.command(Actor::Engine, "expire", With::default()).unwrap_err();
    assert_eq!(early.code, Code::NotDue);
    walk.later(seconds(1)).sweep();
    assert_eq!((walk.state(), walk.code()), ("failed", "UPSTREAM_UNAVAILABLE"));
    let late = walk.ask(Actor::Engine, NOBODY, Ask::Command { name: "acknowledge", with: With::default() });
    assert_eq!(late.unwrap_err().code, Code::InvalidTransition);
}

// proves R8, R10: one operation at a time, no retry meanwhile, none after ROLLED_BACK
#[test]
fn a_rollback_keeps_the_run_for_itself() {
    let mut walk = rule(&["APPLIED", "FAILED"]);
    walk.finish(W1, "PARTIAL").unwrap();
    walk.command(Actor::Client, "rollback", With::default()).unwrap();
    for name in ["retry", "rollback", "reconcile"] {
        let refusal = walk.command(Actor::Client, name, With::default()).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.guard),
            (Code::InvalidTransition, Some(Guard::NoOperation)),
            "{name}"
        );
    }
    let early = walk.command(Actor::Engine, "rollback", With::default()).unwrap_err();
    assert_eq!(early.guard, Some(Guard::NoItemOk), "a target is still applied");
    let finished_at = walk.run.finished_at;
    walk.later(seconds(60));
    walk.item_by(Actor::Engine, None, 0, ItemAsk { to: "ROLLED_BACK", ..ItemAsk::default() }).unwrap();
    walk.command(Actor::Engine, "rollback", With::default()).unwrap();
    assert_eq!((walk.state(), walk.run.finished_at), ("ROLLED_BACK", finished_at));
    walk.ask(Actor::Engine, NOBODY, Ask::OperationEnded).unwrap();
    assert!(!walk.run.operating);
    let refusal = walk.command(Actor::Client, "retry", With::default()).unwrap_err();
    assert_eq!((refusal.code, allowed(&refusal)), (Code::InvalidTransition, vec![]));
}
