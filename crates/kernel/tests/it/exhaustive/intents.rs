//! X8 by name: what somebody wants of a run that another one holds.

use super::walk::{Walk, seconds};
use waypost_kernel::request::With;
use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Code, Token};

const W1: Token = Token(1);
const W2: Token = Token(2);

/// A held run of each lifecycle that has begun its work, and where a cancel leads it.
pub const CANCELLED: [(&str, &str, &str); 6] = [
    ("deploy", "cancelled", "CANCELLED"),
    ("agent", "failed", "CANCELLED"),
    ("cron", "FAILED", "canceled"),
    ("job", "cancelled", "CANCELLED"),
    ("rule", "FAILED", "CANCELLED"),
    ("operation", "cancelled", "CANCELLED"),
];

pub fn running(name: &str) -> Walk {
    let mut walk = match name {
        "job" => Walk::with_items("job", "pending", "pending", 2),
        "rule" => Walk::with_items("rule", "QUEUED", "QUEUED", 2),
        _ => Walk::new(name),
    };
    if name == "agent" {
        walk.command(Actor::Engine, "acknowledge", With::default()).unwrap();
    }
    walk.claim(W1).unwrap();
    walk.note(W1).unwrap();
    walk
}

pub fn successes(walk: &Walk) -> Vec<String> {
    let ok =
        |state: &&waypost_kernel::lifecycle::State| state.outcome == Some(waypost_kernel::Outcome::Succeeded);
    walk.lifecycle.states.iter().filter(ok).map(|state| state.name.to_string()).collect()
}

fn want(walk: &Walk) -> Option<Want> {
    walk.run.intent.as_ref().map(|intent| intent.want)
}

// proves X8: stored for the holder, once; a finish that loses the race is refused; then it is final
#[test]
fn a_finish_that_loses_the_race_to_a_cancel_is_refused() {
    for (name, end, code) in CANCELLED.into_iter().filter(|(name, ..)| *name != "rule") {
        let mut walk = running(name);
        walk.cancel().unwrap();
        assert_eq!(want(&walk), Some(Want::Cancel), "{name}");
        let again = walk.cancel().unwrap();
        assert!(again.events.is_empty(), "{name}: asked already");
        for success in successes(&walk) {
            let refusal = walk.finish(W1, &success).unwrap_err();
            assert_eq!(refusal.code, Code::CancelRequested, "{name}");
        }
        walk.renew(W1).unwrap();
        walk.finish(W1, end).unwrap();
        assert_eq!((walk.state(), walk.code(), want(&walk)), (end, code, None), "{name}");
        assert!(walk.finish(W1, end).unwrap().events.is_empty(), "{name}: X3");
        assert!(walk.cancel().unwrap().events.is_empty(), "{name}: X3, the cancel led here");
    }
}

// proves X8: final even if the holder dies first, and never WORKER_LOST
#[test]
fn a_dead_holder_and_a_cancel_end_as_cancelled() {
    for (name, end, code) in CANCELLED {
        let mut walk = running(name);
        walk.cancel().unwrap();
        walk.later(seconds(1_801));
        assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "{name}: nobody works on it again");
        walk.sweep();
        assert_eq!((walk.state(), walk.code()), (end, code), "{name}");
        assert_eq!(walk.run.available_at, None, "{name}: C7, never retried");
    }
}

// proves X8: honoured at once for work that nobody holds
#[test]
fn a_cancel_of_a_vacant_or_expired_run_is_honoured_at_once() {
    for (name, end, code) in CANCELLED {
        let mut vacant = running(name);
        vacant.release(W1).unwrap();
        let mut expired = running(name);
        expired.later(seconds(1_801));
        for walk in [&mut vacant, &mut expired] {
            walk.cancel().unwrap();
            assert_eq!((walk.state(), walk.code()), (end, code), "{name}");
        }
    }
}

// proves X8: a release carries out what was wanted
#[test]
fn a_release_after_a_cancel_is_the_cancel() {
    for (name, end, code) in CANCELLED {
        let mut walk = running(name);
        walk.cancel().unwrap();
        walk.release(W1).unwrap();
        assert_eq!((walk.state(), walk.code()), (end, code), "{name}");
    }
}

// proves X8, J6: a hard cancel overrides a graceful one, not the other way round
#[test]
fn a_hard_cancel_overrides_a_graceful_one() {
    let mut walk = running("job");
    let graceful = With { graceful: true, ..With::default() };
    walk.command(Actor::Client, "cancel", graceful).unwrap();
    assert!(walk.run.intent.as_ref().unwrap().graceful);
    walk.cancel().unwrap();
    assert!(!walk.run.intent.as_ref().unwrap().graceful);
    assert!(walk.command(Actor::Client, "cancel", graceful).unwrap().events.is_empty());
    assert!(!walk.run.intent.as_ref().unwrap().graceful);
}

// proves X8: cancel wins over pause and over a failure
#[test]
fn cancel_wins() {
    let why = With { reason: Some("window closes"), ..With::default() };
    let mut walk = running("job");
    walk.command(Actor::Operator, "pause", why).unwrap();
    assert_eq!(want(&walk), Some(Want::Pause));
    walk.cancel().unwrap();
    assert_eq!(want(&walk), Some(Want::Cancel));
    let late = walk.command(Actor::Operator, "pause", why).unwrap_err();
    assert_eq!(late.code, Code::CancelRequested);
    walk.fail_after_cleanup(W1, "failed", "BROKEN").unwrap();
    assert_eq!(want(&walk), Some(Want::Cancel));

    let mut failing = running("job");
    failing.fail_after_cleanup(W1, "failed", "BROKEN").unwrap();
    let late = failing.command(Actor::Operator, "pause", why).unwrap_err();
    assert_eq!(late.code, Code::FailureRecorded);
    failing.cancel().unwrap();
    failing.require_cleanup(W1, false).unwrap();
    assert_eq!(failing.finish(W1, "failed").unwrap_err().code, Code::CancelRequested);
    failing.finish(W1, "cancelled").unwrap();
    assert_eq!((failing.state(), failing.code()), ("cancelled", "CANCELLED"));
}

// proves X8: an operator's pause is delivered, or carried out when the holder dies
#[test]
fn a_pause_is_an_intent_too() {
    let why = With { reason: Some("window closes"), ..With::default() };
    let bare = running("job").command(Actor::Operator, "pause", With::default()).unwrap_err();
    assert_eq!(bare.code, Code::InvalidTransition, "J2: a pause needs a reason");
    let mut dies = running("job");
    dies.command(Actor::Operator, "pause", why).unwrap();
    dies.later(seconds(61)).sweep();
    let mut obeys = running("job");
    obeys.command(Actor::Operator, "pause", why).unwrap();
    obeys.finish(W1, "paused").unwrap();
    for walk in [dies, obeys] {
        assert_eq!((walk.state(), walk.run.reason.as_deref()), ("paused", Some("window closes")));
        assert_eq!((want(&walk), walk.run.finished_at), (None, None));
    }
    let mut done = running("job");
    done.command(Actor::Operator, "pause", why).unwrap();
    done.finish(W1, "completed").unwrap();
    assert_eq!(done.state(), "completed", "nothing is left to pause");
}

// proves X8, J5: a run that requires cleanup ends only after it
#[test]
fn owed_cleanup_comes_first() {
    for (name, end, code) in CANCELLED {
        let mut walk = running(name);
        walk.require_cleanup(W1, true).unwrap();
        walk.cancel().unwrap();
        assert_eq!(walk.finish(W1, end).unwrap_err().code, Code::CleanupOwed, "{name}");
        walk.later(seconds(1_801));
        assert!(walk.sweep().events.is_empty(), "{name}: another worker's, for the cleanup alone");
        walk.claim(W2).unwrap();
        assert!(walk.run.requires_cleanup && want(&walk) == Some(Want::Cancel), "{name}");
        for success in successes(&walk) {
            walk.require_cleanup(W2, false).unwrap();
            assert!(walk.finish(W2, &success).is_err(), "{name}: not for more work");
        }
        walk.finish(W2, end).unwrap();
        assert_eq!((walk.state(), walk.code(), walk.run.cleanup_failed), (end, code, false), "{name}");
        assert_eq!(walk.run.attempt, 1, "{name}");
    }
}

// proves X8: while cleanup is owed, a cancel waits for it even if nobody holds the run
#[test]
fn a_cancel_of_a_vacant_run_that_owes_cleanup_waits() {
    let mut walk = running("job");
    walk.require_cleanup(W1, true).unwrap();
    walk.release(W1).unwrap();
    walk.cancel().unwrap();
    assert_eq!((walk.state(), want(&walk)), ("running", Some(Want::Cancel)));
    walk.claim(W2).unwrap();
    walk.require_cleanup(W2, false).unwrap();
    walk.release(W2).unwrap();
    assert_eq!(walk.state(), "cancelled");
}

// proves X8: workers that die in the cleanup are bounded, and the run says that it failed
#[test]
fn a_cleanup_that_kills_its_workers_ends_and_is_marked() {
    for (name, end, code) in CANCELLED {
        let mut walk = running(name);
        walk.require_cleanup(W1, true).unwrap();
        walk.cancel().unwrap();
        let mut deaths = 0;
        while walk.run.lease.is_some() {
            walk.later(seconds(1_801)).sweep();
            deaths += 1;
            let _ = walk.claim(Token(100 + deaths));
            assert!(deaths <= 6, "{name} never ends");
        }
        assert_eq!((walk.state(), walk.code(), walk.run.cleanup_failed), (end, code, true), "{name}");
        assert_eq!((deaths, walk.run.requires_cleanup), (6, false), "{name}: five take-overs, then the end");
    }
}

// proves X8, X5: a lost run cleans up once, with a budget of its own, and then ends as lost
#[test]
fn a_crash_loop_gets_one_bounded_cleanup() {
    let ends = [
        ("deploy", "failed", "WORKER_LOST"),
        ("agent", "failed", "WORKER_LOST"),
        ("cron", "FAILED", "stale_timeout"),
        ("job", "failed", "WORKER_LOST"),
        ("rule", "FAILED", "WORKER_LOST"),
        ("operation", "failed", "WORKER_LOST"),
    ];
    for (name, end, code) in ends {
        for cleans in [true, false] {
            let mut walk = running(name);
            walk.require_cleanup(W1, true).unwrap();
            let mut token = 100;
            while want(&walk).is_none() {
                walk.later(seconds(1_801)).sweep();
                token += 1;
                let _ = walk.claim(Token(token));
                assert!(token < 110, "{name} never gives up");
            }
            assert_eq!((want(&walk), walk.run.take_overs), (Some(Want::Fail), 0), "{name}");
            if cleans {
                walk.require_cleanup(Token(token), false).unwrap();
                for success in successes(&walk) {
                    let late = walk.finish(Token(token), &success).unwrap_err();
                    assert_eq!(late.code, Code::FailureRecorded, "{name}");
                }
                walk.finish(Token(token), end).unwrap();
            }
            while walk.run.lease.is_some() {
                walk.later(seconds(1_801)).sweep();
                token += 1;
                let _ = walk.claim(Token(token));
                assert!(token < 120, "{name} never ends");
            }
            assert_eq!((walk.state(), walk.code()), (end, code), "{name}");
            assert_eq!(walk.run.cleanup_failed, !cleans, "{name}");
        }
    }
}

// proves X8: a failure that requires cleanup keeps its code until the end
#[test]
fn a_recorded_failure_is_carried_out_after_the_cleanup() {
    let mut obeys = running("job");
    obeys.fail_after_cleanup(W1, "failed", "BROKEN").unwrap();
    assert_eq!(obeys.finish(W1, "failed").unwrap_err().code, Code::CleanupOwed);
    obeys.require_cleanup(W1, false).unwrap();
    assert_eq!(obeys.finish(W1, "completed").unwrap_err().code, Code::FailureRecorded);
    obeys.finish(W1, "failed").unwrap();
    let mut dies = running("job");
    dies.fail_after_cleanup(W1, "failed", "BROKEN").unwrap();
    dies.dies_and_is_taken_over(W2);
    dies.require_cleanup(W2, false).unwrap();
    dies.later(seconds(61)).sweep();
    for walk in [obeys, dies] {
        assert_eq!((walk.state(), walk.code(), walk.run.cleanup_failed), ("failed", "BROKEN", false));
    }
}

// proves X8, J5: a vacant cleanup that nobody takes within a day ends, marked
#[test]
fn a_cleanup_that_nobody_takes_on_ends_after_a_day() {
    let mut walk = running("job");
    walk.require_cleanup(W1, true).unwrap();
    walk.cancel().unwrap();
    walk.release(W1).unwrap();
    assert!(walk.later(seconds(86_400)).sweep().events.is_empty());
    walk.later(seconds(1)).sweep();
    assert_eq!((walk.state(), walk.run.cleanup_failed), ("cancelled", true));
}
