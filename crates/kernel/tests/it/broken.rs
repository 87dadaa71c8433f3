//! Broken lifecycle files are refused with the line, the rule and the mend; none of them makes the loader
//! panic, and what it lets pass is sound.

mod fuzz;
mod hostile;
mod messages;
pub mod mutations;
mod table;
mod table_items;
mod table_rows;
mod table_states;

use std::collections::BTreeSet;

use waypost_kernel::lifecycle::{Problems, RULES};
use waypost_kernel::*;

use crate::shipped::catalog;

/// Loads it, and checks that a refusal says all that a person needs.
fn judge(text: &str, catalog: &Catalog) -> Result<Lifecycle, Problems> {
    let judged = Lifecycle::load(text, catalog);
    if let Err(problems) = &judged {
        assert!(!problems.0.is_empty(), "refused without a word: {text}");
        let lines = text.lines().count().max(1);
        for problem in &problems.0 {
            let known = RULES.iter().any(|(rule, _)| *rule == problem.rule);
            let line = (1..=lines).contains(&problem.line);
            let words = !problem.message.trim().is_empty() && !problem.hint.trim().is_empty();
            assert!(known && line && words, "of {lines} lines, {problem:?} in:\n{text}");
            assert!(!problem.to_string().contains(['\0', '\u{1b}']), "{problem:?}");
            assert!(problem.message.len() < 1_000, "{problem:?}");
        }
        let in_order = problems.0.is_sorted_by_key(|problem| problem.line);
        assert!(in_order && problems.0.len() <= 101, "{problems}");
    }
    judged
}

#[test]
fn more_than_a_hundred_broken_files_are_refused() {
    let catalog = catalog();
    let written: BTreeSet<String> = table::cases().into_iter().map(|case| case.text).collect();
    let mutated: BTreeSet<String> = mutations::all().into_iter().map(|mutation| mutation.text).collect();
    let refused =
        |texts: &BTreeSet<String>| texts.iter().filter(|text| judge(text, &catalog).is_err()).count();
    let (by_hand, by_machine) = (refused(&written), refused(&mutated));
    println!("by hand: {by_hand} refused of {}", written.len());
    println!("by machine: {by_machine} refused of {}", mutated.len());
    assert!(by_hand >= 100 && by_machine >= 1_000, "{by_hand} and {by_machine}");
}
