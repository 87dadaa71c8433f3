//! Playbooks: what is sound loads and means what it says; what is not is refused with file, line, field and mend.

mod asking;
mod bad;
mod bad_actions;
mod bad_values;
mod design;
mod docs;
mod generated;
mod mutations;
mod rendering;
mod windows;

use std::path::Path;

use waypost_worker::playbook::{Playbook, Problems, RULES};

pub const CLUSTER: &str = include_str!("../data/cluster.toml");
pub const PRICES: &str = include_str!("../data/prices.toml");
const FILE: &str = "playbooks/test.toml";

pub fn parse(text: &str) -> Playbook {
    judge(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Parses it, and checks that a refusal says all that a person needs.
pub fn judge(text: &str) -> Result<Playbook, Problems> {
    let judged = Playbook::parse(text, Path::new(FILE));
    if let Err(problems) = &judged {
        assert!(!problems.0.is_empty(), "refused without a word: {text}");
        let lines = text.lines().count().max(1);
        for problem in &problems.0 {
            let known = RULES.iter().any(|(rule, _)| *rule == problem.rule);
            let placed = problem.file == Path::new(FILE) && (1..=lines).contains(&problem.line);
            let words = !problem.message.trim().is_empty() && !problem.hint.trim().is_empty();
            assert!(known && placed && words, "of {lines} lines, {problem:?} in:\n{text}");
            // Only of the file as a whole there is no field to name.
            let whole = ["syntax", "too-large", "too-many-problems", "nothing-to-do"].contains(&problem.rule);
            assert!(whole || !problem.field.is_empty(), "{problem:?}");
            assert!(problem.to_string().starts_with("playbooks/test.toml:"), "{problem}");
            assert!(!problem.to_string().contains(['\0', '\u{1b}', '\u{202e}']), "{problem:?}");
            assert!(problem.message.len() < 1_000 && problem.hint.len() < 8_000, "{problem:?}");
        }
        let in_order = problems.0.is_sorted_by_key(|problem| problem.line);
        assert!(in_order && problems.0.len() <= 101, "{problems}");
    }
    judged
}
