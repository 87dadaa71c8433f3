//! X5 by name: who counts an attempt, what raises the fence, when a lease ends; C3, C4 and D7 with it.

use super::walk::{Walk, seconds};
use waypost_kernel::request::{Finish, With};
use waypost_kernel::{Actor, Code, Token};

const W1: Token = Token(1);
const W2: Token = Token(2);
const W3: Token = Token(3);

/// Runs whose expired lease the next worker takes over in place.
const TAKEN_OVER: [(&str, &str); 4] =
    [("agent", "failed"), ("job", "failed"), ("rule", "FAILED"), ("operation", "failed")];

/// A claimed run of each lifecycle.
fn claimed(name: &str) -> Walk {
    let mut walk = match name {
        "job" => Walk::with_items("job", "pending", "pending", 2),
        "rule" => Walk::with_items("rule", "QUEUED", "QUEUED", 2),
        _ => Walk::new(name),
    };
    if name == "agent" {
        walk.command(Actor::Engine, "acknowledge", With::default()).unwrap();
    }
    walk.claim(W1).unwrap();
    walk
}

fn numbers(walk: &Walk) -> (u32, u32, u64) {
    (walk.run.attempt, walk.run.take_overs, walk.run.fence)
}

// proves X5
#[test]
fn a_claim_counts_an_attempt_and_raises_the_fence() {
    for name in ["deploy", "agent", "cron", "job", "rule", "operation"] {
        let mut walk = claimed(name);
        assert_eq!(numbers(&walk), (1, 0, 1), "{name}");
        let again = walk.claim(W1).unwrap();
        assert!(again.events.is_empty(), "{name}: the same claim again is answered as the first");
        assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "{name}");
    }
}

// proves X5: a take-over counts no attempt; the sixth expired lease is WORKER_LOST
#[test]
fn five_expired_leases_are_taken_over_and_the_sixth_is_lost() {
    for (name, failed) in TAKEN_OVER {
        let mut walk = claimed(name);
        for taken in 1..=5 {
            walk.dies_and_is_taken_over(Token(u128::from(taken) + 10));
            assert_eq!(numbers(&walk), (1, taken, u64::from(taken) + 1), "{name}");
        }
        walk.later(seconds(61));
        assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "{name}: it is the engine's now");
        walk.sweep();
        assert_eq!((walk.state(), walk.code()), (failed, "WORKER_LOST"), "{name}");
        assert_eq!(walk.run.finished_at, Some(walk.now), "{name}");
        assert!(walk.run.lease.is_none());
    }
}

// proves X5: release leaves a vacant lease, and taking that burns neither attempt nor take-over
#[test]
fn a_released_run_is_taken_over_without_burning_anything() {
    for name in ["deploy", "agent", "cron", "job", "rule", "operation"] {
        let mut walk = claimed(name);
        for round in 2..20 {
            walk.release(Token(round - 1)).unwrap();
            let lease = walk.run.lease.clone().unwrap();
            assert_eq!((lease.worker, lease.until), (None, walk.now), "{name}");
            let late = walk.renew(Token(round - 1)).unwrap_err();
            assert_eq!(late.code, Code::LeaseLost, "{name}: who released has lost it");
            walk.later(seconds(3_600)).sweep();
            walk.claim(Token(round)).unwrap();
            assert_eq!(numbers(&walk), (1, 0, round as u64), "{name}");
        }
    }
}

// proves U6, X5: what waits in nobody's hands is taken when it is due, and nothing is burnt
#[test]
fn a_waiting_run_is_taken_when_its_time_has_come() {
    for name in ["deploy", "agent", "cron", "job", "rule", "operation"] {
        let mut walk = claimed(name);
        walk.wait(W1, seconds(7 * 86_400)).unwrap();
        assert_eq!(walk.run.reason.as_deref(), Some("window"), "{name}");
        walk.later(seconds(7 * 86_400 - 1)).sweep();
        assert_eq!(walk.claim(W2).unwrap_err().code, Code::NotDue, "{name}");
        walk.later(seconds(1));
        walk.claim(W2).unwrap();
        assert_eq!((numbers(&walk), walk.run.reason.clone()), ((1, 0, 2), None), "{name}");
    }
}

// proves U6, X5: the day after which nobody has come begins when the run is due
#[test]
fn a_waiting_run_is_lost_a_day_after_its_time() {
    for (name, _) in TAKEN_OVER {
        let mut walk = claimed(name);
        walk.wait(W1, seconds(3_600)).unwrap();
        assert!(walk.later(seconds(25 * 3_600)).sweep().events.is_empty(), "{name}: not yet");
        walk.later(waypost_kernel::Span::from_micros(1)).sweep();
        assert_eq!(walk.code(), "WORKER_LOST", "{name}");
    }
}

// proves U6, X8: a cancel of a run that waits is carried out at once, or by whoever comes to clean up
#[test]
fn a_waiting_run_is_cancelled_at_once() {
    let mut walk = claimed("job");
    walk.wait(W1, seconds(3_600)).unwrap();
    walk.cancel().unwrap();
    assert_eq!(walk.state(), "cancelled");

    let mut walk = claimed("job");
    walk.require_cleanup(W1, true).unwrap();
    walk.wait(W1, seconds(3_600)).unwrap();
    walk.later(seconds(60)).cancel().unwrap();
    assert_eq!((walk.state(), walk.run.reason.clone()), ("running", None));
    walk.claim(W2).unwrap();
    walk.require_cleanup(W2, false).unwrap();
    walk.finish(W2, "cancelled").unwrap();
}

// proves X5: 24 h without a taker count as lost
#[test]
fn a_vacant_lease_is_lost_after_a_day() {
    let ends = [("deploy", "cancelled", "EXPIRED"), ("cron", "FAILED", "stale_timeout")];
    let taken_over = TAKEN_OVER.map(|(name, failed)| (name, failed, "WORKER_LOST"));
    for (name, ended, code) in ends.into_iter().chain(taken_over) {
        let mut walk = claimed(name);
        walk.release(W1).unwrap();
        assert!(walk.later(seconds(24 * 3_600)).sweep().events.is_empty(), "{name}: not yet");
        walk.later(waypost_kernel::Span::from_micros(1));
        assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "{name}");
        walk.sweep();
        assert_eq!((walk.state(), walk.code()), (ended, code), "{name}");
    }
}

// proves X5, R8: a client's retry counts an attempt, forgets the take-overs, and leaves the lease vacant
#[test]
fn a_retry_into_a_held_state_counts_and_waits_for_a_worker() {
    let mut walk = claimed("rule");
    walk.dies_and_is_taken_over(W2);
    walk.finish(W2, "FAILED").unwrap();
    walk.later(seconds(5)).command(Actor::Client, "retry", With::default()).unwrap();
    assert_eq!((walk.state(), numbers(&walk)), ("APPLYING", (2, 0, 2)));
    assert_eq!((walk.run.finished_at, walk.run.started_at), (None, Some(walk.now)));
    assert!(walk.run.lease.as_ref().unwrap().is_vacant());
    assert!(walk.later(seconds(600)).sweep().events.is_empty(), "stale rules do not apply to it");
    walk.claim(W3).unwrap();
    assert_eq!(numbers(&walk), (2, 0, 3));
    let repeat = walk.command(Actor::Client, "retry", With::default()).unwrap();
    assert!(repeat.events.is_empty(), "the retry that led here, again");
}

// proves X5, C4: a lease that ran out is its holder's until somebody takes it
#[test]
fn an_expired_lease_counts_until_it_is_taken() {
    for name in ["agent", "cron", "job", "rule", "operation"] {
        let mut walk = claimed(name);
        walk.later(seconds(1_801)).sweep();
        walk.renew(W1).unwrap();
        assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "{name}: renewed in time");
        walk.later(seconds(1_801));
        walk.claim(W2).unwrap();
        let refusal = walk.renew(W1).unwrap_err();
        assert_eq!(refusal.code, Code::LeaseLost, "{name}");
        assert_eq!(walk.note(W1).unwrap_err().code, Code::LeaseLost, "{name}");
        assert_eq!(walk.release(W1).unwrap_err().code, Code::LeaseLost, "{name}");
        assert_eq!(walk.require_cleanup(W1, true).unwrap_err().code, Code::LeaseLost, "{name}");
    }
}

// proves D7: the 5 minutes count from the claim and heartbeats do not extend them
#[test]
fn a_deploy_that_never_starts_is_cancelled_after_five_minutes() {
    let mut walk = claimed("deploy");
    for _ in 0..5 {
        walk.later(seconds(60)).renew(W1).unwrap();
        assert!(walk.sweep().events.is_empty(), "at five minutes it is not stale yet");
    }
    walk.later(waypost_kernel::Span::from_micros(1)).sweep();
    assert_eq!((walk.state(), walk.code()), ("cancelled", "EXPIRED"));
    let last = walk.events.last().unwrap();
    assert_eq!((&*last.command, last.actor), ("expire", Actor::Engine));
}

// proves D7: a running run whose lease ran out is failed, WORKER_LOST
#[test]
fn a_deploy_whose_worker_dies_is_lost() {
    let mut walk = claimed("deploy");
    walk.note(W1).unwrap();
    walk.later(seconds(60));
    assert!(walk.sweep().events.is_empty());
    walk.later(waypost_kernel::Span::from_micros(1));
    assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld, "nobody takes over a deploy");
    walk.sweep();
    assert_eq!((walk.state(), walk.code()), ("failed", "WORKER_LOST"));
    assert_eq!(walk.finish(W1, "success").unwrap_err().code, Code::LeaseLost);
}

// proves C3, C4: a steal adds an attempt and rotates the token; at max attempts the row fails
#[test]
fn a_stale_execution_is_stolen_until_its_attempts_are_used() {
    let mut walk = Walk::new("cron");
    for (attempt, token) in [(2, W2), (3, W3)] {
        walk.later(seconds(1_801));
        assert!(walk.sweep().events.is_empty(), "the next worker's, not the engine's");
        walk.claim(token).unwrap();
        assert_eq!(numbers(&walk), (attempt, 0, u64::from(attempt)));
        assert_eq!(walk.log(1), ["steal"]);
        assert_eq!(walk.run.started_at, Some(walk.now));
    }
    assert_eq!(walk.finish(W2, "SUCCESS").unwrap_err().code, Code::LeaseLost);
    walk.later(seconds(1_801));
    assert_eq!(walk.claim(Token(4)).unwrap_err().code, Code::LeaseHeld);
    walk.sweep();
    assert_eq!((walk.state(), walk.code(), walk.run.attempt), ("FAILED", "stale_timeout", 3));
    assert_eq!(walk.run.available_at, None);
}

// proves C4, Decision: a job without re-entry is failed and not retried by itself
#[test]
fn a_stale_execution_without_re_entry_fails_for_good() {
    let new = waypost_kernel::decide::NewRun { max_attempts: 3, reentrant: false, ..Default::default() };
    let mut walk = Walk::with("cron", &new, &[]);
    walk.later(seconds(1_801));
    assert_eq!(walk.claim(W2).unwrap_err().code, Code::LeaseHeld);
    walk.sweep();
    assert_eq!((walk.state(), walk.code()), ("FAILED", "stale_timeout"));
    walk.later(seconds(1_000_000));
    assert_eq!(walk.claim(W2).unwrap_err().code, Code::InvalidTransition);
}

// proves C3: a FAILED row is retried when it is due, at most max times; SUCCESS never reruns
#[test]
fn a_failed_execution_is_retried_when_due() {
    let mut walk = Walk::new("cron");
    for attempt in 1..=3_u32 {
        let token = Token(u128::from(attempt));
        let fail = Finish { to: "FAILED", retry_in: Some(seconds(60)), ..Finish::default() };
        walk.finish_with(token, fail).unwrap();
        if attempt == 3 {
            break;
        }
        let next = Token(u128::from(attempt) + 1);
        assert_eq!(walk.claim(next).unwrap_err().code, Code::NotDue);
        walk.later(seconds(60)).claim(next).unwrap();
        assert_eq!((walk.log(1), walk.run.attempt), (vec!["retry"], attempt + 1));
    }
    assert_eq!(walk.run.available_at, None, "no attempt is left, so no retry time is kept");
    let mut done = Walk::new("cron");
    done.finish(W1, "SUCCESS").unwrap();
    assert_eq!(done.later(seconds(9_999)).claim(W2).unwrap_err().code, Code::InvalidTransition);
}
