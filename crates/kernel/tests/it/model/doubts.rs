//! What the kernel leaves to its callers, or gets wrong: each with the law that it breaks and the shortest way
//! there. A doubt that is settled fails here; its setup then belongs into `proofs`, and what was spared for its
//! sake is spared no longer.

use super::checker::Proof;
use super::judge::Judge;
use super::law::Law;
use super::setup::Setup;
use super::setups;

fn doubt(setup: Setup, law: Law) {
    let name = setup.name;
    let length = Proof::new(setup, Judge::KERNEL).counterexample(law);
    assert!(length.is_some(), "settled: {name} no longer breaks: {}", law.name());
}

// C7, X8: the failure's retry time outlives the cancel, and the run starts again
#[test]
fn a_cancelled_execution_is_retried() {
    doubt(setups::unaware_cron(), Law::Cancel);
}

// C7, A: the worker's code stands where `canceled` should
#[test]
fn a_cancelled_execution_keeps_the_workers_code() {
    doubt(setups::unaware_cron(), Law::CancelCode);
}

// X5: safe only while the server draws `fresh` for each claim that arrives
#[test]
fn a_repeated_claim_revives_its_token() {
    doubt(setups::tokens_of_workers(), Law::Rotates);
}

// R8, X4: safe only while the caller passes failed, undiscarded targets and each of them once
#[test]
fn a_chosen_target_is_counted_without_a_look() {
    doubt(setups::chosen_retry(), Law::Tally);
}

// R3: safe only while nobody moves targets of a settled run except through its `retry`
#[test]
fn a_target_reopens_under_a_settled_run() {
    doubt(setups::requeued_target(), Law::Open);
}

// R9: an item's report does not say which try it answers
#[test]
fn a_repeated_answer_counts_for_the_next_try() {
    doubt(setups::late_answers(), Law::Tries);
}
