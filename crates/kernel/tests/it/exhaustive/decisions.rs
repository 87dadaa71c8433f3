//! By name: what was decided where the seeds leave room. The tables beside it look at the same everywhere.

use super::cases::FAILURE;
use super::finishing::{allowed, rule};
use super::intents::{CANCELLED, running, successes};
use super::walk::{NOBODY, Walk, seconds};
use waypost_kernel::decide::NewRun;
use waypost_kernel::item::ItemAsk;
use waypost_kernel::request::{Finish, With};
use waypost_kernel::{Actor, Ask, Code, Guard, Span, Token};

const W1: Token = Token(1);
const W2: Token = Token(2);
const NOTHING: With<'_> = With {
    reason: None,
    force: false,
    resolved: false,
    partly: false,
    graceful: false,
    failure: None,
    available_at: None,
    chosen: None,
};

fn requires_failing(walk: &mut Walk, to: &str) -> Result<waypost_kernel::Change, waypost_kernel::Refusal> {
    walk.ask(
        Actor::Worker,
        NOBODY,
        Ask::RequireCleanup { token: W1, required: false, failing: Some((to, &FAILURE)) },
    )
}

// proves X3: a repeat is answered to those who may ask it
#[test]
fn a_repeat_is_answered_only_to_those_who_may_ask() {
    let mut walk = Walk::new("agent");
    walk.later(seconds(60)).sweep();
    let row = walk.run.clone();
    for (actor, repeats) in [(Actor::Engine, true), (Actor::Client, false), (Actor::Operator, false)] {
        match walk.command(actor, "expire", NOTHING) {
            Ok(change) => assert!(repeats && change.is_repeat(&row)),
            Err(refusal) => {
                assert!(!repeats);
                assert_eq!((refusal.code, &*refusal.current), (Code::InvalidTransition, "failed"));
            }
        }
    }
}

// proves X3, R8: a retry that names targets is never taken for a repeat of another
#[test]
fn a_command_about_chosen_items_is_no_repeat() {
    let mut walk = rule(&["APPLIED", "FAILED"]);
    walk.finish(W1, "PARTIAL").unwrap();
    let items = walk.items.clone();
    let chosen = With { chosen: Some(&items[1..]), ..NOTHING };
    walk.command(Actor::Client, "retry", chosen).unwrap();
    let row = walk.run.clone();
    assert_eq!(walk.command(Actor::Client, "retry", chosen).unwrap_err().code, Code::InvalidTransition);
    assert!(walk.command(Actor::Client, "retry", NOTHING).unwrap().is_repeat(&row));
}

// proves X5: a time to live means nothing where nothing expires, and the sweep goes on
#[test]
fn a_time_to_live_without_an_end_does_nothing() {
    for name in ["job", "operation"] {
        let mut walk = Walk::new(name);
        walk.run.expires_at = Some(walk.now);
        walk.events[0].effect.expires_at = walk.run.expires_at;
        let row = walk.run.clone();
        assert!(walk.later(seconds(9)).sweep().is_repeat(&row), "{name}");
    }
}

// proves X8: a failure is recorded towards a failure, and one that the worker could finish as
#[test]
fn a_failure_is_not_recorded_towards_a_success() {
    for (name, ..) in CANCELLED {
        let mut walk = running(name);
        for to in successes(&walk) {
            let refusal = requires_failing(&mut walk, &to).unwrap_err();
            assert_eq!((refusal.code, &walk.run.intent), (Code::InvalidTransition, &None), "{name} {to}");
        }
    }
    for (name, to) in [("job", "paused"), ("job", "pending"), ("rule", "ROLLED_BACK"), ("cron", "RUNNING")] {
        let mut walk = running(name);
        assert_eq!(requires_failing(&mut walk, to).unwrap_err().code, Code::InvalidTransition, "{name} {to}");
    }
    let mut walk = running("rule");
    let refusal = requires_failing(&mut walk, "nonsense").unwrap_err();
    assert_eq!((refusal.code, refusal.field), (Code::InvalidInput, Some("failing")));
    requires_failing(&mut walk, "PARTIAL").unwrap();
}

// proves X3, X8: what is owed already is not written again, but it is a sign of life
#[test]
fn a_required_cleanup_that_changes_nothing_writes_nothing() {
    let mut walk = running("job");
    for round in 0..3 {
        let events = [
            walk.later(seconds(10)).require_cleanup(W1, true).unwrap().events.len(),
            walk.later(seconds(10)).fail_after_cleanup(W1, "failed", "BROKEN").unwrap().events.len(),
        ];
        assert_eq!(events, if round == 0 { [1, 1] } else { [0, 0] });
        assert_eq!(walk.run.lease.as_ref().unwrap().until, walk.now + seconds(60));
    }
    let other = walk.fail_after_cleanup(W1, "failed", "OTHER").unwrap();
    assert!(other.events.is_empty(), "the first word stands");
    walk.cancel().unwrap();
    let late = walk.fail_after_cleanup(W1, "failed", "BROKEN").unwrap();
    assert!(late.events.is_empty(), "cancel wins, and nothing else is new");
}

// proves C3: only who does not hold a run steals it
#[test]
fn a_finish_to_the_own_state_is_refused() {
    for (name, held) in [("deploy", "running"), ("cron", "RUNNING"), ("job", "running"), ("rule", "APPLYING")]
    {
        let mut walk = running(name);
        walk.later(seconds(1_801));
        let row = walk.run.clone();
        assert_eq!(walk.finish(W1, held).unwrap_err().code, Code::InvalidTransition, "{name}");
        assert_eq!(walk.run, row, "{name}");
    }
}

// proves R1, R3, X8: a recorded failure ends as what the targets say
#[test]
fn a_recorded_failure_that_the_targets_contradict_ends_as_they_say() {
    let cases: [(&[&str], &str, &str); 4] = [
        (&["APPLIED", "QUEUED"], "PARTIAL", "BROKEN"),
        (&["APPLIED", "FAILED"], "PARTIAL", "BROKEN"),
        (&["APPLIED", "APPLIED"], "APPLIED", ""),
        (&["QUEUED", "FAILED"], "FAILED", "BROKEN"),
    ];
    for (targets, end, code) in cases {
        let failing = |recorded| {
            let mut walk = rule(targets);
            walk.fail_after_cleanup(W1, recorded, "BROKEN").unwrap();
            walk.require_cleanup(W1, false).unwrap();
            walk
        };
        for recorded in ["FAILED", "PARTIAL"] {
            let [mut finishes, mut releases, mut dies] = [(); 3].map(|()| failing(recorded));
            for other in ["APPLIED", "PARTIAL", "FAILED"].into_iter().filter(|other| *other != end) {
                let expected = if recorded == end { Code::FailureRecorded } else { Code::InvalidTransition };
                let refusal = finishes.finish(W1, other).unwrap_err();
                assert_eq!(refusal.code, expected, "{targets:?} {recorded} {other}");
            }
            let finish = Finish { to: end, failure: Some(&FAILURE), ..Finish::default() };
            finishes.finish_with(W1, finish).unwrap();
            releases.release(W1).unwrap();
            dies.later(seconds(61)).sweep();
            for walk in [finishes, releases, dies] {
                assert_eq!((walk.state(), walk.code()), (end, code), "{targets:?} {recorded}");
            }
        }
    }
}

// proves X3, R8: a retry is offered only if a target would follow it
#[test]
fn a_retry_is_offered_only_if_something_can_be_retried() {
    let mut walk = rule(&["APPLIED", "FAILED"]);
    walk.finish(W1, "PARTIAL").unwrap();
    let offered = |walk: &Walk| -> Vec<String> {
        waypost_kernel::decide::allowed(&walk.lifecycle, &walk.run).iter().map(ToString::to_string).collect()
    };
    assert_eq!(offered(&walk), ["retry", "rollback", "reconcile"]);
    walk.item_by(Actor::Client, None, 1, ItemAsk { discard: true, ..ItemAsk::default() }).unwrap();
    assert_eq!(offered(&walk), ["rollback", "reconcile"], "what failed was discarded");
    let refusal = walk.command(Actor::Client, "retry", NOTHING).unwrap_err();
    assert_eq!(refusal.guard, Some(Guard::SomeItemOpen));
    assert_eq!(allowed(&refusal), ["rollback", "reconcile"]);

    let mut job = running("job");
    assert_eq!(offered(&job), ["pause", "cancel"], "the reason is the asker's to give");
    job.command(Actor::Operator, "pause", With { reason: Some("why"), ..NOTHING }).unwrap();
    assert_eq!(offered(&job), ["cancel"], "asked already");
    job.finish(W1, "paused").unwrap();
    assert_eq!(offered(&job), ["resume", "cancel"], "so are the resolutions");
}

// proves X3: only the finish that ended the run is known again
#[test]
fn a_token_is_forgotten_by_the_next_move() {
    let fail = Finish { to: "FAILED", retry_in: Some(Span::ZERO), ..Finish::default() };
    let mut cron = Walk::new("cron");
    cron.finish_with(W1, fail).unwrap();
    assert_eq!(cron.run.ended_by, Some(W1));
    cron.claim(W2).unwrap();
    assert_eq!(cron.run.ended_by, None, "claim");
    cron.cancel().unwrap();
    cron.release(W2).unwrap();
    assert_eq!((cron.state(), cron.run.ended_by), ("FAILED", None), "a release is no finish");
    assert_eq!(cron.finish_with(W1, fail).unwrap_err().code, Code::LeaseLost);

    let pause = Finish { to: "paused", reason: Some("why"), ..Finish::default() };
    let mut job = running("job");
    job.finish_with(W1, pause).unwrap();
    assert_eq!(job.run.ended_by, Some(W1));
    job.cancel().unwrap();
    assert_eq!((job.state(), job.run.ended_by), ("cancelled", None));
    assert_eq!(job.finish(W1, "cancelled").unwrap_err().code, Code::LeaseLost, "the client ended it");

    let mut lost = running("deploy");
    lost.later(seconds(61)).sweep();
    assert_eq!((lost.state(), lost.run.ended_by), ("failed", None));
}

// proves X8, C7: the cancel's code and no retry, whatever the finish brings along
#[test]
fn a_cancelled_run_keeps_the_code_of_its_cancel() {
    for (name, end, code) in CANCELLED {
        let finish =
            Finish { to: end, failure: Some(&FAILURE), retry_in: Some(seconds(60)), ..Finish::default() };
        let mut walk = running(name);
        walk.cancel().unwrap();
        walk.finish_with(W1, finish).unwrap();
        assert_eq!((walk.state(), walk.code(), walk.run.available_at), (end, code, None), "{name}");
    }
}

// proves X8: the failure that was recorded before the cleanup, not what came of the cleanup
#[test]
fn a_recorded_failure_stands() {
    for (name, end) in
        [("deploy", "failed"), ("agent", "failed"), ("job", "failed"), ("operation", "partial")]
    {
        let mut walk = running(name);
        walk.fail_after_cleanup(W1, end, "BROKEN").unwrap();
        walk.require_cleanup(W1, false).unwrap();
        let finish = Finish { to: end, failure: Some(&FAILURE), ..Finish::default() };
        walk.finish_with(W1, finish).unwrap();
        assert_eq!((walk.state(), walk.code()), (end, "BROKEN"), "{name}");
    }
}

// proves J6, D8: a worker that gives up by itself is cancelled, in its own words if it has any
#[test]
fn a_workers_own_cancel_has_a_code() {
    for name in ["deploy", "job", "operation"] {
        let mut silent = running(name);
        silent.finish(W1, "cancelled").unwrap();
        assert_eq!(silent.code(), "CANCELLED", "{name}");
        let mut told = running(name);
        let finish = Finish { to: "cancelled", failure: Some(&FAILURE), ..Finish::default() };
        told.finish_with(W1, finish).unwrap();
        assert_eq!(told.code(), "HANDLER_ERROR", "{name}");
        for to in successes(&told) {
            let mut done = running(name);
            done.finish_with(W1, Finish { to: &to, ..finish }).unwrap();
            assert_eq!((done.state(), &done.run.failure), (&*to, &None), "{name}: a success has no failure");
        }
    }
}

// proves C4, C5: an abandoned execution with re-entry and attempts left is not stranded
#[test]
fn an_abandoned_execution_may_be_taken_up_again() {
    for (reentrant, max_attempts, again) in [(true, 2, true), (true, 1, false), (false, 2, false)] {
        let mut walk = Walk::with("cron", &NewRun { max_attempts, reentrant, ..NewRun::default() }, &[]);
        walk.release(W1).unwrap();
        walk.later(seconds(24 * 3_600 + 1)).sweep();
        assert_eq!((walk.state(), walk.code(), walk.log(1)), ("FAILED", "stale_timeout", vec!["lose"]));
        assert_eq!(walk.run.available_at, again.then_some(walk.now));
        assert_eq!(walk.claim(W2).is_ok(), again, "{reentrant} {max_attempts}");
    }
}
