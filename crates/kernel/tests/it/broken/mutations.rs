//! Every shipped file, broken by machine in every place: what has to be refused is, and nothing panics.

use waypost_kernel::lifecycle::SHIPPED;
use waypost_testkit::lifecycles::mutations::{self, Mutation};

use super::{catalog, judge};
use crate::examples::RELEASE;

pub fn all() -> Vec<Mutation> {
    mutations::all(SHIPPED.into_iter().chain([("release", RELEASE)]))
}

// proves X1: whatever becomes of a file, it is a lifecycle or it is refused with line, rule and mend
#[test]
fn every_mutation_is_judged() {
    let catalog = catalog();
    let all = all();
    let passed: Vec<&str> = all
        .iter()
        .filter(|mutation| judge(&mutation.text, &catalog).is_ok() && mutation.must_fail)
        .map(|mutation| mutation.what.as_str())
        .collect();
    assert!(passed.is_empty(), "{} of {} should not load:\n{}", passed.len(), all.len(), passed.join("\n"));
}
