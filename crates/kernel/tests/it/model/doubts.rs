//! What the kernel leaves to its callers: each with the law that a careless one would break, so that the warning in
//! the code stays true. If the kernel comes to see to it itself, this fails, and the setup belongs into `proofs`.

use super::checker::Proof;
use super::judge::Judge;
use super::law::Law;
use super::setup::Setup;
use super::setups;

fn left_to_the_caller(setup: Setup, law: Law) {
    let name = setup.name;
    let length = Proof::new(setup, Judge::KERNEL).counterexample(law);
    assert!(length.is_some(), "settled: {name} no longer breaks: {}", law.name());
}

// X5: safe only while the server draws `fresh` for each claim that arrives
#[test]
fn a_repeated_claim_revives_its_token() {
    left_to_the_caller(setups::tokens_of_workers(), Law::Rotates);
}
