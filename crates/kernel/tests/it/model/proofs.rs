//! The models, closed: no law is broken in any reachable state, and what should be reachable is.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use super::checker::{Proof, Report};
use super::judge::Judge;
use super::setup::Setup;
use super::setups;

type Reports = HashMap<&'static str, Arc<OnceLock<Report>>>;

/// What the kernel makes of a setup. Explored once, however many tests ask.
pub fn of_the_kernel(setup: Setup) -> Report {
    static REPORTS: LazyLock<Mutex<Reports>> = LazyLock::new(Mutex::default);
    let report = REPORTS.lock().unwrap().entry(setup.name).or_default().clone();
    report.get_or_init(|| Proof::new(setup, Judge::KERNEL).close()).clone()
}

/// `floor` keeps the model from shrinking to nothing unnoticed.
fn prove(setup: Setup, floor: usize) -> Report {
    let report = of_the_kernel(setup);
    assert_eq!(report.broken, []);
    assert_eq!(report.unseen, [""; 0]);
    assert!(report.states >= floor, "{} states", report.states);
    assert!(report.lease_lost > 0, "no write came too late");
    assert!(report.repeated > 0, "no request came twice");
    report
}

// proves D7, D8, X3, X5, X8
#[test]
fn deploy() {
    assert!(prove(setups::deploy(), 1_000).cancel_came_first > 0);
}

// proves D4, D7, X5
#[test]
fn deploy_begun_by_its_claims() {
    assert!(prove(setups::begun_by_claims(), 900).cancel_came_first > 0);
}

// proves X8: a run that requires cleanup ends after it, as it was meant to end
#[test]
fn deploy_with_cleanup() {
    assert!(prove(setups::cleanup(), 5_000).cancel_came_first > 0);
}

// proves X5, X6: what the sweeper saw earlier decides nothing
#[test]
fn deploy_with_a_slow_sweeper() {
    prove(setups::slow_sweeper(), 2_000);
}

// proves C3, C4, C7, X5
#[test]
fn cron() {
    assert!(prove(setups::cron(), 10_000).cancel_came_first > 0);
}

// proves C4: a job without re-entry is failed and not retried by itself
#[test]
fn cron_without_reentry() {
    prove(setups::cron_once(), 1_500);
}

// proves R2, R3, R8, X5
#[test]
fn rule() {
    prove(setups::rule(), 20_000);
}

// proves R8, R10: rolled back with its last target; no retry meanwhile
#[test]
fn rule_with_rollback() {
    prove(setups::rollback(), 5_000);
}

// proves R9: a budget of retries per target
#[test]
fn rule_with_retries_of_a_target() {
    prove(setups::retries(), 2_000);
}

// proves X8, J2: a pause that was asked for is carried out, and a cancel wins over it
#[test]
fn job() {
    prove(setups::job(), 2_000);
}

// proves J5, X8: the cleanup comes first, then what was meant
#[test]
fn job_with_cleanup() {
    prove(setups::job_cleanup(), 5_000);
}

// proves J5, X8: a failed step ends the run's course, whoever has it then
#[test]
fn job_whose_steps_fail() {
    assert!(prove(setups::course(), 5_000).cancel_came_first > 0);
}

// proves R8, X4: of the chosen targets those follow that can, and each of them once
#[test]
fn rule_with_a_chosen_retry() {
    prove_what_is_asked(setups::chosen_retry(), 100);
}

// proves R3: nobody reopens a target under a settled run
#[test]
fn rule_with_a_requeued_target() {
    prove_what_is_asked(setups::requeued_target(), 100);
}

// proves R9: an answer that comes twice does not count for the next try
#[test]
fn rule_with_late_answers() {
    prove_what_is_asked(setups::late_answers(), 500);
}

/// Setups that are about one thing and need not show all the others.
fn prove_what_is_asked(setup: Setup, floor: usize) {
    let report = of_the_kernel(setup);
    assert_eq!(report.broken, []);
    assert!(report.states >= floor, "{} states", report.states);
}
